// Package persist brings an accepted order from the queue to its row (Persister), and tells the hot copies (Settler).
package persist

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/lane"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// maxPersist orders share a transaction, and persistWriters run at once: one prepares, one waits for the disk.
	maxPersist      = 500
	persistWriters  = 2
	maxPersistQueue = 64 * maxPersist // far more than all calls of the consumer have in hand
	loneWriters     = 2               // transactions of isolated vouchers run at once
	// fruitless vouchers in a row that fail by themselves mean that the database is away: the others are not tried.
	fruitless = 3
)

type ticket = lane.Ticket[model.Reservation, model.Outcome]

// Persister makes rows of the queue's reservations, and settles them in the hot copies. Close ends it.
type Persister struct {
	deps     Deps
	settler  *Settler
	stored   atomic.Uint64 // orders that got a row here
	lane     *lane.Lane[model.Reservation, model.Outcome]
	suspects *suspects
}

// New makes a persister, which settles with the settler.
func New(parts Deps, settler *Settler) *Persister {
	p := &Persister{deps: parts, settler: settler, suspects: &suspects{orders: map[string]*suspicion{}}}
	p.lane = lane.NewLane(lane.Rules[model.Reservation, model.Outcome]{
		Key: func(r model.Reservation) string { return r.VoucherID }, Run: p.commit, Judge: missing,
		Total: loneWriters, Fruitless: fruitless, Isolated: p.isolated,
		Recovered: func(last string) {
			parts.Log.Info("the orders of every voucher can be stored again", slog.String("last", last))
		},
	}, lane.Options{Writers: persistWriters, MaxBatch: maxPersist, MaxQueue: maxPersistQueue, Timeout: budget.Step})
	return p
}

// Close waits until the transactions under way have ended, or ctx.
func (p *Persister) Close(ctx context.Context) { p.lane.Close(ctx) }

// missing says that a voucher is in trouble that is not in the database.
func missing(outcome model.Outcome) lane.Trouble {
	if model.CodeOf(outcome.Err) == model.CodeNotFound {
		return lane.Trouble{Cause: outcome.Err}
	}
	return lane.Trouble{}
}

func (p *Persister) isolated(voucherID string, cause error, first bool) {
	ctx := context.Background()
	if model.CodeOf(cause) == model.CodeNotFound {
		p.deps.Log.ErrorContext(ctx, "accepted orders wait for a voucher that is not in the database",
			slog.String("voucher_id", voucherID))
	}
	if first {
		p.deps.Log.WarnContext(ctx, "the orders of a voucher cannot be stored now, and maybe those of others",
			slog.String("voucher_id", voucherID), slog.Any("error", cause))
	}
}

// Persist makes rows of reservations, and returns a verdict on each: nil for a committed row, UNAVAILABLE or an unknown
// outcome when the queue is to deliver the order again. Any other error is a bug whose message must not be lost. One
// that does not wrap model.ErrOutage says nothing of other vouchers. An order becomes a dead letter only for its own
// data (model.ErrDataRefused, or no row can hold it). The orders of an isolated voucher are tried apart, ever less
// often; the others wait for them at most budget.Look.
func (p *Persister) Persist(ctx context.Context, reservations []model.Reservation) []error {
	failpoint.Reach(failpoint.BeforePersist)
	b := &persistence{
		Persister: p, reservations: slices.Clone(reservations), verdicts: make([]error, len(reservations)),
	}
	all := make([]int, len(reservations))
	for i := range all {
		all[i] = i
	}
	b.store(ctx, all)
	replaced := b.replaced
	b.replaced = nil
	b.store(ctx, b.settler.locate(ctx, b.reservations, replaced)) // those that the answer decides; others come again
	b.bury(ctx)
	b.settle(ctx)
	return b.verdicts
}

func (p *Persister) commit(ctx context.Context, reservations []model.Reservation) ([]model.Outcome, error) {
	outcomes, err := p.deps.Database.Persist(ctx, reservations)
	if len(reservations) == 1 && errors.Is(err, model.ErrDataRefused) {
		p.suspects.suspect(reservations[0].ID, p.stored.Load())
	}
	if err != nil {
		return nil, fmt.Errorf("persist %d orders, the first of them %s: %w", len(reservations), reservations[0].ID,
			err)
	}
	for i := range outcomes {
		if outcomes[i].Created {
			p.stored.Add(1)
		}
	}
	return outcomes, nil
}

type persistence struct {
	*Persister

	reservations []model.Reservation
	verdicts     []error
	finished     []Decided
	poison       []poisoned
	replaced     []int // orders of hot copies that were replaced
}

func (b *persistence) store(ctx context.Context, indices []int) {
	ctx, abandon := context.WithCancel(ctx)
	defer abandon() // what is still queued then comes again
	tried, batch := make([]int, 0, len(indices)), make([]model.Reservation, 0, len(indices))
	b.finished = slices.Grow(b.finished, len(indices))
	for _, i := range indices {
		if err := b.lane.Resting(b.reservations[i].VoucherID); err != nil {
			b.verdicts[i] = model.Unavailable("The voucher's orders could not be stored a moment ago.",
				fmt.Errorf("%w: %w", model.ErrNotTried, err))
			continue
		}
		tried, batch = append(tried, i), append(batch, b.reservations[i])
	}
	tickets := b.lane.Submit(ctx, batch...)
	var isolated []int // places in tickets
	look := time.NewTicker(budget.Blink)
	defer look.Stop()
	for n, i := range tried {
		if b.shares(ctx, tickets[n], b.reservations[i].VoucherID, look.C) {
			outcome, err := tickets[n].Wait(ctx)
			b.judge(i, outcome, err)
		} else {
			isolated = append(isolated, n)
		}
	}
	b.settle(ctx)
	budget, cancel := context.WithTimeout(ctx, budget.Look)
	defer cancel()
	for _, n := range isolated {
		outcome, err := tickets[n].Wait(budget)
		b.judge(tried[n], outcome, err)
	}
	b.settle(ctx)
}

// shares waits for a reservation, and reports false when its voucher is isolated before that is decided.
func (b *persistence) shares(ctx context.Context, ticket *ticket, voucherID string, look <-chan time.Time) bool {
	for {
		select {
		case <-ticket.Done():
			return true
		default:
		}
		if b.lane.Isolated(voucherID) {
			return false
		}
		select {
		case <-ticket.Done():
		case <-look:
		case <-ctx.Done():
			return true
		}
	}
}

func (b *persistence) settle(ctx context.Context) {
	b.settler.Finish(ctx, b.finished)
	b.finished = nil
}

// judge gives the verdict on a reservation, or leaves that to Persist and bury.
func (b *persistence) judge(index int, outcome model.Outcome, failed error) {
	r := b.reservations[index]
	switch {
	case errors.Is(failed, model.ErrDataRefused) && !errors.Is(failed, lane.ErrResting):
		b.poison = append(b.poison, poisoned{index: index, err: failed})
	case failed != nil:
		b.verdicts[index] = lane.Undone("The order could not be stored in time.", failed)
		if !b.lane.Troubled(r.VoucherID) {
			b.verdicts[index] = fmt.Errorf("%w: %w", model.ErrOutage, b.verdicts[index])
		}
	case outcome.Err == nil:
		b.suspects.forget(r.ID)
		b.verdicts[index] = nil
		b.finished = append(b.finished, Decided{r, outcome.Order})
	case unstorable(outcome.Err):
		b.poison = append(b.poison, poisoned{index: index, err: outcome.Err, certain: true})
	case model.CodeOf(outcome.Err) == model.CodeNotFound:
		b.verdicts[index] = model.Unavailable("The order's voucher is not there.", outcome.Err)
	default:
		b.verdicts[index] = outcome.Err
		if errors.Is(outcome.Err, model.ErrCopyReplaced) {
			b.replaced = append(b.replaced, index)
		}
	}
}

// Deps are what the parts of this package work with.
type Deps struct {
	Database Database
	Epochs   Epochs
	Hot      HotCopies
	Queue    Queue
	// Rebuild asks for a voucher's rebuild if one is needed, or if epoch wrong or earlier is open. It never blocks.
	Rebuild func(voucherID string, wrong int64)
	Metrics *telemetry.Worker
	Log     *slog.Logger
}

// Database is the truth about orders: repository.Orders and Releases say what each call does.
type Database interface {
	Persist(ctx context.Context, reservations []model.Reservation) ([]model.Outcome, error)
	Fail(ctx context.Context, reservation model.Reservation, reason string) (model.Order, error)
	DoneOrders(ctx context.Context, orderIDs []string) error
}

// Epochs is what the database says about hot copies: repository.Epochs.
type Epochs interface {
	Read(ctx context.Context, ids []string) (map[string]model.EpochRecord, error)
}

// HotCopies are the hot copies: hotcopy.Store.
type HotCopies interface {
	Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error)
	OrderOf(ctx context.Context, voucherID, userID string) (orderID string, pending *model.Reservation, err error)
	Held(ctx context.Context, voucherID string, epoch int64, orderIDs []string) (map[string]model.Reservation, error)
	Settle(ctx context.Context, orders []model.Order) error
	Release(ctx context.Context, release model.Release) (applied bool, err error)
}

// Queue keeps the dead letters: queue.Queue.
type Queue interface {
	Bury(ctx context.Context, letter model.DeadLetter) error
}
