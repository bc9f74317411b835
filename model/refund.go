package model

import "time"

// RefundStatus is where a refund stands.
type RefundStatus string

// The statuses of refunds.
const (
	RefundPending RefundStatus = "pending" // it is tried until the provider has answered
	RefundDone    RefundStatus = "done"
	RefundFailed  RefundStatus = "failed" // the provider refused it for good: somebody has to look
)

// RefundStatuses lists every status of refunds.
func RefundStatuses() []RefundStatus {
	return []RefundStatus{RefundPending, RefundDone, RefundFailed}
}

// Reasons of refunds.
const (
	RefundByAdmin   = "ADMINISTRATOR"  // an administrator asked for it
	RefundLate      = "LATE_PAYMENT"   // the order was closed before the money arrived
	RefundDuplicate = "DOUBLE_PAYMENT" // another payment had paid the order
)

// ReasonRefundFailed is the reason of an order whose money is not back, because the provider
// has refused a refund of it for good.
const ReasonRefundFailed = "REFUND_FAILED"

// Refund gives the whole of one payment back. Its ID is the key under which the provider
// makes it once.
type Refund struct {
	ID        string       `json:"id"`
	OrderID   string       `json:"order_id"`
	PaymentID string       `json:"payment_id"`
	Status    RefundStatus `json:"status"`
	Amount    int64        `json:"amount"`   // minor units of Currency
	Currency  string       `json:"currency"` // ISO 4217
	Reason    string       `json:"reason"`
	Actor     string       `json:"by"` // an administrator's id, or BySystem
	Attempts  int          `json:"attempts"`
	Error     string       `json:"error,omitempty"` // of the last attempt
	CreatedAt time.Time    `json:"created_at" gorm:"autoCreateTime:false"`
	ClosedAt  *time.Time   `json:"closed_at,omitempty"` // when it was done or given up

	// NextAt is when it is tried next; nil once it is closed.
	NextAt *time.Time `json:"-"`
}

// RefundQuery selects refunds, newest first. Empty fields select all.
type RefundQuery struct {
	OrderID string
	Status  RefundStatus
	Cursor  string
	Limit   int
}

// RefundPage is one page of refunds; NextCursor is empty on the last one.
type RefundPage struct {
	Items      []Refund `json:"items"`
	NextCursor string   `json:"next_cursor,omitempty"`
}
