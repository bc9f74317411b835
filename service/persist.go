package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"seckill/internal/failpoint"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// persistTimeout bounds one transaction of the worker with all its
	// repetitions: longer than a request would wait, because nobody does, and
	// shorter than the queue waits for the ack.
	persistTimeout = 10 * time.Second
	// poisonAttempts is how often an order that is alone in its transaction may
	// be refused for its data: once could be chance, more teaches nothing new.
	poisonAttempts = 3
	// poisonSuspicion is how many orders in a row are taken for poison while not
	// one is stored. So many at once are not bad orders but a bad database (a
	// missing column, a right that was revoked), and that must not bury a queue.
	poisonSuspicion = 10
)

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
	}
}

// Persist makes rows of reservations and tells of each what the queue shall do:
// nil means done, UNAVAILABLE or an unknown outcome means again in a while, and
// anything else is a bug whose message must not be lost. The hot copies are
// told on the way; that they cannot be told changes no verdict.
func (p *Persister) Persist(ctx context.Context, reservations []model.Reservation) []error {
	failpoint.Reach(failpoint.BeforePersist)
	reservations = slices.Clone(reservations)
	p.settler.adopt(ctx, reservations)
	batch := &persistence{
		Persister: p, reservations: reservations, verdicts: make([]error, len(reservations)),
	}
	all := make([]int, len(reservations))
	for i := range all {
		all[i] = i
	}
	if batch.try(ctx, all, 2) {
		batch.bury(ctx)
	}
	p.settler.finish(ctx, batch.finished)
	return batch.verdicts
}

// persistence is one batch on its way into the database.
type persistence struct {
	*Persister

	reservations []model.Reservation
	verdicts     []error
	finished     []finishedOrder
	poison       []poisoned
	stored       int
}

// poisoned is a reservation that cannot be stored, and why.
type poisoned struct {
	index int
	err   error
}

// try persists the reservations of the indices in one transaction, and if their
// data are refused, halves of them, down to the single order. It reports
// false when it gave up because the database refuses whatever it is given.
func (b *persistence) try(ctx context.Context, indices []int, attempts int) bool {
	if len(indices) == 0 {
		return true
	}
	if len(indices) == 1 {
		attempts = poisonAttempts
	}
	var err error
	for range attempts {
		var outcomes []model.Outcome
		if outcomes, err = b.commit(ctx, indices); err == nil {
			b.judge(indices, outcomes)
			return true
		}
		if !dataError(err) {
			b.refuse(indices, err)
			return true
		}
	}
	if len(indices) > 1 {
		half := len(indices) / 2
		if b.try(ctx, indices[:half], 1) {
			return b.try(ctx, indices[half:], 1)
		}
		b.refuse(indices[half:], err)
		return false
	}
	b.poison = append(b.poison, poisoned{indices[0], err})
	if b.stored > 0 || len(b.poison) < poisonSuspicion {
		return true
	}
	b.log.ErrorContext(ctx, "the database refuses whatever it is given; the orders stay in the queue",
		slog.Int("orders", len(b.reservations)), slog.Any("error", err))
	for _, p := range b.poison {
		b.verdicts[p.index] = p.err
	}
	return false
}

func (b *persistence) commit(ctx context.Context, indices []int) ([]model.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, persistTimeout)
	defer cancel()
	batch := make([]model.Reservation, len(indices))
	for i, index := range indices {
		batch[i] = b.reservations[index]
	}
	outcomes, err := b.store.Persist(ctx, batch)
	if err != nil {
		return nil, fmt.Errorf("persist %d orders, the first of them %s: %w", len(batch), batch[0].ID, err)
	}
	if len(outcomes) != len(batch) { // not the orders' fault: it must bury none
		return nil, model.Unavailable("The store lost count.", fmt.Errorf("%d outcomes of %d orders", len(outcomes), len(batch)))
	}
	return outcomes, nil
}

// judge sorts the outcomes of one transaction.
func (b *persistence) judge(indices []int, outcomes []model.Outcome) {
	for i, index := range indices {
		outcome := outcomes[i]
		switch {
		case outcome.Err == nil:
			b.stored++
			b.finished = append(b.finished, finishedOrder{b.reservations[index], outcome.Order, outcome.Other})
		case unstorable(outcome.Err):
			b.poison = append(b.poison, poisoned{index, outcome.Err})
		default:
			b.verdicts[index] = outcome.Err
		}
	}
}

func (b *persistence) refuse(indices []int, err error) {
	for _, index := range indices {
		b.verdicts[index] = err
	}
}

// bury sends the poison to the dead letters.
func (b *persistence) bury(ctx context.Context) {
	for _, p := range b.poison {
		b.verdicts[p.index] = b.buryOne(ctx, b.reservations[p.index], p.err)
	}
}

// buryOne writes the letter first: as soon as the failed row is there, the unit
// goes back on sale, and nobody could learn any more what the order was.
func (b *persistence) buryOne(ctx context.Context, r model.Reservation, why error) error {
	ctx, cancel := context.WithTimeout(ctx, persistTimeout)
	defer cancel()
	failpoint.Reach(failpoint.BeforeDeadLetter)
	letter := model.DeadLetter{Reason: why.Error(), Reservation: &r}
	if err := b.letters.Bury(ctx, letter); err != nil {
		return model.Unavailable("The dead letter could not be written.", fmt.Errorf("bury order %s: %w", r.ID, err))
	}
	failpoint.Reach(failpoint.AfterDeadLetter)
	b.metrics.Buried()
	b.log.ErrorContext(ctx, "an order cannot be persisted and went to the dead letters",
		slog.String("order_id", r.ID), slog.String("user_id", r.UserID), slog.Any("error", why))

	row, err := b.store.Fail(ctx, r, model.ReasonUnprocessable)
	switch {
	case err == nil:
		b.finished = append(b.finished, finishedOrder{reservation: r, row: row})
		return nil
	case !dataError(err) && !unstorable(err):
		return fmt.Errorf("fail order %s: %w", r.ID, err) // the database is away: again in a while
	default:
		// The letter exists and the unit stays reserved: never given back
		// without a row, and named by the audit.
		b.metrics.Stuck()
		b.log.ErrorContext(ctx, "the unit of a dead letter could not be given back and stays reserved",
			slog.String("order_id", r.ID), slog.Any("error", err))
		return nil
	}
}

// dataError reports whether a whole transaction was refused for what is in it.
// A database that is away, or an outcome nobody knows, says nothing about that.
func dataError(err error) bool {
	for _, other := range []error{model.ErrUnknownOutcome, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, other) {
			return false
		}
	}
	return model.CodeOf(err) == model.CodeInternal || unstorable(err)
}

// unstorable reports whether an order was refused for good.
func unstorable(err error) bool {
	return err != nil && slices.Contains(
		[]model.Code{model.CodeValidation, model.CodeConflict, model.CodeNotFound}, model.CodeOf(err))
}
