//go:build faults

//part:weather

package e2e_test

import "slices"

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

// result is the answer.
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
	unknown result = "unknown" // no answer, or 503: it may have happened, or happen later
)

// step is one input of the model.
type step struct {
	act   act
	user  int
	order int // number of the order, or entry, that the user hears of, cancels or has; 0: none. Of a window, or a doubt: which one
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
	firm  [historyUsers]bool
	rules rules
	cools [historyUsers]bool // who has canceled, where that has to cool down
	line  [historyUsers]int  // who waits, in their order, counted from 1; 0: nobody
	place [historyUsers]int  // number of the order that the user's last place has become
	begun bool               // for everybody, where some begin early
	ended bool
	// windows are the open windows in which something was left all the time, and doubts the steps that may happen yet, a bit each.
	windows, doubts uint64
}

// rules are those of a voucher.
type rules struct {
	cools bool // whoever cancels buys nothing until the end
	waits bool // users may wait
	early bool // it begins late for strangers
	draws bool // users enter a draw: what they have are entries, of which there are as many as wanted, until it ends
}

// stranger reports whether a user is of no group that begins early.
func stranger(user int) bool { return user%3 == 2 }

// open reports whether the sale has begun for a user.
func (s shelf) open(user int) bool { return s.begun || !s.rules.early || !stranger(user) }

func (s shelf) has(user int) bool { return s.have[user] != noOrder }

// is reports whether a user's order may be this one.
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

// next are the shelves that may be after a step that was answered so; none when
// the answer is illegal.
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

// changed are the shelves after an administrator's change by one unit.
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

// joined are the shelves after a user wanted to wait.
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

// refused are the shelves after a user was told why there is nothing to get.
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
	case out == waiting && stands, out == none && !stands && place == noOrder, out == yes && !stands && place == in.order:
		return []shelf{s}
	case out == yes && !stands && place == unknownOrder:
		return []shelf{s.known(in)}
	}
	return nil
}

// forgotten are the shelves on which any of the orders that nobody was promised
// may be gone. Somebody waits only where all orders are in the database, as entries are.
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
