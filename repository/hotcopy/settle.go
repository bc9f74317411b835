package hotcopy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"seckill/model"
)

// Settle removes the pending entries of orders whose rows are committed, and
// tells every instance, also when the copy is closed.
func (s *Store) Settle(ctx context.Context, voucherID string, orderIDs []string) error {
	var calls []*call
	for ids := range slices.Chunk(orderIDs, callOrders) {
		c := &call{script: s.scripts.settle, voucher: voucherID, args: []any{settledChannel}}
		for _, id := range ids {
			if id != "" { // the sentinel
				c.args = append(c.args, id)
			}
		}
		if len(c.args) > 1 {
			calls = append(calls, c)
		}
	}
	return s.all(ctx, "settle orders", calls)
}

// Release is ReleaseAll of one order.
func (s *Store) Release(ctx context.Context, release model.Release) (applied bool, err error) {
	return s.ReleaseAll(ctx, release.VoucherID, []model.Release{release})
}

// ReleaseAll gives the units of closed orders of one voucher back, and tells every
// instance. It acts only while a user's mark is that order, and may be repeated. False is
// "later": the copy is closed, and the releases are still to be applied. Then, and after
// an error, some of them may have been.
func (s *Store) ReleaseAll(ctx context.Context, voucherID string, releases []model.Release) (applied bool, err error) {
	var calls []*call
	for some := range slices.Chunk(releases, callOrders) {
		c := &call{script: s.scripts.release, voucher: voucherID, args: []any{tombstoneRetention.Milliseconds(), settledChannel}}
		for _, r := range some {
			if r.OrderID == "" || r.UserID == "" { // the sentinels are no order
				return false, fmt.Errorf("release %d of voucher %s names no order and user: %q, %q", r.ID, voucherID, r.OrderID, r.UserID)
			}
			c.args = append(c.args, r.OrderID, r.UserID)
		}
		calls = append(calls, c)
	}
	var failed []error
	applied = true
	for part := range slices.Chunk(calls, pipelineCalls) {
		s.run(ctx, part...)
		for _, c := range part {
			applied = applied && c.err == nil && c.verdict == verdictDone
			failed = append(failed, c.fail(fmt.Sprintf("release order %s and %d others", releases[0].OrderID, len(releases)-1)))
		}
	}
	return applied, errors.Join(failed...)
}

// Touch notes that reservations were published again: they are due again after a
// while. Settled ones are left alone. So are those of a closed copy, and then the
// answer is ErrCopyClosed, after all others were touched.
func (s *Store) Touch(ctx context.Context, reservations []model.Reservation) error {
	var calls []*call
	filling := make(map[string]*call)
	for _, r := range reservations {
		c := filling[r.VoucherID]
		if c == nil || len(c.args) == callOrders {
			c = &call{script: s.scripts.touch, voucher: r.VoucherID}
			filling[r.VoucherID] = c
			calls = append(calls, c)
		}
		c.args = append(c.args, r.ID)
	}
	return s.all(ctx, "touch orders", calls)
}

// all makes any number of calls, and joins what went wrong with them.
func (s *Store) all(ctx context.Context, action string, calls []*call) error {
	var failed []error
	for part := range slices.Chunk(calls, pipelineCalls) {
		s.run(ctx, part...)
		for _, c := range part {
			failed = append(failed, c.closed(action))
		}
	}
	return errors.Join(failed...)
}
