package persist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/telemetry"
	"seckill/model"
)

// Settler tells hot copies what became of reservations.
type Settler struct {
	deps    Deps
	trouble telemetry.Trouble
}

// NewSettler makes a settler.
func NewSettler(deps Deps) *Settler { return &Settler{deps: deps} }

// Decided is a reservation and the committed row that has decided it.
type Decided struct {
	Reservation model.Reservation
	Row         model.Order
}

// Finish settles the reservations of committed rows, in bounded time. The reconciler finds what is left.
func (s *Settler) Finish(ctx context.Context, orders []Decided) {
	if len(orders) == 0 {
		return
	}
	s.account(ctx, orders)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget.Call)
	defer cancel()
	err := s.Tell(ctx, orders)
	if err != nil {
		s.deps.Metrics.Unsettled.Inc()
	}
	s.trouble.Note(ctx, s.deps.Log, err, "the hot copies could not be told of orders; the reconciler does it",
		"the hot copies can be told of orders again")
}

// account counts rows, and names the orders that failed after their admission.
func (s *Settler) account(ctx context.Context, orders []Decided) {
	counts := make(map[model.OrderStatus]int)
	for i := range orders {
		order := &orders[i]
		counts[order.Row.Status]++
		if order.Row.Status != model.OrderFailed {
			continue
		}
		s.deps.Metrics.Failed.WithLabelValues(order.Row.Reason).Inc()
		s.deps.Log.ErrorContext(ctx, "an order failed after it had been admitted",
			slog.String("order_id", order.Row.ID), slog.String("voucher_id", order.Row.VoucherID),
			slog.String("user_id", order.Row.UserID), slog.String("reason", order.Row.Reason),
			slog.Int64("epoch", order.Reservation.Epoch))
	}
	for status, count := range counts {
		s.deps.Metrics.Persisted.WithLabelValues(string(status)).Add(float64(count))
	}
}

// Tell settles the reservations of live rows in one call, and releases closed ones. No copy holds up another.
func (s *Settler) Tell(ctx context.Context, orders []Decided) error {
	settled := make([]model.Order, 0, len(orders))
	var closed []Decided
	for _, order := range orders {
		if order.Row.Live() || order.Row.RefusedAfterAdmission() {
			settled = append(settled, order.Row)
		}
		if !order.Row.Live() {
			closed = append(closed, order)
		}
	}
	failpoint.Reach(failpoint.BeforeSettle)
	var failed []error
	if len(settled) > 0 {
		if err := s.deps.Hot.Settle(ctx, settled); err != nil {
			failed = append(failed, fmt.Errorf("settle %d orders: %w", len(settled), err))
		}
	}
	failed = append(failed, s.close(ctx, closed))
	if err := errors.Join(failed...); err != nil {
		return err
	}
	failpoint.Reach(failpoint.AfterSettle)
	return nil
}

// close releases the reservations of closed rows. A copy that is closed or silent is left alone from then on.
func (s *Settler) close(ctx context.Context, orders []Decided) error {
	var applied []string
	var failed []error
	later := map[string]bool{}
	for _, order := range orders {
		if later[order.Row.VoucherID] {
			continue
		}
		done, err := s.undo(ctx, order.Row)
		failed = append(failed, err)
		if done {
			applied = append(applied, order.Row.ID)
		} else {
			later[order.Row.VoucherID] = true
		}
	}
	if len(applied) > 0 {
		if err := s.deps.Database.DoneOrders(ctx, applied); err != nil {
			failed = append(failed, fmt.Errorf("note %d releases: %w", len(applied), err))
		}
	}
	return errors.Join(failed...)
}

// undo gives a closed row's unit back in the hot copy. False means later: it is closed, or to be rebuilt.
func (s *Settler) undo(ctx context.Context, row model.Order) (bool, error) {
	if row.RefusedAfterAdmission() {
		return s.Replace(ctx, row)
	}
	applied, err := s.deps.Hot.Release(ctx, row.Release())
	if err != nil && !errors.Is(err, model.ErrNeedsOutbox) {
		return false, fmt.Errorf("release order %s: %w", row.ID, err)
	}
	return applied, nil
}

// Replace asks for a rebuild while the open hot copy marks an order that the database refused after its admission: it
// has no unit, or that of the user's live order. True: the mark is gone.
func (s *Settler) Replace(ctx context.Context, row model.Order) (bool, error) {
	// The epoch is read before the mark: a later epoch would be rebuilt for nothing.
	found, err := s.deps.Hot.Read(ctx, []string{row.VoucherID})
	hot, known := found[row.VoucherID]
	if !known {
		return false, fmt.Errorf("read the hot copy of voucher %s: %w", row.VoucherID, cmp.Or(err, model.ErrCopyClosed))
	}
	marked, _, err := s.deps.Hot.OrderOf(ctx, row.VoucherID, row.UserID)
	if errors.Is(err, model.ErrCopyClosed) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the mark of order %s: %w", row.ID, err)
	}
	if marked != row.ID {
		return true, nil
	}
	s.deps.Log.WarnContext(ctx, "a hot copy is stale and is rebuilt", slog.String("voucher_id", row.VoucherID),
		slog.Int64("epoch", hot.Epoch), slog.String("order_id", row.ID), slog.String("reason", row.Reason))
	s.deps.Rebuild(row.VoucherID, hot.Epoch)
	return false, nil
}

// locate asks where orders of replaced hot copies are. One that the latest open copy holds gets its epoch; one that it
// lacks may fail, as no rebuild carries it over. If one waits for a rebuild, locate asks for it.
func (s *Settler) locate(ctx context.Context, reservations []model.Reservation, indices []int) (known []int) {
	if len(indices) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Call)
	defer cancel()
	byVoucher := map[string][]int{}
	for _, i := range indices {
		byVoucher[reservations[i].VoucherID] = append(byVoucher[reservations[i].VoucherID], i)
	}
	epochs, err := s.deps.Epochs.Read(ctx, slices.Collect(maps.Keys(byVoucher)))
	for voucherID, members := range byVoucher {
		opened, found := epochs[voucherID]
		if !found {
			continue
		}
		ids := make([]string, len(members))
		for n, i := range members {
			ids[n] = reservations[i].ID
		}
		held, failed := s.deps.Hot.Held(ctx, voucherID, opened.OpenEpoch, ids)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		waits := false
		for _, i := range members {
			if r, ok := held[reservations[i].ID]; ok && r.UserID == reservations[i].UserID {
				reservations[i].Epoch = opened.OpenEpoch
				waits = waits || !opened.Open()
			} else {
				reservations[i].Absent = &opened.OpenEpoch
			}
		}
		if waits {
			s.deps.Rebuild(voucherID, 0)
		}
		known = append(known, members...)
	}
	if err != nil {
		s.deps.Log.WarnContext(ctx, "it is not known whether hot copies hold orders; they are asked again",
			slog.Any("error", err))
	}
	return known
}

const (
	// poisonSuspicion refused orders, none stored, make the database itself suspect: it may lack a column.
	poisonSuspicion = 10
	maxSuspected    = 10_000 // orders are remembered. Beyond that all are forgotten, and learnt again
)

type poisoned struct {
	index   int
	err     error
	certain bool // no database would take it
}

// bury sends poisoned orders to the dead letters, and leaves queued what the database may have refused by its fault.
func (b *persistence) bury(ctx context.Context) {
	for len(b.poison) > 0 { // a commit in the loop may add to it
		p := b.poison[0]
		b.poison = b.poison[1:]
		r := b.reservations[p.index]
		if !p.certain && !b.suspects.suspect(r.ID, b.stored.Load()) {
			b.verdicts[p.index] = model.Unavailable("The database refused the order.", p.err)
			continue
		}
		if !p.certain {
			// The database may not have been well when it refused, and is well now.
			if outcomes, err := b.tryAgain(ctx, r); !errors.Is(err, model.ErrDataRefused) {
				b.judge(p.index, append(outcomes, model.Outcome{})[0], err)
				continue
			}
		}
		b.verdicts[p.index] = b.buryOne(ctx, r, p.err)
	}
}

func (b *persistence) tryAgain(ctx context.Context, r model.Reservation) ([]model.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	return b.commit(ctx, []model.Reservation{r})
}

// buryOne writes the dead letter, then the failed row, which frees the unit: else the order's data would be lost.
func (b *persistence) buryOne(ctx context.Context, r model.Reservation, why error) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	failpoint.Reach(failpoint.BeforeDeadLetter)
	letter := model.DeadLetter{Reason: why.Error(), Reservation: &r}
	if err := b.deps.Queue.Bury(ctx, letter); err != nil {
		return model.Unavailable("The dead letter could not be written.", fmt.Errorf("bury order %s: %w", r.ID, err))
	}
	failpoint.Reach(failpoint.AfterDeadLetter)
	if b.suspects.first(r.ID, saidBuried) {
		b.deps.Metrics.Buried.Inc()
		b.deps.Log.ErrorContext(ctx, "an order cannot be persisted and went to the dead letters",
			slog.String("order_id", r.ID), slog.String("user_id", r.UserID), slog.Any("error", why))
	}
	row, err := b.deps.Database.Fail(ctx, r, model.ReasonUnprocessable)
	switch {
	case err == nil:
		b.finished = append(b.finished, Decided{Reservation: r, Row: row})
	case model.CodeOf(err) == model.CodeConflict: // another order has a row of that id
		b.deps.Log.ErrorContext(ctx, "the id of a dead letter belongs to another order; the unit stays reserved",
			slog.String("order_id", r.ID), slog.Any("error", err))
	default:
		if (errors.Is(err, model.ErrDataRefused) || unstorable(err)) && b.suspects.first(r.ID, saidStuck) {
			b.deps.Metrics.Stuck.Inc()
			b.deps.Log.ErrorContext(ctx,
				"the unit of a dead letter cannot be given back; its message stays in the queue",
				slog.String("order_id", r.ID), slog.Any("error", err))
		}
		return model.Unavailable("The order's row could not be written.", fmt.Errorf("fail order %s: %w", r.ID, err))
	}
	b.suspects.forget(r.ID)
	return nil
}

// unstorable reports whether an order was refused for itself. A missing voucher may come back from a dump.
func unstorable(err error) bool {
	return err != nil && slices.Contains([]model.Code{model.CodeValidation, model.CodeConflict}, model.CodeOf(err))
}

type suspects struct {
	mu     sync.Mutex
	orders map[string]*suspicion
}

type suspicion struct {
	since  time.Time
	stored uint64 // orders that the worker had stored at the first refusal
	said   said
}

// said is what was logged and counted of an order, so that it is not said again when the order is delivered again.
type said int

const (
	saidNothing said = iota
	saidBuried
	saidStuck
)

// of works on the suspicion against an order, a new one if there was none.
func (s *suspects) of(orderID string, stored uint64, work func(*suspicion) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.orders[orderID]
	if known == nil {
		if len(s.orders) >= maxSuspected {
			clear(s.orders)
		}
		known = &suspicion{since: time.Now(), stored: stored}
		s.orders[orderID] = known
	}
	return work(known)
}

// suspect notes that an order was refused. True: its own data are the reason, as another was stored since or few fail.
func (s *suspects) suspect(orderID string, stored uint64) (guilty bool) {
	return s.of(orderID, stored, func(known *suspicion) bool {
		return stored > known.stored || time.Since(known.since) >= budget.Step && len(s.orders) < poisonSuspicion
	})
}

func (s *suspects) first(orderID string, what said) (news bool) {
	return s.of(orderID, 0, func(known *suspicion) bool {
		news = known.said < what
		known.said = max(known.said, what)
		return news
	})
}

func (s *suspects) forget(orderID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.orders, orderID)
}
