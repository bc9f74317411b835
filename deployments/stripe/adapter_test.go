package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"
	"github.com/stripe/stripe-mock/embedded"
	"github.com/stripe/stripe-mock/server"

	"seckill/internal/payment"
	"seckill/internal/workshop/check"
	"seckill/model"
)

const (
	hooks        = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // between the adapter and the service
	stripeSecret = "whsec_of_stripe"
)

// stripeMock is Stripe's own mock, which knows the API and refuses what is not of it, with a memory of one session.
type stripeMock struct {
	mu      sync.Mutex
	session map[string]any // laid over the mock's, which has none
	made    []any          // refunds
	dispute map[string]any // nil: there is none
	refuses int            // status of every answer, when not 0
	calls   []string       // method and path
	form    url.Values     // of the last session that was made
}

func (m *stripeMock) with(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

func (m *stripeMock) count(call string) (n int) {
	m.with(func() {
		for _, c := range m.calls {
			if strings.HasPrefix(c, call) {
				n++
			}
		}
	})
	return n
}

func (m *stripeMock) over(stub *server.StubServer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		answer := httptest.NewRecorder()
		stub.HandleRequest(answer, r)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.calls = append(m.calls, r.Method+" "+r.URL.Path)
		form, _ := url.ParseQuery(string(body))
		var document map[string]any
		if m.refuses != 0 || answer.Code != http.StatusOK || json.Unmarshal(answer.Body.Bytes(), &document) != nil {
			w.WriteHeader(max(m.refuses, answer.Code))
			_, _ = io.WriteString(w, `{"error":{"type":"invalid_request_error","message":"refused"}}`)
			return
		}
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/v1/checkout/sessions":
			m.form = form
			maps.Copy(m.session, map[string]any{
				"id": "cs_1", "url": "https://checkout.stripe.example/c/cs_1", "status": "open", "payment_status": "unpaid", "payment_intent": nil, "currency": "cny", "amount_total": 1000,
				"metadata": map[string]any{"payment_id": form.Get("metadata[payment_id]"), "order_id": form.Get("metadata[order_id]")},
			})
		case strings.HasSuffix(r.URL.Path, "/expire"):
			m.session["status"] = "expired"
		case r.Method == http.MethodPost && r.URL.Path == "/v1/refunds":
			maps.Copy(document, map[string]any{
				"amount": json.Number(form.Get("amount")), "status": "pending",
				"metadata": map[string]any{"refund_id": form.Get("metadata[refund_id]")},
			})
			m.made = append(m.made, document)
		case r.URL.Path == "/v1/refunds":
			document["data"], document["has_more"] = append([]any{}, m.made...), false
		}
		if strings.HasPrefix(r.URL.Path, "/v1/payment_intents/") {
			document["metadata"] = m.session["metadata"]
		}
		if r.URL.Path == "/v1/disputes" {
			document["data"], document["has_more"] = []any{m.dispute}, false
		}
		if strings.HasPrefix(r.URL.Path, "/v1/checkout/sessions") {
			maps.Copy(document, m.session)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(document)
	}
}

// stub is Stripe's mock, which takes seconds to read the API.
var stub = sync.OnceValues(func() (*server.StubServer, error) {
	spec, err := server.LoadSpec(embedded.OpenAPISpec, "")
	if err != nil {
		return nil, err
	}
	fixtures, err := server.LoadFixtures(embedded.OpenAPIFixtures, "")
	if err != nil {
		return nil, err
	}
	return server.NewStubServer(fixtures, spec, false, false)
})

// world is a service's client, the adapter, and Stripe; and the shop that hears webhooks.
type world struct {
	*payment.Client

	stripe  *stripeMock
	adapter string // its URL
	heard   chan string
	deaf    chan int // statuses with which the shop answers the next webhooks instead
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{stripe: &stripeMock{session: map[string]any{}}, heard: make(chan string, 16), deaf: make(chan int, 16)}
	api := httptest.NewServer(w.stripe.over(check.Value(stub())(t)))
	t.Cleanup(api.Close)
	signatures := check.Value(payment.NewSignatures([]string{hooks}))(t)
	shop := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id, err := signatures.Verify(r.Header, body)
		check.That(t, err == nil, "a webhook of the adapter: %v", err)
		select {
		case status := <-w.deaf:
			rw.WriteHeader(status)
		default:
			w.heard <- id + " " + string(body)
			rw.WriteHeader(http.StatusNoContent)
		}
	}))
	t.Cleanup(shop.Close)
	settings := map[string]string{
		"STRIPE_KEY": "sk_test_123", "STRIPE_WEBHOOK_SECRET": stripeSecret,
		"SECKILL_WEBHOOK_SECRETS": hooks, "SHOP_WEBHOOK_URL": shop.URL,
	}
	config := backend()
	config.URL = &api.URL
	a := check.Value(newAdapter(t.Context(), filepath.Join(t.TempDir(), "payments.db"),
		func(name string) string { return settings[name] },
		&stripe.Backends{API: stripe.GetBackendWithConfig(stripe.APIBackend, config)},
		slog.New(slog.DiscardHandler)))(t)
	served := httptest.NewServer(a.routes())
	t.Cleanup(func() {
		served.Close()
		check.Must(t, a.book.db.Close())
	})
	w.adapter = served.URL
	w.Client = check.Value(payment.NewClient(served.URL, check.Value(payment.Keys([]string{hooks}))(t)[0]))(t)
	t.Cleanup(w.Close)
	return w
}

func checkout() payment.Checkout {
	return payment.Checkout{
		Request: payment.Request{ID: "p1", OrderID: "o1.v1", Money: payment.Money{Amount: 1000, Currency: "CNY"}},
		Title:   "Coffee for two", ReturnURL: "https://shop.example/orders?id=o1.v1",
		ExpiresAt: time.Now().Add(2 * time.Hour), Buyer: "b1",
	}
}

func (w *world) paid() {
	w.stripe.with(func() {
		maps.Copy(w.stripe.session, map[string]any{
			"status": "complete", "payment_status": "paid",
			"payment_intent": map[string]any{"id": "pi_1"},
		})
	})
}

func TestAPaymentFromItsStartToItsRefund(t *testing.T) {
	t.Parallel()
	w, ctx, asked := newWorld(t), t.Context(), checkout()
	check.Is(t, "a look-up of nothing", check.ErrorOf(w.LookUp(ctx, "p1")), payment.ErrNotFound)
	started := check.Value(w.Start(ctx, asked))(t)
	check.Equal(t, "started", started, payment.Payment{
		Request: asked.Request, Status: payment.Pending,
		URL: "https://checkout.stripe.example/c/cs_1",
	})
	for name, want := range map[string]string{
		"client_reference_id": "p1", "success_url": asked.ReturnURL, "cancel_url": asked.ReturnURL, "expires_at": fmt.Sprint(asked.ExpiresAt.Unix()),
		"metadata[buyer]": "b1", "payment_intent_data[metadata][payment_id]": "p1", "line_items[0][price_data][unit_amount]": "1000",
		"line_items[0][price_data][currency]": "cny", "line_items[0][price_data][product_data][name]": "Coffee for two",
	} {
		check.Equal(t, name, w.stripe.form.Get(name), want)
	}
	renamed := asked
	renamed.Title = "Coffee for three"
	check.Equal(t, "the same again", check.Value(w.Start(ctx, renamed))(t), started)
	other := asked
	other.Amount++
	check.Is(t, "another amount", check.ErrorOf(w.Start(ctx, other)), payment.ErrRefused)
	check.Equal(t, "sessions made", w.stripe.count("POST /v1/checkout/sessions"), 1)

	refund := payment.Refund{PaymentID: "p1", Money: asked.Money}
	check.Is(t, "a refund before it is paid", w.Refund(ctx, "r1", refund), payment.ErrRefused)
	w.paid()
	check.Equal(t, "paid", check.Value(w.LookUp(ctx, "p1"))(t).Status, payment.Succeeded)
	for range 2 {
		check.Must(t, w.Refund(ctx, "r1", refund))
	}
	check.Equal(t, "refunds made", w.stripe.count("POST /v1/refunds"), 1)
	refund.Amount--
	check.Is(t, "another refund under its key", w.Refund(ctx, "r1", refund), payment.ErrRefused)
}

// What Stripe refuses has not happened, and is forgotten; what it does not answer may have happened.
func TestRefusalsAndSilence(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), t.Context()
	for status, want := range map[int]error{
		http.StatusBadRequest: payment.ErrRefused, http.StatusUnauthorized: model.ErrUnknownOutcome,
		http.StatusConflict: model.ErrUnknownOutcome, http.StatusTooManyRequests: model.ErrUnknownOutcome,
		http.StatusInternalServerError: model.ErrUnknownOutcome,
	} {
		w.stripe.with(func() { w.stripe.refuses = status })
		asked := checkout()
		asked.ID = fmt.Sprint("p", status)
		check.Is(t, asked.ID, check.ErrorOf(w.Start(ctx, asked)), want)
		found, err := w.LookUp(ctx, asked.ID)
		if errors.Is(want, payment.ErrRefused) {
			check.Is(t, "a look-up of it", err, payment.ErrNotFound)
		} else {
			check.Must(t, err)
			check.Equal(t, asked.ID, found.Status, payment.Pending)
		}
	}
	w.stripe.with(func() { w.stripe.refuses = 0 })
	for what, spoil := range map[string]func(*payment.Checkout){
		"no page to return to": func(c *payment.Checkout) { c.ReturnURL = "" },
		"units of its own":     func(c *payment.Checkout) { c.Currency = "ISK" },
		"a last digit":         func(c *payment.Checkout) { c.Currency, c.Amount = "KWD", 1005 },
	} {
		asked := checkout()
		spoil(&asked)
		check.Is(t, what, check.ErrorOf(w.Start(ctx, asked)), payment.ErrRefused)
	}
	stranger := check.Value(payment.NewClient(w.adapter, "guessed"))(t)
	defer stranger.Close()
	check.Is(t, "with another key", check.ErrorOf(stranger.LookUp(ctx, "p500")), model.ErrUnknownOutcome)
}

// Stripe keeps a session for at least half an hour: asked about an order whose time is over, the adapter ends it.
func TestThePageEndsWithItsOrder(t *testing.T) {
	t.Parallel()
	w, ctx, asked := newWorld(t), t.Context(), checkout()
	asked.ExpiresAt = time.Now().Add(-time.Second)
	check.Value(w.Start(ctx, asked))(t)
	check.Equal(t, "after its order", check.Value(w.LookUp(ctx, "p1"))(t).Status, payment.Failed)
	check.Equal(t, "sessions ended", w.stripe.count("POST /v1/checkout/sessions/cs_1/expire"), 1)

	now := time.Now()
	for order, want := range map[time.Duration]time.Duration{-time.Hour: shortestSession, time.Hour: time.Hour, 48 * time.Hour: longestSession} {
		check.Equal(t, "the end of a session", sessionEnd(now, now.Add(order)).Sub(now), want)
	}
}

// event sends an event of Stripe as its library signs it, and returns the status of the answer.
func (w *world) event(t *testing.T, id, kind, secret string, session map[string]any) int {
	t.Helper()
	body := check.Value(json.Marshal(map[string]any{
		"id": id, "object": "event", "type": kind,
		"api_version": "2020-08-27", "data": map[string]any{"object": session},
	}))(t)
	signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: body, Secret: secret})
	request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodPost, w.adapter+"/stripe",
		strings.NewReader(string(body))))(t)
	request.Header.Set("Stripe-Signature", signed.Header)
	response := check.Value(http.DefaultClient.Do(request))(t) //nolint:bodyclose // it is, in the next line
	check.Must(t, response.Body.Close())
	return response.StatusCode
}

func TestEventsBecomeWebhooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	session := func(status, paid string) map[string]any {
		return map[string]any{
			"id": "cs_1", "object": "checkout.session", "status": status, "payment_status": paid, "amount_total": 1000, "currency": "cny",
			"metadata": map[string]any{"payment_id": "p1", "order_id": "o1.v1"},
		}
	}
	data := `","data":{"payment_id":"p1","order_id":"o1.v1","amount":1000,"currency":"CNY"}}`
	for _, test := range []struct {
		id, kind string
		session  map[string]any
		want     string // empty: nothing is told
	}{
		{"evt_1", "checkout.session.completed", session("complete", "paid"), "payment.succeeded"},
		{"evt_2", "checkout.session.completed", session("complete", "unpaid"), ""}, // a debit, which takes days
		{"evt_3", "checkout.session.async_payment_succeeded", session("complete", "paid"), "payment.succeeded"},
		{"evt_4", "checkout.session.async_payment_failed", session("complete", "unpaid"), "payment.failed"},
		{"evt_5", "checkout.session.expired", session("expired", "unpaid"), "payment.failed"},
		{"evt_6", "customer.created", map[string]any{"id": "cus_1"}, ""},
		// The session belongs to another program.
		{
			"evt_7", "checkout.session.completed",
			map[string]any{"id": "cs_2", "status": "complete", "payment_status": "paid"},
			"",
		},
	} {
		check.Equal(t, test.id, w.event(t, test.id, test.kind, stripeSecret, test.session), http.StatusOK)
		if test.want != "" {
			check.Equal(t, test.id, <-w.heard, "stripe_"+test.id+` {"type":"`+test.want+data)
		}
		check.Equal(t, "more of "+test.id, len(w.heard), 0)
	}
	check.Equal(t, "of another signer", w.event(t, "evt_8", "checkout.session.completed", "guessed",
		session("complete", "paid")), http.StatusUnauthorized)
	// Stripe repeats what the service did not take.
	w.deaf <- http.StatusServiceUnavailable
	check.Equal(t, "a service that is away",
		w.event(t, "evt_9", "checkout.session.completed", stripeSecret, session("complete", "paid")),
		http.StatusBadGateway)
	check.Equal(t, "the event again", w.event(t, "evt_9", "checkout.session.completed", stripeSecret,
		session("complete", "paid")), http.StatusOK)
	check.Equal(t, "heard", <-w.heard, `stripe_evt_9 {"type":"payment.succeeded`+data)
	check.Equal(t, "nothing of the stranger", len(w.heard), 0)
}

// TestMoneyThatMovesAtStripe: refunds and disputes arrive as the payment stands, whichever event comes last.
func TestMoneyThatMovesAtStripe(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), t.Context()
	check.Value(w.Start(ctx, checkout()))(t)
	charge := map[string]any{"id": "ch_1", "object": "charge", "amount": 1000, "amount_refunded": 0, "disputed": false}
	w.stripe.with(func() {
		maps.Copy(w.stripe.session, map[string]any{
			"status": "complete", "payment_status": "paid", "payment_intent": map[string]any{"id": "pi_1", "object": "payment_intent", "latest_charge": charge},
		})
	})
	data := `","data":{"payment_id":"p1","order_id":"o1.v1","amount":1000,"currency":"CNY"`
	for n, test := range []struct {
		kind, dispute string
		disputed      int // of the amount
		refunded      int
		want          string
	}{
		{"charge.refunded", "", 0, 300, "payment.refunded" + data + `,"refunded":300,"disputed":false}}`},
		{"charge.dispute.created", "needs_response", 700, 300, "payment.disputed" + data + `,"refunded":300,"disputed":true}}`},
		{"charge.dispute.closed", "won", 700, 300, "payment.disputed" + data + `,"refunded":300,"disputed":false}}`},
		// The event comes late.
		{"charge.dispute.created", "won", 700, 300, "payment.disputed" + data + `,"refunded":300,"disputed":false}}`},
		{"charge.dispute.closed", "lost", 700, 300, "payment.disputed" + data + `,"refunded":1000,"disputed":false}}`},
		{"charge.refunded", "", 0, 1000, "payment.refunded" + data + `,"refunded":1000,"disputed":false}}`},
	} {
		w.stripe.with(func() {
			charge["amount_refunded"], charge["disputed"] = test.refunded, test.dispute != ""
			w.stripe.dispute = map[string]any{
				"id": "dp_1", "object": "dispute", "status": test.dispute,
				"amount": test.disputed,
			}
		})
		id := fmt.Sprintf("evt_%d", n)
		check.Equal(t, id, w.event(t, id, test.kind, stripeSecret,
			map[string]any{"object": "charge", "payment_intent": "pi_1"}), http.StatusOK)
		check.Equal(t, test.kind, <-w.heard, "stripe_"+id+` {"type":"`+test.want)
		found := check.Value(w.LookUp(ctx, "p1"))(t)
		check.Equal(t, "the question", strings.Contains(test.want,
			fmt.Sprintf(`"refunded":%d,"disputed":%t`, found.Refunded, found.Disputed)), true)
	}
	w.stripe.with(func() { w.stripe.session["metadata"] = map[string]any{} })
	check.Equal(t, "of another program", w.event(t, "evt_x", "charge.refunded", stripeSecret,
		map[string]any{"object": "charge", "payment_intent": "pi_2"}), http.StatusOK)
	check.Equal(t, "of no program", w.event(t, "evt_y", "charge.refunded", stripeSecret,
		map[string]any{"object": "charge"}), http.StatusOK)
	check.Equal(t, "more", len(w.heard), 0)
}
