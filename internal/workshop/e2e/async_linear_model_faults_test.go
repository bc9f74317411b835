//go:build faults

//part:weather

package e2e_test

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"seckill/internal/workshop/check"
)

// act is what a user does with one voucher, or what happens to all of them.
type act string

const (
	buys    act = "buys"
	cancels act = "cancels"
	looks   act = "looks"   // whether the user has an order, when all is quiet
	forgets act = "forgets" // Redis loses some or all of what it was told
	raises  act = "raises"  // an administrator has one unit more sold
	lowers  act = "lowers"  // or one less
	opens   act = "opens"   // a window begins, within which nothing must have been left at some instant: see windows
	closes  act = "closes"  // and ends
)

// result is the answer.
type result string

const (
	yes     result = "yes" // also: there is an order
	already result = "already ordered"
	cooling result = "cooling down"
	soldOut result = "sold out" // also: an administrator hears that all units are taken
	none    result = "none"     // there is no order
	unknown result = "unknown"  // no answer, or 503: it may have happened, or happen later
)

// step is one input of the model.
type step struct {
	act   act
	user  int
	order int // number of the order that the user hears of, cancels or has; 0: none. Of a window: which one
}

const (
	noOrder      = 0
	unknownOrder = -1 // there is one, and nobody has heard its id
)

// shelf is the whole state of one voucher: the units left and the users with an
// order.
type shelf struct {
	left int
	have [historyUsers]int // number of the user's order
	// firm says whose order was promised: a reservation that was promised to
	// nobody may be lost with Redis.
	firm [historyUsers]bool
	// cools says that whoever cancels waits until the end, and waits who does.
	cools bool
	waits [historyUsers]bool
	// waiting are the open windows in which something was left all the time, a bit each.
	waiting uint64
}

func (s shelf) has(user int) bool { return s.have[user] != noOrder }

// is reports whether a user's order may be this one.
func (s shelf) is(in step) bool {
	have := s.have[in.user]
	return have != noOrder && (have == in.order || have == unknownOrder)
}

// known is the shelf once it is known which order a user has.
func (s shelf) known(in step) shelf {
	s.have[in.user] = in.order
	return s
}

// taken is the shelf once a user has taken a unit with an order.
func (s shelf) taken(user, order int) shelf {
	s.left--
	s.have[user] = order
	return s
}

// returned is the shelf once a user's unit is back.
func (s shelf) returned(user int) shelf {
	s.left++
	s.have[user], s.firm[user] = noOrder, false
	return s
}

// canceled is the shelf once a user has given a unit back.
func (s shelf) canceled(user int) shelf {
	s = s.returned(user)
	s.waits[user] = s.cools
	return s
}

func (s shelf) promised(user int) shelf {
	s.firm[user] = true
	return s
}

// next are the shelves that may be after a step that was answered so; none when
// the answer is illegal.
func (s shelf) next(in step, out result) []shelf {
	switch in.act {
	case buys:
		return s.bought(in, out)
	case cancels:
		switch {
		case out == unknown && s.is(in):
			return []shelf{s, s.canceled(in.user)}
		case out == unknown:
			return []shelf{s}
		case s.is(in):
			return []shelf{s.canceled(in.user)}
		}
	case looks:
		if out == none && !s.has(in.user) || out == yes && s.is(in) {
			return []shelf{s}
		}
	case forgets:
		return s.forgotten()
	case raises, lowers:
		return s.changed(in.act, out)
	case opens:
		s.waiting |= 1 << in.order
		return []shelf{s}
	case closes:
		if s.waiting&(1<<in.order) == 0 {
			return []shelf{s}
		}
	}
	return nil
}

// changed are the shelves after an administrator's change by one unit.
func (s shelf) changed(by act, out result) []shelf {
	now := s
	if by == raises {
		now.left++
	} else {
		now.left--
	}
	switch {
	case out == yes && now.left >= 0:
		return []shelf{now}
	case out == soldOut && by == lowers && s.left == 0:
		return []shelf{s}
	case out == unknown && now.left >= 0:
		return []shelf{s, now}
	case out == unknown:
		return []shelf{s}
	}
	return nil
}

func (s shelf) bought(in step, out result) []shelf {
	free := s.left > 0 && !s.has(in.user) && !s.waits[in.user]
	switch {
	case out == yes && free:
		return []shelf{s.taken(in.user, in.order).promised(in.user)}
	case out == already && s.is(in):
		return []shelf{s.known(in)}
	case out == cooling && s.waits[in.user] && !s.has(in.user):
		return []shelf{s}
	case out == unknown && free:
		return []shelf{s, s.taken(in.user, unknownOrder)}
	case out == unknown:
		return []shelf{s}
	}
	return nil
}

// forgotten are the shelves on which any of the orders that nobody was promised
// may be gone.
func (s shelf) forgotten() []shelf {
	all := []shelf{s}
	for user := range s.have {
		if s.has(user) && !s.firm[user] {
			for _, one := range all {
				all = append(all, one.returned(user))
			}
		}
	}
	return all
}

// saleModel is the sequential specification of one voucher's sale.
func saleModel(stock int, cools bool) porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{shelf{left: stock, cools: cools}} },
		Step: func(state, input, output any) []any {
			var states []any
			for _, next := range state.(shelf).next(input.(step), output.(result)) {
				if next.left == 0 {
					next.waiting = 0
				}
				states = append(states, next)
			}
			return states
		},
		DescribeOperation: func(input, output any) string {
			in := input.(step)
			return fmt.Sprintf("user %d %s: %s (order %d)", in.user, in.act, output, in.order)
		},
	}).ToModel()
}

// windows makes two instants of each SOLD_OUT: one at which its window opens, and one at which it closes. A window is
// more than a second long, so that many overlap. As single operations they would be tried in every order, which takes
// exponentially long, and makes no difference: none of them changes anything.
func windows(history []porcupine.Operation) (all []porcupine.Operation) {
	n := 0
	for _, o := range history {
		if o.Output != soldOut || o.Input.(step).act != buys {
			all = append(all, o)
			continue
		}
		at := func(what act, instant int64) porcupine.Operation {
			return porcupine.Operation{ClientId: o.ClientId, Input: step{what, o.Input.(step).user, n}, Output: soldOut, Call: instant, Return: instant}
		}
		all = append(all, at(opens, o.Call), at(closes, o.Return))
		n++
	}
	return all
}

// checkBudget bounds one check. It takes milliseconds, and would take long only
// if very much was unknown.
const checkBudget = check.Deadline

// grace is what invariant 9 gives SOLD_OUT: it is legal if nothing was free at
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
	if out == soldOut {
		from -= grace
	}
	return porcupine.Operation{ClientId: in.user, Input: in, Output: out, Call: int64(from), Return: int64(to)}
}
