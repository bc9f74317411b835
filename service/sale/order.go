package sale

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"seckill/internal/lane"
	"seckill/internal/telemetry"
	"seckill/internal/tracing"
	"seckill/model"
	"seckill/service/sale/cache"
)

// AnswerBudget is what a request that changes something may take besides the wait for
// the user's lock. By the contract an answer takes at most that wait and 5 s; the last second is left for
// giving the lock back, and for the network.
const AnswerBudget = 4 * time.Second

// Orders sells, in one of the two order modes.
type Orders struct {
	deps    Deps
	seller  seller
	entries *entrants
	gate    *gate
	joins   *lane.Keyed[joining, model.Joined]
	leaves  *lane.Keyed[model.Buyer, error]
}

// Deps is what Orders works with.
type Deps struct {
	Store    OrderStore
	Entries  EntryStore
	Places   PlaceStore
	Cache    *cache.Vouchers
	Announce Announce // told of units that came back
	// Show adds its code to an order that has one. Nil: none has.
	Show     func(ctx context.Context, order model.Order) model.Order
	Locks    model.Locker
	LockWait time.Duration // zero: one try
	Selling  Selling
	Trace    *tracing.Tracer // of the waits for locks; nil records nothing
	Metrics  *telemetry.Metrics
	Tallies  *telemetry.Tallies // nil: nobody watches
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

// Selling is nil while the database is sold from in this instance's order mode, and
// UNAVAILABLE otherwise.
type Selling func() error

// seller is what the two order modes do differently.
type seller interface {
	counter

	// known is refusal where that needs no reading. It reports whether that is so.
	known(userID string, groups []string, voucherID string) (known bool, refusal error)
	// overload refuses while too many orders of the voucher wait in the queue, and is
	// nil otherwise.
	overload(ctx context.Context, userID, voucherID string) error
	// free refuses a place on the waitlist although units remain in the database; nil: they are those of orders on
	// their way to it.
	free(ctx context.Context, userID string, groups []string, voucherID string) error

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

// counter is where a request ends that may go on: with a seller, or with those who enter draws.
type counter interface {
	// refusal answers a request to buy from the cache entry; nil means that the
	// request may go on, model.ErrEntry that it is an entry in a draw.
	refusal(ctx context.Context, userID string, groups []string, voucherID string) error
	// locksItself reports whether sell looks at the user's lock in the same atomic
	// step in which it takes the unit. Then a free lock need not be taken.
	locksItself() bool
	// sell makes an order under the user's lock. It may release the lock early, or hand it
	// over. Where the lock is not taken, it answers LOCK_BUSY while somebody else holds it.
	sell(ctx context.Context, user *hold, voucherID string) (model.Order, error)
}

// NewSync sells from the database, in the request; Close ends its writers.
func NewSync(deps Deps) *Orders {
	s := newSyncSeller(deps)
	return &Orders{deps: deps, seller: s, entries: newEntrants(deps, s), gate: newGate(maxCommitting, maxCommittingOne), joins: newJoins(deps.Places), leaves: newLeaves(deps.Places)}
}

// NewAsync sells from the hot copies and lets a queue carry the orders to the
// database; Close ends its writers.
func NewAsync(deps Deps, hot AsyncDeps) *Orders {
	s := newAsyncSeller(deps, hot)
	return &Orders{deps: deps, seller: s, entries: newEntrants(deps, s), gate: newGate(maxAdmitted, maxAdmitted), joins: newJoins(deps.Places), leaves: newLeaves(deps.Places)}
}

// StartDraining ends the waits for orders to leave processing, so that a stop
// need not wait for them.
func (s *Orders) StartDraining() { s.seller.drain() }

// Close waits until the orders under way are decided. When ctx ends first, the
// outcome of some stays unknown: the database decides, and the clients ask again.
func (s *Orders) Close(ctx context.Context) {
	s.entries.close(ctx)
	s.joins.Close(ctx)
	s.leaves.Close(ctx)
	s.seller.close(ctx)
}

// Place buys one unit of a voucher for a user whose token names groups. It returns an order only when the
// order is committed or, in async, promised. For a draw it returns an Order with only Entry set, once that is committed. A refusal is a
// *model.Error with one of the contract's codes. After UNAVAILABLE the outcome is unknown: repeat the call.
func (s *Orders) Place(ctx context.Context, userID, voucherID string, groups ...string) (model.Order, error) {
	began := time.Now()
	order, err := s.place(ctx, userID, voucherID, groups)
	outcome := "OK"
	if err != nil {
		outcome = string(model.CodeOf(err))
	}
	took := time.Since(began)
	s.deps.Metrics.Placed(outcome, took)
	s.deps.Tallies.Placed(voucherID, outcome, took)
	return order, err
}

func (s *Orders) place(ctx context.Context, userID, voucherID string, groups []string) (model.Order, error) {
	if !model.ValidID(voucherID) {
		return model.Order{}, model.NotFound("voucher")
	}
	if err := s.deps.Selling(); err != nil {
		return model.Order{}, err
	}
	known, refusal := s.seller.known(userID, groups, voucherID)
	if refusal != nil && !errors.Is(refusal, model.ErrEntry) {
		return model.Order{}, refusal // most requests end here; a deadline would cost them more than the answer
	}
	ctx, cancel := context.WithTimeout(ctx, s.deps.LockWait+AnswerBudget)
	defer cancel()
	if !known {
		refusal = s.seller.refusal(ctx, userID, groups, voucherID)
	}
	at, err := s.counter(ctx, userID, voucherID, refusal)
	if err != nil {
		return model.Order{}, err
	}
	user := &hold{locks: s.deps.Locks, trace: s.deps.Trace, metrics: s.deps.Metrics, log: s.deps.Log, userID: userID, groups: groups}
	defer user.release(ctx)
	order, err := s.attempt(ctx, at, user, voucherID)
	if model.CodeOf(err) != model.CodeLockBusy || s.deps.LockWait <= 0 {
		return order, err
	}
	// The wait is outside the gate: a request that waits for another request of its
	// user must not keep other users' requests out.
	if err := user.take(ctx, s.deps.LockWait); err != nil {
		return model.Order{}, err
	}
	return s.attempt(ctx, at, user, voucherID)
}

// counter is where a request goes on, by what the cache entry says of it.
func (s *Orders) counter(ctx context.Context, userID, voucherID string, refusal error) (counter, error) {
	switch {
	case refusal == nil:
		return s.seller, s.seller.overload(ctx, userID, voucherID)
	case errors.Is(refusal, model.ErrEntry):
		return s.entries, nil
	default:
		return nil, refusal
	}
}

// attempt sells inside the gate, under the user's lock if that is taken already. It asks
// the cache again after each wait, because the sale may be over by then.
func (s *Orders) attempt(ctx context.Context, at counter, user *hold, voucherID string) (model.Order, error) {
	waited, err := s.gate.enter(ctx, voucherID)
	if err != nil {
		return model.Order{}, lane.Undone("Too many orders are waiting.", err)
	}
	defer s.gate.leave(voucherID)
	if waited || user.taken() {
		if err := at.refusal(ctx, user.userID, user.groups, voucherID); err != nil {
			return model.Order{}, err
		}
	}
	if !user.taken() && !at.locksItself() {
		if err := user.take(ctx, 0); err != nil {
			return model.Order{}, err
		}
		if err := at.refusal(ctx, user.userID, user.groups, voucherID); err != nil {
			return model.Order{}, err
		}
	}
	return at.sell(ctx, user, voucherID)
}
