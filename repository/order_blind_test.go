package repository_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestNewOrdersAreNotLookedFor: orders that are new cost no question whether they are
// there, and what is there already decides all the same.
func TestNewOrdersAreNotLookedFor(t *testing.T) {
	t.Parallel()
	for _, strategy := range mysqlStrategies() {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			var looks, inserts atomic.Int64
			near, far := throughWire(t, strategy, func(_ *wire, statement string) verdict {
				switch {
				case strings.Contains(statement, "FROM orders"):
					looks.Add(1)
				case strings.HasPrefix(statement, "INSERT INTO orders"):
					inserts.Add(1)
				}
				return pass
			})
			told := func(what string, wantLooks, wantInserts int64) {
				t.Helper()
				check.Equal(t, "looks, "+what, looks.Swap(0), wantLooks)
				check.Equal(t, "inserts, "+what, inserts.Swap(0), wantInserts)
			}
			v := near.onSale(t, 100)
			asked := []model.Order{order(t, v.ID, "alice"), order(t, v.ID, "bob"), order(t, v.ID, "carol")}
			for _, outcome := range far.create(t, asked...) {
				check.Must(t, outcome.Err)
			}
			told("of new orders", 0, 1)

			// One that was made, one of a user who has one, and one that is new.
			outcomes := far.create(t, asked[0], order(t, v.ID, "bob"), order(t, v.ID, "dave"))
			if o := outcomes[0]; o.Err != nil || o.Created || o.Order.ID != asked[0].ID {
				t.Errorf("the order that was there: %+v", o)
			}
			wantCode(t, outcomes[1].Err, model.CodeAlreadyOrdered)
			if o := outcomes[2]; o.Err != nil || !o.Created {
				t.Errorf("the new order: %+v", o)
			}
			told("with a duplicate", 1, 2)
			near.balanced(t, v.ID, 4)

			// Where users ask again they will again; after a while it is tried without.
			check.Must(t, far.place(t, order(t, v.ID, "erin")).Err)
			told("after a duplicate", 1, 1)
			for range 40 {
				check.Must(t, far.place(t, order(t, v.ID, newID(t))).Err)
			}
			inserts.Store(0)
			if n := looks.Swap(0); n == 0 || n == 40 {
				t.Errorf("%d of 40 orders after a duplicate were looked for", n)
			}

			// Where somebody gets none, it must be known why.
			wantCode(t, far.place(t, order(t, near.onSale(t, 0).ID, "alice")).Err, model.CodeSoldOut)
			told("of a sold-out voucher", 1, 0)
		})
	}
}
