package model

import (
	"strings"
	"time"
	"unicode/utf8"
)

// PaymentStatus is what is known of a payment.
type PaymentStatus string

// The statuses of payments. Money that arrives after a failure is money all the same: failed is no end.
const (
	PaymentStarted   PaymentStatus = "started" // or about to be: the provider may not know it
	PaymentSucceeded PaymentStatus = "succeeded"
	PaymentFailed    PaymentStatus = "failed"
)

// Payment is one attempt to pay an order, stored before the provider's start, which its ID makes once.
type Payment struct {
	ID        string        `json:"id"`
	OrderID   string        `json:"order_id"`
	Status    PaymentStatus `json:"status"`
	Amount    int64         `json:"amount"`   // minor units of Currency: the order's price
	Currency  string        `json:"currency"` // ISO 4217
	URL       string        `json:"-"`        // where the buyer pays; empty until the provider has told, or when there is no page
	CreatedAt time.Time     `json:"created_at" gorm:"autoCreateTime:false"`
	DecidedAt *time.Time    `json:"decided_at,omitempty"`
	Refunded  int64         `json:"refunded"`            // how much of Amount went back, as the provider told
	Disputed  bool          `json:"disputed"`            // by the buyer, likewise
	NextAt    *time.Time    `json:"-"`                   // when the provider is to be asked what became of it; nil once nothing can come any more
	Reference string        `json:"reference,omitempty"` // of one made elsewhere, which no provider knows; empty: at the provider
	Method    string        `json:"method,omitempty"`    // how it was made elsewhere, if somebody says so
}

const (
	maxReference = 128 // in characters, as maxMethod
	maxMethod    = 32
)

// Elsewhere is a payment that no provider of ours knows: in cash, by transfer, in the shop's own checkout.
type Elsewhere struct {
	Reference string // 1 to 128 visible characters and blanks: by it a repeated call is the same payment
	Method    string // at most 32
}

// Check refuses what is no reference or method.
func (e Elsewhere) Check() error {
	return JoinInvalid(checkPaid("body.reference", e.Reference, 1, maxReference),
		checkPaid("body.method", e.Method, 0, maxMethod))
}

func checkPaid(location, text string, least, most int) error {
	if length := utf8.RuneCountInString(strings.TrimSpace(text)); length < least || utf8.RuneCountInString(text) > most {
		return Invalid(location, "must have %d to %d characters", least, most)
	}
	return checkVisible(location, text)
}

// PaymentNotice is what the provider says of a payment, by a webhook or when it is asked.
type PaymentNotice struct {
	PaymentID string
	OrderID   string
	Succeeded bool // false: the payment failed
	Amount    int64
	Currency  string

	// Moved says that this is news of arrived money: how much has gone back, and whether it is disputed; nil: unsaid.
	Moved    bool
	Refunded int64
	Disputed *bool

	Message  *WebhookMessage // nil when the provider was asked
	Code     SealedCode      // a new one for the order, which it gets only if this pays it
	RefundID string          // of the refund, if one has to be made
}

// WebhookMessage identifies a provider's message. Another Digest under a used ID is refused.
type WebhookMessage struct {
	ID     string
	Digest []byte // SHA-256 of the body
}

// SealedCode is a voucher code as it is stored: a keyed hash to find it by, and the code itself, encrypted.
type SealedCode struct {
	Hash   []byte // 32 bytes
	Sealed []byte // at most 255 bytes
}

// Receipt is what became of a PaymentNotice.
type Receipt struct {
	Order   Order
	Payment Payment
	Refund  *Refund // when the money goes back

	Changed    bool // this call has changed the order's status
	UsedUnpaid bool // this call has learnt that the money of a used order is back, or disputed
}

// RefundStatus is where a refund stands.
type RefundStatus string

// The statuses of refunds.
const (
	RefundPending RefundStatus = "pending" // it is tried until the provider has answered
	RefundDone    RefundStatus = "done"
	RefundFailed  RefundStatus = "failed"  // the provider refused it for good: somebody has to look
	RefundOutside RefundStatus = "outside" // of a payment made elsewhere: a person pays it back, and says so
)

// RefundStatuses lists every status of refunds.
func RefundStatuses() []RefundStatus {
	return []RefundStatus{RefundPending, RefundOutside, RefundDone, RefundFailed}
}

// RefundAsk is what an administrator says who refunds an order: also a used one, and why; empty: nothing.
type RefundAsk struct {
	Used   bool
	Reason string
}

// Check refuses a reason that is no line.
func (a RefundAsk) Check() error {
	if a.Reason == "" {
		return nil
	}
	return checkLine("reason", &a.Reason)
}

// Reasons of refunds.
const (
	RefundByAdmin   = "ADMINISTRATOR"      // an administrator asked for it
	RefundWithdrawn = "WITHDRAWN"          // the buyer has given the order back
	RefundLate      = "LATE_PAYMENT"       // the order was closed before the money arrived
	RefundDuplicate = "DOUBLE_PAYMENT"     // another payment had paid the order
	RefundElsewhere = "PROVIDER"           // money went back at the provider unasked
	RefundOfUsed    = "PROVIDER_AFTER_USE" // likewise, of a used code
)

// ReasonRefundFailed is of an order whose money is not back, because the provider has refused a refund for good.
const ReasonRefundFailed = "REFUND_FAILED"

// Reasons of paid and used orders whose money moved at the provider; RefundOfUsed is one too.
const (
	ReasonDisputed = "DISPUTED"        // its buyer disputes the payment: its code rests until that is decided
	ReasonPart     = "PARTLY_REFUNDED" // a part went back; it can be used
)

// Refund gives back what is left of one payment. Its ID is the key under which the provider makes it once.
type Refund struct {
	ID        string       `json:"id"`
	OrderID   string       `json:"order_id"`
	PaymentID string       `json:"payment_id"`
	Status    RefundStatus `json:"status"`
	Outside   bool         `json:"outside,omitempty" gorm:"-" doc:"A person still has to pay it back: the order was paid elsewhere."`
	Amount    int64        `json:"amount"`   // minor units of Currency
	Currency  string       `json:"currency"` // ISO 4217
	Reason    string       `json:"reason"`
	Actor     string       `json:"by"` // an administrator's id, or BySystem
	Attempts  int          `json:"attempts"`
	Error     string       `json:"error,omitempty"` // of the last attempt
	CreatedAt time.Time    `json:"created_at" gorm:"autoCreateTime:false"`
	ClosedAt  *time.Time   `json:"closed_at,omitempty"` // when it was done or given up
	NextAt    *time.Time   `json:"-"`                   // when it is tried next; nil once it is closed
}

// RefundQuery selects refunds, newest first. Empty fields select all.
type RefundQuery struct {
	OrderID string
	Status  RefundStatus
	Cursor  string
	Limit   int
}

// RefundPage is one page of refunds.
type RefundPage Page[Refund]
