package hotcopy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"seckill/internal/failpoint"
	"seckill/model"
)

const (
	// loadEntries is how many orders one script call loads; it holds up other
	// calls for some hundred microseconds.
	loadEntries = 500
	// closeTries bounds how often a close comes back with more keys: the epochs that
	// a head names change only when another instance closes it too.
	closeTries = 3
	// closeMore is close.lua's verdict that it wants the keys of more epochs.
	closeMore = 2
)

// Close closes a copy, in whatever state its parts are, and gives it the epoch of the
// record. Of the earlier epochs it keeps the one that the database has opened last, for the
// rebuild, and frees the others. It is ErrSuperseded when a head's epoch is greater, or when
// the record's was opened already. A key of another kind in a head's place is deleted.
func (s *Store) Close(ctx context.Context, record model.EpochRecord) error {
	shards := record.Parts()
	open := s.partsOf(s.scripts.closing, record, max(record.Spread, shards), retention.Milliseconds(), record.OpenEpoch, shards)
	for try := 1; len(open) > 0; try++ {
		s.run(ctx, open...)
		var again []*call
		for _, c := range open {
			switch {
			case try < closeTries && c.spoiled:
				// It has told no more which epoch it was of: the one before may be there, if the opened one
				// is so in the database alone.
				s.free(ctx, append(epochKeys(c.voucher, c.part, record.OpenEpoch-1), headKey(c.voucher, c.part))...)
			case try < closeTries && c.err == nil && c.verdict == closeMore:
				for _, word := range c.words {
					c.keys = append(c.keys, epochKeys(c.voucher, c.part, number(word))...)
					c.args = append(c.args, word)
				}
			default:
				if err := c.done("close the hot copy", model.ErrSuperseded); err != nil {
					return err
				}
				continue
			}
			again = append(again, c)
		}
		open = again
	}
	return nil
}

// free deletes keys of one part without holding up other calls. A failure is not reported:
// the next call that uses the keys meets it.
func (s *Store) free(ctx context.Context, keys ...string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+s.options.Slack)
	defer cancel()
	_ = s.client.Unlink(ctx, keys...).Err()
}

// Abandon frees what was loaded of an epoch that was not opened, and never will be.
func (s *Store) Abandon(ctx context.Context, record model.EpochRecord) {
	s.freeParts(ctx, record.VoucherID, record.Epoch, 0, record.Shards)
}

// freeParts frees the keys of one epoch in several parts.
func (s *Store) freeParts(ctx context.Context, voucherID string, epoch int64, from, end int) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+s.options.Slack)
	defer cancel()
	pipe := s.client.Pipeline()
	for part := from; part < max(end, 1); part++ {
		pipe.Unlink(ctx, epochKeys(voucherID, part, epoch)...)
	}
	_, _ = pipe.Exec(ctx) // as in free
}

// Load loads a part of a closed copy: live orders, and reservations that are
// carried over and due at once, in any order. It may be repeated. A Load of
// nothing begins, and must come first. ErrSuperseded as for Close, when Redis is
// another server than at Close, and when something was lost since the load began.
func (s *Store) Load(ctx context.Context, record model.EpochRecord, live []model.Order, carried []model.Reservation) (err error) {
	ctx, end := s.options.Trace.Work(ctx, "load", len(live)+len(carried))
	defer func() { end(err) }()
	id, shards := record.VoucherID, record.Parts()
	var calls []*call
	if len(live)+len(carried) == 0 {
		calls = s.parts(s.scripts.load, id, shards, loadRetention.Milliseconds(), 0, 0)
	}
	orders := byPart(live, shards, func(order model.Order) string { return order.UserID })
	reservations := byPart(carried, shards, func(r model.Reservation) string { return r.UserID })
	for part := range shards {
		for some := range slices.Chunk(orders[part], loadEntries) {
			calls = append(calls, s.loadCall(id, part, some, nil))
		}
		for some := range slices.Chunk(reservations[part], loadEntries) {
			calls = append(calls, s.loadCall(id, part, nil, some))
		}
	}
	for some := range slices.Chunk(calls, pipelineCalls) {
		for _, c := range some {
			c.epoch = record.Epoch
		}
		s.run(ctx, some...)
		for _, c := range some {
			if err := c.done("load the hot copy", model.ErrSuperseded); err != nil {
				return err
			}
		}
	}
	return nil
}

// byPart sorts things by the parts of their users.
func byPart[T any](things []T, shards int, userOf func(T) string) [][]T {
	if shards == 1 {
		return [][]T{things}
	}
	parts := make([][]T, shards)
	for _, thing := range things {
		part := model.PartOf(userOf(thing), shards)
		parts[part] = append(parts[part], thing)
	}
	return parts
}

func (s *Store) loadCall(voucherID string, part int, live []model.Order, carried []model.Reservation) *call {
	c := &call{script: s.scripts.load, voucher: voucherID, part: part}
	c.args = append(make([]any, 0, 3+2*len(live)+3*len(carried)), loadRetention.Milliseconds(), len(live), len(carried))
	for _, order := range live {
		c.args = append(c.args, order.UserID, order.ID)
	}
	for _, r := range carried {
		c.args = append(c.args, r.UserID)
	}
	for _, r := range carried {
		c.args = append(c.args, r.ID, writeEntry(r))
	}
	return c
}

// Open opens a loaded copy of the voucher, whose stock the database lacks so many
// units of, if no other epoch was begun: otherwise ErrSuperseded. It may be
// repeated. The keys of the epoch that was open before are freed.
//
// Of a divided copy part 0 has the stock. It is opened last, and gives each of the others as
// many units as are taken there and an even share of those that are left.
func (s *Store) Open(ctx context.Context, record model.EpochRecord, v model.Voucher, missing int64) error {
	shards := record.Parts()
	calls := s.partsOf(s.scripts.open, record, shards)
	given, err := s.shares(ctx, record, v.Stock-missing)
	if err != nil {
		return err
	}
	for part, c := range calls {
		c.args = []any{missing, keptUntil(v), retention.Milliseconds()}
		if part > 0 {
			c.args = []any{0, keptUntil(v), retention.Milliseconds(), "<0", given[part], "got", given[part]}
		}
		c.args = append(c.args, voucherFields(v, part)...)
		if record.OpenEpoch != 0 && record.OpenEpoch != record.Epoch {
			c.keys = epochKeys(v.ID, part, record.OpenEpoch)
		}
	}
	if shards > 1 {
		if err := s.openOthers(ctx, calls[0], calls[1:]); err != nil {
			return err
		}
		failpoint.Reach(failpoint.AfterOpenParts)
	}
	s.run(ctx, calls[0])
	if err := calls[0].done("open the hot copy", model.ErrSuperseded); err != nil {
		return err
	}
	if record.Spread > shards {
		s.freeParts(ctx, v.ID, record.OpenEpoch, shards, record.Spread)
	}
	return nil
}

// openOthers opens the parts behind the first, and has the first one give what they say
// that they were given: they may have been opened before.
func (s *Store) openOthers(ctx context.Context, first *call, others []*call) error {
	s.run(ctx, others...)
	sum := int64(0)
	for _, c := range others {
		if err := c.done("open the hot copy", model.ErrSuperseded); err != nil {
			return err
		}
		given := number(c.words[0])
		sum += given
		first.args = append(first.args, ">"+strconv.Itoa(c.part), given)
	}
	first.args = append(first.args, "given", sum)
	return nil
}

// shares tells how many units of those that can be sold, in all, each part of a loaded copy
// is to have: those that are taken there, and an even share of the others. A part that an
// earlier call has opened keeps what it has.
func (s *Store) shares(ctx context.Context, record model.EpochRecord, units int64) ([]int64, error) {
	if record.Shards <= 1 {
		return nil, nil
	}
	calls := s.partsOf(s.scripts.read, record, record.Shards)
	s.run(ctx, calls...)
	shares := make([]int64, record.Shards)
	var loaded []int
	for part, c := range calls {
		hot, err := c.hotCopy()
		if err == nil && hot.Epoch != record.Epoch {
			err = fmt.Errorf("open the hot copy of voucher %s: %w", record.VoucherID, model.ErrSuperseded)
		}
		if err != nil {
			return nil, err
		}
		if part > 0 && hot.State == model.CopyOpen {
			given, got := c.moves()
			units -= got - given
			continue
		}
		loaded = append(loaded, part)
		shares[part] = hot.Buyers
		units -= hot.Buyers
	}
	for i, more := range model.Spread(max(units, 0), len(loaded)) {
		shares[loaded[i]] += more
	}
	return shares, nil
}

// Verdicts of lower.lua.
const (
	lowerTaken = 2
	lowerNewer = 3
)

// Apply brings a voucher as the database has it to its copy: window, price,
// state and stock, except to parts that have a newer revision. False when the copy is
// closed, or has to be divided otherwise: its rebuild will load what the database has then.
func (s *Store) Apply(ctx context.Context, v model.Voucher) (applied bool, err error) {
	calls := s.allOf(ctx, v.ID, func(shards int) []*call {
		calls := s.parts(s.scripts.apply, v.ID, shards, v.Revision, keptUntil(v), retention.Milliseconds())
		for part, c := range calls {
			c.args = append(c.args, voucherFields(v, part)...)
		}
		return calls
	})
	applied = len(calls) == v.Shards.Parts()
	for _, c := range calls {
		applied = applied && c.verdict == verdictDone
		err = errors.Join(err, c.fail("apply a change"))
	}
	return applied, err
}

// Lower lowers the stock before the database does, so that nothing is admitted
// that could not be kept: CONFLICT when more is taken already. The revision is
// that of the voucher with the intent, so that no older change is applied
// afterwards; ErrSuperseded says that a newer one was applied.
func (s *Store) Lower(ctx context.Context, voucherID string, stock, revision int64) error {
	const action = "lower the stock"
	for {
		c := s.do(ctx, s.scripts.lower, voucherID, stock, revision)
		switch {
		case c.err == nil && c.verdict == lowerTaken:
			if err := s.gather(ctx, voucherID, c); err != nil {
				return err
			}
		case c.err == nil && c.verdict == lowerNewer:
			return fmt.Errorf("%s of voucher %s: %w", action, voucherID, model.ErrSuperseded)
		default:
			return c.closed(action)
		}
	}
}
