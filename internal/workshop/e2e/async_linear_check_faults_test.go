//go:build faults

//part:weather

package e2e_test

import (
	"fmt"
	"maps"
	"time"

	"github.com/anishathalye/porcupine"

	"seckill/internal/workshop/check"
)

// recorded is a history, and what it must be like.
type recorded struct {
	operations []porcupine.Operation
	rules      rules
}

// shelves are all that may be at an instant.
type shelves map[shelf]bool

// add adds one, and those on which steps that are in doubt have happened since, in any order.
func (all shelves) add(one shelf, doubtful []step) {
	if one.left == 0 {
		one.windows = 0
	}
	if all[one] {
		return
	}
	all[one] = true
	for n, in := range doubtful {
		if one.doubts&(1<<n) == 0 {
			continue
		}
		for _, next := range one.next(in, unknown) {
			if next != one {
				next.doubts &^= 1 << n
				all.add(next, doubtful)
			}
		}
	}
}

// sale is the sequential specification of the voucher's sale, and the history as it is compared with it.
func (r recorded) sale() (porcupine.Model, []porcupine.Operation) {
	operations, doubtful := instants(r.operations)
	return porcupine.Model{
		Init: func() any { return shelves{{left: historyStock, rules: r.rules}: true} },
		Step: func(state, input, output any) (bool, any) {
			after := shelves{}
			for one := range state.(shelves) {
				for _, next := range one.next(input.(step), output.(result)) {
					after.add(next, doubtful)
				}
			}
			return len(after) > 0, after
		},
		Equal:             func(a, b any) bool { return maps.Equal(a.(shelves), b.(shelves)) },
		DescribeOperation: describe,
	}, operations
}

func describe(input, output any) string {
	in := input.(step)
	return fmt.Sprintf("user %d %s: %s (order %d)", in.user, in.act, output, in.order)
}

// follows reports whether a history follows its specification; Unknown: that was not decided in time.
func (r recorded) follows(within time.Duration) porcupine.CheckResult {
	specification, operations := r.sale()
	return porcupine.CheckOperationsTimeout(specification, operations, within)
}

// String implements fmt.Stringer.
func (r recorded) String() string {
	text := ""
	for _, o := range r.operations {
		text += fmt.Sprintf("  %8.3f – %8.3f  %s\n", time.Duration(o.Call).Seconds(), time.Duration(o.Return).Seconds(), describe(o.Input, o.Output))
	}
	return text
}

// instants makes two instants of each operation of which it is not known when it happens. As single operations they would be tried
// in every order, which takes exponentially long.
//
// A SOLD_OUT changes nothing: its window opens, and closes. What is unknown may happen between its two instants, once or never. So
// may the place of a user who asked for it and hears that it is an order: the database lost the answer, and was asked again.
func instants(history []porcupine.Operation) (all []porcupine.Operation, doubtful []step) {
	windows := 0
	between := func(o porcupine.Operation, first, last act, n int) {
		in := step{first, o.Input.(step).user, n}
		all = append(all, porcupine.Operation{ClientId: o.ClientId, Input: in, Output: o.Output, Call: o.Call, Return: o.Call})
		in.act = last
		all = append(all, porcupine.Operation{ClientId: o.ClientId, Input: in, Output: o.Output, Call: o.Return, Return: o.Return})
	}
	doubt := func(in step) int {
		doubtful = append(doubtful, in)
		return len(doubtful) - 1
	}
	asked := map[int]int{} // of each user one, because they are one behind the other
	for _, o := range history {
		switch in := o.Input.(step); {
		case in.act == buys && o.Output == soldOut:
			between(o, opens, closes, windows)
			windows++
		case o.Output == unknown:
			between(o, doubts, lapses, doubt(in))
		case in.act == joins && o.Output == already:
			if _, known := asked[in.user]; !known {
				asked[in.user] = doubt(step{act: joins, user: in.user})
			}
			between(o, doubts, lapses, asked[in.user])
			all = append(all, o)
		default:
			all = append(all, o)
		}
	}
	return all, doubtful
}

// checkBudget bounds one check. It takes milliseconds, and would take long only
// if very much was unknown.
const checkBudget = check.Deadline

// grace is what invariant 9 gives SOLD_OUT, and who may not wait because units are free: it is legal if that was so at
// some instant between one second before the request and its answer.
const grace = time.Second

// ownersAreTold reports whether no user heard SOLD_OUT who surely had an order then. It is no matter of the model,
// where SOLD_OUT may be the answer of an earlier instant.
func ownersAreTold(history []porcupine.Operation) bool {
	for _, o := range history {
		if o.Output != soldOut || o.Input.(step).act != buys {
			continue
		}
		began, user, has := o.Call+int64(grace), o.Input.(step).user, false
		for _, other := range history { // a user's requests are one behind the other
			in := other.Input.(step)
			switch {
			case in.user != user || other.Call >= began:
			case in.act == buys && other.Output == yes:
				has = true
			case in.act == cancels:
				has = false
			}
		}
		if has {
			return false
		}
	}
	return true
}

// operation is one line of a history; times are of one clock.
func operation(in step, from, to time.Duration, out result) porcupine.Operation {
	if out == soldOut || out == free {
		from -= grace
	}
	return porcupine.Operation{ClientId: in.user, Input: in, Output: out, Call: int64(from), Return: int64(to)}
}
