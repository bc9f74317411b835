package hotcopy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"seckill/internal/budget"
	"seckill/internal/tracing"
	"seckill/model"
)

// Settle removes pending entries of committed orders, of any vouchers, and tells all instances. A bad copy stops none.
func (s *Store) Settle(ctx context.Context, orders []model.Order) error {
	orders = slices.DeleteFunc(slices.Clone(orders), func(o model.Order) bool { return o.ID == "" }) // the sentinel
	ctx, traced := s.options.Trace.Group(ctx, "settle", len(orders), func(i int) model.Order {
		return model.Order{ID: orders[i].ID, VoucherID: orders[i].VoucherID, Trace: tracing.Within(ctx, orders[i].ID)}
	})
	err := s.ofOrders(ctx, "settle orders", "settle", settledChannel, orders)
	traced.End(err, nil)
	return err
}

// Release is ReleaseAll of one order.
func (s *Store) Release(ctx context.Context, release model.Release) (applied bool, err error) {
	return s.ReleaseAll(ctx, release.VoucherID, []model.Release{release})
}

// ReleaseAll returns units of one voucher's closed orders while users' marks are these orders, and tells all instances.
// It may be repeated. False is "later": the copy is closed. Then, and after an error, some may be applied. With a
// waitlist it takes outbox rows (with an ID), in order, and a last Direct one, else model.ErrNeedsOutbox.
func (s *Store) ReleaseAll(ctx context.Context, voucherID string, releases []model.Release) (applied bool, err error) {
	ctx, end := s.options.Trace.Work(ctx, "release", len(releases))
	defer func() { end(err) }()
	for _, r := range releases {
		if r.OrderID == "" || r.UserID == "" { // the sentinels are no order
			return false, fmt.Errorf("release %d of voucher %s names no order and user: %q, %q", r.ID, voucherID,
				r.OrderID, r.UserID)
		}
	}
	if slices.ContainsFunc(releases, func(r model.Release) bool { return r.HeirID != "" }) {
		return s.handOver(ctx, voucherID, releases)
	}
	var calls []*call
	for some := range slices.Chunk(releases, callOrders) {
		calls = append(calls, releaseCall("release", voucherID, some))
	}
	var failed []error
	applied = true
	for some := range slices.Chunk(calls, pipelineCalls) {
		s.run(ctx, some...)
		for _, c := range some {
			if c.err == nil && c.verdict == verdictWaitlist {
				return s.handOver(ctx, voucherID, releases)
			}
			applied = applied && c.err == nil && c.verdict == verdictDone
			failed = append(failed, c.fail(releasing(releases)))
		}
	}
	return applied, errors.Join(failed...)
}

func releasing(releases []model.Release) string {
	return fmt.Sprintf("release order %s and %d others", releases[0].OrderID, len(releases)-1)
}

func releaseCall(script, voucherID string, releases []model.Release, more ...any) *call {
	c := &call{
		script: script, voucher: voucherID, args: append([]any{budget.Late.Milliseconds(), settledChannel}, more...),
	}
	for _, r := range releases {
		until := ""
		if r.CooldownUntil != nil {
			until = strconv.FormatInt(r.CooldownUntil.UnixMilli(), 10)
		}
		if c.args = append(c.args, r.OrderID, r.UserID, until); script == "handover" {
			c.args = append(c.args, r.HeirID, r.HeirUserID)
		}
		c.args = append(c.args, r.WrittenOff)
	}
	return c
}

// handOver applies outbox rows of a waitlist's voucher, then what a call tells, in order.
func (s *Store) handOver(ctx context.Context, voucherID string, releases []model.Release) (applied bool, err error) {
	rows, told := releases, []model.Release(nil)
	if n := slices.IndexFunc(releases, func(r model.Release) bool { return r.ID == 0 }); n >= 0 {
		rows, told = releases[:n], releases[n:]
		if len(told) > 1 || !told[0].Direct {
			return false, model.ErrNeedsOutbox
		}
	}
	var calls []*call
	for some := range slices.Chunk(rows, callOrders) {
		calls = append(calls, releaseCall("handover", voucherID, some, ""))
	}
	if told != nil {
		calls = append(calls, releaseCall("handover", voucherID, told, "told"))
	}
	for _, c := range calls {
		s.run(ctx, c)
		if told != nil && c.err == nil && c.verdict == verdictWaitlist {
			return false, model.ErrNeedsOutbox
		}
		if c.err != nil || c.verdict != verdictDone {
			return false, c.fail(releasing(releases))
		}
	}
	return true, nil
}

// Mend makes what is noted of orders agree with whether they are pending, whatever broke a change off: a pending one
// without a note is due after a while, the others lose theirs. ErrCopyClosed as for Touch.
func (s *Store) Mend(ctx context.Context, voucherID string, orderIDs []string) error {
	for some := range slices.Chunk(orderIDs, callOrders) { // of one voucher: the first that fails speaks for the rest
		orders := make([]model.Order, len(some))
		for i, id := range some {
			orders[i] = model.Order{ID: id, VoucherID: voucherID}
		}
		if err := s.ofOrders(ctx, "mend orders", "touch", "NX", orders); err != nil {
			return err
		}
	}
	return nil
}

// Touch makes republished reservations, except settled ones, due after a while. ErrCopyClosed: some copies are closed.
func (s *Store) Touch(ctx context.Context, reservations []model.Reservation) error {
	orders := make([]model.Order, len(reservations))
	for i, r := range reservations {
		orders[i] = r.Order
	}
	return s.ofOrders(ctx, "touch orders", "touch", "", orders)
}
