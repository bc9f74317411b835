package hotcopy

import (
	"context"
	"slices"
	"strconv"

	"seckill/model"
)

// A divided copy has several parts, each with keys of its own, which may lie on several
// servers of a Cluster. Everything about a user lies in the user's part: one order for each
// user is decided there. All parts have the same epoch, and each of them is closed before
// anything is decided about the next one. How many units are free in a part is settled
// between the parts, see balance.go.

// partName is the hash tag of the keys of a part of a copy, so that they share a slot of a
// Cluster. No voucher has such an id.
func partName(voucherID string, part int) string {
	if part == 0 {
		return voucherID
	}
	return voucherID + "#" + strconv.Itoa(part)
}

// prefix begins the names of a part's keys: the version of their layout, and the part.
func prefix(voucherID string, part int) string {
	return "seckill:v1:{" + partName(voucherID, part) + "}:"
}

func headKey(voucherID string, part int) string { return prefix(voucherID, part) + "head" }

func buyersKey(voucherID string, part int, epoch int64) string {
	return epochKey(voucherID, part, epoch, "buyers")
}

func pendingKey(voucherID string, part int, epoch int64) string {
	return epochKey(voucherID, part, epoch, "pending")
}

func dueKey(voucherID string, part int, epoch int64) string {
	return epochKey(voucherID, part, epoch, "due")
}

func epochKey(voucherID string, part int, epoch int64, noun string) string {
	return prefix(voucherID, part) + strconv.FormatInt(epoch, 10) + ":" + noun
}

// epochKeys are a part's keys of one epoch, in the order of head.lua.
func epochKeys(voucherID string, part int, epoch int64) []string {
	return []string{
		buyersKey(voucherID, part, epoch), pendingKey(voucherID, part, epoch),
		dueKey(voucherID, part, epoch), epochKey(voucherID, part, epoch, "closed"),
	}
}

// known is what was last heard of a voucher's copy: before the first time, that it is not
// divided, and an epoch that no copy has.
func (s *Store) known(voucherID string) layout {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.copies[voucherID]
	l.shards = max(l.shards, 1)
	return l
}

// learn notes what the head of a part says of its copy. Part 0 is always right. Another one
// may be of an earlier epoch: nothing touches the heads of those that are gone.
func (s *Store) learn(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.copies[c.voucher]
	switch {
	case c.at == 0, c.at < c.shards && c.head >= known.epoch:
		if len(s.copies) >= maxKnown {
			clear(s.copies)
		}
		s.copies[c.voucher] = layout{c.head, c.shards}
	case c.at >= c.shards && c.at < known.shards: // it is missing or gone, and part 0 has to be asked
		delete(s.copies, c.voucher)
	}
}

// parts makes a call about each part of a copy that has so many.
func (s *Store) parts(script script, voucherID string, shards int, args ...any) []*call {
	calls := make([]*call, shards)
	for part := range calls {
		calls[part] = &call{script: script, voucher: voucherID, part: part, of: shards, args: slices.Clone(args)}
	}
	return calls
}

// partsOf is parts for the epoch of a record, whichever the heads have.
func (s *Store) partsOf(script script, record model.EpochRecord, shards int, args ...any) []*call {
	calls := s.parts(script, record.VoucherID, shards, args...)
	for _, c := range calls {
		c.epoch = record.Epoch
	}
	return calls
}

// all makes a call about each part of a copy, however many it has.
func (s *Store) all(ctx context.Context, script script, voucherID string, args ...any) []*call {
	return s.allOf(ctx, voucherID, func(shards int) []*call { return s.parts(script, voucherID, shards, args...) })
}

// allOf makes the calls that a copy of so many parts wants, and makes them once more for the
// right number when it has another one.
func (s *Store) allOf(ctx context.Context, voucherID string, make func(shards int) []*call) []*call {
	calls := make(s.known(voucherID).shards)
	s.run(ctx, calls...)
	if calls[0].moved {
		calls = make(s.known(voucherID).shards)
		s.run(ctx, calls...)
	}
	return calls
}

// about makes a call about something of one user, which lies in the user's part.
func about(script script, voucherID, userID string, args ...any) *call {
	return &call{script: script, voucher: voucherID, user: userID, args: args}
}

// group are things that lie in the same part of the same copy.
type group[T any] struct {
	voucherID    string
	part, shards int
	things       []T
}

// call makes a call about all of them.
func (g group[T]) call(script script, args ...any) *call {
	return &call{script: script, voucher: g.voucherID, part: g.part, of: g.shards, args: args}
}

// split splits things by the parts that they lie in, as far as is known, into groups of so
// many at most.
func split[T any](s *Store, most int, things []T, owner func(T) model.Buyer) []*group[T] {
	type place struct {
		voucher string
		part    int
	}
	shards := make(map[string]int)
	filling := make(map[place]*group[T])
	var groups []*group[T]
	for _, thing := range things {
		b := owner(thing)
		n := shards[b.VoucherID]
		if n == 0 {
			n = s.known(b.VoucherID).shards
			shards[b.VoucherID] = n
		}
		at := place{b.VoucherID, model.PartOf(b.UserID, n)}
		g := filling[at]
		if g == nil || len(g.things) == most {
			g = &group[T]{voucherID: at.voucher, part: at.part, shards: n}
			filling[at] = g
			groups = append(groups, g)
		}
		g.things = append(g.things, thing)
	}
	return groups
}

// lot is how many things share a call at most, and how many calls a pipeline.
type lot struct{ things, calls int }

// many is for any number of things, each of which costs the call something.
func many() lot { return lot{callOrders, pipelineCalls} }

// runSplit makes calls about groups of things, and calls done with each. What belongs to a
// copy with another number of parts than was thought is split anew: a part that is no more
// leads to part 0, and that one to the right part.
func runSplit[T any](
	ctx context.Context, s *Store, most lot, things []T, owner func(T) model.Buyer,
	make func(*group[T]) *call, done func(*group[T], *call),
) {
	var moved []T
	for try := 1; try == 1 || len(moved) > 0; try++ {
		if try > 1 {
			things, moved = moved, nil
		}
		for some := range slices.Chunk(split(s, most.things, things, owner), most.calls) {
			var calls []*call
			for _, g := range some {
				calls = append(calls, make(g))
			}
			s.run(ctx, calls...)
			for i, c := range calls {
				if c.moved && try < callTries {
					moved = append(moved, some[i].things...)
				} else {
					done(some[i], c)
				}
			}
		}
	}
}

// ownerOf tells whose a reservation is.
func ownerOf(r model.Reservation) model.Buyer {
	return model.Buyer{VoucherID: r.VoucherID, UserID: r.UserID}
}

// Node names the server on which a user's part of a voucher's copy lies, so that calls to
// different servers can be kept apart. It asks no server. Empty: there is only one, or it is
// not known.
func (s *Store) Node(buyer model.Buyer) string {
	if !IsCluster(s.client) {
		return ""
	}
	return s.node(headKey(buyer.VoucherID, model.PartOf(buyer.UserID, s.known(buyer.VoucherID).shards)))
}
