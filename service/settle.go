package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"seckill/internal/failpoint"
	"seckill/internal/telemetry"
	"seckill/model"
)

// settleTimeout bounds what one batch may tell the hot copies: the rows are
// committed and the reconciler repeats the rest, so that a Redis which hangs
// must not hold the queue up.
const settleTimeout = 2 * time.Second

// SettledCopies is what a committed row may do to a hot copy.
type SettledCopies interface {
	// Settle ends the reservations of rows that are committed.
	Settle(ctx context.Context, voucherID string, orderIDs []string) error
	// Release gives back the unit of a closed row; false means "later".
	Release(ctx context.Context, release model.Release) (applied bool, err error)
	// OrderOf tells which order a user's mark names; "" without a mark.
	OrderOf(ctx context.Context, voucherID, userID string) (orderID string, pending *model.Reservation, err error)
	// Pending finds an order that is not known to be persisted.
	Pending(ctx context.Context, orderID string) (model.Reservation, bool, error)
	Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error)
}

// Settler tells hot copies what became of reservations.
type Settler struct {
	copies   SettledCopies
	notes    CanceledNotes
	rebuilds CopyDoctor
	metrics  *telemetry.Worker
	log      *slog.Logger
	troubled atomic.Bool // it was said that hot copies cannot be told
}

// SettlerDeps is what a Settler works with.
type SettlerDeps struct {
	Copies   SettledCopies
	Notes    CanceledNotes
	Rebuilds CopyDoctor
	Metrics  *telemetry.Worker
	Log      *slog.Logger
}

// NewSettler makes a Settler.
func NewSettler(deps SettlerDeps) *Settler {
	return &Settler{
		copies: deps.Copies, notes: deps.Notes, rebuilds: deps.Rebuilds, metrics: deps.Metrics, log: deps.Log,
	}
}

// finishedOrder is a reservation and the committed row that has decided it.
type finishedOrder struct {
	reservation model.Reservation
	row         model.Order
}

// finish tells the hot copies of rows the worker has committed. It is bounded
// in time and answers nothing: what cannot be told now is found again by the
// reconciler.
func (s *Settler) finish(ctx context.Context, orders []finishedOrder) {
	if len(orders) == 0 {
		return
	}
	for _, order := range orders {
		s.account(ctx, order)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	err := s.settle(ctx, orders)
	if err == nil {
		if s.troubled.CompareAndSwap(true, false) {
			s.log.InfoContext(ctx, "the hot copies can be told of orders again")
		}
		return
	}
	s.metrics.Unsettled()
	if s.troubled.CompareAndSwap(false, true) {
		s.log.WarnContext(ctx, "the hot copies could not be told of orders; the reconciler does it",
			slog.Any("error", err))
	}
}

// account counts a row, and names an order that failed after its admission.
func (s *Settler) account(ctx context.Context, order finishedOrder) {
	s.metrics.Persisted(string(order.row.Status), 1)
	if order.row.Status != model.OrderFailed {
		return
	}
	s.metrics.Failed(order.row.Reason)
	s.log.ErrorContext(ctx, "an order failed after it had been admitted",
		slog.String("order_id", order.row.ID), slog.String("voucher_id", order.row.VoucherID),
		slog.String("user_id", order.row.UserID), slog.String("reason", order.row.Reason),
		slog.Int64("epoch", order.reservation.Epoch))
}

// settle settles the live rows, one call for each voucher, and closes the others.
// A copy that cannot be told holds up no other one.
func (s *Settler) settle(ctx context.Context, orders []finishedOrder) error {
	settled := map[string][]string{}
	var closed []finishedOrder
	for _, order := range orders {
		if order.row.Live() || refusedByTheDatabase(order.row) {
			settled[order.row.VoucherID] = append(settled[order.row.VoucherID], order.row.ID)
		}
		if !order.row.Live() {
			closed = append(closed, order)
		}
	}
	failpoint.Reach(failpoint.BeforeSettle)
	var failed []error
	for voucherID, ids := range settled {
		if err := s.copies.Settle(ctx, voucherID, ids); err != nil {
			failed = append(failed, fmt.Errorf("settle %d orders of voucher %s: %w", len(ids), voucherID, err))
		}
	}
	failed = append(failed, s.close(ctx, closed))
	if err := errors.Join(failed...); err != nil {
		return err
	}
	failpoint.Reach(failpoint.AfterSettle)
	return nil
}
