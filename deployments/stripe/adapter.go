package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"

	"seckill/internal/budget"
	"seckill/internal/payment"
)

const (
	patience     = budget.Call + budget.Brief  // of one call: the service waits for 3 s
	tellPatience = budget.Answer + budget.Look // of telling the service, which answers within 5 s
	maxBody      = 1 << 20                     // in bytes: events of Stripe have some thousand
)

// adapter is our protocol (payments.md) on one side, and Stripe on the other.
type adapter struct {
	book       *book
	checkouts  checkouts
	keys       []string // the bearer keys of the service
	secret     string   // of Stripe's webhooks
	signatures *payment.Signatures
	shop       string // the service's URL for webhooks
	client     *http.Client
	log        *slog.Logger
}

func (a *adapter) routes() http.Handler {
	mux := http.NewServeMux()
	payment.Serve(mux, a, a.keys, patience, a.log)
	mux.HandleFunc("POST /stripe", a.hear)
	return http.MaxBytesHandler(mux, maxBody)
}

func (a *adapter) Start(ctx context.Context, asked payment.Checkout) (p payment.Payment, err error) {
	switch {
	case asked.ReturnURL == "":
		return p, fmt.Errorf("%w: Stripe wants a page to return to, set SECKILL_PAYMENT_RETURN_URL", payment.ErrInvalid)
	case slices.Contains(counted, asked.Currency):
		return p, fmt.Errorf("%w: Stripe counts %s in other units", payment.ErrInvalid, asked.Currency)
	case slices.Contains(rounded, asked.Currency) && asked.Amount%10 != 0:
		return p, fmt.Errorf("%w: Stripe takes no amount of %s whose last digit is not 0", payment.ErrInvalid,
			asked.Currency)
	}
	e, err := a.book.enter(ctx, entry{Checkout: asked, sessionExpiresAt: sessionEnd(time.Now(), asked.ExpiresAt)})
	switch {
	case err != nil:
		return p, err
	case e.Request != asked.Request:
		return p, fmt.Errorf("%w: payment %s is another one", payment.ErrInvalid, asked.ID)
	case e.session != "":
		return a.checkouts.look(ctx, e)
	}
	session, err := a.checkouts.start(ctx, e)
	if refusal(err) { // nothing has happened
		return p, errors.Join(refused(err),
			a.book.change(ctx, "DELETE FROM payments WHERE id = ? AND session = ''", e.ID))
	}
	if err != nil {
		return p, err
	}
	return paymentOf(session), a.book.change(ctx, "UPDATE payments SET session = ? WHERE id = ?", session.ID, e.ID)
}

func (a *adapter) LookUp(ctx context.Context, id string) (payment.Payment, error) {
	e, err := a.book.find(ctx, id)
	switch {
	case err != nil:
		return payment.Payment{}, err
	case e.session != "":
		return a.checkouts.look(ctx, e)
	}
	p := payment.Payment{Request: e.Request, Status: payment.Pending} // nobody has seen its page
	if time.Now().After(e.sessionExpiresAt) {
		p.Status = payment.Failed
	}
	return p, nil
}

func (a *adapter) Refund(ctx context.Context, key string, asked payment.Refund) error {
	e, err := a.book.find(ctx, asked.PaymentID)
	switch {
	case err != nil:
		return err
	case e.session == "":
		return payment.ErrInvalid
	case asked.Amount == 0:
		return nil // Stripe knows no such refund
	}
	return refused(a.checkouts.refund(ctx, e, key, asked.Money))
}

// hear tells the service an event of Stripe while Stripe waits: one that is not taken comes again, the same.
func (a *adapter) hear(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	// The members that are read are in every version of the API.
	event, err := webhook.ConstructEventWithOptions(body, r.Header.Get("Stripe-Signature"), a.secret,
		webhook.ConstructEventOptions{IgnoreAPIVersionMismatch: true})
	if err != nil {
		a.log.WarnContext(r.Context(), "a webhook is not Stripe's", slog.Any("error", err))
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if event.Type == stripe.EventTypeRefundFailed {
		a.log.ErrorContext(r.Context(), "Stripe could not make a refund that it had accepted: somebody has to look",
			slog.String("event", event.ID))
	}
	told, err := eventOf(event)
	if slices.Contains([]stripe.EventType{
		stripe.EventTypeChargeRefunded, stripe.EventTypeChargeDisputeCreated,
		stripe.EventTypeChargeDisputeClosed,
	}, event.Type) {
		told, err = a.moved(r.Context(), event)
	}
	if err == nil && told.Type != "" {
		ctx, enough := context.WithTimeout(r.Context(), tellPatience)
		defer enough()
		if body, err = json.Marshal(told); err == nil {
			err = a.signatures.Send(ctx, a.client, a.shop, "stripe_"+event.ID, body)
		}
	}
	if err != nil {
		a.log.WarnContext(r.Context(), "an event of Stripe was not passed on; Stripe sends it again",
			slog.String("event", event.ID), slog.Any("error", err))
		w.WriteHeader(http.StatusBadGateway)
	}
}

// eventOf is an event in our words; without a type when it tells nothing of a payment of ours.
func eventOf(event stripe.Event) (told payment.Event, err error) {
	if !slices.Contains([]stripe.EventType{
		stripe.EventTypeCheckoutSessionCompleted, stripe.EventTypeCheckoutSessionExpired,
		stripe.EventTypeCheckoutSessionAsyncPaymentSucceeded, stripe.EventTypeCheckoutSessionAsyncPaymentFailed,
	}, event.Type) {
		return told, nil
	}
	var session stripe.CheckoutSession
	if err := json.Unmarshal(event.Data.Raw, &session); err != nil {
		return told, fmt.Errorf("read the session: %w", err)
	}
	p := paymentOf(&session)
	if p.ID == "" { // of somebody else with the same account
		return told, nil
	}
	told.Data = payment.EventData{PaymentID: p.ID, OrderID: p.OrderID, Money: p.Money}
	switch {
	case p.Status == payment.Succeeded:
		told.Type = payment.EventSucceeded
	case p.Status == payment.Failed, event.Type == stripe.EventTypeCheckoutSessionAsyncPaymentFailed:
		told.Type = payment.EventFailed
	}
	return told, nil
}

// moved tells, after an event of money that arrived, how the payment stands now: events overtake one another.
func (a *adapter) moved(ctx context.Context, event stripe.Event) (told payment.Event, err error) {
	ctx, enough := context.WithTimeout(ctx, tellPatience)
	defer enough()
	var about struct {
		PaymentIntent *stripe.PaymentIntent `json:"payment_intent"`
	}
	if err := json.Unmarshal(event.Data.Raw, &about); err != nil || about.PaymentIntent == nil {
		return told, err
	}
	intent, err := a.checkouts.stripe.V1PaymentIntents.Retrieve(ctx, about.PaymentIntent.ID, nil)
	if err != nil || intent.Metadata[keyOfPayment] == "" { // of somebody else with the same account
		return told, err
	}
	e, err := a.book.find(ctx, intent.Metadata[keyOfPayment])
	if err != nil {
		return told, err
	}
	p, err := a.checkouts.look(ctx, e)
	if err != nil {
		return told, err
	}
	told.Type = payment.EventDisputed
	if event.Type == stripe.EventTypeChargeRefunded {
		told.Type = payment.EventRefunded
	}
	told.Data = payment.EventData{
		PaymentID: p.ID, OrderID: p.OrderID, Money: p.Money, Refunded: p.Refunded,
		Disputed: &p.Disputed,
	}
	return told, nil
}
