package model

import "time"

// PaymentStatus is what is known of a payment.
type PaymentStatus string

// The statuses of payments. Money that arrives although the provider had said that the
// payment failed is money all the same: failed is no end.
const (
	PaymentStarted   PaymentStatus = "started" // or about to be: the provider may not know it
	PaymentSucceeded PaymentStatus = "succeeded"
	PaymentFailed    PaymentStatus = "failed"
)

// Payment is one attempt to pay an order. It is stored before the provider hears of it,
// and its ID is the key under which the provider starts it once.
type Payment struct {
	ID        string
	OrderID   string
	Status    PaymentStatus
	Amount    int64     // minor units of Currency: the order's price
	Currency  string    // ISO 4217
	URL       string    // where the buyer pays; empty until the provider has told, or when there is no page
	CreatedAt time.Time `gorm:"autoCreateTime:false"`
	DecidedAt *time.Time
	// NextAt is when the provider is to be asked what became of it; nil once decided.
	NextAt *time.Time
}

// PaymentNotice is what the provider says of a payment, by a webhook or when it is asked.
type PaymentNotice struct {
	PaymentID string
	OrderID   string
	Succeeded bool // false: the payment failed
	Amount    int64
	Currency  string

	// Message is the webhook's; nil when the provider was asked.
	Message *WebhookMessage
	// Code is a new one for the order, which it gets only if this pays it.
	Code SealedCode
	// RefundID is the id of the refund, if one has to be made.
	RefundID string
}

// WebhookMessage identifies one message of the provider. The same ID with another
// Digest is another message under a used id, which is refused.
type WebhookMessage struct {
	ID     string
	Digest []byte // SHA-256 of the body
}

// SealedCode is a voucher code as it is stored: a keyed hash to find it by, and the
// code itself, encrypted.
type SealedCode struct {
	Hash   []byte // 32 bytes
	Sealed []byte // at most 255 bytes
}

// Receipt is what became of a PaymentNotice.
type Receipt struct {
	Order   Order
	Payment Payment
	Refund  *Refund // when the money goes back
	// Changed says that this call has changed the order's status.
	Changed bool
}
