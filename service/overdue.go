package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"seckill/internal/failpoint"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// overdueAge is when a reservation is looked at: many times what a worker
	// needs that is not behind, and a sixth of what may pass until the work of a
	// dead process is settled.
	overdueAge = 5 * time.Second
	// overduePage bounds what one look handles of one voucher, oldest first.
	overduePage = 1000
)

// errEnough ends a reading that was bounded.
var errEnough = errors.New("enough was read")

// RepublishQueue is what the reconciler needs of the queue.
type RepublishQueue interface {
	BacklogOf(ctx context.Context, voucherID string) (model.Backlog, error)
	Publish(ctx context.Context, reservations []model.Reservation) error
	// Buried names the orders that have a dead letter.
	Buried(ctx context.Context) (map[string]bool, error)
}

// overdue settles reservations that are older than they should be: their row is
// there and Redis was not told, or nobody has published them, or their message
// is lost.
type overdue struct {
	rows    RowFinder
	copies  ReconciledCopies
	queue   RepublishQueue
	settler *Settler
	metrics *telemetry.Worker
	log     *slog.Logger

	// sighted says what the queue's newest message was when a reservation
	// without a row was first seen, by voucher and order: once the worker has
	// passed that, no message carries the order. Older sightings are forgotten
	// with their reservations.
	sighted map[string]map[string]uint64
	before  map[string]map[string]uint64
}

// begin starts a look at all vouchers.
func (o *overdue) begin() { o.before, o.sighted = o.sighted, map[string]map[string]uint64{} }

// reconcile looks at one voucher. Its reservations name the epoch of the copy that
// holds them: with that of an earlier one, read before a rebuild, they would be
// published only to fail.
func (o *overdue) reconcile(ctx context.Context, voucherID string) error {
	due, err := o.copies.Due(ctx, voucherID, overdueAge, overduePage)
	if err != nil || len(due) == 0 {
		if errors.Is(err, model.ErrCopyClosed) {
			return nil // since it was read
		}
		return wrapped(err, "read old reservations of voucher "+voucherID)
	}
	missing, err := o.settle(ctx, due)
	if err != nil || len(missing) == 0 {
		return err
	}
	backlog, err := o.queue.BacklogOf(ctx, voucherID)
	if err != nil {
		return fmt.Errorf("look at the queue: %w", err)
	}
	lost := o.lost(voucherID, missing, backlog)
	if len(lost) == 0 {
		return nil
	}
	// The floor was read after the rows: one of them may have come in between.
	if lost, err = o.settle(ctx, lost); err != nil || len(lost) == 0 {
		return err
	}
	return o.republish(ctx, lost)
}

// settle tells the hot copy of those that have a row, and returns the others.
func (o *overdue) settle(ctx context.Context, due []model.Reservation) ([]model.Reservation, error) {
	var missing []model.Reservation
	for part := range chunks(due, findChunk) {
		ids := make([]string, len(part))
		for i, r := range part {
			ids[i] = r.ID
		}
		rows, err := o.rows.Find(ctx, ids)
		if err != nil {
			return nil, fmt.Errorf("look for the rows of %d old reservations: %w", len(ids), err)
		}
		decided, open := split(rows, part)
		missing = append(missing, open...)
		if len(decided) == 0 {
			continue
		}
		if err := o.settler.settle(ctx, decided); err != nil {
			return nil, err
		}
		o.metrics.Reconciled("settled", len(decided))
		o.log.InfoContext(ctx, "reservations were settled that their worker had left",
			slog.Int("orders", len(decided)), slog.String("first", decided[0].row.ID))
	}
	return missing, nil
}

// lost returns the reservations which no message carries any more.
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

// republish sends reservations on their way again, unless they are among the
// dead letters: those would come back for ever.
func (o *overdue) republish(ctx context.Context, lost []model.Reservation) error {
	buried, err := o.queue.Buried(ctx)
	if err != nil {
		return fmt.Errorf("list the dead letters: %w", err)
	}
	var again []model.Reservation
	for _, r := range lost {
		if !buried[r.ID] {
			again = append(again, r)
		}
	}
	if len(again) > 0 {
		failpoint.Reach(failpoint.BeforeRepublish)
		if err := o.queue.Publish(ctx, again); err != nil {
			return fmt.Errorf("publish %d orders again, the first %s: %w", len(again), again[0].ID, err)
		}
		failpoint.Reach(failpoint.AfterRepublish)
		o.metrics.Reconciled("republished", len(again))
		o.log.WarnContext(ctx, "orders that no message carried were published again",
			slog.Int("orders", len(again)), slog.String("first", again[0].ID))
	}
	// The buried ones too: they stay reserved, and must not fill the page.
	if err := o.copies.Touch(ctx, lost); err != nil && !errors.Is(err, model.ErrCopyClosed) {
		return fmt.Errorf("touch %d reservations: %w", len(lost), err)
	}
	return nil
}

// wrapped says what was being done when err came; nil stays nil.
func wrapped(err error, action string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", action, err)
}
