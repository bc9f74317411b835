package service

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
	// abandonedIntent is when the process of an intent is taken for dead: it had
	// longer than any call may take.
	abandonedIntent = 10 * time.Second
)

// StockIntents announces stocks that are about to shrink.
type StockIntents interface {
	// IntendStock announces a smaller stock; needed is false when ChangeStock
	// alone gives the answer.
	IntendStock(ctx context.Context, id string, change model.StockChange, once model.Idempotency) (intent model.StockIntent, needed bool, err error)
	// DropIntent gives an intent up, so that the next Apply overwrites what the
	// copy may have been lowered to.
	DropIntent(ctx context.Context, intent model.StockIntent) error
	Intents(ctx context.Context, olderThan time.Duration) ([]model.StockIntent, error)
}

// AppliedCopies brings the database's voucher to its hot copy.
type AppliedCopies interface {
	// Apply does nothing when the copy has something newer; false when closed.
	Apply(ctx context.Context, v model.Voucher) (applied bool, err error)
}

// ChangedCopies brings administrators' changes to hot copies.
type ChangedCopies interface {
	AppliedCopies
	// Lower lowers the stock unless more is taken: CONFLICT.
	Lower(ctx context.Context, voucherID string, stock, revision int64) error
}

// HotStock is what looking after vouchers needs besides in order mode async.
type HotStock struct {
	intents  StockIntents
	vouchers VoucherReader
	copies   ChangedCopies
	rebuilds *Rebuilder
	auditor  *Auditor
	log      *slog.Logger
}

// HotStockDeps is what a HotStock works with.
type HotStockDeps struct {
	Intents  StockIntents
	Vouchers VoucherReader
	Copies   ChangedCopies
	Rebuilds *Rebuilder
	Auditor  *Auditor
	Log      *slog.Logger
}

// NewHotStock makes a HotStock for Vouchers.Asynchronously.
func NewHotStock(deps HotStockDeps) *HotStock {
	return &HotStock{
		intents: deps.Intents, vouchers: deps.Vouchers, copies: deps.Copies,
		rebuilds: deps.Rebuilds, auditor: deps.Auditor, log: deps.Log,
	}
}

// Asynchronously makes vouchers be looked after in their hot copies too. It must
// be called before the first use.
func (s *Vouchers) Asynchronously(hot *HotStock) *Vouchers {
	s.hot = hot
	return s
}

// Rebuild closes a voucher's hot copy and makes it anew behind the caller's
// back. CONFLICT in order mode sync: there is none.
func (s *Vouchers) Rebuild(ctx context.Context, id string) error {
	if s.hot == nil {
		return model.Conflict("In the order mode sync there is no hot copy to rebuild.")
	}
	if !model.ValidID(id) {
		return model.NotFound("voucher")
	}
	if err := s.hot.rebuilds.Begin(ctx, id); err != nil {
		return away("The hot copy could not be closed.", err)
	}
	s.changed(ctx, id)
	return nil
}

// changeStock changes the stock in the database, and in the hot copy before
// that when it shrinks, after that when it grows: what the copy has promised is
// never undercut.
func (s *Vouchers) changeStock(
	ctx context.Context, id string, change model.StockChange, once model.Idempotency,
) (model.Voucher, error) {
	if s.hot == nil {
		return s.store.ChangeStock(ctx, id, change, once)
	}
	intent, lower, err := s.hot.intents.IntendStock(ctx, id, change, once)
	if err != nil {
		return model.Voucher{}, fmt.Errorf("announce the stock of voucher %s: %w", id, err)
	}
	if lower {
		failpoint.Reach(failpoint.AfterIntent)
		if err := s.hot.lower(ctx, intent); err != nil {
			s.hot.giveUp(ctx, intent)
			return model.Voucher{}, err
		}
		failpoint.Reach(failpoint.AfterLowerCopy)
	}
	v, err := s.store.ChangeStock(ctx, id, change, once)
	if err != nil {
		if lower {
			s.hot.giveUp(ctx, intent)
		}
		return model.Voucher{}, err
	}
	if lower {
		failpoint.Reach(failpoint.AfterLowerStock)
	}
	s.hot.apply(ctx, v)
	return v, nil
}

// lower lowers the hot copy's stock as intended.
func (h *HotStock) lower(ctx context.Context, intent model.StockIntent) error {
	ctx, cancel := context.WithTimeout(ctx, hotChangeBudget)
	defer cancel()
	err := h.copies.Lower(ctx, intent.VoucherID, intent.Stock, intent.Revision)
	switch {
	case err == nil:
		return nil
	case model.CodeOf(err) == model.CodeConflict:
		return err
	default: // closed, changed meanwhile, or Redis is away
		if errors.Is(err, model.ErrCopyClosed) {
			h.rebuilds.Request(intent.VoucherID) // long before the sale nobody else asks for it
		}
		return model.Unavailable("The stock cannot shrink while the voucher is being loaded.",
			fmt.Errorf("lower the hot copy of voucher %s: %w", intent.VoucherID, err))
	}
}

// giveUp takes an intent back, also behind a client that has hung up. When it
// cannot, the reconciler does.
func (h *HotStock) giveUp(ctx context.Context, intent model.StockIntent) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hotChangeBudget)
	defer cancel()
	if err := restore(ctx, h.intents, h.vouchers, h.copies, intent); err != nil {
		h.log.WarnContext(ctx, "an intended stock could not be taken back; the reconciler does it",
			slog.String("voucher_id", intent.VoucherID), slog.Any("error", err))
	}
}

// apply brings a committed change to the hot copy. It can wait: the reconciler
// brings what was not brought.
func (h *HotStock) apply(ctx context.Context, v model.Voucher) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hotChangeBudget)
	defer cancel()
	if _, err := h.copies.Apply(ctx, v); err != nil && !errors.Is(err, model.ErrCopyClosed) {
		h.log.WarnContext(ctx, "a change did not reach the hot copy; the reconciler brings it",
			slog.String("voucher_id", v.ID), slog.Any("error", err))
	}
}

// load makes the hot copy of a new voucher, or waits while another instance, whose
// reconciler has seen the row already, is making it.
func (h *HotStock) load(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), firstLoadBudget)
	defer cancel()
	err := h.rebuilds.ensure(ctx, id)
	for elsewhere(err) && ctx.Err() == nil {
		pause(ctx, firstLoadPause)
		err = h.rebuilds.ensure(ctx, id)
	}
	if err != nil {
		h.log.WarnContext(ctx, "a new voucher's hot copy is not loaded yet; the reconciler does it",
			slog.String("voucher_id", id), slog.Any("error", err))
	}
}

// restore drops an intent and makes the hot copy's stock that of the database.
func restore(
	ctx context.Context, intents StockIntents, vouchers VoucherReader, copies AppliedCopies, intent model.StockIntent,
) error {
	id := intent.VoucherID
	if err := intents.DropIntent(ctx, intent); err != nil {
		return fmt.Errorf("drop the intended stock of voucher %s: %w", id, err)
	}
	found, err := vouchers.GetMany(ctx, []string{id})
	if err != nil {
		return fmt.Errorf("read voucher %s: %w", id, err)
	}
	if v, ok := found[id]; ok {
		if _, err := copies.Apply(ctx, v); err != nil && !errors.Is(err, model.ErrCopyClosed) {
			return fmt.Errorf("restore the stock of voucher %s: %w", id, err)
		}
	}
	return nil
}

// dropIntents takes back what dead processes intended.
func (r *Reconciler) dropIntents(ctx context.Context) error {
	intents, err := r.deps.Intents.Intents(ctx, abandonedIntent)
	if err != nil {
		return fmt.Errorf("read intended stocks: %w", err)
	}
	for _, intent := range intents {
		if err := restore(ctx, r.deps.Intents, r.deps.Vouchers, r.deps.Copies, intent); err != nil {
			return err
		}
		r.deps.Metrics.Reconciled("intent", 1)
		r.deps.Log.InfoContext(ctx, "an intended stock was taken back", slog.String("voucher_id", intent.VoucherID))
	}
	return nil
}
