package hotcopy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"seckill/internal/failpoint"
	"seckill/model"
)

// Units change parts in two steps: one part gives them, and another one takes them over. A
// process that dies in between loses none: each part says how many units it has ever given
// to each other one in this epoch, and how many it has taken over, and the next one that
// looks takes over the difference. Meanwhile they are not free, and not sold out either.

const (
	// balancePatience bounds one look at all parts. Some may lie on a server that hangs, and
	// orders of parts on healthy ones must not wait for it.
	balancePatience = 300 * time.Millisecond
	// gatherPatience bounds the search for units that a stock is to be lowered by.
	gatherPatience = time.Second
)

// balance is what is free in each part of a copy, and what parts have given each other.
type balance struct {
	epoch int64
	parts []partBalance
	err   error // why some part is not known
}

type partBalance struct {
	known         bool
	free, changes int64
	given, got    []int64 // by the other part
}

// transfer is of units from one part to another one.
type transfer struct {
	from, to int
	units    int64 // to give; to be taken over: all that was ever given
}

// refill has units given to parts that have none and want some, and returns the calls with
// which those take them over: just before they sell them, so that they are not sold to
// others. It returns true when there is not a unit in any part, which was so at some instant
// of the call. ErrCopyClosed, also when the copy has another number of parts by now, or
// UNAVAILABLE when that cannot be told.
func (s *Store) refill(
	ctx context.Context, voucherID string, shards int, wanted map[int]int64,
) (takes []*call, soldOut bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, refillPatience+s.options.Slack)
	defer cancel()
	enough := func(b balance) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(wanted)), func(part int) bool { return b.free(part) > 0 })
	}
	plan := func(b balance) []transfer { return b.plan(wanted) }
	takes, done, err := s.rebalance(ctx, voucherID, shards, enough, plan)
	return takes, !done, err
}

// gather has other parts give the units to part 0 that lower.lua wants to be free there.
// CONFLICT when there are not so many.
func (s *Store) gather(ctx context.Context, voucherID string, lower *call) error {
	ctx, cancel := context.WithTimeout(ctx, gatherPatience+s.options.Slack)
	defer cancel()
	if lower.shards == 1 {
		return errTaken()
	}
	units := number(lower.words[0])
	takes, done, err := s.rebalance(ctx, voucherID, lower.shards,
		func(b balance) bool { return b.parts[0].known && b.parts[0].free >= units },
		func(b balance) []transfer { return b.collect(units) })
	switch {
	case err != nil:
		return err
	case !done:
		return errTaken()
	}
	return s.take(ctx, takes)
}

func errTaken() error { return model.Conflict("More than that is sold or reserved already.") }

// rebalance looks at the parts of a copy until there is enough, or makes the transfers of a
// plan, but for the calls that it returns. It returns false when nothing can be done, and
// could not at one instant: two looks have found the same, and no part has changed in
// between.
func (s *Store) rebalance(
	ctx context.Context, voucherID string, shards int, enough func(balance) bool, plan func(balance) []transfer,
) (takes []*call, done bool, err error) {
	var before balance
	for ctx.Err() == nil {
		now, err := s.balance(ctx, voucherID, shards)
		if err != nil {
			return nil, false, err
		}
		if enough(now) {
			return nil, true, nil
		}
		if late := now.underway(); len(late) > 0 {
			if err := s.take(ctx, s.takes(voucherID, now.epoch, late)); err != nil {
				return nil, false, err
			}
			continue
		}
		if transfers := plan(now); len(transfers) > 0 {
			given, err := s.give(ctx, voucherID, now.epoch, transfers)
			return s.takes(voucherID, now.epoch, given), true, err
		}
		if now.err != nil {
			return nil, false, now.err
		}
		if now.same(before) {
			return nil, false, nil
		}
		before = now
	}
	return nil, false, model.Unavailable("It cannot be told yet what is left.", ctx.Err())
}

// balance looks at all parts of a copy that has so many. Those that do not answer are left
// out.
func (s *Store) balance(ctx context.Context, voucherID string, shards int) (balance, error) {
	b := balance{parts: make([]partBalance, shards)}
	calls := s.parts(s.scripts.balance, voucherID, shards)
	ctx, cancel := context.WithTimeout(ctx, balancePatience+s.options.Slack)
	defer cancel()
	s.run(ctx, calls...)
	for _, c := range calls {
		switch err := c.closed("balance the parts"); {
		case c.err != nil:
			b.err = cmp.Or(b.err, err)
		case err != nil:
			return b, err
		case c.shards != shards || len(c.words) != 2+2*shards || b.epoch != 0 && b.epoch != c.head:
			return b, fmt.Errorf("balance the parts of voucher %s: %w", voucherID, model.ErrCopyClosed)
		default:
			b.epoch = c.head
			b.parts[c.part] = readBalance(c.words)
		}
	}
	return b, nil
}

func readBalance(words []string) partBalance {
	p := partBalance{known: true, free: number(words[0]), changes: number(words[1])}
	for i := 2; i+1 < len(words); i += 2 {
		p.given = append(p.given, number(words[i]))
		p.got = append(p.got, number(words[i+1]))
	}
	return p
}

func (b balance) free(part int) int64 { return max(0, b.parts[part].free) }

// same reports whether no part has changed between two looks.
func (b balance) same(before balance) bool {
	return b.epoch == before.epoch && slices.EqualFunc(b.parts, before.parts, func(p, q partBalance) bool {
		return p.known && q.known && p.changes == q.changes
	})
}

// underway are the units that were given and not taken over yet.
func (b balance) underway() (late []transfer) {
	for from, giver := range b.parts {
		for to, taker := range b.parts {
			if giver.known && taker.known && giver.given[to] > taker.got[from] {
				late = append(late, transfer{from, to, giver.given[to]})
			}
		}
	}
	return late
}

// plan has the part with most free units give each of those that want some what they want,
// or half of what it has if that is more: so the parts keep alike.
func (b balance) plan(wanted map[int]int64) (transfers []transfer) {
	left := b.left()
	for _, to := range slices.Sorted(maps.Keys(wanted)) {
		from := richest(left)
		units := min(left[from], max(wanted[to], left[from]/2))
		if units <= 0 {
			break
		}
		left[from] -= units
		transfers = append(transfers, transfer{from, to, units})
	}
	return transfers
}

// collect has the parts behind the first give it what it lacks of so many units; none when
// they have less.
func (b balance) collect(units int64) (transfers []transfer) {
	left := b.left()
	left[0] = 0
	units -= b.parts[0].free
	for units > 0 {
		from := richest(left)
		some := min(left[from], units)
		if some == 0 {
			return nil
		}
		left[from] -= some
		units -= some
		transfers = append(transfers, transfer{from, 0, some})
	}
	return transfers
}

func (b balance) left() []int64 {
	left := make([]int64, len(b.parts))
	for part := range left {
		left[part] = b.free(part)
	}
	return left
}

func richest(left []int64) (part int) {
	for i, units := range left {
		if units > left[part] {
			part = i
		}
	}
	return part
}

// give makes the first half of transfers, and returns the second. What a giver has sold
// meanwhile it does not give.
func (s *Store) give(ctx context.Context, voucherID string, epoch int64, transfers []transfer) (given []transfer, failed error) {
	calls := make([]*call, len(transfers))
	for i, t := range transfers {
		calls[i] = &call{script: s.scripts.give, voucher: voucherID, part: t.from, epoch: epoch, args: []any{t.to, t.units}}
	}
	s.run(ctx, calls...)
	failpoint.Reach(failpoint.AfterGive)
	for i, t := range transfers {
		if err := calls[i].closed("give units"); err != nil {
			failed = cmp.Or(failed, err)
			continue
		}
		given = append(given, transfer{t.from, t.to, number(calls[i].words[0])})
	}
	return given, failed
}

// takes are the calls with which parts take over what they were given.
func (s *Store) takes(voucherID string, epoch int64, given []transfer) []*call {
	calls := make([]*call, len(given))
	for i, t := range given {
		calls[i] = &call{script: s.scripts.take, voucher: voucherID, part: t.to, epoch: epoch, args: []any{t.from, t.units}}
	}
	return calls
}

func (s *Store) take(ctx context.Context, takes []*call) (failed error) {
	s.run(ctx, takes...)
	for _, c := range takes {
		failed = cmp.Or(failed, c.closed("take over units"))
	}
	return failed
}
