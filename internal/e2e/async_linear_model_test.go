package e2e_test

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// act is what a user does with one voucher, or what happens to all of them.
type act string

const (
	buys    act = "buys"
	cancels act = "cancels"
	looks   act = "looks"   // whether he has an order, when all is quiet
	forgets act = "forgets" // Redis loses everything it was told
)

// result is what he hears.
type result string

const (
	yes     result = "yes" // also: he has an order
	already result = "already ordered"
	soldOut result = "sold out"
	none    result = "none"    // he has no order
	unknown result = "unknown" // no answer, or 503: it may have happened, or happen later
)

// step is one input of the model.
type step struct {
	act  act
	user int
}

// shelf is the whole state of one voucher: the units left and the set of users.
type shelf struct {
	left int
	have uint32 // users with an order
	// firm are those of them whose order was promised: a reservation that was
	// promised to nobody may be lost with Redis.
	firm uint32
}

func (s shelf) has(user int) bool { return s.have&(1<<user) != 0 }

// taken is the shelf once a user has taken a unit.
func (s shelf) taken(user int) shelf {
	s.left--
	s.have |= 1 << user
	return s
}

// returned is the shelf once a user's unit is back.
func (s shelf) returned(user int) shelf {
	s.left++
	s.have &^= 1 << user
	s.firm &^= 1 << user
	return s
}

func (s shelf) promised(user int) shelf {
	s.firm |= 1 << user
	return s
}

// next are the shelves that may be after a step that was answered so; none when
// the answer is illegal.
func (s shelf) next(in step, out result) []shelf {
	switch in.act {
	case buys:
		return s.bought(in.user, out)
	case cancels:
		switch {
		case out == unknown && s.has(in.user):
			return []shelf{s, s.returned(in.user)}
		case out == unknown:
			return []shelf{s}
		case s.has(in.user):
			return []shelf{s.returned(in.user)}
		}
	case looks:
		if s.has(in.user) == (out == yes) {
			return []shelf{s}
		}
	case forgets:
		return s.forgotten()
	}
	return nil
}

func (s shelf) bought(user int, out result) []shelf {
	free := s.left > 0 && !s.has(user)
	switch {
	case out == yes && free:
		return []shelf{s.taken(user).promised(user)}
	case out == already && s.has(user), out == soldOut && s.left == 0 && !s.has(user):
		return []shelf{s}
	case out == unknown && free:
		return []shelf{s, s.taken(user)}
	case out == unknown:
		return []shelf{s}
	}
	return nil
}

// forgotten are the shelves on which any of the orders that nobody was promised
// may be gone.
func (s shelf) forgotten() []shelf {
	all := []shelf{s}
	for user := range 32 {
		if s.has(user) && s.firm&(1<<user) == 0 {
			for _, one := range all {
				all = append(all, one.returned(user))
			}
		}
	}
	return all
}

// saleModel is the sequential specification of one voucher's sale.
func saleModel(stock int) porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{shelf{left: stock}} },
		Step: func(state, input, output any) []any {
			var states []any
			for _, next := range state.(shelf).next(input.(step), output.(result)) {
				states = append(states, next)
			}
			return states
		},
		DescribeOperation: func(input, output any) string {
			in := input.(step)
			return fmt.Sprintf("%d %s: %s", in.user, in.act, output)
		},
	}).ToModel()
}

// checkBudget bounds one check. It takes milliseconds, and would take long only
// if very much was unknown.
const checkBudget = 30 * time.Second

// grace is what invariant 9 gives SOLD_OUT: it is legal if nothing was free at
// some instant between one second before the request and its answer.
const grace = time.Second

// operation is one line of a history; times are of one clock.
func operation(user int, what act, from, to time.Duration, out result) porcupine.Operation {
	if out == soldOut {
		from -= grace
	}
	return porcupine.Operation{
		ClientId: user, Input: step{what, user}, Output: out, Call: int64(from), Return: int64(to),
	}
}
