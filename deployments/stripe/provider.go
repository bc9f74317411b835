package main

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"

	"seckill/internal/payment"
)

const (
	// How long a session may be open (Stripe, Session.expires_at), and a minute for the way there.
	shortestSession = 31 * time.Minute
	longestSession  = 24*time.Hour - time.Minute
	// keyOfPayment and its like name our ids in Stripe's metadata.
	keyOfPayment = "payment_id"
	keyOfOrder   = "order_id"
	keyOfBuyer   = "buyer"
	keyOfRefund  = "refund_id"
)

// counted are currencies that Stripe counts in other units than ISO 4217 (docs.stripe.com/currencies#special-cases).
var counted = []string{"ISK", "UGX", "MGA"} //nolint:gochecknoglobals // constant

// rounded are the currencies of three decimals: Stripe takes only amounts whose last digit is 0.
var rounded = []string{"BHD", "JOD", "KWD", "OMR", "TND"} //nolint:gochecknoglobals // constant

// checkouts is Stripe, as far as a payment needs it. Its errors are Stripe's.
type checkouts struct{ stripe *stripe.Client }

// start makes a payment's session; again, the same one, as long as Stripe remembers the key: a day at least.
func (c checkouts) start(ctx context.Context, e entry) (*stripe.CheckoutSession, error) {
	about := map[string]string{keyOfPayment: e.ID, keyOfOrder: e.OrderID, keyOfBuyer: e.Buyer}
	title := cmp.Or(e.Title, "Order "+e.OrderID)
	params := &stripe.CheckoutSessionCreateParams{
		Mode:              stripe.String(stripe.CheckoutSessionModePayment),
		ClientReferenceID: &e.ID,
		SuccessURL:        &e.ReturnURL,
		CancelURL:         &e.ReturnURL,
		ExpiresAt:         new(e.sessionExpiresAt.Unix()),
		Metadata:          about,
		PaymentIntentData: &stripe.CheckoutSessionCreatePaymentIntentDataParams{Metadata: about},
		LineItems: []*stripe.CheckoutSessionCreateLineItemParams{{
			Quantity: stripe.Int64(1),
			PriceData: &stripe.CheckoutSessionCreateLineItemPriceDataParams{
				Currency: stripe.String(strings.ToLower(e.Currency)), UnitAmount: &e.Amount,
				ProductData: &stripe.CheckoutSessionCreateLineItemPriceDataProductDataParams{Name: &title},
			},
		}},
	}
	params.SetIdempotencyKey(e.ID)
	return c.stripe.V1CheckoutSessions.Create(ctx, params)
}

// sessionEnd is when the session of a payment ends: with its order, as far as Stripe allows it.
func sessionEnd(now, order time.Time) time.Time {
	if order.IsZero() {
		return now.Add(longestSession)
	}
	return now.Add(min(max(order.Sub(now), shortestSession), longestSession))
}

// look asks how a payment stands. The session of an order whose time is over is ended first, so that nobody pays late.
func (c checkouts) look(ctx context.Context, e entry) (payment.Payment, error) {
	params := &stripe.CheckoutSessionRetrieveParams{}
	params.AddExpand("payment_intent.latest_charge")
	session, err := c.stripe.V1CheckoutSessions.Retrieve(ctx, e.session, params)
	if err != nil {
		return payment.Payment{}, refused(err)
	}
	if session.Status == stripe.CheckoutSessionStatusOpen && !e.ExpiresAt.IsZero() && e.ExpiresAt.Before(time.Now()) {
		ended, err := c.stripe.V1CheckoutSessions.Expire(ctx, e.session, nil)
		if err == nil {
			session.Status = ended.Status
		} // otherwise it was paid just now: the next question tells
	}
	p := paymentOf(session)
	if intent := session.PaymentIntent; intent != nil && intent.LatestCharge != nil && intent.LatestCharge.Disputed {
		err = c.disputes(ctx, intent.ID, &p)
	}
	return p, refused(err)
}

// disputes adds a payment's disputes: a lost one is like a refund, one neither won nor lost is open.
func (c checkouts) disputes(ctx context.Context, intent string, p *payment.Payment) error {
	for made, err := range c.stripe.V1Disputes.List(ctx, &stripe.DisputeListParams{PaymentIntent: &intent}).All(ctx) {
		if err != nil {
			return err
		}
		switch made.Status {
		case stripe.DisputeStatusWon, stripe.DisputeStatusPrevented, stripe.DisputeStatusWarningClosed:
		case stripe.DisputeStatusLost:
			p.Refunded = min(p.Refunded+made.Amount, p.Amount)
		default:
			p.Disputed = true
		}
	}
	return nil
}

func paymentOf(s *stripe.CheckoutSession) payment.Payment {
	p := payment.Payment{Request: payment.Request{
		ID: s.Metadata[keyOfPayment], OrderID: s.Metadata[keyOfOrder],
		Money: payment.Money{Amount: s.AmountTotal, Currency: strings.ToUpper(string(s.Currency))},
	}, Status: payment.Pending}
	intent := s.PaymentIntent // nil until the buyer has begun to pay
	switch {
	case s.PaymentStatus == stripe.CheckoutSessionPaymentStatusPaid,
		s.PaymentStatus == stripe.CheckoutSessionPaymentStatusNoPaymentRequired:
		p.Status = payment.Succeeded
	case s.Status == stripe.CheckoutSessionStatusExpired:
		p.Status = payment.Failed
	case s.Status == stripe.CheckoutSessionStatusComplete && intent != nil &&
		(intent.Status == stripe.PaymentIntentStatusRequiresPaymentMethod ||
			intent.Status == stripe.PaymentIntentStatusCanceled):
		p.Status = payment.Failed // of a method that tells late, such as a debit
	case s.Status == stripe.CheckoutSessionStatusOpen:
		p.URL = s.URL
	}
	if intent != nil && intent.LatestCharge != nil {
		p.Refunded = intent.LatestCharge.AmountRefunded
	}
	return p
}

// refund gives money back, once for a key. Stripe forgets keys after a day: so the refund is looked for first.
func (c checkouts) refund(ctx context.Context, e entry, key string, money payment.Money) error {
	session, err := c.stripe.V1CheckoutSessions.Retrieve(ctx, e.session, nil)
	if err != nil {
		return err
	}
	if session.PaymentIntent == nil || paymentOf(session).Currency != money.Currency {
		return fmt.Errorf("%w: nothing was paid in %s", payment.ErrRefused, money.Currency)
	}
	intent := session.PaymentIntent.ID
	for made, err := range c.stripe.V1Refunds.List(ctx, &stripe.RefundListParams{PaymentIntent: &intent}).All(ctx) {
		if err != nil {
			return err
		}
		if made.Metadata[keyOfRefund] == key {
			return accepted(made, money)
		}
	}
	params := &stripe.RefundCreateParams{
		PaymentIntent: &intent, Amount: &money.Amount,
		Metadata: map[string]string{keyOfRefund: key, keyOfPayment: e.ID},
	}
	params.SetIdempotencyKey(key)
	made, err := c.stripe.V1Refunds.Create(ctx, params)
	if err == nil {
		err = accepted(made, money)
	}
	return err
}

// accepted reports whether money is back, or on its way.
func accepted(made *stripe.Refund, money payment.Money) error {
	if made.Amount != money.Amount || slices.Contains([]stripe.RefundStatus{
		stripe.RefundStatusFailed,
		stripe.RefundStatusCanceled,
	}, made.Status) {
		return fmt.Errorf("%w: %s is %s, of %d", payment.ErrRefused, made.ID, made.Status, made.Amount)
	}
	return nil
}

// refusal reports whether nothing has happened, nor will: a bad request, but not a bad key, a rush or a call under way.
func refusal(err error) bool {
	var said *stripe.Error
	return errors.As(err, &said) && said.Type == stripe.ErrorTypeInvalidRequest &&
		(said.HTTPStatusCode == http.StatusBadRequest || said.HTTPStatusCode == http.StatusPaymentRequired)
}

func refused(err error) error {
	if refusal(err) {
		return fmt.Errorf("%w: %w", payment.ErrRefused, err)
	}
	return err
}

//go:embed schema.sql
var schema string

type book struct{ db *sql.DB }

type entry struct {
	payment.Checkout

	sessionExpiresAt time.Time
	session          string // Stripe's id; empty: Stripe has not answered
}

// enter keeps a payment before Stripe hears of it, or finds the one that is there.
func (b *book) enter(ctx context.Context, e entry) (entry, error) {
	document, err := json.Marshal(e.Checkout)
	if err == nil {
		err = b.change(ctx,
			"INSERT INTO payments (id, checkout, session_expires_at) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
			e.ID, string(document), e.sessionExpiresAt.Unix())
	}
	if err != nil {
		return entry{}, fmt.Errorf("keep payment %s: %w", e.ID, err)
	}
	return b.find(ctx, e.ID)
}

func (b *book) change(ctx context.Context, statement string, args ...any) error {
	_, err := b.db.ExecContext(ctx, statement, args...)
	return err
}

func (b *book) find(ctx context.Context, id string) (entry, error) {
	var e entry
	var document string
	var expires int64
	err := b.db.QueryRowContext(ctx, "SELECT checkout, session_expires_at, session FROM payments WHERE id = ?",
		id).Scan(&document, &expires, &e.session)
	if errors.Is(err, sql.ErrNoRows) {
		return e, payment.ErrNotFound
	}
	if err == nil {
		err = json.Unmarshal([]byte(document), &e.Checkout)
	}
	if err != nil {
		return e, fmt.Errorf("find payment %s: %w", id, err)
	}
	e.sessionExpiresAt = time.Unix(expires, 0)
	return e, nil
}
