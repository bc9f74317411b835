package service

import (
	"context"
	"time"

	"seckill/internal/password"
	"seckill/internal/payment"
	"seckill/model"
)

// RedemptionStore uses up codes.
type RedemptionStore interface {
	// Redeem redeems the paid order whose code has a keyed hash.
	Redeem(ctx context.Context, hash []byte, till model.Till) (model.Order, error)
	// Unredeem undoes the use of an order.
	Unredeem(ctx context.Context, undo model.Undo) (model.Order, error)
}

// PaymentStore keeps payments.
type PaymentStore interface {
	// Start stores a payment of a user's unpaid order under a new id, or finds the one that was started before.
	Start(ctx context.Context, orderID, userID, newID string) (model.Payment, model.Order, error)
	SetURL(ctx context.Context, id, url string) error
	// Elsewhere pays an unpaid order for an administrator with what no provider knows, once for a reference.
	Elsewhere(ctx context.Context, orderID, newID, adminID string, paid model.Elsewhere, code model.SealedCode) (model.Order, error)
	// Settle applies what the provider says of a payment, once, in one transaction.
	Settle(ctx context.Context, notice model.PaymentNotice) (model.Receipt, error)
	// Due lists payments of which something may still come and that are to be asked for now.
	Due(ctx context.Context, limit int) ([]model.Payment, error)
	// Postpone has a payment asked for again after a pause; zero: never.
	Postpone(ctx context.Context, id string, pause time.Duration) error
}

// RefundQueue holds the refunds that are to be made.
type RefundQueue interface {
	Due(ctx context.Context, limit int) ([]model.Refund, error) // lists what is to be tried now
	Done(ctx context.Context, id string) error
	// Retry has a refund tried again after a pause.
	Retry(ctx context.Context, id, reason string, pause time.Duration) error
	GiveUp(ctx context.Context, id, reason string) error // after the provider has refused for good
}

// Provider is a payment provider. Its errors wrap payment.ErrRefused, or model.ErrUnknownOutcome.
type Provider interface {
	Start(ctx context.Context, r payment.Checkout) (payment.Payment, error)
	LookUp(ctx context.Context, id string) (payment.Payment, error)
	Refund(ctx context.Context, key string, r payment.Refund) error // once for a key
}

// RefundStore keeps refunds.
type RefundStore interface {
	// PaidBack notes that a person has paid back what was paid elsewhere.
	PaidBack(ctx context.Context, orderID, adminID string) (model.Refund, error)
	// Request refunds a paid (or used) order in one transaction with its change, or retries a refund that failed for good.
	Request(ctx context.Context, orderID, newID, adminID string, ask model.RefundAsk) (model.Refund, model.Order, error)
	// Withdraw refunds a user's own paid order within its time for that, and reports whether it was this call.
	Withdraw(ctx context.Context, orderID, newID, userID string) (changed bool, err error)
}

// VoucherStore keeps vouchers. All times are on its clock.
type VoucherStore interface {
	Create(ctx context.Context, id string, v model.VoucherFields, by string,
		once model.Idempotency) (model.Voucher, error)
	List(ctx context.Context, q model.VoucherQuery) (model.VoucherPage, error)
	Shelf(ctx context.Context, q model.VoucherQuery) (model.Shelf, error)
	Patch(ctx context.Context, id string, patch model.VoucherPatch) (model.Voucher, error)
	ChangeStock(ctx context.Context, id string, change model.StockChange, once model.Idempotency) (model.Voucher, error)
	Stats(ctx context.Context, id string) (model.Stats, error)
	Takings(ctx context.Context, id string) (model.Takings, error)
	Since(ctx context.Context, at time.Time) (model.Day, error) // what has come since then
	Audit(ctx context.Context, id string) (model.Audit, error)
}

// Stock is what the two order modes do differently with what is for sale.
type Stock interface {
	// Created follows the making of a voucher, and Patched its change.
	Created(ctx context.Context, voucherID string)
	Patched(ctx context.Context, v model.Voucher)
	Change(ctx context.Context, voucherID string, change model.StockChange,
		once model.Idempotency) (model.Voucher, error)
	Audit(ctx context.Context, voucherID string) (model.Audit, error)
	// Rebuild closes the hot copy for an administrator, and has it rebuilt.
	Rebuild(ctx context.Context, voucherID, adminID string) error
}

// OrderSearchStore finds orders.
type OrderSearchStore interface {
	List(ctx context.Context, q model.OrderQuery) (model.OrderPage, error)
	Counts(ctx context.Context, q model.OrderQuery) (map[model.OrderStatus]int64, error)
	Each(ctx context.Context, q model.OrderQuery, yield func(model.BookedOrder) error) error
}

// OrderDetails are the orders of a sale, those that are processing included.
type OrderDetails interface {
	Detail(ctx context.Context, orderID string) (model.OrderDetail, error)
	Each(ctx context.Context, q model.OrderQuery, yield func(model.BookedOrder) error) error
}

// AccountStore keeps accounts.
type AccountStore interface {
	// Create refuses a username that is taken, without regard to case, with CONFLICT.
	Create(ctx context.Context, account model.Account) error
	// ByUsername finds an account without regard to case, or answers NOT_FOUND.
	ByUsername(ctx context.Context, username string) (model.Account, error)
	ByID(ctx context.Context, id string) (model.Account, error) // or NOT_FOUND
	// Change changes an account alone, and logs by whom an administrator's. An error leaves it; it may be repeated.
	Change(ctx context.Context, id, by string, change func(*model.Account) error) (model.Account, error)
	// Administrators lists the accounts with the role admin, by username.
	Administrators(ctx context.Context) ([]model.Account, error)
}

// Hasher turns passwords into what may be stored, and compares, as password.Hasher does.
type Hasher interface {
	Hash(ctx context.Context, caller password.Caller, secret string) (string, error)
	Verify(ctx context.Context, caller password.Caller, secret, hash string) (bool, error)
}
