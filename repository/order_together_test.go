package repository_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

// TestUnitsAreTakenTogether: one statement takes the units of many vouchers.
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
			far.asIn(t, "") // which has not seen how long the statements of a busy machine take
			full := []string{near.onSale(t, 9).ID, near.onSale(t, 9).ID, near.onSale(t, 9).ID}
			check.Equal(t, "statements for three", round(full...), 1)
		})
	}
}

// TestASlowStatementIsLookedInto: where somebody waits for the answer, it is found out whose row keeps all of them waiting. Nobody
// waits for orders of the queue, which go on sharing statements.
func TestASlowStatementIsLookedInto(t *testing.T) {
	t.Parallel()
	var statements atomic.Int64
	var takes atomic.Bool
	near, far := throughWire(t, model.StockConditional, func(_ *wire, statement string) verdict {
		if strings.HasPrefix(statement, "UPDATE vouchers") {
			statements.Add(1)
			if takes.Load() {
				<-time.After(repository.SlowTaking)
			}
		}
		return pass
	})
	store := map[model.OrderMode]func(ids []string) []model.Outcome{
		model.ModeSync: func(ids []string) []model.Outcome {
			return far.create(t, order(t, ids[0], newID(t)), order(t, ids[1], newID(t)))
		},
		model.ModeAsync: func(ids []string) []model.Outcome {
			return far.persist(t, reservation(t, ids[0], newID(t), 1, 1), reservation(t, ids[1], newID(t), 1, 1))
		},
	}
	want := map[model.OrderMode]int64{model.ModeSync: 2, model.ModeAsync: 1}
	for _, mode := range []model.OrderMode{model.ModeSync, model.ModeAsync} {
		far.asIn(t, mode)
		ids := []string{near.onSale(t, 9).ID, near.onSale(t, 9).ID}
		if mode == model.ModeAsync {
			near.switchTo(t, mode)
			near.opened(t, ids[0])
			near.opened(t, ids[1])
		}
		for _, slow := range []bool{true, false} {
			takes.Store(slow)
			statements.Store(0)
			for _, outcome := range store[mode](ids) {
				check.Must(t, outcome.Err)
			}
		}
		check.Equal(t, "statements after a slow one, "+string(mode), statements.Load(), want[mode])
	}
}
