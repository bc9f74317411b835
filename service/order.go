package service

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"seckill/internal/batch"
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
	// Find reads orders by id; absent ones are left out.
	Find(ctx context.Context, ids []string) (map[string]model.Order, error)
	// Cancel cancels a user's unpaid order and gives its unit back. A canceled
	// one comes back as it is, not changed; any other is ILLEGAL_STATE.
	Cancel(ctx context.Context, userID, orderID string) (order model.Order, changed bool, err error)
	List(ctx context.Context, q model.OrderQuery) (model.OrderPage, error)
	Each(ctx context.Context, q model.OrderQuery, yield func(model.Order) error) error
	Detail(ctx context.Context, id string) (model.OrderDetail, error)
}

// ModeWatch knows whether the database is sold from in this instance's order mode.
type ModeWatch interface {
	// Selling is nil, or says why nothing may be sold now.
	Selling() error
}

// Orders sells.
type Orders struct {
	store     OrderStore
	copies    *VoucherCache
	announcer Announcer
	locks     Locker
	lockWait  time.Duration
	gate      gate
	mode      ModeWatch                                // nil: nobody watches
	commits   *batch.Group[model.Order, model.Outcome] // sync; nil in async
	admission *Admission                               // async; nil in sync
	rows      *batch.Group[string, *model.Order]       // async: reads by id
	settling  sync.WaitGroup                           // orders whose clients were answered before they were decided
	metrics   *telemetry.Metrics
	log       *slog.Logger
}

// OrderDeps is what Orders works with.
type OrderDeps struct {
	Store     OrderStore
	Copies    *VoucherCache
	Announcer Announcer // told of canceled orders
	Locks     Locker
	LockWait  time.Duration // zero: one try
	Mode      ModeWatch     // nil: sold from in any mode
	// Admission makes the orders asynchronous; nil is order mode sync. Orders
	// closes it.
	Admission *Admission
	Metrics   *telemetry.Metrics
	Log       *slog.Logger
}

// NewOrders makes the service; Close ends its writers.
func NewOrders(deps OrderDeps) *Orders {
	s := &Orders{
		store:     deps.Store,
		copies:    deps.Copies,
		announcer: deps.Announcer,
		locks:     deps.Locks,
		lockWait:  deps.LockWait,
		gate:      newGate(maxAtOnce),
		mode:      deps.Mode,
		admission: deps.Admission,
		metrics:   deps.Metrics,
		log:       deps.Log,
	}
	if s.admission != nil {
		s.gate = newGate(maxAdmitted)
		s.rows = batch.New(s.readRows, batch.Options{
			Writers: readers, MaxBatch: maxReadBatch, MaxQueue: maxRowReads, Timeout: lookTimeout,
		})
		return s
	}
	s.commits = batch.New(s.create, batch.Options{
		Writers: commitWriters, MaxBatch: maxCommitBatch, MaxQueue: maxCommitQueue,
		Timeout: commitTimeout, Observe: deps.Metrics.Batch,
	})
	return s
}

// StartDraining ends the waits for orders to leave processing, so that a stop
// need not wait for them.
func (s *Orders) StartDraining() {
	if s.admission != nil {
		s.admission.waiters.drain()
	}
}

// Close lets the orders under way be decided. When ctx ends first they are left
// unknown: the truth decides, and the clients ask again.
func (s *Orders) Close(ctx context.Context) {
	if s.admission == nil {
		s.commits.Close(ctx)
		s.settling.Wait()
		return
	}
	s.StartDraining()
	// Whoever has a reservation publishes it, also behind his client.
	s.admission.reserves.Close(ctx)
	s.settling.Wait()
	s.admission.close(ctx)
	s.rows.Close(ctx)
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
	if s.mode != nil {
		if err := s.mode.Selling(); err != nil {
			return model.Order{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.lockWait+placeBudget)
	defer cancel()

	if err := s.refusedLocally(ctx, userID, voucherID); err != nil {
		return model.Order{}, err
	}
	if s.admission != nil {
		if err := s.overload(ctx, userID, voucherID); err != nil {
			return model.Order{}, err
		}
	}
	order, err := s.attempt(ctx, nil, userID, voucherID)
	if model.CodeOf(err) != model.CodeLockBusy || s.lockWait <= 0 {
		return order, err
	}
	// Outside the gate: a request that waits for another one of its user must not
	// stand in the way of other users.
	lease, err := s.lock(ctx, userID, s.lockWait)
	if err != nil {
		return model.Order{}, err
	}
	return s.attempt(ctx, lease, userID, voucherID)
}

// attempt goes through the gate and sells there, under the lease of the user's
// lock if there is one already. It gives the lease back.
func (s *Orders) attempt(ctx context.Context, lease Lease, userID, voucherID string) (order model.Order, err error) {
	entered := s.gate.do(ctx, func() { order, err = s.inside(ctx, lease, userID, voucherID) })
	if entered != nil {
		s.unlock(ctx, lease, userID)
		return model.Order{}, undone("Too many orders are waiting.", entered)
	}
	return order, err
}

// inside sells to a user inside the gate. It looks at the copy again after each
// wait, because meanwhile the sale may be over.
func (s *Orders) inside(ctx context.Context, lease Lease, userID, voucherID string) (model.Order, error) {
	if err := s.refusedLocally(ctx, userID, voucherID); err != nil {
		s.unlock(ctx, lease, userID)
		return model.Order{}, err
	}
	if lease == nil && !s.locksInScript() {
		var err error
		if lease, err = s.lock(ctx, userID, 0); err != nil {
			return model.Order{}, err
		}
		if err := s.refusedLocally(ctx, userID, voucherID); err != nil {
			s.unlock(ctx, lease, userID)
			return model.Order{}, err
		}
	}
	if s.admission != nil {
		return s.admit(ctx, lease, userID, voucherID)
	}
	return s.commit(ctx, lease, userID, voucherID)
}

func (s *Orders) locksInScript() bool { return s.admission != nil && s.admission.scriptLocks }

// refusedLocally answers from this instance's copy of the voucher.
func (s *Orders) refusedLocally(ctx context.Context, userID, voucherID string) error {
	held, err := s.copies.copy(ctx, voucherID)
	if err != nil {
		return err
	}
	err = held.refusal(userID, time.Now())
	if err == nil {
		return nil
	}
	s.metrics.AnsweredLocally()
	if errors.Is(err, model.ErrCopyClosed) {
		return s.admission.notLoaded(voucherID)
	}
	return err
}
