package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"seckill/internal/failpoint"
	"seckill/model"
)

const (
	// overdueAge is the age at which a reservation is looked at: many times what a
	// worker without a backlog needs, and a sixth of the time in which the work of a
	// dead process must be settled.
	overdueAge = 5 * time.Second
	// overduePage bounds the reservations of one voucher in one look, oldest first.
	overduePage = 1000
)

// errEnough ends a reading that was bounded.
var errEnough = errors.New("enough was read")

// overdue looks after old reservations: their row is committed and Redis was not told,
// or they were never published, or their message is lost.
type overdue struct {
	Parts

	settler *Settler

	// sighted is the number of the queue's newest message when a reservation without a
	// row was first seen, by voucher and order. Once the consumer has passed that
	// message, no message carries the order. Before is the same as of the previous
	// look; sightings that a look does not repeat are forgotten with it.
	sighted map[string]map[string]uint64
	before  map[string]map[string]uint64
}

// begin begins a look at all vouchers.
func (o *overdue) begin() { o.before, o.sighted = o.sighted, map[string]map[string]uint64{} }

// reconcile looks at one voucher. Due names for each reservation the epoch of the hot
// copy that holds it now: published with an earlier epoch, its order would only fail.
func (o *overdue) reconcile(ctx context.Context, voucherID string) error {
	due, err := o.Hot.Due(ctx, voucherID, overdueAge, overduePage)
	switch {
	case errors.Is(err, model.ErrCopyClosed): // it was closed a moment ago
		return nil
	case err != nil:
		return fmt.Errorf("read old reservations of voucher %s: %w", voucherID, err)
	case len(due) == 0:
		return nil
	}
	missing, err := o.settle(ctx, due)
	if err != nil || len(missing) == 0 {
		return err
	}
	backlog, err := o.Queue.BacklogOf(ctx, voucherID)
	if err != nil {
		return fmt.Errorf("look at the queue: %w", err)
	}
	lost := o.lost(voucherID, missing, backlog)
	if len(lost) == 0 {
		return nil
	}
	// The queue was read after the rows: a row may have been committed in between.
	if lost, err = o.settle(ctx, lost); err != nil || len(lost) == 0 {
		return err
	}
	return o.republish(ctx, lost)
}

// settle settles the reservations that have a row, and returns the others.
func (o *overdue) settle(ctx context.Context, due []model.Reservation) ([]model.Reservation, error) {
	done, missing, err := o.sort(ctx, due)
	if err != nil || len(done) == 0 {
		return missing, err
	}
	if err := o.settler.settle(ctx, done); err != nil {
		return nil, err
	}
	o.Metrics.Reconciled("settled", len(done))
	o.Log.InfoContext(ctx, "reservations were settled that their worker had left",
		slog.Int("orders", len(done)), slog.String("first", done[0].row.ID))
	return missing, nil
}

// lost returns the reservations that no message carries any more.
func (o *overdue) lost(voucherID string, missing []model.Reservation, backlog model.Backlog) []model.Reservation {
	seen := make(map[string]uint64, len(missing))
	var lost []model.Reservation
	for _, r := range missing {
		sequence, known := o.before[voucherID][r.ID]
		switch {
		case !known || sequence > backlog.LastSequence: // new, or the queue is another one
			sequence = backlog.LastSequence
		case backlog.AckFloor >= sequence:
			lost = append(lost, r)
		}
		seen[r.ID] = sequence
	}
	o.sighted[voucherID] = seen
	return lost
}

// republish publishes reservations again. One that has a dead letter would only fail
// again: it gets the failed row that its worker could not write before its message was lost.
func (o *overdue) republish(ctx context.Context, lost []model.Reservation) error {
	buried, err := o.Queue.Buried(ctx)
	if err != nil {
		return fmt.Errorf("list the dead letters: %w", err)
	}
	var again []model.Reservation
	var failed []decided
	for _, r := range lost {
		if !buried[r.ID] {
			again = append(again, r)
			continue
		}
		row, err := o.Database.Fail(ctx, r, model.ReasonUnprocessable)
		if err != nil {
			o.Log.ErrorContext(ctx, "the unit of a dead letter cannot be given back",
				slog.String("order_id", r.ID), slog.Any("error", err))
			continue
		}
		failed = append(failed, decided{reservation: r, row: row})
	}
	o.settler.finish(ctx, failed)
	if len(again) > 0 {
		failpoint.Reach(failpoint.BeforeRepublish)
		if err := o.Queue.Publish(ctx, again); err != nil {
			return fmt.Errorf("publish %d orders again, the first %s: %w", len(again), again[0].ID, err)
		}
		failpoint.Reach(failpoint.AfterRepublish)
		o.Metrics.Reconciled("republished", len(again))
		o.Log.WarnContext(ctx, "orders that no message carried were published again",
			slog.Int("orders", len(again)), slog.String("first", again[0].ID))
	}
	// Also those of which nothing could be done: they must not fill the page.
	if err := o.Hot.Touch(ctx, lost); err != nil && !errors.Is(err, model.ErrCopyClosed) {
		return fmt.Errorf("touch %d reservations: %w", len(lost), err)
	}
	return nil
}
