package persist

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/model"
)

const (
	// poisonSuspicion is how many orders may be refused for their data while none is stored. With so many the database
	// itself is suspected, which may lack a column, and must not bury a whole queue.
	poisonSuspicion = 10
	// maxSuspected bounds the orders that are remembered. Beyond that all are forgotten, and learnt again.
	maxSuspected = 10_000
)

// poisoned is a reservation that was refused for its data, and why.
type poisoned struct {
	index   int
	err     error
	certain bool // no database would take it
}

// bury sends the poisoned orders to the dead letters, and leaves in the queue those
// that the database may have refused by its own fault.
func (b *persistence) bury(ctx context.Context) {
	for len(b.poison) > 0 { // a commit in the loop may add to it
		p := b.poison[0]
		b.poison = b.poison[1:]
		r := b.reservations[p.index]
		if !p.certain && !b.suspects.guilty(r.ID, b.stored.Load()) {
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

// buryOne writes the dead letter and then the failed row: with the row the unit goes back on sale, and without the
// letter nothing would be left of the order's data. The message is done with once the row is committed.
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
			b.deps.Log.ErrorContext(ctx, "the unit of a dead letter cannot be given back; its message stays in the queue",
				slog.String("order_id", r.ID), slog.Any("error", err))
		}
		return model.Unavailable("The order's row could not be written.", fmt.Errorf("fail order %s: %w", r.ID, err))
	}
	b.suspects.forget(r.ID)
	return nil
}

// unstorable reports whether an order was refused for good, for what it is itself. A voucher
// that is not found may be found again: its table may be on its way back from a dump.
func unstorable(err error) bool {
	return err != nil && slices.Contains([]model.Code{model.CodeValidation, model.CodeConflict}, model.CodeOf(err))
}

// suspects remembers the orders that were refused for their data.
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

func newSuspects() *suspects { return &suspects{orders: map[string]*suspicion{}} }

// of returns the suspicion against an order, a new one if there was none. The caller holds the lock.
func (s *suspects) of(orderID string, stored uint64) *suspicion {
	known := s.orders[orderID]
	if known == nil {
		if len(s.orders) >= maxSuspected {
			clear(s.orders)
		}
		known = &suspicion{since: time.Now(), stored: stored}
		s.orders[orderID] = known
	}
	return known
}

func (s *suspects) refused(orderID string, stored uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(orderID, stored)
}

// guilty reports whether the order's own data were the reason of its refusal: another
// order was stored since, or it has been refused for long and is one of a few.
func (s *suspects) guilty(orderID string, stored uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.of(orderID, stored)
	return stored > known.stored || time.Since(known.since) >= budget.Step && len(s.orders) < poisonSuspicion
}

// first reports whether what is to be said of an order was not said before.
func (s *suspects) first(orderID string, what said) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.of(orderID, 0)
	if known.said >= what {
		return false
	}
	known.said = what
	return true
}

func (s *suspects) forget(orderID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.orders, orderID)
}
