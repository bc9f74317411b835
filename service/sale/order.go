package sale

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"seckill/internal/batch"
	"seckill/internal/telemetry"
	"seckill/model"
	"seckill/service/sale/cache"
)

// AnswerBudget is what a request that changes something may take besides the wait for
// the user's lock. By the contract an answer takes at most that wait and 5 s; the last second is left for
// giving the lock back, and for the network.
const AnswerBudget = 4 * time.Second

// Orders sells, in one of the two order modes.
type Orders struct {
	seller
	Deps

	gate *gate
}

// Deps is what Orders works with.
type Deps struct {
	Store    OrderStore
	Cache    *cache.Vouchers
	Announce Announce // told of units that came back
	// Show adds its code to an order that has one. Nil: none has.
	Show     func(ctx context.Context, order model.Order) model.Order
	Locks    model.Locker
	LockWait time.Duration // zero: one try
	Selling  Selling
	Trace    Trace // nil: nothing is traced
	Metrics  *telemetry.Metrics
	Log      *slog.Logger
}

// Announce tells every instance what became of a voucher, for its cache, also when ctx has ended.
type Announce func(ctx context.Context, voucherID string) error

// Tell announces what happened to a voucher, which this instance's cache knows already.
func (a Announce) Tell(ctx context.Context, log *slog.Logger, id string) {
	if err := a(ctx, id); err != nil {
		log.WarnContext(ctx, "other instances learn of a change by the age of their copies only",
			slog.String("voucher_id", id), slog.Any("error", err))
	}
}

// Trace is the traceparent under which the order of a request is traced further; empty: it is not.
type Trace func(ctx context.Context) string

// of is empty also where nothing is traced.
func (t Trace) of(ctx context.Context) string {
	if t == nil {
		return ""
	}
	return t(ctx)
}

// Selling is nil while the database is sold from in this instance's order mode, and
// UNAVAILABLE otherwise.
type Selling func() error

// seller is what the two order modes do differently.
type seller interface {
	// known is refusal where that needs no reading. It reports whether that is so.
	known(userID, voucherID string) (known bool, refusal error)
	// refusal answers a request to buy from the cache entry; nil means that the
	// request may go on.
	refusal(ctx context.Context, userID, voucherID string) error
	// overload refuses while too many orders of the voucher wait in the queue, and is
	// nil otherwise.
	overload(ctx context.Context, userID, voucherID string) error
	// locksItself reports whether sell looks at the user's lock in the same atomic
	// step in which it takes the unit. Then a free lock need not be taken.
	locksItself() bool
	// sell makes an order under the lease of the user's lock, and gives the lease
	// back. Without a lease it answers LOCK_BUSY while the lock is held elsewhere.
	sell(ctx context.Context, lease model.Lease, userID, voucherID string) (model.Order, error)

	// get returns a user's own order. With wait it waits until that has left
	// processing.
	get(ctx context.Context, userID, orderID string, wait time.Duration) (model.Order, error)
	list(ctx context.Context, q model.OrderQuery) (model.OrderPage, error)
	each(ctx context.Context, q model.OrderQuery, yield func(model.Order) error) error
	detail(ctx context.Context, orderID string) (model.OrderDetail, error)
	cancel(ctx context.Context, asked model.Cancellation) (order model.Order, changed bool, err error)

	// drain ends the waits for orders to leave processing.
	drain()
	// close waits until the orders under way are decided, or ctx ends.
	close(ctx context.Context)
}

// NewSync sells from the database, in the request; Close ends its writers.
func NewSync(deps Deps) *Orders {
	return &Orders{seller: newSyncSeller(deps), Deps: deps, gate: newGate(maxCommitting, maxCommittingOne)}
}

// NewAsync sells from the hot copies and lets a queue carry the orders to the
// database; Close ends its writers.
func NewAsync(deps Deps, hot AsyncDeps) *Orders {
	return &Orders{seller: newAsyncSeller(deps, hot), Deps: deps, gate: newGate(maxAdmitted, maxAdmitted)}
}

// StartDraining ends the waits for orders to leave processing, so that a stop
// need not wait for them.
func (s *Orders) StartDraining() { s.drain() }

// Close waits until the orders under way are decided. When ctx ends first, the
// outcome of some stays unknown: the database decides, and the clients ask again.
func (s *Orders) Close(ctx context.Context) { s.close(ctx) }

// Place buys one unit of a voucher for a user. It returns an order only when the
// order is committed or, in async, promised. A refusal is a *model.Error with one of
// the contract's codes. UNAVAILABLE promises nothing: the same call again tells.
func (s *Orders) Place(ctx context.Context, userID, voucherID string) (model.Order, error) {
	began := time.Now()
	order, err := s.place(ctx, userID, voucherID)
	outcome := "OK"
	if err != nil {
		outcome = string(model.CodeOf(err))
	}
	s.Metrics.Placed(outcome, time.Since(began))
	return order, err
}

func (s *Orders) place(ctx context.Context, userID, voucherID string) (model.Order, error) {
	if !model.ValidID(voucherID) {
		return model.Order{}, model.NotFound("voucher")
	}
	if err := s.Selling(); err != nil {
		return model.Order{}, err
	}
	known, refusal := s.known(userID, voucherID)
	if refusal != nil {
		return model.Order{}, refusal // most requests end here; a deadline would cost them more than the answer
	}
	ctx, cancel := context.WithTimeout(ctx, s.LockWait+AnswerBudget)
	defer cancel()
	if !known {
		if err := s.refusal(ctx, userID, voucherID); err != nil {
			return model.Order{}, err
		}
	}
	if err := s.overload(ctx, userID, voucherID); err != nil {
		return model.Order{}, err
	}
	order, err := s.attempt(ctx, nil, userID, voucherID)
	if model.CodeOf(err) != model.CodeLockBusy || s.LockWait <= 0 {
		return order, err
	}
	// The wait is outside the gate: a request that waits for another request of its
	// user must not keep other users' requests out.
	lease, err := s.lock(ctx, userID, s.LockWait)
	if err != nil {
		return model.Order{}, err
	}
	return s.attempt(ctx, lease, userID, voucherID)
}

// attempt sells inside the gate, under the lease of the user's lock if there is one
// already. It gives the lease back.
func (s *Orders) attempt(ctx context.Context, lease model.Lease, userID, voucherID string) (model.Order, error) {
	waited, err := s.gate.enter(ctx, voucherID)
	if err != nil {
		s.unlock(ctx, lease, userID)
		return model.Order{}, batch.Undone("Too many orders are waiting.", err)
	}
	defer s.gate.leave(voucherID)
	return s.inside(ctx, lease, userID, voucherID, waited || lease != nil)
}

// inside is the part of attempt that runs inside the gate. It asks the cache again
// after each wait, because the sale may be over by then.
func (s *Orders) inside(ctx context.Context, lease model.Lease, userID, voucherID string, waited bool) (model.Order, error) {
	if waited {
		if err := s.refusal(ctx, userID, voucherID); err != nil {
			s.unlock(ctx, lease, userID)
			return model.Order{}, err
		}
	}
	if lease == nil && !s.locksItself() {
		var err error
		if lease, err = s.lock(ctx, userID, 0); err != nil {
			return model.Order{}, err
		}
		if err := s.refusal(ctx, userID, voucherID); err != nil {
			s.unlock(ctx, lease, userID)
			return model.Order{}, err
		}
	}
	return s.sell(ctx, lease, userID, voucherID)
}

// lock takes the user's lock; zero wait is one try.
func (d Deps) lock(ctx context.Context, userID string, wait time.Duration) (model.Lease, error) {
	began := time.Now()
	lease, err := d.Locks.Lock(ctx, model.UserLock(userID), wait)
	d.Metrics.LockWaited(time.Since(began))
	switch {
	case err == nil:
		return lease, nil
	case errors.Is(err, model.ErrLockBusy):
		return nil, lockBusy(err)
	default:
		// Any other error means that the store of locks cannot be used now.
		return nil, model.Unavailable("The user's lock could not be taken.", err)
	}
}

// unlock gives the user's lock back, if lease is not nil.
func (d Deps) unlock(ctx context.Context, lease model.Lease, userID string) {
	if lease == nil {
		return
	}
	if err := lease.Unlock(); err != nil {
		d.Log.WarnContext(ctx, "the user's lock was not given back and ends by itself",
			slog.String("user_id", userID), slog.Any("error", err))
	}
}

func lockBusy(cause error) *model.Error {
	return &model.Error{
		Code:       model.CodeLockBusy,
		Detail:     "Another request of yours is under way.",
		RetryAfter: time.Second,
		Cause:      cause,
	}
}

// lost is UNAVAILABLE when the lock was lost while it was held. A nil lease is never
// lost.
func lost(lease model.Lease) error {
	if lease == nil {
		return nil
	}
	if cause := context.Cause(lease.Context()); cause != nil {
		return model.Unavailable("The user's lock was lost.", cause)
	}
	return nil
}
