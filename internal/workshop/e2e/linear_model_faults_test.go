//go:build faults

//part:weather

package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"seckill/internal/workshop/check"
)

// act is what a user does with one voucher, or what happens to all of them.
type act string

const (
	buys    act = "buys"
	cancels act = "cancels"
	joins   act = "joins"   // those who wait
	resigns act = "resigns" // from there
	stands  act = "stands"  // where, in the line or behind its end
	looks   act = "looks"   // whether the user has an order, when all is quiet, or an entry
	forgets act = "forgets" // Redis loses some or all of what it was told
	raises  act = "raises"  // an administrator has one unit more sold
	lowers  act = "lowers"  // or one less
	begins  act = "begins"  // the sale for everybody
	ends    act = "ends"    // the sale
	opens   act = "opens"   // a window begins, within which nothing must have been left at some instant: see instants
	closes  act = "closes"  // and ends
	doubts  act = "doubts"  // from here on a step may happen, once or never: see instants
	lapses  act = "lapses"  // and from here on it does not
)

type result string

const (
	yes     result = "yes" // also: there is an order, or the place has become it
	already result = "already ordered"
	cooling result = "cooling down"
	soldOut result = "sold out" // also: an administrator hears that all units are taken
	early   result = "not started"
	late    result = "ended"
	waiting result = "waiting"
	free    result = "free"    // so that nobody may wait
	none    result = "none"    // there is no order, or no place
	nothing result = ""        // is known: it is not noted
	unknown result = "unknown" // no answer, or 503: it may have happened, or happen later
)

type step struct {
	act   act
	user  int
	order int // number of the order, or entry, that the user hears of, cancels or has; 0: none. Of a window, or a doubt: which one
}

const (
	noOrder      = 0
	unknownOrder = -1 // there is one, and nobody has heard its id
)

// shelf is the whole state of one voucher: the units left and the users with an order.
type shelf struct {
	left int
	have [historyUsers]int // number of the user's order
	// firm says whose order was promised: a reservation that was promised to nobody may be lost with Redis.
	firm  [historyUsers]bool
	rules rules
	cools [historyUsers]bool // who has canceled, where that has to cool down
	line  [historyUsers]int  // who waits, in their order, counted from 1; 0: nobody
	place [historyUsers]int  // number of the order that the user's last place has become
	begun bool               // for everybody, where some begin early
	ended bool
	// windows are the open windows that never were empty, and doubts the steps that may still happen: a bit each.
	windows, doubts uint64
}

type rules struct {
	cools bool // whoever cancels buys nothing until the end
	waits bool // users may wait
	early bool // it begins late for strangers
	draws bool // users enter a draw: what they have are entries, of which there are as many as wanted, until it ends
}

// stranger reports whether a user is of no group that begins early.
func stranger(user int) bool { return user%3 == 2 }

func (s shelf) open(user int) bool { return s.begun || !s.rules.early || !stranger(user) }

func (s shelf) has(user int) bool { return s.have[user] != noOrder }

func (s shelf) is(in step) bool {
	have := s.have[in.user]
	return have != noOrder && (have == in.order || have == unknownOrder)
}

// known is the shelf once it is known which order a user has. Nobody loses the order of a place before it is known.
func (s shelf) known(in step) shelf {
	s.have[in.user] = in.order
	if s.place[in.user] == unknownOrder {
		s.place[in.user] = in.order
	}
	return s
}

func (s shelf) taken(user, order int) shelf {
	s.left--
	s.have[user] = order
	return s
}

func (s shelf) returned(user int) shelf {
	s.left++
	s.have[user], s.firm[user] = noOrder, false
	return s.handedOver()
}

// handedOver is the shelf once who waits first has what is left.
func (s shelf) handedOver() shelf {
	first := s.line[0] - 1
	if s.left == 0 || first < 0 {
		return s
	}
	s = s.without(0)
	s.place[first] = unknownOrder
	return s.taken(first, unknownOrder).promised(first)
}

// without is the shelf once nobody stands in a place of the line any more.
func (s shelf) without(n int) shelf {
	copy(s.line[n:], s.line[n+1:])
	s.line[historyUsers-1] = 0
	return s
}

// standing is where a user waits; -1: nowhere.
func (s shelf) standing(user int) int { return slices.Index(s.line[:], user+1) }

// canceled is the shelf once a user has given a unit back.
func (s shelf) canceled(in step) shelf {
	s = s.known(in).returned(in.user)
	s.cools[in.user] = s.rules.cools
	return s
}

func (s shelf) promised(user int) shelf {
	s.firm[user] = true
	return s
}

// next are the shelves that may be after a step that was answered so; none when the answer is illegal.
func (s shelf) next(in step, out result) []shelf {
	switch in.act {
	case buys:
		if s.rules.draws {
			return s.entered(in, out)
		}
		return s.bought(in, out)
	case cancels:
		switch {
		case out == unknown && s.is(in):
			return []shelf{s, s.canceled(in)}
		case out == unknown:
			return []shelf{s}
		case s.is(in):
			return []shelf{s.canceled(in)}
		}
	case joins:
		return s.joined(in, out)
	case resigns:
		return s.resigned(in, out)
	case stands:
		return s.stood(in, out)
	case looks:
		if out == none && !s.has(in.user) {
			return []shelf{s}
		}
		if out == yes && s.is(in) {
			return []shelf{s.known(in)}
		}
	case forgets:
		return s.forgotten()
	case raises, lowers:
		return s.changed(in.act, out)
	case begins, ends:
		s.begun, s.ended = s.begun || in.act == begins, s.ended || in.act == ends
		return []shelf{s}
	case opens:
		s.windows |= 1 << in.order
		return []shelf{s}
	case closes:
		if s.windows&(1<<in.order) == 0 && s.open(in.user) {
			return []shelf{s}
		}
	case doubts:
		s.doubts |= 1 << in.order
		return []shelf{s}
	case lapses:
		s.doubts &^= 1 << in.order
		return []shelf{s}
	}
	return nil
}

func (s shelf) changed(by act, out result) []shelf {
	now := s
	if by == raises {
		now.left++
		now = now.handedOver()
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
	sells := s.left > 0 && !s.has(in.user) && !s.cools[in.user] && s.open(in.user)
	switch {
	case out == yes && sells:
		return []shelf{s.taken(in.user, in.order).promised(in.user)}
	case out == unknown && sells:
		return []shelf{s, s.taken(in.user, unknownOrder)}
	case out == unknown:
		return []shelf{s}
	}
	return s.refused(in, out)
}

// entered are the shelves after a user wanted to enter the draw. An entry stays the same one.
func (s shelf) entered(in step, out result) []shelf {
	enters := !s.ended && !s.has(in.user)
	entry := s
	entry.have[in.user] = unknownOrder
	switch {
	case out == yes && enters:
		return []shelf{entry.known(in).promised(in.user)}
	case out == yes && s.is(in):
		return []shelf{s.known(in).promised(in.user)}
	case out == unknown && enters:
		return []shelf{s, entry}
	case out == unknown, out == late && s.ended:
		return []shelf{s}
	}
	return nil
}

func (s shelf) joined(in step, out result) []shelf {
	now := s
	if at := slices.Index(s.line[:], 0); s.standing(in.user) < 0 && at >= 0 {
		now.line[at] = in.user + 1
	}
	may := s.standing(in.user) >= 0 || s.left == 0 && !s.has(in.user) && !s.cools[in.user] && s.open(in.user)
	switch {
	case out == yes && may:
		return []shelf{now}
	case out == unknown && may:
		return []shelf{s, now}
	case out == unknown, out == free && s.left > 0 && s.open(in.user):
		return []shelf{s}
	}
	return s.refused(in, out)
}

func (s shelf) refused(in step, out result) []shelf {
	switch {
	case out == already && s.is(in):
		return []shelf{s.known(in)}
	case out == cooling && s.cools[in.user] && !s.has(in.user), out == early && !s.open(in.user):
		return []shelf{s}
	}
	return nil
}

// resigned are the shelves after a user gave a place up. There is none once it is an order.
func (s shelf) resigned(in step, out result) []shelf {
	at := s.standing(in.user)
	switch {
	case at >= 0 && out == yes:
		return []shelf{s.without(at)}
	case at >= 0 && out == unknown:
		return []shelf{s, s.without(at)}
	case at < 0 && (out == unknown || out == none):
		return []shelf{s}
	case at < 0:
		return s.refused(in, out)
	}
	return nil
}

// stood are the shelves after a user looked at a place, or at the order that the last one has become.
func (s shelf) stood(in step, out result) []shelf {
	stands, place := s.standing(in.user) >= 0, s.place[in.user]
	switch {
	case out == waiting && stands, out == none && !stands && place == noOrder, out == yes && !stands &&
		place == in.order:
		return []shelf{s}
	case out == yes && !stands && place == unknownOrder:
		return []shelf{s.known(in)}
	}
	return nil
}

// forgotten are the shelves without any unpromised orders. Users wait only where the database has all of them.
func (s shelf) forgotten() []shelf {
	all := []shelf{s}
	if s.line[0] != 0 || s.rules.draws {
		return all
	}
	for user := range s.have {
		if s.has(user) && !s.firm[user] {
			for _, one := range all {
				all = append(all, one.returned(user))
			}
		}
	}
	return all
}

type recorded struct {
	operations []porcupine.Operation
	rules      rules
}

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

func (r recorded) String() string {
	text := ""
	for _, o := range r.operations {
		text += fmt.Sprintf("  %8.3f – %8.3f  %s\n", time.Duration(o.Call).Seconds(), time.Duration(o.Return).Seconds(),
			describe(o.Input, o.Output))
	}
	return text
}

// instants makes two instants of each operation without a known time: single operations would be tried in all orders,
// which is exponential. A SOLD_OUT changes nothing: its window opens and closes. The unknown may happen once between
// its instants, or never. So may the place of a user who asked for it and hears that it is an order: the database lost
// the answer, and was asked again.
func instants(history []porcupine.Operation) (all []porcupine.Operation, doubtful []step) {
	windows := 0
	between := func(o porcupine.Operation, first, last act, n int) {
		in := step{first, o.Input.(step).user, n}
		all = append(all, porcupine.Operation{
			ClientId: o.ClientId, Input: in, Output: o.Output, Call: o.Call,
			Return: o.Call,
		})
		in.act = last
		all = append(all, porcupine.Operation{
			ClientId: o.ClientId, Input: in, Output: o.Output, Call: o.Return,
			Return: o.Return,
		})
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

// checkBudget bounds one check. It takes milliseconds, and would take long only if very much was unknown.
const checkBudget = check.Deadline

// grace is invariant 9's for SOLD_OUT and "units are free": true at some instant since a second before the request.
const grace = time.Second

// ownersAreTold reports whether no user with a sure order heard SOLD_OUT: the model allows answers of earlier instants.
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

func operation(in step, from, to time.Duration, out result) porcupine.Operation {
	if out == soldOut || out == free {
		from -= grace
	}
	return porcupine.Operation{ClientId: in.user, Input: in, Output: out, Call: int64(from), Return: int64(to)}
}

// TestSaleModel gives the check histories that it must accept or refuse; times are in seconds.
func TestSaleModel(t *testing.T) {
	t.Parallel()
	type ops = []porcupine.Operation
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
	three := ops{buy(0, 1, 0, 1, yes), buy(1, 2, 0, 1, yes), buy(2, 3, 0, 1, yes)}
	for _, test := range []struct {
		name    string
		history ops
		legal   bool
		rules   rules
	}{
		{name: "sold out after the last unit", history: append(three, buy(3, 0, 2, 3, soldOut)), legal: true},
		{name: "sold out with a unit left", history: append(three[:2:2], buy(3, 0, 2, 3, soldOut))},
		{
			name: "sold out within the grace", legal: true,
			history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(3, 0, 3, 3.1, soldOut)),
		},
		{
			name:    "sold out behind the grace",
			history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(3, 0, 3.2, 3.3, soldOut)),
		},
		{
			name:    "sold out before the last unit",
			history: append(three[:2:2], buy(3, 0, 1.5, 1.9, soldOut), buy(2, 3, 2, 3, yes)),
		},
		{
			name: "sold out in turns", legal: true,
			history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(3, 0, 3, 3.05, soldOut),
				buy(3, 4, 3.1, 3.2, yes), buy(4, 0, 4, 4.1, soldOut)),
		},
		{name: "sold out to the owner of an order", history: append(three, buy(2, 0, 2, 3, soldOut))},
		{
			name: "sold out to an owner who has canceled", legal: true,
			history: append(three, o(step{cancels, 2, 3}, 2, 2.1, yes), buy(2, 0, 3, 3.1, soldOut)),
		},
		{
			name:    "sold out behind a restock",
			history: append(three, o(step{act: raises}, 2, 2.1, yes), buy(3, 0, 3.2, 3.3, soldOut)),
		},
		{
			name: "one more after a restock", legal: true,
			history: append(three, o(step{act: raises}, 2, 2.1, yes), buy(3, 4, 3.2, 3.3, yes)),
		},
		{
			name:    "one less, and oversold",
			history: append(three[:2:2], o(step{act: lowers}, 2, 2.1, yes), buy(3, 4, 3.2, 3.3, yes)),
		},
		{
			name: "refused to have less of nothing", legal: true,
			history: append(three, o(step{act: lowers}, 2, 2.1, soldOut)),
		},
		{name: "refused with a unit left", history: append(three[:2:2], o(step{act: lowers}, 2, 2.1, soldOut))},
		{name: "oversold", history: append(three, buy(3, 4, 2, 3, yes))},
		{name: "twice to one user", history: ops{buy(0, 1, 0, 1, yes), buy(0, 2, 2, 3, yes)}},
		{
			name: "again after a cancel", legal: true,
			history: ops{buy(0, 1, 0, 1, yes), o(step{cancels, 0, 1}, 1.5, 1.6, yes), buy(0, 2, 2, 3, yes)},
		},
		{name: "another's order", history: ops{buy(0, 1, 0, 1, yes), buy(0, 2, 2, 3, already)}},
		{
			name: "unknown, and it happened", legal: true,
			history: ops{buy(0, 0, 0, 9, unknown), buy(0, 1, 2, 3, already), o(step{looks, 0, 1}, 10, 11, yes)},
		},
		{
			name: "unknown, and it did not", legal: true,
			history: ops{buy(0, 0, 0, 9, unknown), buy(0, 1, 2, 3, yes), o(step{looks, 0, 1}, 10, 11, yes)},
		},
		{name: "a broken promise", history: ops{buy(0, 1, 0, 1, yes), o(step{looks, 0, 0}, 10, 11, none)}},
		{
			name:    "a promise for another order",
			history: ops{buy(0, 0, 0, 9, unknown), buy(0, 1, 2, 3, yes), o(step{looks, 0, 2}, 10, 11, yes)},
		},
		{
			name: "lost with Redis", legal: true,
			history: ops{
				buy(0, 0, 0, 1, unknown), buy(0, 1, 2, 3, already), o(step{act: forgets}, 4, 5, yes),
				o(step{looks, 0, 0}, 10, 11, none),
			},
		},
		{
			name: "cooling down", legal: true, rules: rules{cools: true},
			history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(0, 0, 3, 3.1, cooling)),
		},
		{
			name: "cooling down, and sold out", legal: true, rules: rules{cools: true},
			history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(4, 5, 2.2, 2.3, yes),
				buy(0, 0, 3, 3.1, cooling)),
		},
		{
			name:    "cooling down without a cool-down",
			history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(0, 0, 3, 3.1, cooling)),
		},
		{
			name: "cooling down for somebody else", rules: rules{cools: true},
			history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(3, 0, 3, 3.1, cooling)),
		},
		{
			name: "cooling down with an order", rules: rules{cools: true},
			history: append(three, buy(0, 0, 3, 3.1, cooling)),
		},
		{
			name: "again, not cooled down", rules: rules{cools: true},
			history: append(three, o(step{cancels, 0, 1}, 2, 2.1, yes), buy(0, 5, 3, 3.1, yes)),
		},
		{
			name: "the unit of who cancels is of who waits first", legal: true, rules: rules{waits: true},
			history: append(three, join(3, 1.5, yes), join(4, 2, yes), gives, stand(3, 4, 4, yes),
				stand(4, 0, 4, waiting), o(step{looks, 3, 4}, 9, 9.1, yes), o(step{looks, 0, 0}, 9, 9.1, none)),
		},
		{
			name: "it is of who waits second", rules: rules{waits: true},
			history: append(three, join(3, 1.5, yes), join(4, 2, yes), gives, stand(4, 4, 4, yes)),
		},
		{
			name: "it is the open sale's", rules: rules{waits: true},
			history: append(three, join(3, 1.5, yes), gives, buy(5, 4, 4, 4.1, yes)),
		},
		{
			name: "it is of both", rules: rules{waits: true},
			history: append(three, join(3, 1.5, yes), gives, stand(3, 4, 4, yes), buy(5, 5, 4, 4.1, yes)),
		},
		{
			name: "it is nobody's", rules: rules{waits: true},
			history: append(three, join(3, 1.5, yes), gives, stand(3, 0, 4, waiting)),
		},
		{
			name: "of who waited and left", legal: true, rules: rules{waits: true},
			history: append(three, join(3, 1.5, yes), join(4, 2, yes), o(step{resigns, 3, 0}, 2.5, 2.6, yes), gives,
				stand(4, 4, 4, yes)),
		},
		{
			name: "who has left is served", rules: rules{waits: true},
			history: append(three, join(3, 1.5, yes), o(step{resigns, 3, 0}, 2.5, 2.6, yes), gives,
				buy(3, 4, 4, 4.1, already)),
		},
		{
			name: "a place, whose order is given back", legal: true, rules: rules{waits: true},
			history: append(three, join(3, 1.5, yes), gives, stand(3, 4, 4, yes), o(step{cancels, 3, 4}, 5, 5.1, yes),
				stand(3, 4, 6, yes)),
		},
		{
			name: "who cancels is last", rules: rules{waits: true},
			history: append(three, join(3, 1.5, yes), join(4, 2, yes), gives, join(0, 4, yes),
				o(step{act: raises}, 5, 5.1, yes), stand(0, 4, 6, yes)),
		},
		{
			name: "added, and for the open sale", rules: rules{waits: true},
			history: append(three, join(3, 1.5, yes), o(step{act: raises}, 2, 2.1, yes), buy(4, 4, 3.2, 3.3, yes)),
		},
		{
			name: "a place that was an order before its user heard of it", legal: true, rules: rules{waits: true},
			history: append(three, o(step{joins, 3, 4}, 1.5, 4, already), o(step{cancels, 0, 1}, 2, 2.1, yes),
				look(3, 4, 9)),
		},
		{
			name: "a place that is an order although nobody gave a unit back", rules: rules{waits: true},
			history: append(three, o(step{joins, 3, 4}, 1.5, 4, already), look(3, 4, 9)),
		},
		{
			name: "a place after its user has heard that there is none", rules: rules{waits: true},
			history: append(three, o(step{joins, 2, 3}, 1.5, 1.6, already), o(step{cancels, 2, 3}, 2, 2.1, yes),
				stand(2, 0, 3, waiting)),
		},
		{name: "waiting with an order", history: append(three, join(0, 1.5, yes)), rules: rules{waits: true}},
		{
			name: "waiting while a unit is left", rules: rules{waits: true},
			history: append(three[:2:2], join(3, 1.5, yes)),
		},
		{
			name: "units are free", legal: true, rules: rules{waits: true},
			history: append(three[:2:2], join(3, 1.5, free)),
		},
		{name: "no unit is free", history: append(three, join(3, 2.5, free)), rules: rules{waits: true}},
		{
			name: "not started for a stranger, and then sold", legal: true, rules: rules{early: true},
			history: ops{buy(2, 0, 0, 1, early), began, buy(2, 1, 2, 3, yes)},
		},
		{
			name: "sold to a stranger before it begins", rules: rules{early: true},
			history: ops{buy(2, 1, 0, 1, yes), began},
		},
		{
			name: "sold out for a stranger before it begins", rules: rules{early: true},
			history: append(three[:2:2], buy(3, 3, 0, 1, yes), buy(5, 0, 1.2, 1.3, soldOut), began),
		},
		{
			name: "a stranger waits before it begins", rules: rules{early: true, waits: true},
			history: append(three[:2:2], buy(3, 3, 0, 1, yes), join(5, 1.1, yes), began),
		},
		{
			name: "not started after the beginning", rules: rules{early: true},
			history: ops{began, buy(2, 0, 2, 3, early)},
		},
		{
			name: "not started for who begins early", rules: rules{early: true},
			history: ops{buy(0, 0, 0, 1, early), began},
		},
		{
			name: "entered, looked at, and ended", legal: true, rules: rules{draws: true},
			history: ops{
				buy(0, 1, 0, 1, yes), look(0, 1, 1.2), buy(0, 1, 1.3, 1.4, yes), over, buy(1, 0, 3, 4, late),
				look(0, 1, 9), look(1, 0, 9),
			},
		},
		{
			name: "more entries than units", legal: true, rules: rules{draws: true},
			history: append(three, buy(3, 4, 0, 1, yes)),
		},
		{
			name: "another entry of the same user", rules: rules{draws: true},
			history: ops{buy(0, 1, 0, 1, yes), buy(0, 2, 1.1, 1.2, yes)},
		},
		{name: "entered after the end", history: ops{over, buy(0, 1, 3, 4, yes)}, rules: rules{draws: true}},
		{name: "ended before the end", history: ops{buy(0, 0, 0, 1, late), over}, rules: rules{draws: true}},
		{
			name: "entered, and not on the list", rules: rules{draws: true},
			history: ops{buy(0, 1, 0, 1, yes), over, look(0, 0, 9)},
		},
		{
			name: "entered, and lost with Redis", rules: rules{draws: true},
			history: ops{
				buy(0, 0, 0, 1, unknown), buy(0, 1, 1.1, 1.2, yes), o(step{act: forgets}, 1.3, 1.4, yes),
				look(0, 0, 9),
			},
		},
		{
			name: "an entry that was told after an unknown one", legal: true, rules: rules{draws: true},
			history: ops{buy(0, 0, 0, 9, unknown), look(0, 1, 2), buy(0, 1, 3, 4, yes), look(0, 1, 9.5)},
		},
		{name: "an entry of nobody", history: ops{look(0, 0, 9), look(0, 1, 9.2)}, rules: rules{draws: true}},
		{
			name:    "promised, and lost with Redis",
			history: ops{buy(0, 1, 0, 1, yes), o(step{act: forgets}, 4, 5, yes), o(step{looks, 0, 0}, 10, 11, none)},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			follows := recorded{test.history, test.rules}.follows(0)
			got := follows == porcupine.Ok && ownersAreTold(test.history)
			check.That(t, got == test.legal, "legal: %v, want %v", got, test.legal)
		})
	}
}
