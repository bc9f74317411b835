// Package payment speaks with a payment provider: it starts payments, looks them up and refunds them over HTTP,
// and checks the signatures of the webhooks that tell how payments went. It keeps nothing; package simulator
// below it is a provider to try out.
//
// The protocol is small. All bodies are JSON, amounts are integers in minor units of an ISO 4217 currency, and
// Authorization carries a bearer key:
//
//	POST /payments               Checkout                           200 Payment, pending at first
//	GET  /payments/{id}                                             200 Payment; 404
//	POST /payments/{id}/refunds  {amount, currency}                 200 Refund
//
// Both POST carry an Idempotency-Key (draft-ietf-httpapi-idempotency-key-header): the same key and body again
// get the same answer, and nothing happens twice. The same key with other money or another order is 422; the same key
// while the first call is under way is 409, which says nothing, because that call may succeed. 404 and 422 are a
// provider's refusals, which say that nothing has happened. Every other answer, and none, says nothing.
//
// deployments/payments.md tells those who write a provider's adapter the same at length.
package payment

import (
	"errors"
	"time"
)

// ErrRefused says that the provider has understood a call and refuses it for good: nothing has happened, and the
// same call again would be refused again.
var ErrRefused = errors.New("the payment provider refuses")

// ErrNotFound says that the provider knows no such payment. It is an ErrRefused too.
var ErrNotFound = errors.New("the payment provider knows no such payment")

// Status is where a payment stands.
type Status string

// The statuses. Succeeded and Failed are final.
const (
	Pending   Status = "pending"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
)

// Money is an amount in minor units of a currency (ISO 4217).
type Money struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// Request asks for a payment. The caller chooses its id, which is its idempotency key.
type Request struct {
	ID      string `json:"id"`
	OrderID string `json:"order_id"`
	Money
}

// Checkout asks for a payment, and says what the provider's page shows and where it leads. Those of the first call
// count: a voucher may have another title when the call is repeated.
type Checkout struct {
	Request

	Title     string    `json:"title,omitempty"`      // of the voucher
	ReturnURL string    `json:"return_url,omitempty"` // the shop's page, for a buyer who has paid or has not
	ExpiresAt time.Time `json:"expires_at,omitzero"`  // of the order: money that comes later goes back
	Buyer     string    `json:"buyer,omitempty"`      // the same for the same buyer; see Buyers
}

// Payment is a payment as its provider sees it.
type Payment struct {
	Request

	Status   Status `json:"status"`
	URL      string `json:"url,omitempty"` // where the buyer pays
	Refunded int64  `json:"refunded"`      // of the amount, also by whoever has not called here, and what a dispute has cost
	Disputed bool   `json:"disputed"`      // by the buyer, and not decided yet
}

// Refund is money that went back.
type Refund struct {
	PaymentID string `json:"payment_id"`
	Money
}

// The types of webhooks.
const (
	EventSucceeded = "payment.succeeded"
	EventFailed    = "payment.failed"
	EventRefunded  = "payment.refunded" // Refunded of the amount went back by now
	EventDisputed  = "payment.disputed" // or, with Disputed false, not any more
)

// Event is the body of a webhook.
type Event struct {
	Type string    `json:"type"`
	Data EventData `json:"data"`
}

// EventData says which payment an event is about.
type EventData struct {
	PaymentID string `json:"payment_id"`
	OrderID   string `json:"order_id"`
	Money

	Refunded int64 `json:"refunded,omitempty"` // of the amount, altogether
	Disputed *bool `json:"disputed,omitempty"` // nil: it is not said
}
