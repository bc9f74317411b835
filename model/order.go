package model

import (
	"cmp"
	"strings"
	"time"
)

// OrderStatus is where an order stands in its life.
type OrderStatus string

// The statuses. Transitions lists the legal moves.
const (
	OrderProcessing OrderStatus = "processing"
	OrderUnpaid     OrderStatus = "unpaid"
	OrderPaid       OrderStatus = "paid"
	OrderRedeemed   OrderStatus = "redeemed"
	OrderCanceled   OrderStatus = "canceled"
	OrderExpired    OrderStatus = "expired"
	OrderFailed     OrderStatus = "failed"
	OrderRefunded   OrderStatus = "refunded"
)

// OrderStatuses lists every status.
func OrderStatuses() []OrderStatus {
	return []OrderStatus{
		OrderProcessing, OrderUnpaid, OrderPaid, OrderRedeemed, OrderCanceled, OrderExpired, OrderFailed, OrderRefunded,
	}
}

// Order is one user's purchase of one unit of one voucher.
type Order struct {
	ID        string      `json:"id"`
	VoucherID string      `json:"voucher_id"`
	UserID    string      `json:"user_id"`
	Status    OrderStatus `json:"status"`
	Reason    string      `json:"reason,omitempty"`
	Price     int64       `json:"price"`    // minor units of Currency, as it was when ordered
	Currency  string      `json:"currency"` // ISO 4217

	// CreatedAt is when the order passed admission. Zero in one not yet admitted: the database's clock decides.
	CreatedAt time.Time  `json:"created_at" gorm:"autoCreateTime:false"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"` // unpaid orders lapse then
	PaidAt    *time.Time `json:"paid_at,omitempty"`
	ClosedAt  *time.Time `json:"closed_at,omitempty"`

	// PaidReference is of the payment of an order that was paid elsewhere, for administrators only.
	PaidReference string `json:"paid_reference,omitempty" gorm:"->" doc:"Of an order that was paid elsewhere; for administrators."`

	// RedeemedAt, and the SealedCode that the buyer shows to use the voucher, are not written when the row is made.
	RedeemedAt *time.Time `json:"redeemed_at,omitempty" gorm:"->"`
	SealedCode string     `json:"-" gorm:"->"` // bytes; a string, so that orders can be compared
	CodeHash   string     `json:"-" gorm:"-"`  // of the code of a free order that is made, likewise
	// Code is the opened SealedCode: from paid on, for its owner and administrators.
	Code string `json:"code,omitempty" gorm:"-"`

	Validity `gorm:"-"` // of the code, from paid on; its voucher tells

	UnpaidAt      *time.Time `json:"-"`           // when the order got its row; nil for one that failed
	CooldownUntil *time.Time `json:"-" gorm:"->"` // until when who let it end unpaid waits for another; nil: not at all

	Early bool   `json:"-" gorm:"-"` // of one to be created: its user may buy from the voucher's early beginning on
	Entry *Entry `json:"-" gorm:"-"` // what a request to buy became where the voucher is drawn: this is no order yet
	Trace string `json:"-" gorm:"-"` // the traceparent (W3C Trace Context) for the step that follows; empty: not traced
}

// Free reports whether the order cost nothing, and was paid where it was made.
func (o Order) Free() bool { return o.Price == 0 }

// Live reports whether the order holds a unit in the database.
func (o Order) Live() bool {
	return o.Status == OrderUnpaid || o.Status == OrderPaid || o.Status == OrderRedeemed
}

// TookUnit reports whether the order had a unit: a failed one had none, nor one that failed before late money.
func (o Order) TookUnit() bool {
	return o.Status != OrderFailed && (o.Status != OrderRefunded || o.UnpaidAt != nil)
}

// WrittenOff reports whether the order was used and paid back: its unit is gone.
func (o Order) WrittenOff() bool { return o.Status == OrderRefunded && o.RedeemedAt != nil }

// ErasedPrefix begins what replaces the ids of users who were erased.
const ErasedPrefix = "erased-"

// IsOf reports whether the order is a user's: of one who was erased an old message still names the user.
func (o Order) IsOf(userID string) bool {
	return o.UserID == userID || strings.HasPrefix(o.UserID, ErasedPrefix)
}

// RefusedAfterAdmission reports whether an order failed because its hot copy is stale: it oversold, or lost an order.
func (o Order) RefusedAfterAdmission() bool {
	return o.Status == OrderFailed && (o.Reason == ReasonSoldOut || o.Reason == ReasonAlreadyOrdered)
}

// Outcome is what became of an order to create. Err is nil when its row is committed: Order, of a reservation maybe
// failed. Else Err is a refusal, or VALIDATION or CONFLICT (no database could store it), or UNAVAILABLE (undecided).
type Outcome struct {
	Order   Order
	Created bool // by this call; false when the id had been there already
	Err     error
	Waited  time.Duration // of the transaction, for the voucher's row
}

// Cancellation asks for a user's order to be canceled.
type Cancellation struct {
	OrderID, UserID string

	By string // the administrator who asks for it in the user's place; empty: the user
}

// Canceled is the order as it is now, or a refusal: NOT_FOUND, or ILLEGAL_STATE if neither unpaid nor canceled.
type Canceled struct {
	Order   Order
	Changed bool // by this call; false when the order had been canceled already
	// Releases are what the hot copy is to be told, the order's own behind those it needs; none: see the outbox.
	Releases []Release
	Err      error
}

// AlreadyOrdered refuses a second live order of one user for one voucher.
func AlreadyOrdered(existing Order) *Error {
	return &Error{
		Code:        CodeAlreadyOrdered,
		Detail:      "You have an order for this voucher already.",
		OrderID:     existing.ID,
		OrderStatus: existing.Status,
	}
}

// SoldOut refuses a user without an order when nothing is left.
func SoldOut() *Error { return &Error{Code: CodeSoldOut, Detail: "Nothing is left of this voucher."} }

// OrderInstant is one of the instants of an order.
type OrderInstant string

// The instants, named as lists and exports ask for them.
const (
	InstantCreated  OrderInstant = "created"
	InstantPaid     OrderInstant = "paid"
	InstantRedeemed OrderInstant = "redeemed"
	InstantClosed   OrderInstant = "closed"
)

// OrderInstants lists them.
func OrderInstants() []OrderInstant {
	return []OrderInstant{InstantCreated, InstantPaid, InstantRedeemed, InstantClosed}
}

// Span is the orders that have an instant, in [From, To), newest first by it. A zero end is open; the zero Span: all.
type Span struct {
	Of       OrderInstant
	From, To time.Time
}

// Checked is the Span as it was asked for: without an instant, of created. VALIDATION: an end that no database can store.
func (s Span) Checked() (Span, error) {
	for name, end := range map[string]time.Time{"query.from": s.From, "query.to": s.To} {
		if !end.IsZero() && !StorableTime(end) {
			return s, Invalid(name, "must be in the years 1000 to 9999")
		}
	}
	if s.Of == "" && (!s.From.IsZero() || !s.To.IsZero()) {
		s.Of = InstantCreated
	}
	return s, nil
}

// At is the instant by which an order has its place in a list of the span: created_at without one.
func (s Span) At(o Order) time.Time {
	at := map[OrderInstant]*time.Time{
		InstantCreated: &o.CreatedAt, InstantPaid: o.PaidAt, InstantRedeemed: o.RedeemedAt, InstantClosed: o.ClosedAt,
	}
	return *cmp.Or(at[s.Of], &o.CreatedAt)
}

// OrderQuery selects orders, newest first. Empty fields select all. Words and CodeHash are alternatives, and are asked
// without UserID and VoucherID.
type OrderQuery struct {
	UserID    string
	VoucherID string
	Words     string // the id of an order, a user or a voucher, a username, or words of a voucher's title
	CodeHash  string // of the code that they may be, in bytes
	Status    OrderStatus
	Span      Span
	Till      *Till // whose words are a code only where it may use that; nil: everywhere
	Cursor    string
	Limit     int
}

// MaxCounted is how many orders of a status are counted for a list.
const MaxCounted = 10_000

// BookedOrder is an order with its money, as an export has it.
type BookedOrder struct {
	Order     `gorm:"embedded"`
	Buyer     string // the username of an account
	Reference string // of the payment that was made elsewhere
	Place     string // where it was used
	Received  int64  // of its payments, in minor units, late money included, as Returned of its refunds
	Returned  int64
}

// Page is one page of a list; NextCursor is empty on the last one.
type Page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"next_cursor,omitempty"`
}

// OrderPage is one page of orders.
type OrderPage Page[Order]
