// Package sale is the road of one order in both order modes, from the request to the row (sync) or into the queue
// (async), and until it is paid: its status, the wait for it, its cancellation. The handlers call Orders, internal/app
// builds it. Storage, locks and queue are behind this file's interfaces; the package cache holds what an instance
// remembers of vouchers. Read this file first, then order_sync.go with internal/lane, or order_async.go.
package sale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/lane"
	"seckill/internal/telemetry"
	"seckill/internal/tracing"
	"seckill/model"
	"seckill/service/sale/cache"
)

// Orders sells, in one of the two order modes.
type Orders struct {
	deps   Deps
	seller seller
	gate   *gate
	bounds *budget.Deadlines // of requests that the cache does not answer
	enters *lane.Lane[model.Entering, model.Entered]
	joins  *lane.Keyed[asking[model.Joining], model.Joined]
	leaves *lane.Keyed[asking[string], error]
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

// Selling is nil while the database is sold from in this instance's order mode, and UNAVAILABLE otherwise.
type Selling func() error

type seller interface {
	// open is the refusal of a request to buy that the cache has answered with this one; nil: it may go on.
	open(voucherID string, refusal error) error
	// overload refuses while too many orders of the voucher wait in the queue, and is nil otherwise.
	overload(ctx context.Context, userID, voucherID string) error
	// free refuses a place on the waitlist while units remain in the database; nil: orders on their way take them.
	free(ctx context.Context, userID string, groups []string, voucherID string) error

	// get returns a user's own order. With wait it waits until that has left processing.
	get(ctx context.Context, userID, orderID string, wait time.Duration) (model.Order, error)
	List(ctx context.Context, q model.OrderQuery) (model.OrderPage, error)
	Each(ctx context.Context, q model.OrderQuery, yield func(model.BookedOrder) error) error
	detail(ctx context.Context, orderID string) (model.OrderDetail, error)
	cancel(ctx context.Context, asked model.Cancellation) (order model.Order, changed bool, err error)

	locksItself() bool // reports whether sell looks at the user's lock in its own atomic step
	// sell makes an order under the user's lock, which it may release early. Without it LOCK_BUSY for others' holds.
	sell(ctx context.Context, user *hold) (model.Order, error)
	drain()                    // ends the waits for orders to leave processing
	close(ctx context.Context) // waits until the orders under way are decided, or ctx ends
}

// NewSync sells from the database, in the request; Close ends its writers.
func NewSync(deps Deps) *Orders {
	return newOrders(deps, newSyncSeller(deps), newGate(maxCommitting, maxCommittingOne))
}

// NewAsync sells from the hot copies and lets a queue carry the orders to the database; Close ends its writers.
func NewAsync(deps Deps, hot AsyncDeps) *Orders {
	return newOrders(deps, newAsyncSeller(deps, hot), newGate(maxAdmitted, maxAdmitted))
}

func newOrders(deps Deps, s seller, g *gate) *Orders {
	return &Orders{
		deps: deps, seller: s, gate: g, bounds: budget.NewDeadlines(deps.LockWait + budget.Work),
		enters: newEnters(deps), joins: perVoucher(deps.Places.Join), leaves: perVoucher(deps.Places.Leave),
	}
}

// StartDraining ends the waits for orders to leave processing, so that a stop need not wait for them.
func (s *Orders) StartDraining() { s.seller.drain() }

// Close waits until orders under way are decided. At ctx's end some stay unknown: the database decides.
func (s *Orders) Close(ctx context.Context) {
	s.enters.Close(ctx)
	s.joins.Close(ctx)
	s.leaves.Close(ctx)
	s.seller.close(ctx)
}

// Place buys a unit for a user whose token names groups. An order is committed or, in async, promised; in a draw it has
// only Entry, which is committed. A refusal is a *model.Error with a code of the contract. After UNAVAILABLE the
// outcome is unknown: repeat the call.
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
	return s.shown(ctx, order), err
}

func (s *Orders) place(ctx context.Context, userID, voucherID string, groups []string) (model.Order, error) {
	if !model.ValidID(voucherID) {
		return model.Order{}, model.NotFound("voucher")
	}
	if err := s.deps.Selling(); err != nil {
		return model.Order{}, err
	}
	known, refusal := s.deps.Cache.Known(userID, voucherID, groups...) //nolint:contextcheck // it waits for no reading
	if refusal = s.seller.open(voucherID, refusal); refusal != nil && !errors.Is(refusal, model.ErrEntry) {
		return model.Order{}, refusal // most requests end here; a deadline would cost them more than the answer
	}
	ctx = s.bounds.Bound(ctx)
	user := &hold{deps: &s.deps, userID: userID, groups: groups, voucherID: voucherID}
	defer user.release(ctx)
	if !known {
		refusal = s.refusal(ctx, user)
	}
	if user.draws = errors.Is(refusal, model.ErrEntry); refusal == nil {
		refusal = s.seller.overload(ctx, userID, voucherID)
	}
	if refusal != nil && !user.draws {
		return model.Order{}, refusal
	}
	order, err := s.attempt(ctx, user)
	if model.CodeOf(err) != model.CodeLockBusy || s.deps.LockWait <= 0 {
		return order, err
	}
	// The wait is outside the gate: one user's requests that wait for each other must not keep others out.
	wait, done := budget.Own(ctx)
	defer done()
	if err := user.take(wait, s.deps.LockWait); err != nil {
		return model.Order{}, err
	}
	return s.attempt(ctx, user)
}

// refusal answers from the cache; nil: go on; model.ErrEntry: the request is now for a draw, or no longer for one.
func (s *Orders) refusal(ctx context.Context, user *hold) error {
	err := s.seller.open(user.voucherID, s.deps.Cache.Refusal(ctx, user.userID, user.voucherID, user.groups...))
	switch {
	case user.draws && err == nil:
		return model.ErrEntry
	case user.draws && errors.Is(err, model.ErrEntry):
		return nil
	default:
		return err
	}
}

// attempt sells inside the gate, under a taken lock. It asks the cache after each wait: the sale may be over.
func (s *Orders) attempt(ctx context.Context, user *hold) (model.Order, error) {
	waited, err := s.gate.enter(ctx, user.voucherID)
	if err != nil {
		return model.Order{}, lane.Undone("Too many orders are waiting.", err)
	}
	defer s.gate.leave(user.voucherID)
	if waited || user.taken() {
		if err := s.refusal(ctx, user); err != nil {
			return model.Order{}, err
		}
	}
	if !user.taken() && (user.draws || !s.seller.locksItself()) {
		if err := user.take(ctx, 0); err != nil {
			return model.Order{}, err
		}
		if err := s.refusal(ctx, user); err != nil {
			return model.Order{}, err
		}
	}
	if user.draws {
		return s.enter(ctx, user)
	}
	return s.seller.sell(ctx, user)
}

// OrderStore keeps orders.
type OrderStore interface {
	// CreateOrders commits what it can in one transaction, and returns each outcome. After model.ErrUnknownOutcome only
	// a call with the same ids can tell. A *model.HeldError names the voucher whose row stayed locked.
	CreateOrders(ctx context.Context, orders []model.Order) ([]model.Outcome, error)
	Get(ctx context.Context, id string) (model.Order, error)
	// Find reads orders by id; absent ones are left out.
	Find(ctx context.Context, ids []string) (map[string]model.Order, error)
	// Cancel cancels unpaid orders in one transaction, gives units back, and returns what became of each.
	Cancel(ctx context.Context, asked []model.Cancellation) ([]model.Canceled, error)
	List(ctx context.Context, q model.OrderQuery) (model.OrderPage, error)
	Each(ctx context.Context, q model.OrderQuery, yield func(model.BookedOrder) error) error
	Detail(ctx context.Context, id string) (model.OrderDetail, error)
}

// EntryStore keeps the entries of draws.
type EntryStore interface {
	// Enter commits the entries that it can, or finds earlier ones. A *model.HeldError names a voucher kept locked.
	Enter(ctx context.Context, asked []model.Entering) ([]model.Entered, error)
}

// HotCopies sell in the order mode async.
type HotCopies interface {
	// Node names the server of a voucher's copy: a dead one must not hold up others' orders. It asks none.
	Node(voucherID string) string
	// Reserve takes a unit for each request, or says why not. An error: nothing happened, or ErrUnknownOutcome.
	Reserve(ctx context.Context, asked []model.ReserveRequest) ([]model.ReserveResult, error)
	// Confirm tells of each reservation whether its hot copy is known to be open; with an error some are unknown.
	Confirm(ctx context.Context, reservations []model.Reservation) ([]bool, error)
	// ReleaseAll gives back the units of closed orders, one behind the other; false means "later".
	ReleaseAll(ctx context.Context, voucherID string, releases []model.Release) (applied bool, err error)
	// Pending finds an order that is not known to be persisted. An absent one of a closed hot copy is model.ErrCopyClosed.
	Pending(ctx context.Context, orderID string) (model.Reservation, bool, error)
	// OrderOf finds the order of the user's mark; "" for none. Pending is its reservation until it is persisted.
	OrderOf(ctx context.Context, voucherID, userID string) (orderID string, pending *model.Reservation, err error)
	// OrdersOf is OrderOf of several buyers in one call. An order that cannot be found now is left empty.
	OrdersOf(ctx context.Context, buyers []model.Buyer) ([]model.BuyersOrder, error)
	// Processing is one page of a voucher's orders without rows, newest first. A closed copy: model.ErrCopyClosed.
	Processing(ctx context.Context, q model.OrderQuery) (model.OrderPage, error)
	// EachProcessing calls yield with all of them.
	EachProcessing(ctx context.Context, voucherID string, yield func(model.Order) error) error
	// Watch calls settled with orders that left processing, and missed when some may be lost, until ctx ends.
	Watch(ctx context.Context, settled func(orderIDs []string), missed func())
}

// Queue carries reservations to the workers.
type Queue interface {
	// Publish returns when the reservations are durably queued. After an error they may be queued all the same.
	Publish(ctx context.Context, reservations []model.Reservation) error
}

// Backlog watches the queue.
type Backlog interface {
	// Refusal says why no order may be promised now: too many wait, or the queue is silent. Nil: it may be.
	Refusal(voucherID string) error
	// Empty reports whether a voucher is known to have no message in the queue that is as old as that.
	Empty(voucherID string, age time.Duration) bool
}

// canceler cancels orders of both modes. A voucher's cancellations share a transaction, because one for each would keep
// buyers waiting for its row. Vouchers share none, because one in trouble must not hold up others.
type canceler struct {
	store OrderStore
	group *lane.Keyed[asking[model.Cancellation], model.Canceled]
}

func newCanceler(store OrderStore) canceler {
	c := canceler{store: store}
	c.group = perVoucher(c.commit)
	return c
}

func (c canceler) do(ctx context.Context, asked model.Cancellation) (model.Canceled, error) {
	voucherID, _ := model.VoucherOf(asked.OrderID)
	canceled, err := c.group.Do(ctx, asking[model.Cancellation]{voucherID, asked})
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(err, lane.ErrNotRun):
		return model.Canceled{}, model.Unavailable("It is not known yet whether the order was canceled.",
			fmt.Errorf("%w: order %s: %w", model.ErrUnknownOutcome, asked.OrderID, err))
	case err != nil:
		return model.Canceled{}, lane.Undone("The order could not be canceled in time.",
			fmt.Errorf("cancel order %s: %w", asked.OrderID, err))
	}
	failpoint.Reach(failpoint.AfterCancel)
	return canceled, canceled.Err
}

// commit cancels a voucher's orders in one transaction. When the database refuses some data, each is tried alone.
func (c canceler) commit(ctx context.Context, _ string, asked []model.Cancellation) ([]model.Canceled, error) {
	answers, err := c.store.Cancel(ctx, asked)
	if len(asked) == 1 || !errors.Is(err, model.ErrDataRefused) {
		return answers, err
	}
	answers = make([]model.Canceled, len(asked))
	for i := range asked {
		alone, err := c.store.Cancel(ctx, asked[i:i+1])
		if answers[i].Err = err; err == nil {
			answers[i] = alone[0]
		}
	}
	return answers, nil
}
