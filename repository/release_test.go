package repository_test

import (
	"slices"
	"testing"

	"seckill/model"
)

// TestReleases: oldest first, and gone once they are done, by id or by order.
func TestReleases(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		var orders []string
		for i := range 5 {
			row, err := f.orders.Fail(t.Context(), reservation(t, "somevoucher", user(i), 1, 1), model.ReasonUnprocessable)
			must(t, err)
			orders = append(orders, row.ID)
		}
		list, err := f.releases.After(t.Context(), model.Release{}, 3)
		must(t, err)
		if len(list) != 3 || list[0].OrderID != orders[0] || list[2].OrderID != orders[2] || list[1].UserID != user(1) {
			t.Fatalf("%+v", list)
		}
		rest, err := f.releases.After(t.Context(), list[2], 100)
		must(t, err)
		if len(rest) != 2 || rest[0].OrderID != orders[3] {
			t.Errorf("%+v", rest)
		}
		for range 2 { // again: nothing
			must(t, f.releases.Done(t.Context(), []int64{list[2].ID, list[0].ID, 1 << 40}))
			must(t, f.releases.DoneOrders(t.Context(), []string{orders[4], "absent", "no id!"}))
			if left := f.outbox(t); !slices.Equal(left, []string{orders[1], orders[3]}) {
				t.Errorf("left %v of %v", left, orders)
			}
		}
		must(t, f.releases.Done(t.Context(), nil))
		must(t, f.releases.DoneOrders(t.Context(), nil))
	})
}
