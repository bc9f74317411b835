package repository_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

// TestUnitsAreTakenTogether: one statement takes the units of many vouchers, unless one of them keeps the others waiting.
func TestUnitsAreTakenTogether(t *testing.T) {
	t.Parallel()
	for _, strategy := range mysqlStrategies() {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			const vouchers = 205 // more than two statements' worth
			var statements atomic.Int64
			near, far := throughWire(t, strategy, func(_ *wire, statement string) verdict {
				if strings.HasPrefix(statement, "UPDATE vouchers") {
					statements.Add(1)
				}
				return pass
			})
			ids := make([]string, vouchers)
			for i := range ids {
				ids[i] = near.onSale(t, int64(i%4)).ID // every fourth has nothing left
			}
			sold := make([]int64, vouchers)
			round := func(ids ...string) (taken int64) {
				var orders []model.Order
				for _, id := range ids {
					orders = append(orders, order(t, id, newID(t)))
				}
				for i, outcome := range far.create(t, orders...) {
					if outcome.Err == nil {
						sold[i]++
						continue
					}
					wantCode(t, outcome.Err, model.CodeSoldOut)
				}
				return statements.Swap(0)
			}
			round(ids...)
			for i := range ids {
				near.balanced(t, ids[i], sold[i])
				check.Equal(t, "sold", sold[i], min(1, int64(i%4)))
			}
			full := []string{near.onSale(t, 9).ID, near.onSale(t, 9).ID, near.onSale(t, 9).ID}
			check.Equal(t, "statements for three", round(full...), 1)

			tx, hasty := near.begin(t), far.hasty(t)
			execTx(t, tx, "UPDATE vouchers SET version = version + 1 WHERE id = ?", full[1])
			err := check.ErrorOf(hasty.orders.CreateOrders(t.Context(), []model.Order{order(t, full[0], "alice"), order(t, full[1], "alice")}))
			wantCode(t, err, model.CodeUnavailable)
			check.Must(t, tx.Rollback())
			statements.Store(0)
			far = hasty
			want := int64(3)
			if strategy == repository.StockPessimistic { // whose rows are locked before
				want = 1
			}
			check.Equal(t, "statements for three after one was held", round(full...), want)
		})
	}
}
