package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"seckill/internal/failpoint"
	"seckill/internal/telemetry"
	"seckill/model"
)

// persistTimeout bounds one transaction of the worker with all its
// repetitions: longer than a request would wait, because nobody does. The
// queue is told meanwhile that the message is being worked on.
const persistTimeout = 10 * time.Second

// ReservationStore makes rows of reservations.
type ReservationStore interface {
	// Persist commits what can be committed in one transaction. A refusal after
	// admission is a failed row, not an error.
	Persist(ctx context.Context, reservations []model.Reservation) ([]model.Outcome, error)
	// Fail writes the failed row of a reservation that cannot be stored as it
	// is; a row that exists already wins and is returned.
	Fail(ctx context.Context, reservation model.Reservation, reason string) (model.Order, error)
}

// LetterBox takes orders that cannot be persisted.
type LetterBox interface {
	Bury(ctx context.Context, letter model.DeadLetter) error
}

// Persister is the worker's half of an order's road: what the queue carries
// becomes rows, and the hot copies are told.
type Persister struct {
	store   ReservationStore
	letters LetterBox
	settler *Settler
	metrics *telemetry.Worker
	log     *slog.Logger

	stored   atomic.Uint64 // orders that got a row here
	troubles *troubles
	suspects *suspects
}

// PersisterDeps is what a Persister works with.
type PersisterDeps struct {
	Store   ReservationStore
	Letters LetterBox
	Settler *Settler
	Metrics *telemetry.Worker
	Log     *slog.Logger
}

// NewPersister makes a worker.
func NewPersister(deps PersisterDeps) *Persister {
	return &Persister{
		store: deps.Store, letters: deps.Letters, settler: deps.Settler, metrics: deps.Metrics, log: deps.Log,
		troubles: newTroubles(deps.Log), suspects: newSuspects(),
	}
}

// Persist makes rows of reservations and tells of each what the queue shall do:
// nil means that a row is committed, UNAVAILABLE or an unknown outcome means
// again in a while, and anything else is a bug whose message must not be lost.
// The hot copies are told on the way; that they cannot be told changes no
// verdict.
//
// Only what is known to be an order's own data (model.ErrDataRefused, or an
// outcome that no row can hold it) sends it to the dead letters. Any other error
// means later. Vouchers that cannot be stored are tried alone and last, and not
// each time.
func (p *Persister) Persist(ctx context.Context, reservations []model.Reservation) []error {
	failpoint.Reach(failpoint.BeforePersist)
	b := &persistence{
		Persister: p, reservations: slices.Clone(reservations), verdicts: make([]error, len(reservations)),
	}
	well, ill := b.sort()
	if len(well)+len(ill) > 0 {
		p.settler.adopt(ctx, b.reservations)
	}
	b.together(ctx, well)
	b.settle(ctx)
	b.probe(ctx, ill)
	b.bury(ctx)
	b.settle(ctx)
	return b.verdicts
}

// settle tells the hot copies of what is committed by now.
func (b *persistence) settle(ctx context.Context) {
	b.settler.finish(ctx, b.finished)
	b.finished = nil
}

// bury sends the poison to the dead letters, and leaves what may be the
// database's fault in the queue.
func (b *persistence) bury(ctx context.Context) {
	for len(b.poison) > 0 { // one that is tried again may come again
		p := b.poison[0]
		b.poison = b.poison[1:]
		r := b.reservations[p.index]
		if !p.certain && !b.suspects.guilty(r.ID, b.stored.Load()) {
			b.verdicts[p.index] = model.Unavailable("The database refused the order.", p.err)
			continue
		}
		if !p.certain {
			// The database is well now, and may not have been when it refused.
			err := b.commit(ctx, []int{p.index})
			if err == nil {
				continue // judged
			}
			if !errors.Is(err, model.ErrDataRefused) {
				b.verdicts[p.index] = err
				continue
			}
		}
		b.verdicts[p.index] = b.buryOne(ctx, r, p.err)
	}
}

// buryOne writes the letter first: as soon as the failed row is there, the unit
// goes back on sale, and nobody could learn any more what the order was. Its
// message is done with once a row is committed.
func (b *persistence) buryOne(ctx context.Context, r model.Reservation, why error) error {
	ctx, cancel := context.WithTimeout(ctx, persistTimeout)
	defer cancel()
	failpoint.Reach(failpoint.BeforeDeadLetter)
	letter := model.DeadLetter{Reason: why.Error(), Reservation: &r}
	if err := b.letters.Bury(ctx, letter); err != nil {
		return model.Unavailable("The dead letter could not be written.", fmt.Errorf("bury order %s: %w", r.ID, err))
	}
	failpoint.Reach(failpoint.AfterDeadLetter)
	if b.suspects.first(r.ID, saidBuried) {
		b.metrics.Buried()
		b.log.ErrorContext(ctx, "an order cannot be persisted and went to the dead letters",
			slog.String("order_id", r.ID), slog.String("user_id", r.UserID), slog.Any("error", why))
	}
	row, err := b.store.Fail(ctx, r, model.ReasonUnprocessable)
	switch {
	case err == nil:
		b.finished = append(b.finished, finishedOrder{reservation: r, row: row})
	case model.CodeOf(err) == model.CodeConflict: // a row of that id is committed, of another order
		b.log.ErrorContext(ctx, "the id of a dead letter belongs to another order; the unit stays reserved",
			slog.String("order_id", r.ID), slog.Any("error", err))
	default:
		if (errors.Is(err, model.ErrDataRefused) || unstorable(err)) && b.suspects.first(r.ID, saidStuck) {
			b.metrics.Stuck()
			b.log.ErrorContext(ctx, "the unit of a dead letter cannot be given back; its message stays in the queue",
				slog.String("order_id", r.ID), slog.Any("error", err))
		}
		return model.Unavailable("The order's row could not be written.", fmt.Errorf("fail order %s: %w", r.ID, err))
	}
	b.suspects.forget(r.ID)
	return nil
}

// unstorable reports whether an order was refused for good.
func unstorable(err error) bool {
	return err != nil && slices.Contains(
		[]model.Code{model.CodeValidation, model.CodeConflict, model.CodeNotFound}, model.CodeOf(err))
}
