package hotcopy

import (
	"context"
	"fmt"
	"slices"

	"seckill/model"
)

const (
	// loadEntries is how many orders one script call loads; it holds up other
	// calls for some hundred microseconds.
	loadEntries = 500
	// closeTries bounds how often a close comes back with more keys: the epochs that
	// the head names change only when another instance closes it too.
	closeTries = 3
	// closeMore is close.lua's verdict that it wants the keys of more epochs.
	closeMore = 2
)

// Close closes a copy, in whatever state it is, and gives it the epoch given. Of
// the earlier epochs it keeps the one that the database has opened last (0: none),
// for the rebuild, and frees the others. It is ErrSuperseded when the head's epoch
// is greater, or when the epoch given was opened already. A key of another kind in
// the head's place is deleted.
func (s *Store) Close(ctx context.Context, voucherID string, epoch, opened int64) error {
	c := &call{
		script: s.scripts.closing, voucher: voucherID, epoch: epoch, args: []any{retention.Milliseconds(), opened},
	}
	for range closeTries {
		s.run(ctx, c)
		if otherKind(c.err) {
			s.free(ctx, headKey(voucherID))
			s.run(ctx, c)
		}
		if c.err != nil || c.verdict != closeMore {
			break
		}
		for _, word := range c.words {
			c.keys = append(c.keys, epochKeys(voucherID, number(word))...)
			c.args = append(c.args, word)
		}
	}
	return c.done("close the hot copy", model.ErrSuperseded)
}

// free deletes keys without holding up other calls. A failure is not reported: the
// next call that uses the keys meets it.
func (s *Store) free(ctx context.Context, keys ...string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_ = s.client.Unlink(ctx, keys...).Err()
}

// Abandon frees what was loaded of an epoch that was not opened, and never will be.
func (s *Store) Abandon(ctx context.Context, voucherID string, epoch int64) {
	s.free(ctx, epochKeys(voucherID, epoch)...)
}

// Load loads a part of a closed copy: live orders, and reservations that are
// carried over and due at once, in any order. It may be repeated. A Load of
// nothing begins, and must come first. ErrSuperseded as for Close, when Redis is
// another server than at Close, and when something was lost since the load began.
func (s *Store) Load(
	ctx context.Context, voucherID string, epoch int64, live []model.Order, carried []model.Reservation,
) error {
	var calls []*call
	part := func(live []model.Order, carried []model.Reservation) {
		c := &call{script: s.scripts.load, voucher: voucherID, epoch: epoch}
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
		calls = append(calls, c)
	}
	if len(live)+len(carried) == 0 {
		part(nil, nil)
	}
	for some := range slices.Chunk(live, loadEntries) {
		part(some, nil)
	}
	for some := range slices.Chunk(carried, loadEntries) {
		part(nil, some)
	}
	for some := range slices.Chunk(calls, pipelineCalls) {
		s.run(ctx, some...)
		for _, c := range some {
			if err := c.done("load the hot copy", model.ErrSuperseded); err != nil {
				return err
			}
		}
	}
	return nil
}

// Open opens a loaded copy of the voucher, whose stock the database lacks so many
// units of, if no other epoch was begun: otherwise ErrSuperseded. It may be
// repeated. The keys of the previous epoch (0: none) are freed.
func (s *Store) Open(ctx context.Context, v model.Voucher, epoch, missing, previous int64) error {
	c := &call{script: s.scripts.open, voucher: v.ID, epoch: epoch, args: []any{
		missing, keptUntil(v), retention.Milliseconds(),
	}}
	c.args = append(c.args, voucherFields(v)...)
	if previous != 0 && previous != epoch {
		c.keys = epochKeys(v.ID, previous)
	}
	s.run(ctx, c)
	return c.done("open the hot copy", model.ErrSuperseded)
}

// Verdicts of lower.lua.
const (
	lowerTaken = 2
	lowerNewer = 3
)

// Apply brings a voucher as the database has it to its copy: window, price,
// state and stock, unless the copy has a newer revision. False when the copy is
// closed: its rebuild will load what the database has then.
func (s *Store) Apply(ctx context.Context, v model.Voucher) (applied bool, err error) {
	args := append([]any{v.Revision, keptUntil(v), retention.Milliseconds()}, voucherFields(v)...)
	c := s.do(ctx, s.scripts.apply, v.ID, args...)
	return c.verdict == verdictDone, c.fail("apply a change")
}

// Lower lowers the stock before the database does, so that nothing is admitted
// that could not be kept: CONFLICT when more is taken already. The revision is
// that of the voucher with the intent, so that no older change is applied
// afterwards; ErrSuperseded says that a newer one was applied.
func (s *Store) Lower(ctx context.Context, voucherID string, stock, revision int64) error {
	c := s.do(ctx, s.scripts.lower, voucherID, stock, revision)
	const action = "lower the stock"
	switch {
	case c.err == nil && c.verdict == lowerTaken:
		return model.Conflict("More than that is sold or reserved already.")
	case c.err == nil && c.verdict == lowerNewer:
		return fmt.Errorf("%s of voucher %s: %w", action, voucherID, model.ErrSuperseded)
	}
	return c.closed(action)
}
