package repository_test

import (
	"testing"

	"seckill/model"
)

// TestRepairStock while orders are made and canceled: no unit is lost or made up.
func TestRepairStock(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 200)
		var sold []model.Order
		for i := range 20 {
			outcome := f.place(t, order(t, v.ID, user(i)))
			must(t, outcome.Err)
			sold = append(sold, outcome.Order)
		}
		f.exec(t, "UPDATE vouchers SET remaining = 150 WHERE id = ?", v.ID) // 30 units have leaked
		volley(61, func(i int) {
			switch {
			case i == 60:
				found, err := f.vouchers.RepairStock(t.Context(), v.ID)
				must(t, err)
				if found == nil || found.Stock-found.Remaining-found.LiveOrders != 30 {
					t.Errorf("found %+v, want a difference of 30", found)
				}
			case i < 20:
				_, _, err := f.orders.Cancel(t.Context(), sold[i].UserID, sold[i].ID)
				must(t, err)
			default:
				must(t, f.place(t, order(t, v.ID, user(i))).Err)
			}
		})
		f.balanced(t, v.ID, 40)
		if found, err := f.vouchers.RepairStock(t.Context(), v.ID); err != nil || found != nil {
			t.Errorf("of what adds up: %+v, %v", found, err)
		}
		_, err := f.vouchers.RepairStock(t.Context(), "nope")
		wantCode(t, err, model.CodeNotFound)
	})
}
