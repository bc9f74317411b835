//go:build faults

//part:weather

package e2e_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// TestSaleModel gives the check histories that it must accept or refuse; times are in
// seconds.
func TestSaleModel(t *testing.T) {
	t.Parallel()
	o := func(in step, from, to float64, out result) porcupine.Operation {
		second := float64(time.Second)
		return operation(in, time.Duration(from*second), time.Duration(to*second), out)
	}
	buy := func(user, order int, from, to float64, out result) porcupine.Operation {
		return o(step{buys, user, order}, from, to, out)
	}
	three := []porcupine.Operation{buy(0, 1, 0, 1, yes), buy(1, 2, 0, 1, yes), buy(2, 3, 0, 1, yes)}
	for _, test := range []struct {
		name    string
		history []porcupine.Operation
		legal   bool
		cools   bool
	}{
		{name: "sold out after the last unit", history: append(three, buy(3, 0, 2, 3, soldOut)), legal: true},
		{name: "sold out with a unit left", history: append(three[:2:2], buy(3, 0, 2, 3, soldOut)), legal: false},
		{name: "sold out within the grace", history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(3, 0, 3, 3.1, soldOut)), legal: true},
		{name: "sold out behind the grace", history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(3, 0, 3.2, 3.3, soldOut)), legal: false},
		{name: "sold out before the last unit", history: append(three[:2:2], buy(3, 0, 1.5, 1.9, soldOut), buy(2, 3, 2, 3, yes)), legal: false},
		{name: "sold out in turns", history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(3, 0, 3, 3.05, soldOut), buy(3, 4, 3.1, 3.2, yes), buy(4, 0, 4, 4.1, soldOut)), legal: true},
		{name: "sold out to the owner of an order", history: append(three, buy(2, 0, 2, 3, soldOut)), legal: false},
		{name: "sold out to an owner who has canceled", history: append(three, o(step{cancels, 2, 3}, 2, 2.1, yes), buy(2, 0, 3, 3.1, soldOut)), legal: true},
		{name: "sold out behind a restock", history: append(three, o(step{act: raises}, 2, 2.1, yes), buy(3, 0, 3.2, 3.3, soldOut)), legal: false},
		{name: "one more after a restock", history: append(three, o(step{act: raises}, 2, 2.1, yes), buy(3, 4, 3.2, 3.3, yes)), legal: true},
		{name: "one less, and oversold", history: append(three[:2:2], o(step{act: lowers}, 2, 2.1, yes), buy(3, 4, 3.2, 3.3, yes)), legal: false},
		{name: "refused to have less of nothing", history: append(three, o(step{act: lowers}, 2, 2.1, soldOut)), legal: true},
		{name: "refused with a unit left", history: append(three[:2:2], o(step{act: lowers}, 2, 2.1, soldOut)), legal: false},
		{name: "oversold", history: append(three, buy(3, 4, 2, 3, yes)), legal: false},
		{name: "twice to one user", history: []porcupine.Operation{buy(0, 1, 0, 1, yes), buy(0, 2, 2, 3, yes)}, legal: false},
		{name: "again after a cancel", history: []porcupine.Operation{buy(0, 1, 0, 1, yes), o(step{cancels, 0, 1}, 1.5, 1.6, yes), buy(0, 2, 2, 3, yes)}, legal: true},
		{name: "another's order", history: []porcupine.Operation{buy(0, 1, 0, 1, yes), buy(0, 2, 2, 3, already)}, legal: false},
		{name: "unknown, and it happened", history: []porcupine.Operation{buy(0, 0, 0, 9, unknown), buy(0, 1, 2, 3, already), o(step{looks, 0, 1}, 10, 11, yes)}, legal: true},
		{name: "unknown, and it did not", history: []porcupine.Operation{buy(0, 0, 0, 9, unknown), buy(0, 1, 2, 3, yes), o(step{looks, 0, 1}, 10, 11, yes)}, legal: true},
		{name: "a broken promise", history: []porcupine.Operation{buy(0, 1, 0, 1, yes), o(step{looks, 0, 0}, 10, 11, none)}, legal: false},
		{name: "a promise for another order", history: []porcupine.Operation{buy(0, 0, 0, 9, unknown), buy(0, 1, 2, 3, yes), o(step{looks, 0, 2}, 10, 11, yes)}, legal: false},
		{name: "lost with Redis", history: []porcupine.Operation{
			buy(0, 0, 0, 1, unknown), buy(0, 1, 2, 3, already), o(step{act: forgets}, 4, 5, yes), o(step{looks, 0, 0}, 10, 11, none),
		}, legal: true},
		{name: "cooling down", history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(0, 0, 3, 3.1, cooling)), legal: true, cools: true},
		{name: "cooling down, and sold out", history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(4, 5, 2.2, 2.3, yes), buy(0, 0, 3, 3.1, cooling)), legal: true, cools: true},
		{name: "cooling down without a cool-down", history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(0, 0, 3, 3.1, cooling))},
		{name: "cooling down for somebody else", history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(3, 0, 3, 3.1, cooling)), cools: true},
		{name: "cooling down with an order", history: append(three, buy(0, 0, 3, 3.1, cooling)), cools: true},
		{name: "again, not cooled down", history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(0, 5, 3, 3.1, yes)), cools: true},
		{name: "promised, and lost with Redis", history: []porcupine.Operation{
			buy(0, 1, 0, 1, yes), o(step{act: forgets}, 4, 5, yes), o(step{looks, 0, 0}, 10, 11, none),
		}, legal: false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := porcupine.CheckOperations(saleModel(historyStock, test.cools), windows(test.history)) && ownersAreTold(test.history); got != test.legal {
				t.Errorf("legal: %v, want %v", got, test.legal)
			}
		})
	}
}
