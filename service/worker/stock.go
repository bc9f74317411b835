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
	// firstLoadBudget is what a new voucher's answer waits for its hot copy,
	// which takes some milliseconds; without it the reconciler loads the copy.
	firstLoadBudget = 2 * time.Second
	// firstLoadPause is between two looks whether another instance has loaded
	// it, which takes some ten milliseconds.
	firstLoadPause = 10 * time.Millisecond
	// hotChangeBudget bounds what an administrator's change tells a hot copy.
	hotChangeBudget = 2 * time.Second
)

// Stock brings administrators' changes of vouchers to their hot copies.
type Stock struct {
	Parts

	rebuilder *Rebuilder
	auditor   *Auditor
}

// Audit is Auditor's.
func (s *Stock) Audit(ctx context.Context, voucherID string) (model.Audit, error) {
	return s.auditor.Audit(ctx, voucherID)
}

// Rebuild closes a voucher's hot copy and has it made anew behind the caller's back.
func (s *Stock) Rebuild(ctx context.Context, voucherID string) error {
	if !model.ValidID(voucherID) {
		return model.NotFound("voucher")
	}
	return unreachable("The hot copy could not be closed.", s.rebuilder.Begin(ctx, voucherID))
}

// Change changes the stock in the database, and in the hot copy before
// that when it shrinks, after that when it grows: what the copy has promised is
// never undercut.
func (s *Stock) Change(
	ctx context.Context, id string, change model.StockChange, once model.Idempotency,
) (model.Voucher, error) {
	intent, lower, err := s.Database.IntendStock(ctx, id, change, once)
	if err != nil {
		return model.Voucher{}, fmt.Errorf("announce the stock of voucher %s: %w", id, err)
	}
	if lower {
		failpoint.Reach(failpoint.AfterIntent)
		if err := s.lower(ctx, intent); err != nil {
			s.giveUp(ctx, intent)
			return model.Voucher{}, err
		}
		failpoint.Reach(failpoint.AfterLowerCopy)
	}
	v, err := s.Database.ChangeStock(ctx, id, change, once)
	if err != nil {
		if lower {
			s.giveUp(ctx, intent)
		}
		return model.Voucher{}, err
	}
	if lower {
		failpoint.Reach(failpoint.AfterLowerStock)
	}
	s.Patched(ctx, v)
	return v, nil
}

// lower lowers the hot copy's stock as intended.
func (s *Stock) lower(ctx context.Context, intent model.StockIntent) error {
	ctx, cancel := context.WithTimeout(ctx, hotChangeBudget)
	defer cancel()
	err := s.Hot.Lower(ctx, intent.VoucherID, intent.Stock, intent.Revision)
	switch {
	case err == nil:
		return nil
	case model.CodeOf(err) == model.CodeConflict:
		return err
	default: // closed, changed meanwhile, or Redis is away
		if errors.Is(err, model.ErrCopyClosed) {
			s.rebuilder.Request(intent.VoucherID) // long before the sale nothing else asks for it
		}
		return model.Unavailable("The stock cannot shrink while the voucher is being loaded.",
			fmt.Errorf("lower the hot copy of voucher %s: %w", intent.VoucherID, err))
	}
}

// giveUp takes an intent back, also behind a client that has hung up. When it
// cannot, the reconciler does.
func (s *Stock) giveUp(ctx context.Context, intent model.StockIntent) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hotChangeBudget)
	defer cancel()
	if err := s.restore(ctx, intent); err != nil {
		s.Log.WarnContext(ctx, "an intended stock could not be taken back; the reconciler does it",
			slog.String("voucher_id", intent.VoucherID), slog.Any("error", err))
	}
}

// Patched brings a committed change to the hot copy. It can wait: the reconciler
// brings what was not brought.
func (s *Stock) Patched(ctx context.Context, v model.Voucher) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hotChangeBudget)
	defer cancel()
	if _, err := s.Hot.Apply(ctx, v); err != nil && !errors.Is(err, model.ErrCopyClosed) {
		s.Log.WarnContext(ctx, "a change did not reach the hot copy; the reconciler brings it",
			slog.String("voucher_id", v.ID), slog.Any("error", err))
	}
}

// Created makes the hot copy of a new voucher, or waits while another instance, whose
// reconciler has seen the row already, is making it.
func (s *Stock) Created(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), firstLoadBudget)
	defer cancel()
	err := s.rebuilder.Load(ctx, id, firstLoadPause)
	if err != nil {
		s.Log.WarnContext(ctx, "a new voucher's hot copy is not loaded yet; the reconciler does it",
			slog.String("voucher_id", id), slog.Any("error", err))
	}
}
