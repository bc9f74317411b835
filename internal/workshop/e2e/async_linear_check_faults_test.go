//go:build faults

//part:weather

package e2e_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// TestSaleModel shows the check histories that it must tell apart; times are in
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
	}{
		{"sold out after the last unit", append(three, buy(3, 0, 2, 3, soldOut)), true},
		{"sold out with a unit left", append(three[:2:2], buy(3, 0, 2, 3, soldOut)), false},
		{"sold out within the grace", append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(3, 0, 3, 3.1, soldOut)), true},
		{"sold out behind the grace", append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(3, 0, 3.2, 3.3, soldOut)), false},
		{"sold out before the last unit", append(three[:2:2], buy(3, 0, 1.5, 1.9, soldOut), buy(2, 3, 2, 3, yes)), false},
		{"sold out in turns", append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(3, 0, 3, 3.05, soldOut), buy(3, 4, 3.1, 3.2, yes), buy(4, 0, 4, 4.1, soldOut)), true},
		{"sold out to the owner of an order", append(three, buy(2, 0, 2, 3, soldOut)), false},
		{"sold out to an owner who has canceled", append(three, o(step{cancels, 2, 3}, 2, 2.1, yes), buy(2, 0, 3, 3.1, soldOut)), true},
		{"sold out behind a restock", append(three, o(step{act: raises}, 2, 2.1, yes), buy(3, 0, 3.2, 3.3, soldOut)), false},
		{"one more after a restock", append(three, o(step{act: raises}, 2, 2.1, yes), buy(3, 4, 3.2, 3.3, yes)), true},
		{"one less, and oversold", append(three[:2:2], o(step{act: lowers}, 2, 2.1, yes), buy(3, 4, 3.2, 3.3, yes)), false},
		{"refused to have less of nothing", append(three, o(step{act: lowers}, 2, 2.1, soldOut)), true},
		{"refused with a unit left", append(three[:2:2], o(step{act: lowers}, 2, 2.1, soldOut)), false},
		{"oversold", append(three, buy(3, 4, 2, 3, yes)), false},
		{"twice to one user", []porcupine.Operation{buy(0, 1, 0, 1, yes), buy(0, 2, 2, 3, yes)}, false},
		{"again after a cancel", []porcupine.Operation{buy(0, 1, 0, 1, yes), o(step{cancels, 0, 1}, 1.5, 1.6, yes), buy(0, 2, 2, 3, yes)}, true},
		{"another's order", []porcupine.Operation{buy(0, 1, 0, 1, yes), buy(0, 2, 2, 3, already)}, false},
		{"unknown, and it happened", []porcupine.Operation{buy(0, 0, 0, 9, unknown), buy(0, 1, 2, 3, already), o(step{looks, 0, 1}, 10, 11, yes)}, true},
		{"unknown, and it did not", []porcupine.Operation{buy(0, 0, 0, 9, unknown), buy(0, 1, 2, 3, yes), o(step{looks, 0, 1}, 10, 11, yes)}, true},
		{"a broken promise", []porcupine.Operation{buy(0, 1, 0, 1, yes), o(step{looks, 0, 0}, 10, 11, none)}, false},
		{"a promise for another order", []porcupine.Operation{buy(0, 0, 0, 9, unknown), buy(0, 1, 2, 3, yes), o(step{looks, 0, 2}, 10, 11, yes)}, false},
		{"lost with Redis", []porcupine.Operation{
			buy(0, 0, 0, 1, unknown), buy(0, 1, 2, 3, already), o(step{act: forgets}, 4, 5, yes), o(step{looks, 0, 0}, 10, 11, none),
		}, true},
		{"promised, and lost with Redis", []porcupine.Operation{
			buy(0, 1, 0, 1, yes), o(step{act: forgets}, 4, 5, yes), o(step{looks, 0, 0}, 10, 11, none),
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := porcupine.CheckOperations(saleModel(historyStock), windows(test.history)) && ownersAreTold(test.history); got != test.legal {
				t.Errorf("legal: %v, want %v", got, test.legal)
			}
		})
	}
}
