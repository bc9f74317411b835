package service

import (
	"context"
	"time"

	"seckill/internal/password"
	"seckill/internal/payment"
	"seckill/model"
)

// OrderStore keeps orders.
type OrderStore interface {
	// CreateOrders commits in one transaction those of the orders that it can, and
	// returns the outcome of each. After an error that wraps model.ErrUnknownOutcome,
	// only a call with the same ids can tell. A *model.HeldError names the voucher whose row
	// was waited for in vain.
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

// RedemptionStore uses up codes.
type RedemptionStore interface {
	// Redeem redeems the paid order whose code has a keyed hash.
	Redeem(ctx context.Context, hash []byte, adminID string) (model.Order, error)
}

// PaymentStore keeps payments.
type PaymentStore interface {
	// Start stores a payment of a user's unpaid order under a new id, or finds the one that was started before.
	Start(ctx context.Context, orderID, userID, newID string) (model.Payment, model.Order, error)
	SetURL(ctx context.Context, id, url string) error
	// Settle applies what the provider says of a payment, once, in one transaction.
	Settle(ctx context.Context, notice model.PaymentNotice) (model.Receipt, error)
	// Due lists payments whose end is not known and that are to be asked for now.
	Due(ctx context.Context, limit int) ([]model.Payment, error)
	// Postpone has a payment asked for again after a pause.
	Postpone(ctx context.Context, id string, pause time.Duration) error
}

// RefundQueue holds the refunds that are to be made.
type RefundQueue interface {
	// Due lists refunds that are to be tried now.
	Due(ctx context.Context, limit int) ([]model.Refund, error)
	Done(ctx context.Context, id string) error
	// Retry has a refund tried again after a pause.
	Retry(ctx context.Context, id, reason string, pause time.Duration) error
	// GiveUp ends a refund that the provider has refused for good.
	GiveUp(ctx context.Context, id, reason string) error
}

// Provider is a payment provider. Its errors wrap payment.ErrRefused, or model.ErrUnknownOutcome.
type Provider interface {
	Start(ctx context.Context, r payment.Checkout) (payment.Payment, error)
	LookUp(ctx context.Context, id string) (payment.Payment, error)
	// Refund gives money back, once for a key.
	Refund(ctx context.Context, key string, r payment.Refund) error
}

// RefundStore keeps refunds.
type RefundStore interface {
	// Request makes a refund of a paid order in one transaction with the order's change,
	// or tries one again that has failed for good.
	Request(ctx context.Context, orderID, newID, adminID string) (model.Refund, model.Order, error)
	List(ctx context.Context, q model.RefundQuery) (model.RefundPage, error)
}

// VoucherStore keeps vouchers. All times are on its clock.
type VoucherStore interface {
	Create(ctx context.Context, id string, v model.NewVoucher, once model.Idempotency) (model.Voucher, error)
	List(ctx context.Context, q model.VoucherQuery) (model.VoucherPage, error)
	Patch(ctx context.Context, id string, patch model.VoucherPatch) (model.Voucher, error)
	ChangeStock(ctx context.Context, id string, change model.StockChange, once model.Idempotency) (model.Voucher, error)
	Stats(ctx context.Context, id string) (model.Stats, error)
	Audit(ctx context.Context, id string) (model.Audit, error)
}

// Stock is what the two order modes do differently with what is for sale.
type Stock interface {
	// Created follows the making of a voucher, and Patched its change.
	Created(ctx context.Context, voucherID string)
	Patched(ctx context.Context, v model.Voucher)
	Change(ctx context.Context, voucherID string, change model.StockChange, once model.Idempotency) (model.Voucher, error)
	Audit(ctx context.Context, voucherID string) (model.Audit, error)
	// Rebuild closes the hot copy for an administrator, and has it rebuilt.
	Rebuild(ctx context.Context, voucherID, adminID string) error
}

// AccountStore keeps accounts.
type AccountStore interface {
	// Create refuses a username that is taken, without regard to case, with CONFLICT.
	Create(ctx context.Context, account model.Account) error
	// ByUsername finds an account without regard to case, or answers NOT_FOUND.
	ByUsername(ctx context.Context, username string) (model.Account, error)
	// ByID finds an account, or answers NOT_FOUND.
	ByID(ctx context.Context, id string) (model.Account, error)
	// Change changes an account alone. The function may be called again; its error
	// leaves the account as it is.
	Change(ctx context.Context, id string, change func(*model.Account) error) (model.Account, error)
	// Administrators lists the accounts with the role admin, by username.
	Administrators(ctx context.Context) ([]model.Account, error)
}

// Hasher turns passwords into what may be stored, and compares, as password.Hasher does.
type Hasher interface {
	Hash(ctx context.Context, caller password.Caller, secret string) (string, error)
	Verify(ctx context.Context, caller password.Caller, secret, hash string) (bool, error)
}

// HotCopies sell in the order mode async.
type HotCopies interface {
	// Reserve takes one unit for each request, or says why not. An error means that
	// nothing happened, or wraps model.ErrUnknownOutcome.
	Reserve(ctx context.Context, asked []model.ReserveRequest) ([]model.ReserveResult, error)
	// Confirm tells of each reservation whether its hot copy is known to be still open.
	// With an error it may not be known of some.
	Confirm(ctx context.Context, reservations []model.Reservation) ([]bool, error)
	// Release gives back the unit of a closed order; false means "later".
	Release(ctx context.Context, release model.Release) (applied bool, err error)
	// Pending finds a user's order that is not known to be persisted; any user's when that
	// is empty. An absent one of a closed hot copy is model.ErrCopyClosed.
	Pending(ctx context.Context, orderID, userID string) (model.Reservation, bool, error)
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
	Watch(ctx context.Context, settled func(orderIDs []string), missed func()) error
}

// Queue carries reservations to the workers.
type Queue interface {
	// Publish returns when the reservations are durably queued. After an error they
	// may be queued all the same.
	Publish(ctx context.Context, reservations []model.Reservation) error
	Backlog(ctx context.Context) (model.Backlog, error)
	// Waiting counts the messages of every voucher that has any, for all at once. Those
	// that may be of any voucher are model.AnyVoucher's.
	Waiting(ctx context.Context) (map[string]int64, error)
	// BacklogOf is Backlog of one voucher's messages.
	BacklogOf(ctx context.Context, voucherID string) (model.Backlog, error)
}
