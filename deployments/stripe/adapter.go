package main

import (
	"bytes"
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

	"seckill/internal/payment"
	"seckill/model"
)

const (
	// patience of one call: the service waits for 3 s.
	patience = 2500 * time.Millisecond
	// tellPatience bounds telling the service, which answers within 5 s.
	tellPatience = 6 * time.Second
	// maxBody bounds what is read, in bytes: events of Stripe have some thousand.
	maxBody = 1 << 20
	// maxKey bounds an idempotency key, in bytes, as Stripe does.
	maxKey = 255
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
	mux.HandleFunc("POST /payments", a.authorized(a.start))
	mux.HandleFunc("GET /payments/{id}", a.authorized(a.look))
	mux.HandleFunc("POST /payments/{id}/refunds", a.authorized(a.refund))
	mux.HandleFunc("POST /stripe", a.hear)
	return http.MaxBytesHandler(mux, maxBody)
}

// authorized lets only the service in, and says 422 and 404 only when nothing has happened.
func (a *adapter) authorized(next func(ctx context.Context, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !payment.Authorized(r, a.keys) {
			write(w, http.StatusUnauthorized, map[string]string{"error": "the key is wrong"})
			return
		}
		ctx, enough := context.WithTimeout(r.Context(), patience)
		defer enough()
		answer, err := next(ctx, r)
		switch {
		case err == nil:
			write(w, http.StatusOK, answer)
			return
		case errors.Is(err, errUnknown):
			write(w, http.StatusNotFound, map[string]string{"error": err.Error()})
			return
		}
		a.log.WarnContext(ctx, "a call of the service failed", slog.String("path", r.URL.Path), slog.Any("error", err))
		if refusal(err) || errors.Is(err, errInvalid) {
			write(w, http.StatusUnprocessableEntity, map[string]string{"error": err.Error()})
			return
		}
		write(w, http.StatusBadGateway, map[string]string{"error": "Stripe does not answer"})
	}
}

// errInvalid refuses a call that Stripe does not hear of.
var errInvalid = errors.New("the call is not valid")

func (a *adapter) start(ctx context.Context, r *http.Request) (any, error) {
	var asked payment.Checkout
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		return nil, fmt.Errorf("%w: %w", errInvalid, err)
	}
	switch {
	case !model.ValidID(asked.ID) || !model.ValidID(asked.OrderID) || asked.Amount < 0 || r.Header.Get("Idempotency-Key") != asked.ID:
		return nil, errInvalid
	case asked.ReturnURL == "":
		return nil, fmt.Errorf("%w: Stripe wants a page to return to, set SECKILL_PAYMENT_RETURN_URL", errInvalid)
	case slices.Contains(counted, asked.Currency):
		return nil, fmt.Errorf("%w: Stripe counts %s in other units", errInvalid, asked.Currency)
	case slices.Contains(rounded, asked.Currency) && asked.Amount%10 != 0:
		return nil, fmt.Errorf("%w: Stripe takes no amount of %s whose last digit is not 0", errInvalid, asked.Currency)
	}
	e, err := a.book.enter(ctx, entry{Checkout: asked, sessionExpiresAt: sessionEnd(time.Now(), asked.ExpiresAt)})
	if err != nil {
		return nil, err
	}
	if e.Request != asked.Request {
		return nil, fmt.Errorf("%w: payment %s is another one", errInvalid, asked.ID)
	}
	if e.session != "" {
		return a.checkouts.look(ctx, e, time.Now())
	}
	session, err := a.checkouts.start(ctx, e)
	if refusal(err) {
		return nil, errors.Join(err, a.book.forget(ctx, e.ID))
	}
	if err != nil {
		return nil, err
	}
	return paymentOf(session), a.book.note(ctx, e.ID, session.ID)
}

func (a *adapter) look(ctx context.Context, r *http.Request) (any, error) {
	e, err := a.book.find(ctx, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if e.session == "" { // nobody has seen its page
		p := payment.Payment{Request: e.Request, Status: payment.Pending}
		if time.Now().After(e.sessionExpiresAt) {
			p.Status = payment.Failed
		}
		return p, nil
	}
	return a.checkouts.look(ctx, e, time.Now())
}

func (a *adapter) refund(ctx context.Context, r *http.Request) (any, error) {
	e, err := a.book.find(ctx, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	key := r.Header.Get("Idempotency-Key")
	asked := payment.Refund{PaymentID: e.ID}
	if err := json.NewDecoder(r.Body).Decode(&asked.Money); err != nil || key == "" || len(key) > maxKey || e.session == "" {
		return nil, errInvalid
	}
	if asked.Amount == 0 {
		return asked, nil // Stripe knows no such refund
	}
	return asked, a.checkouts.refund(ctx, e, key, asked.Money)
}

// hear tells the service what an event of Stripe says, while Stripe waits: an event that the service does not take is
// sent again by Stripe, and has the same id and body.
func (a *adapter) hear(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	// The members that are read are in every version of the API.
	event, err := webhook.ConstructEventWithOptions(body, r.Header.Get("Stripe-Signature"), a.secret, webhook.ConstructEventOptions{IgnoreAPIVersionMismatch: true})
	if err != nil {
		a.log.WarnContext(r.Context(), "a webhook is not Stripe's", slog.Any("error", err))
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if event.Type == stripe.EventTypeRefundFailed {
		a.log.ErrorContext(r.Context(), "Stripe could not make a refund that it had accepted: somebody has to look", slog.String("event", event.ID))
	}
	told, err := eventOf(event)
	if slices.Contains([]stripe.EventType{stripe.EventTypeChargeRefunded, stripe.EventTypeChargeDisputeCreated, stripe.EventTypeChargeDisputeClosed}, event.Type) {
		told, err = a.moved(r.Context(), event)
	}
	if err == nil && told.Type != "" {
		err = a.tell(r.Context(), "stripe_"+event.ID, told)
	}
	if err != nil {
		a.log.WarnContext(r.Context(), "an event of Stripe was not passed on; Stripe sends it again", slog.String("event", event.ID), slog.Any("error", err))
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

// moved is an event of money that had arrived, in our words: how the payment stands now, because events overtake one another.
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
	p, err := a.checkouts.look(ctx, e, time.Now())
	if err != nil {
		return told, err
	}
	told.Type = payment.EventDisputed
	if event.Type == stripe.EventTypeChargeRefunded {
		told.Type = payment.EventRefunded
	}
	told.Data = payment.EventData{PaymentID: p.ID, OrderID: p.OrderID, Money: p.Money, Refunded: p.Refunded, Disputed: &p.Disputed}
	return told, nil
}

// tell sends one webhook to the service.
func (a *adapter) tell(ctx context.Context, id string, event payment.Event) error {
	ctx, enough := context.WithTimeout(ctx, tellPatience)
	defer enough()
	body, err := json.Marshal(event)
	if err != nil {
		return fmt.Errorf("write the webhook: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.shop, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make the webhook: %w", err)
	}
	if request.Header, err = a.signatures.Sign(id, time.Now(), body); err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return fmt.Errorf("send the webhook: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("send the webhook: the service answers %s", response.Status)
	}
	return nil
}

func write(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document) // a client that is gone asks again
}
