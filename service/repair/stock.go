package repair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/poll"
	"seckill/model"
)

// Stock brings administrators' changes of vouchers to their hot copies.
type Stock struct {
	deps Deps

	rebuilder *Rebuilder
	auditor   *Auditor
}

// Audit is that of the Auditor.
func (s *Stock) Audit(ctx context.Context, voucherID string) (model.Audit, error) {
	return s.auditor.Audit(ctx, voucherID)
}

// Rebuild closes a voucher's hot copy for an administrator, and has it rebuilt in the background.
func (s *Stock) Rebuild(ctx context.Context, voucherID, adminID string) error {
	if !model.ValidID(voucherID) {
		return model.NotFound("voucher")
	}
	job, err := s.rebuilder.begin(ctx, voucherID, model.AnyEpoch, adminID)
	if err != nil && !elsewhere(err) {
		return unreachable("The hot copy could not be closed.", err)
	}
	if err == nil && (job == nil || job.record.Draw) {
		return model.Conflict("A draw has no hot copy to rebuild.")
	}
	s.rebuilder.open(voucherID)
	return nil
}

// Change changes the stock in the database and in the hot copy. When another change of the voucher comes in between, it
// begins anew: concurrent changes are serialized by retrying, and callers do not see the conflict.
func (s *Stock) Change(
	ctx context.Context, id string, change model.StockChange, once model.Idempotency,
) (model.Voucher, error) {
	patient, enough := context.WithTimeout(ctx, budget.Call)
	defer enough()
	for {
		v, err := s.change(ctx, id, change, once)
		if !errors.Is(err, model.ErrSuperseded) || patient.Err() != nil {
			return v, err
		}
		poll.Pause(patient, rand.N(budget.Blink)) //nolint:gosec // spreads the load, guards nothing
	}
}

// change is one attempt. When the stock shrinks the hot copy is first, when it grows the
// database is first: so the database never has fewer units than the hot copy has promised.
func (s *Stock) change(
	ctx context.Context, id string, change model.StockChange, once model.Idempotency,
) (model.Voucher, error) {
	intent, lower, err := s.deps.Database.IntendStock(ctx, id, change, once)
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
	v, err := s.deps.Database.ChangeStock(ctx, id, change, once)
	if err != nil {
		if lower {
			s.giveUp(ctx, intent)
		}
		return model.Voucher{}, err
	}
	failpoint.Reach(failpoint.AfterStockChange)
	s.bring(ctx, v, v.Waitlist && v.NeedsCopy())
	return v, nil
}

// lower lowers the hot copy's stock as intended.
func (s *Stock) lower(ctx context.Context, intent model.StockIntent) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Call)
	defer cancel()
	err := s.deps.Hot.Lower(ctx, intent.VoucherID, intent.Stock, intent.Revision)
	switch {
	case err == nil:
		return nil
	case model.CodeOf(err) == model.CodeConflict:
		return err
	default: // closed, changed meanwhile, or Redis is away
		if errors.Is(err, model.ErrCopyClosed) {
			s.rebuilder.Ask(intent.VoucherID, 0) // the reconciler asks for it only shortly before the sale
		}
		return model.Unavailable("The stock cannot shrink while the voucher is being loaded.",
			fmt.Errorf("lower the hot copy of voucher %s: %w", intent.VoucherID, err))
	}
}

// giveUp takes an intent back, also when the client has hung up. When it fails, the reconciler does it.
func (s *Stock) giveUp(ctx context.Context, intent model.StockIntent) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget.Call)
	defer cancel()
	if err := s.rebuilder.restore(ctx, intent); err != nil {
		s.deps.Log.WarnContext(ctx, "an intended stock could not be taken back; the reconciler does it",
			slog.String("voucher_id", intent.VoucherID), slog.Any("error", err))
	}
}

// restore drops an intent and gives the hot copy the stock of the database.
func (r *Rebuilder) restore(ctx context.Context, intent model.StockIntent) error {
	id := intent.VoucherID
	if err := r.deps.Database.DropIntent(ctx, intent); err != nil {
		return fmt.Errorf("drop the intended stock of voucher %s: %w", id, err)
	}
	found, err := r.deps.Database.GetMany(ctx, []string{id})
	if v, ok := found[id]; ok && err == nil {
		_, err = r.refresh(ctx, v)
	}
	if err != nil {
		return fmt.Errorf("restore the stock of voucher %s: %w", id, err)
	}
	return nil
}

// dropIntents takes back the intents of dead processes.
func (r *Reconciler) dropIntents(ctx context.Context) error {
	intents, err := r.deps.Database.Intents(ctx, budget.Step)
	if err != nil {
		return fmt.Errorf("read intended stocks: %w", err)
	}
	var failed []error
	for _, intent := range intents {
		if err := r.rebuilds.restore(ctx, intent); err != nil {
			failed = append(failed, err) // of one voucher, which holds up no other
			continue
		}
		r.deps.Metrics.Reconciled.WithLabelValues("intent").Inc()
		r.deps.Log.InfoContext(ctx, "an intended stock was taken back", slog.String("voucher_id", intent.VoucherID))
	}
	return errors.Join(failed...)
}

// Patched brings a committed change to the hot copy, without the database, which may be away by now. While that fails
// it is tried again; after budget.Call the reconciler does it.
func (s *Stock) Patched(ctx context.Context, v model.Voucher) { s.bring(ctx, v, false) }

// bring is Patched; served says that units may have been added to the orders of users who waited, for which the
// database has closed the hot copy.
func (s *Stock) bring(ctx context.Context, v model.Voucher, served bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget.Call)
	defer cancel()
	err := poll.Insist(ctx, shortestLook, budget.Glance, func() (bool, error) {
		err := s.tell(ctx, v, served)
		return err == nil, err
	})
	if err != nil {
		s.deps.Log.WarnContext(ctx, "a change did not reach the hot copy; the reconciler brings it",
			slog.String("voucher_id", v.ID), slog.Any("error", err))
	}
}

// tell is one attempt of bring. The rebuild of a closed hot copy loads what the database has then.
func (s *Stock) tell(ctx context.Context, v model.Voucher, served bool) error {
	if v.Allocation == model.ByDraw {
		return s.rebuilder.Do(ctx, v.ID, model.AnyEpoch) // which only closes a hot copy that it had before it became a draw
	}
	if served {
		if err := s.rebuilder.Do(ctx, v.ID, 0); err != nil {
			return err
		}
	}
	_, err := s.deps.Hot.Apply(ctx, v)
	if outgrown, ok := errors.AsType[*model.OutgrownError](err); ok {
		err = s.rebuilder.Do(ctx, v.ID, outgrown.Epoch)
	}
	if errors.Is(err, model.ErrCopyClosed) {
		return nil
	}
	return err
}

// Created loads the hot copy of a new voucher. When another instance's reconciler has
// seen the row already and is loading it, Created waits for that.
func (s *Stock) Created(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget.Call)
	defer cancel()
	err := s.rebuilder.Do(ctx, id, 0)
	if err != nil {
		s.deps.Log.WarnContext(ctx, "a new voucher's hot copy is not loaded yet; the reconciler does it",
			slog.String("voucher_id", id), slog.Any("error", err))
	}
}
