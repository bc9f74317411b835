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
	join := func(user int, from float64, out result) porcupine.Operation {
		return o(step{act: joins, user: user}, from, from+0.1, out)
	}
	stand := func(user, order int, from float64, out result) porcupine.Operation {
		return o(step{stands, user, order}, from, from+0.1, out)
	}
	look := func(user, order int, from float64) porcupine.Operation {
		return o(step{looks, user, order}, from, from+0.1, map[bool]result{false: none, true: yes}[order > 0])
	}
	began, over := o(step{act: begins}, 1.5, 1.8, yes), o(step{act: ends}, 1.5, 1.8, yes)
	gives := o(step{cancels, 0, 1}, 3.5, 3.6, yes)
	three := []porcupine.Operation{buy(0, 1, 0, 1, yes), buy(1, 2, 0, 1, yes), buy(2, 3, 0, 1, yes)}
	for _, test := range []struct {
		name    string
		history []porcupine.Operation
		legal   bool
		rules   rules
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
		{name: "cooling down", history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(0, 0, 3, 3.1, cooling)), legal: true, rules: rules{cools: true}},
		{name: "cooling down, and sold out", history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(4, 5, 2.2, 2.3, yes), buy(0, 0, 3, 3.1, cooling)), legal: true, rules: rules{cools: true}},
		{name: "cooling down without a cool-down", history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(0, 0, 3, 3.1, cooling))},
		{name: "cooling down for somebody else", history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(3, 0, 3, 3.1, cooling)), rules: rules{cools: true}},
		{name: "cooling down with an order", history: append(three, buy(0, 0, 3, 3.1, cooling)), rules: rules{cools: true}},
		{name: "again, not cooled down", history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(0, 5, 3, 3.1, yes)), rules: rules{cools: true}},
		{name: "the unit of who cancels is of who waits first", history: append(three, join(3, 1.5, yes), join(4, 2, yes), gives,
			stand(3, 4, 4, yes), stand(4, 0, 4, waiting), o(step{looks, 3, 4}, 9, 9.1, yes), o(step{looks, 0, 0}, 9, 9.1, none)), legal: true, rules: rules{waits: true}},
		{name: "it is of who waits second", history: append(three, join(3, 1.5, yes), join(4, 2, yes), gives, stand(4, 4, 4, yes)), rules: rules{waits: true}},
		{name: "it is the open sale's", history: append(three, join(3, 1.5, yes), gives, buy(5, 4, 4, 4.1, yes)), rules: rules{waits: true}},
		{name: "it is of both", history: append(three, join(3, 1.5, yes), gives, stand(3, 4, 4, yes), buy(5, 5, 4, 4.1, yes)), rules: rules{waits: true}},
		{name: "it is nobody's", history: append(three, join(3, 1.5, yes), gives, stand(3, 0, 4, waiting)), rules: rules{waits: true}},
		{name: "of who waited and left", history: append(three, join(3, 1.5, yes), join(4, 2, yes), o(step{resigns, 3, 0}, 2.5, 2.6, yes), gives, stand(4, 4, 4, yes)), legal: true, rules: rules{waits: true}},
		{name: "who has left is served", history: append(three, join(3, 1.5, yes), o(step{resigns, 3, 0}, 2.5, 2.6, yes), gives, buy(3, 4, 4, 4.1, already)), rules: rules{waits: true}},
		{name: "a place, whose order is given back", history: append(three, join(3, 1.5, yes), gives, stand(3, 4, 4, yes), o(step{cancels, 3, 4}, 5, 5.1, yes), stand(3, 4, 6, yes)), legal: true, rules: rules{waits: true}},
		{name: "who cancels is last", history: append(three, join(3, 1.5, yes), join(4, 2, yes), gives, join(0, 4, yes), o(step{act: raises}, 5, 5.1, yes), stand(0, 4, 6, yes)), rules: rules{waits: true}},
		{name: "added, and for the open sale", history: append(three, join(3, 1.5, yes), o(step{act: raises}, 2, 2.1, yes), buy(4, 4, 3.2, 3.3, yes)), rules: rules{waits: true}},
		{name: "a place that was an order before its user heard of it", history: append(three, o(step{joins, 3, 4}, 1.5, 4, already), o(step{cancels, 0, 1}, 2, 2.1, yes), look(3, 4, 9)), legal: true, rules: rules{waits: true}},
		{name: "a place that is an order although nobody gave a unit back", history: append(three, o(step{joins, 3, 4}, 1.5, 4, already), look(3, 4, 9)), rules: rules{waits: true}},
		{name: "a place after its user has heard that there is none", history: append(three, o(step{joins, 2, 3}, 1.5, 1.6, already), o(step{cancels, 2, 3}, 2, 2.1, yes), stand(2, 0, 3, waiting)), rules: rules{waits: true}},
		{name: "waiting with an order", history: append(three, join(0, 1.5, yes)), rules: rules{waits: true}},
		{name: "waiting while a unit is left", history: append(three[:2:2], join(3, 1.5, yes)), rules: rules{waits: true}},
		{name: "units are free", history: append(three[:2:2], join(3, 1.5, free)), legal: true, rules: rules{waits: true}},
		{name: "no unit is free", history: append(three, join(3, 2.5, free)), rules: rules{waits: true}},
		{name: "not started for a stranger, and then sold", history: []porcupine.Operation{buy(2, 0, 0, 1, early), began, buy(2, 1, 2, 3, yes)}, legal: true, rules: rules{early: true}},
		{name: "sold to a stranger before it begins", history: []porcupine.Operation{buy(2, 1, 0, 1, yes), began}, rules: rules{early: true}},
		{name: "sold out for a stranger before it begins", history: append(three[:2:2], buy(3, 3, 0, 1, yes), buy(5, 0, 1.2, 1.3, soldOut), began), rules: rules{early: true}},
		{name: "a stranger waits before it begins", history: append(three[:2:2], buy(3, 3, 0, 1, yes), join(5, 1.1, yes), began), rules: rules{early: true, waits: true}},
		{name: "not started after the beginning", history: []porcupine.Operation{began, buy(2, 0, 2, 3, early)}, rules: rules{early: true}},
		{name: "not started for who begins early", history: []porcupine.Operation{buy(0, 0, 0, 1, early), began}, rules: rules{early: true}},
		{name: "entered, looked at, and ended", history: []porcupine.Operation{buy(0, 1, 0, 1, yes), look(0, 1, 1.2), buy(0, 1, 1.3, 1.4, yes), over, buy(1, 0, 3, 4, late), look(0, 1, 9), look(1, 0, 9)}, legal: true, rules: rules{draws: true}},
		{name: "more entries than units", history: append(three, buy(3, 4, 0, 1, yes)), legal: true, rules: rules{draws: true}},
		{name: "another entry of the same user", history: []porcupine.Operation{buy(0, 1, 0, 1, yes), buy(0, 2, 1.1, 1.2, yes)}, rules: rules{draws: true}},
		{name: "entered after the end", history: []porcupine.Operation{over, buy(0, 1, 3, 4, yes)}, rules: rules{draws: true}},
		{name: "ended before the end", history: []porcupine.Operation{buy(0, 0, 0, 1, late), over}, rules: rules{draws: true}},
		{name: "entered, and not on the list", history: []porcupine.Operation{buy(0, 1, 0, 1, yes), over, look(0, 0, 9)}, rules: rules{draws: true}},
		{name: "entered, and lost with Redis", history: []porcupine.Operation{buy(0, 0, 0, 1, unknown), buy(0, 1, 1.1, 1.2, yes), o(step{act: forgets}, 1.3, 1.4, yes), look(0, 0, 9)}, rules: rules{draws: true}},
		{name: "an entry that was told after an unknown one", history: []porcupine.Operation{buy(0, 0, 0, 9, unknown), look(0, 1, 2), buy(0, 1, 3, 4, yes), look(0, 1, 9.5)}, legal: true, rules: rules{draws: true}},
		{name: "an entry of nobody", history: []porcupine.Operation{look(0, 0, 9), look(0, 1, 9.2)}, rules: rules{draws: true}},
		{name: "promised, and lost with Redis", history: []porcupine.Operation{
			buy(0, 1, 0, 1, yes), o(step{act: forgets}, 4, 5, yes), o(step{looks, 0, 0}, 10, 11, none),
		}, legal: false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			follows := recorded{test.history, test.rules}.follows(0)
			if got := follows == porcupine.Ok && ownersAreTold(test.history); got != test.legal {
				t.Errorf("legal: %v, want %v", got, test.legal)
			}
		})
	}
}
