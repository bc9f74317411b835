package service

import (
	"context"
	"errors"
	"fmt"

	"seckill/internal/failpoint"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// relayPage is how many returned units are read at once.
	relayPage = 500
	// maxRelayPages bounds one pass. It goes on past units whose copies are
	// closed, so that one voucher that cannot be opened holds up nobody else.
	maxRelayPages = 20
)

// ReleaseStore is the outbox of units that the database has given back.
type ReleaseStore interface {
	// After reads the oldest that follow one, at most so many.
	After(ctx context.Context, id int64, limit int) ([]model.Release, error)
	Done(ctx context.Context, ids []int64) error
}

// RowFinder finds orders that have a row.
type RowFinder interface {
	Find(ctx context.Context, ids []string) (map[string]model.Order, error)
}

// relay brings returned units to the hot copies. Whoever gave a unit back has
// tried that already; this is for those who died, or met a closed copy.
type relay struct {
	store   ReleaseStore
	rows    RowFinder
	settler *Settler
	metrics *telemetry.Worker
}

// pass relays what is in the outbox, oldest first. What meets a closed copy
// stays for later.
func (r *relay) pass(ctx context.Context) error {
	var last int64
	waiting := 0
	var failed []error
	later := map[string]bool{}
	for range maxRelayPages {
		page, err := r.store.After(ctx, last, relayPage)
		if err != nil {
			return fmt.Errorf("read returned units: %w", err)
		}
		if len(page) == 0 {
			break
		}
		last = page[len(page)-1].ID
		done, err := r.apply(ctx, page, later)
		failed = append(failed, err)
		if err := r.note(ctx, done); err != nil {
			return err
		}
		waiting += len(page) - len(done)
		if len(page) < relayPage {
			break
		}
	}
	r.metrics.ReleasesWaiting(waiting)
	return errors.Join(failed...)
}

func (r *relay) note(ctx context.Context, done []int64) error {
	if len(done) == 0 {
		return nil
	}
	if err := r.store.Done(ctx, done); err != nil {
		return fmt.Errorf("note %d returned units: %w", len(done), err)
	}
	failpoint.Reach(failpoint.AfterReleaseNoted)
	r.metrics.Reconciled("relayed", len(done))
	return nil
}

// apply gives the units of one page back, one by one, and tells which are done.
// A copy that cannot be told holds up no other one.
func (r *relay) apply(ctx context.Context, page []model.Release, later map[string]bool) ([]int64, error) {
	ids := make([]string, len(page))
	for i, release := range page {
		ids[i] = release.OrderID
	}
	rows, err := r.rows.Find(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read the orders of returned units: %w", err)
	}
	var done []int64
	var failed []error
	for _, release := range page {
		if later[release.VoucherID] {
			continue
		}
		row := rows[release.OrderID] // why it was closed; without it the release alone must do
		row.ID, row.VoucherID, row.UserID = release.OrderID, release.VoucherID, release.UserID
		failpoint.Reach(failpoint.BeforeRelease)
		applied, err := r.settler.undo(ctx, finishedOrder{row: row})
		if err != nil {
			failed = append(failed, err)
		}
		failpoint.Reach(failpoint.AfterRelease)
		if applied && err == nil {
			done = append(done, release.ID)
		} else {
			later[release.VoucherID] = true
		}
	}
	return done, errors.Join(failed...)
}
