package repair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/poll"
	"seckill/model"
	"seckill/service/persist"
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

// Change changes the stock in database and hot copy. It begins anew after a concurrent change, so callers see none.
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

// change is one attempt. Shrinking the copy is first, growing the database: it never has fewer than promised.
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

func (r *Rebuilder) restore(ctx context.Context, intent model.StockIntent) error {
	id := intent.VoucherID
	if err := r.deps.Database.DropIntent(ctx, intent); err != nil {
		return fmt.Errorf("drop the intended stock of voucher %s: %w", id, err)
	}
	_, err := r.update(ctx, 0, id)
	return err
}

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

// Patched brings a committed change to the copy without the database, repeatedly; then the reconciler does.
func (s *Stock) Patched(ctx context.Context, v model.Voucher) { s.bring(ctx, v, false) }

// bring is Patched; served: added units may be orders of users who waited, so the database closed the copy.
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
		// A rebuild of a draw only closes a hot copy from before it became one.
		return s.rebuilder.Do(ctx, v.ID, model.AnyEpoch)
	}
	if served {
		if err := s.rebuilder.Do(ctx, v.ID, 0); err != nil {
			return err
		}
	}
	_, err := s.rebuilder.refresh(ctx, v, func(wrong int64) error { return s.rebuilder.Do(ctx, v.ID, wrong) })
	return err
}

// Created loads a new voucher's hot copy, or waits for a reconciler that is loading it.
func (s *Stock) Created(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget.Call)
	defer cancel()
	err := s.rebuilder.Do(ctx, id, 0)
	if err != nil {
		s.deps.Log.WarnContext(ctx, "a new voucher's hot copy is not loaded yet; the reconciler does it",
			slog.String("voucher_id", id), slog.Any("error", err))
	}
}

const strandedPage = 1000 // of one voucher in one look, oldest first

var errEnough = errors.New("enough was read")

// stranded looks after old reservations: Redis was not told of their row, or their message never was or is lost.
type stranded struct {
	deps Deps

	settler  *persist.Settler
	rebuilds *Rebuilder

	sighted map[string]sighting // what a look has seen of each voucher; before: the look before
	before  map[string]sighting
}

type sighting struct {
	// messages are the queue's newest message when an order was first seen without a row; later, none carries it.
	messages map[string]uint64
	idle     int       // looks in a row that found nothing to do
	next     time.Time // look
}

func (s *stranded) begin() { s.before, s.sighted = s.sighted, map[string]sighting{} }

// reconcile looks at a voucher with an open hot copy. Due has the epoch that holds each reservation: earlier ones fail.
func (s *stranded) reconcile(ctx context.Context, hot model.HotCopy) error {
	voucherID := hot.Voucher.ID
	err := s.noteAll(ctx, hot)
	before := s.before[voucherID]
	if err == nil && time.Now().Before(before.next) {
		s.sighted[voucherID] = before
		return nil
	}
	var due []model.Reservation
	if err == nil {
		due, err = s.deps.Hot.Due(ctx, voucherID, budget.Answer, strandedPage)
	}
	var orphans []string
	due = slices.DeleteFunc(due, func(r model.Reservation) bool {
		if r.UserID == "" {
			orphans = append(orphans, r.ID)
		}
		return r.UserID == ""
	})
	if err == nil && len(orphans) > 0 {
		err = s.clear(ctx, hot, orphans)
	}
	switch {
	case errors.Is(err, model.ErrCopyClosed): // it was closed a moment ago
		return nil
	case err != nil:
		return fmt.Errorf("read old reservations of voucher %s: %w", voucherID, err)
	case len(due) == 0:
		return nil
	}
	missing, err := s.settle(ctx, due)
	if err != nil || len(missing) == 0 {
		return err
	}
	backlog, err := s.deps.Queue.BacklogOf(ctx, voucherID)
	if err != nil {
		return fmt.Errorf("look at the queue: %w", err)
	}
	now, lost := before.look(missing, backlog)
	if len(lost) == 0 && len(missing) == len(due) {
		now.next, now.idle = time.Now().Add(backoff.Doubled(budget.Brief, budget.Answer, before.idle)), before.idle+1
	}
	s.sighted[voucherID] = now
	if len(lost) == 0 {
		return nil
	}
	// The queue was read after the rows: a row may have been committed in between.
	if lost, err = s.settle(ctx, lost); err != nil || len(lost) == 0 {
		return err
	}
	return s.republish(ctx, lost)
}

// noteAll notes every reservation as due when fewer are noted than reserved: nobody looks for others.
func (s *stranded) noteAll(ctx context.Context, hot model.HotCopy) error {
	if hot.Due >= hot.Reserved {
		return nil
	}
	s.deps.Log.WarnContext(ctx, "reservations are not noted as due, and are noted now",
		slog.String("voucher_id", hot.Voucher.ID),
		slog.Int64("reserved", hot.Reserved), slog.Int64("due", hot.Due))
	var ids []string
	err := s.deps.Hot.Pendings(ctx, hot.Voucher.ID, hot.Epoch, func(r model.Reservation) error {
		ids = append(ids, r.ID)
		return nil
	})
	if err != nil {
		return err
	}
	return s.deps.Hot.Mend(ctx, hot.Voucher.ID, ids)
}

// clear forgets due orders that are not reserved. Only a rebuild returns the unit of one with a mark and no row.
func (s *stranded) clear(ctx context.Context, hot model.HotCopy, orphans []string) error {
	marked, err := s.marked(ctx, hot, orphans)
	if err != nil {
		return err
	}
	rows, err := s.deps.Database.Find(ctx, marked)
	if err != nil {
		return fmt.Errorf("look for the rows of %d marks: %w", len(marked), err)
	}
	if len(rows) < len(marked) {
		s.deps.Log.ErrorContext(ctx, "users are marked as buyers for orders that do not exist; the hot copy is rebuilt",
			slog.String("voucher_id", hot.Voucher.ID), slog.Int("orders", len(marked)-len(rows)))
		s.deps.Metrics.Reconciled.WithLabelValues("rebuild").Inc()
		s.rebuilds.Ask(hot.Voucher.ID, hot.Epoch)
		return nil
	}
	return s.deps.Hot.Mend(ctx, hot.Voucher.ID, orphans)
}

func (s *stranded) marked(ctx context.Context, hot model.HotCopy, orderIDs []string) (marked []string, err error) {
	asked := make(map[string]bool, len(orderIDs))
	for _, id := range orderIDs {
		asked[id] = true
	}
	err = s.deps.Hot.Marks(ctx, hot.Voucher.ID, hot.Epoch, func(_, orderID string) error {
		if asked[orderID] {
			asked[orderID] = false // it may come twice
			marked = append(marked, orderID)
		}
		return nil
	})
	return marked, err
}

func (s *stranded) settle(ctx context.Context, due []model.Reservation) ([]model.Reservation, error) {
	done, missing, err := s.deps.splitByRow(ctx, due)
	if err != nil || len(done) == 0 {
		return missing, err
	}
	if err := s.settler.Tell(ctx, done); err != nil {
		return nil, err
	}
	s.deps.Metrics.Reconciled.WithLabelValues("settled").Add(float64(len(done)))
	s.deps.Log.InfoContext(ctx, "reservations were settled that their worker had left",
		slog.Int("orders", len(done)), slog.String("first", done[0].Row.ID))
	return missing, nil
}

// look sights the reservations without a row, and returns those that no message carries any more.
func (s sighting) look(missing []model.Reservation, backlog model.Backlog) (now sighting, lost []model.Reservation) {
	now.messages = make(map[string]uint64, len(missing))
	for _, r := range missing {
		sequence, known := s.messages[r.ID]
		switch {
		case !known || sequence > backlog.LastSequence: // new, or the queue is another one
			sequence = backlog.LastSequence
		case backlog.AckFloor >= sequence:
			lost = append(lost, r)
		}
		now.messages[r.ID] = sequence
	}
	return now, lost
}

// republish publishes reservations again. One with a dead letter gets its failed row instead.
func (s *stranded) republish(ctx context.Context, lost []model.Reservation) error {
	buried, err := s.deps.Queue.Buried(ctx)
	if err != nil {
		return fmt.Errorf("list the dead letters: %w", err)
	}
	var again []model.Reservation
	var failed []persist.Decided
	for _, r := range lost {
		if !buried[r.ID] {
			again = append(again, r)
			continue
		}
		row, err := s.deps.Database.Fail(ctx, r, model.ReasonUnprocessable)
		if err != nil {
			s.deps.Log.ErrorContext(ctx, "the unit of a dead letter cannot be given back",
				slog.String("order_id", r.ID), slog.Any("error", err))
			continue
		}
		failed = append(failed, persist.Decided{Reservation: r, Row: row})
	}
	s.settler.Finish(ctx, failed)
	if len(again) > 0 {
		failpoint.Reach(failpoint.BeforeRepublish)
		if err := s.deps.Queue.Publish(ctx, again); err != nil {
			return fmt.Errorf("publish %d orders again, the first %s: %w", len(again), again[0].ID, err)
		}
		failpoint.Reach(failpoint.AfterRepublish)
		s.deps.Metrics.Reconciled.WithLabelValues("republished").Add(float64(len(again)))
		s.deps.Log.WarnContext(ctx, "orders that no message carried were published again",
			slog.Int("orders", len(again)), slog.String("first", again[0].ID))
	}
	// Also those of which nothing could be done: they must not fill the page.
	if err := s.deps.Hot.Touch(ctx, lost); err != nil && !errors.Is(err, model.ErrCopyClosed) {
		return fmt.Errorf("touch %d reservations: %w", len(lost), err)
	}
	return nil
}

func (p Deps) splitByRow(
	ctx context.Context, reservations []model.Reservation,
) (done []persist.Decided, open []model.Reservation, err error) {
	for part := range slices.Chunk(reservations, findChunk) {
		ids := each(part, func(r model.Reservation) string { return r.ID })
		rows, err := p.Database.Find(ctx, ids)
		if err != nil {
			return nil, nil, fmt.Errorf("look for the rows of %d reservations: %w", len(ids), err)
		}
		for _, r := range part {
			if row, ok := rows[r.ID]; ok {
				done = append(done, persist.Decided{Reservation: r, Row: row})
			} else {
				open = append(open, r)
			}
		}
	}
	return done, open, nil
}
