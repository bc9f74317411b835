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

// Release gives the unit of a closed order back, and tells every instance. It
// acts only while the user's mark is that order, and may be repeated. False is
// "later": the copy is closed, and the release is still to be applied.
func (s *Store) Release(ctx context.Context, release model.Release) (applied bool, err error) {
	if release.OrderID == "" || release.UserID == "" { // the sentinels are no order
		return false, fmt.Errorf("release %d of voucher %s names no order and user: %q, %q",
			release.ID, release.VoucherID, release.OrderID, release.UserID)
	}
	c := s.do(ctx, s.scripts.release, release.VoucherID,
		release.OrderID, release.UserID, tombstoneRetention.Milliseconds(), settledChannel)
	return c.verdict == verdictDone, c.fail("release order " + release.OrderID)
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
