package sale

import (
	"context"
	"time"

	"seckill/model"
)

// OrderStore keeps orders.
type OrderStore interface {
	// CreateOrders commits in one transaction those of the orders that it can, and
	// returns the outcome of each. After an error that wraps model.ErrUnknownOutcome,
	// only a call with the same ids can tell. A *model.HeldError names the voucher whose row
	// stayed locked.
	CreateOrders(ctx context.Context, orders []model.Order) ([]model.Outcome, error)
	Get(ctx context.Context, id string) (model.Order, error)
	// Find reads orders by id; absent ones are left out.
	Find(ctx context.Context, ids []string) (map[string]model.Order, error)
	// Cancel cancels unpaid orders in one transaction, gives their units back, and
	// returns what became of each. A canceled one is returned as it is, not changed.
	Cancel(ctx context.Context, asked []model.Cancellation) ([]model.Canceled, error)
	List(ctx context.Context, q model.OrderQuery) (model.OrderPage, error)
	Each(ctx context.Context, q model.OrderQuery, yield func(model.Order) error) error
	Detail(ctx context.Context, id string) (model.OrderDetail, error)
}

// EntryStore keeps the entries of draws.
type EntryStore interface {
	// Enter commits in one transaction the entries that it can, and returns what became of each. It finds
	// those of earlier calls. A *model.HeldError names the voucher whose row stayed locked.
	Enter(ctx context.Context, asked []model.Entering) ([]model.Entered, error)
}

// HotCopies sell in the order mode async.
type HotCopies interface {
	// Node names the server of a voucher's hot copy, so that a dead one holds up none
	// of the others' orders. It asks no server.
	Node(voucherID string) string
	// Reserve takes one unit for each request, or says why not. An error means that
	// nothing happened, or wraps model.ErrUnknownOutcome.
	Reserve(ctx context.Context, asked []model.ReserveRequest) ([]model.ReserveResult, error)
	// Confirm tells of each reservation whether its hot copy is known to be still open.
	// With an error it may not be known of some.
	Confirm(ctx context.Context, reservations []model.Reservation) ([]bool, error)
	// ReleaseAll gives back the units of closed orders, one behind the other; false means "later".
	ReleaseAll(ctx context.Context, voucherID string, releases []model.Release) (applied bool, err error)
	// Pending finds an order that is not known to be persisted. An absent one of a closed hot copy is model.ErrCopyClosed.
	Pending(ctx context.Context, orderID string) (model.Reservation, bool, error)
	// OrderOf finds the order that the user's mark names; "" for none. Pending is its
	// reservation while it is not known to be persisted.
	OrderOf(ctx context.Context, voucherID, userID string) (orderID string, pending *model.Reservation, err error)
	// OrdersOf is OrderOf of several buyers in one call. An order that cannot be found
	// now is left empty.
	OrdersOf(ctx context.Context, buyers []model.Buyer) ([]model.BuyersOrder, error)
	// Processing is one page of all users' orders of a voucher that are not known to
	// be persisted, newest first. A closed hot copy is model.ErrCopyClosed.
	Processing(ctx context.Context, q model.OrderQuery) (model.OrderPage, error)
	// EachProcessing calls yield with all of them.
	EachProcessing(ctx context.Context, voucherID string, yield func(model.Order) error) error
	// Watch calls settled with orders that have left processing, and missed when
	// messages about some may have been lost, until ctx ends.
	Watch(ctx context.Context, settled func(orderIDs []string), missed func())
}

// Queue carries reservations to the workers.
type Queue interface {
	// Publish returns when the reservations are durably queued. After an error they
	// may be queued all the same.
	Publish(ctx context.Context, reservations []model.Reservation) error
}

// Backlog watches the queue.
type Backlog interface {
	// Refusal says why no order of a voucher may be promised now: too many wait, or the queue
	// does not tell. Nil: it may be.
	Refusal(voucherID string) error
	// Empty reports whether a voucher is known to have no message in the queue that is as old as that.
	Empty(voucherID string, age time.Duration) bool
}
