package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"seckill/internal/batch"
	"seckill/internal/ids"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// placeBudget is what an attempt to buy may take beside the wait for the
	// lock. The contract's longest answer is the wait and 5 s; the rest is
	// left to giving the lock back, and to the wire.
	placeBudget = 4 * time.Second
	// commitTimeout bounds one shared transaction with all its repetitions.
	// It outlives its requests so that most unknown outcomes are decided
	// while the users' locks are still held, and is shorter than a stop may take.
	commitTimeout = 6 * time.Second
	// maxCommitBatch orders share one transaction: beyond a hundred nothing is
	// gained per order (measured), and one transaction must stay short.
	maxCommitBatch = 500
	// commitWriters commit at once: one prepares while the other waits for the disk.
	commitWriters = 2
	// maxAtOnce requests take locks and wait for transactions at once: enough
	// for two transactions of a hundred orders and what gathers behind them.
	maxAtOnce = 256
	// maxCommitQueue orders wait; what more arrives is told to come again at
	// once, because it could not be served within its budget anyway.
	maxCommitQueue = 8192
)

// ErrLockBusy says that somebody else kept the user's lock for the whole wait.
var ErrLockBusy = errors.New("the user's lock is busy")

// OrderStore keeps orders.
type OrderStore interface {
	// CreateOrders commits what can be committed of the orders in one
	// transaction and says of each what became of it. An error that wraps
	// model.ErrUnknownOutcome means that only the same ids again can tell.
	CreateOrders(ctx context.Context, orders []model.Order) ([]model.Outcome, error)
	Get(ctx context.Context, id string) (model.Order, error)
	List(ctx context.Context, q model.OrderQuery) (model.OrderPage, error)
	Each(ctx context.Context, q model.OrderQuery, yield func(model.Order) error) error
	Detail(ctx context.Context, id string) (model.OrderDetail, error)
}

// Orders sells.
type Orders struct {
	store    OrderStore
	copies   *VoucherCache
	locks    Locker
	lockWait time.Duration
	gate     gate
	commits  *batch.Group[model.Order, model.Outcome]
	settling sync.WaitGroup // orders whose clients were answered before they were decided
	metrics  *telemetry.Metrics
	log      *slog.Logger
}

// OrderDeps is what Orders works with.
type OrderDeps struct {
	Store    OrderStore
	Copies   *VoucherCache
	Locks    Locker
	LockWait time.Duration // zero: one try
	Metrics  *telemetry.Metrics
	Log      *slog.Logger
}

// NewOrders makes the service; Close ends its writers.
func NewOrders(deps OrderDeps) *Orders {
	return &Orders{
		store:    deps.Store,
		copies:   deps.Copies,
		locks:    deps.Locks,
		lockWait: deps.LockWait,
		gate:     newGate(maxAtOnce),
		metrics:  deps.Metrics,
		log:      deps.Log,
		commits: batch.New(deps.Store.CreateOrders, batch.Options{
			Writers: commitWriters, MaxBatch: maxCommitBatch, MaxQueue: maxCommitQueue,
			Timeout: commitTimeout, Observe: deps.Metrics.Batch,
		}),
	}
}

// Close lets the orders under way be decided. When ctx ends first they are left
// unknown: the database decides, and the clients ask again.
func (s *Orders) Close(ctx context.Context) {
	s.commits.Close(ctx)
	s.settling.Wait()
}

// Place buys one unit of a voucher for a user. An order comes back only when
// it is committed; a refusal is a *model.Error by the contract's codes, and
// UNAVAILABLE promises nothing: the same call again tells.
func (s *Orders) Place(ctx context.Context, userID, voucherID string) (model.Order, error) {
	began := time.Now()
	order, err := s.place(ctx, userID, voucherID)
	outcome := "OK"
	if err != nil {
		outcome = string(model.CodeOf(err))
	}
	s.metrics.Placed(outcome, time.Since(began))
	return order, err
}

func (s *Orders) place(ctx context.Context, userID, voucherID string) (model.Order, error) {
	if !model.ValidID(voucherID) {
		return model.Order{}, model.NotFound("voucher")
	}
	ctx, cancel := context.WithTimeout(ctx, s.lockWait+placeBudget)
	defer cancel()

	if err := s.refusedLocally(ctx, userID, voucherID); err != nil {
		return model.Order{}, err
	}
	if err := s.enter(ctx, userID, voucherID); err != nil {
		return model.Order{}, err
	}
	lease, err := s.lock(ctx, userID, 0)
	if s.lockWait > 0 && model.CodeOf(err) == model.CodeLockBusy {
		// Whoever waits for himself must not stand in the way of the others.
		s.gate.leave()
		if lease, err = s.lock(ctx, userID, s.lockWait); err != nil {
			return model.Order{}, err
		}
		if err := s.enter(ctx, userID, voucherID); err != nil {
			s.unlock(ctx, lease, userID)
			return model.Order{}, err
		}
	}
	defer s.gate.leave()
	if err != nil {
		return model.Order{}, err
	}
	if err := s.refusedLocally(ctx, userID, voucherID); err != nil {
		s.unlock(ctx, lease, userID) // the lock was slow, and the sale is over
		return model.Order{}, err
	}
	return s.commit(ctx, lease, userID, voucherID)
}

// enter waits at the gate, and looks at the copy again: meanwhile the sale may
// be over. It is left with gate.leave unless enter answers an error.
func (s *Orders) enter(ctx context.Context, userID, voucherID string) error {
	if err := s.gate.enter(ctx); err != nil {
		return undone("Too many orders are waiting.", err)
	}
	if err := s.refusedLocally(ctx, userID, voucherID); err != nil {
		s.gate.leave()
		return err
	}
	return nil
}

// refusedLocally answers from this instance's copy of the voucher.
func (s *Orders) refusedLocally(ctx context.Context, userID, voucherID string) error {
	held, err := s.copies.copy(ctx, voucherID)
	if err != nil {
		return err
	}
	if err := held.refusal(userID, time.Now()); err != nil {
		s.metrics.AnsweredLocally()
		return err
	}
	return nil
}

func (s *Orders) lock(ctx context.Context, userID string, wait time.Duration) (Lease, error) {
	began := time.Now()
	lease, err := s.locks.Lock(ctx, userLock(userID), wait)
	s.metrics.LockWaited(time.Since(began))
	switch {
	case err == nil:
		return lease, nil
	case errors.Is(err, ErrLockBusy):
		return nil, &model.Error{
			Code:       model.CodeLockBusy,
			Detail:     "Another request of yours is under way.",
			RetryAfter: time.Second,
			Cause:      err,
		}
	default:
		// Whatever a store of locks says but "busy" means that it cannot be used.
		return nil, model.Unavailable("The user's lock could not be taken.", err)
	}
}

func (s *Orders) unlock(ctx context.Context, lease Lease, userID string) {
	if err := lease.Unlock(); err != nil {
		s.log.WarnContext(ctx, "the user's lock was not given back and ends by itself",
			slog.String("user_id", userID), slog.Any("error", err))
	}
}

// commit creates the order in a transaction it shares with others. From here
// on a client that hangs up changes nothing: the order is decided, and the
// user's lock is held until it is.
func (s *Orders) commit(ctx context.Context, lease Lease, userID, voucherID string) (model.Order, error) {
	if lost := context.Cause(lease.Context()); lost != nil { //nolint:contextcheck // the lock has a life of its own
		s.unlock(ctx, lease, userID)
		return model.Order{}, model.Unavailable("The user's lock was lost.", lost)
	}
	unique, err := ids.New()
	if err != nil {
		s.unlock(ctx, lease, userID)
		return model.Order{}, err
	}
	order := model.Order{ID: model.OrderID(unique, voucherID), VoucherID: voucherID, UserID: userID}
	ticket, err := s.commits.Submit(ctx, order)
	if err != nil {
		s.unlock(ctx, lease, userID)
		return model.Order{}, undone("Too many orders are waiting.", err)
	}
	outcome, err := ticket.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		s.settle(ctx, ticket, lease, order)
		return model.Order{}, model.Unavailable("It is not known yet whether the order was made.",
			fmt.Errorf("%w: order %s: %w", model.ErrUnknownOutcome, order.ID, err))
	}
	s.unlock(ctx, lease, userID)
	if err != nil {
		return model.Order{}, undone("The order could not be made.", fmt.Errorf("create order %s: %w", order.ID, err))
	}
	return s.answer(voucherID, outcome)
}

// settle holds the user's lock until the order is decided, behind a client
// that has been answered. The commit queue bounds how many there are, its
// timeout how long they last.
func (s *Orders) settle(ctx context.Context, ticket *batch.Ticket[model.Order, model.Outcome], lease Lease, order model.Order) {
	s.metrics.Unknown()
	ctx = context.WithoutCancel(ctx)
	s.settling.Go(func() {
		outcome, err := ticket.Wait(ctx)
		s.unlock(ctx, lease, order.UserID)
		if errors.Is(err, batch.ErrNotRun) {
			return
		}
		s.log.InfoContext(ctx, "an order was decided after its client had been answered",
			slog.String("order_id", order.ID), slog.Bool("created", err == nil && outcome.Err == nil), slog.Any("error", errors.Join(err, outcome.Err)))
	})
}

func (s *Orders) answer(voucherID string, outcome model.Outcome) (model.Order, error) {
	if outcome.Err == nil {
		return outcome.Order, nil
	}
	if model.CodeOf(outcome.Err) == model.CodeSoldOut {
		s.copies.soldOut(voucherID)
	}
	return model.Order{}, outcome.Err
}
