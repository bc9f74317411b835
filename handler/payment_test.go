package handler_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/handler"
	"seckill/internal/payment"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// payments is what stands behind the calls of buyers and of the provider.
type payments struct {
	pay    func(userID, orderID string) (model.Payment, model.Order, error)
	notice func(model.PaymentNotice) error
	// unheard counts webhooks that say nothing of a payment.
	unheard map[string]int
}

func (f payments) Pay(_ context.Context, userID, orderID string) (model.Payment, model.Order, error) {
	return f.pay(userID, orderID)
}

func (f payments) Unheard(outcome string) { f.unheard[outcome]++ }

func (f payments) Notice(_ context.Context, n model.PaymentNotice) error { return f.notice(n) }

func TestPay(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *handler.Options) {
		o.Payments = payments{pay: func(userID, orderID string) (model.Payment, model.Order, error) {
			if orderID == "closed.v1" {
				return model.Payment{}, model.Order{}, &model.Error{Code: model.CodeIllegalState, Detail: "x", OrderStatus: model.OrderExpired}
			}
			return model.Payment{ID: "p1", URL: "https://pay.example/p1"}, model.Order{ID: orderID, UserID: userID, Status: model.OrderUnpaid}, nil
		}}
	})
	user := s.as(t, "u", model.RoleUser)
	got := s.do(t, http.MethodPost, "/api/v1/orders/o1.v1/pay", "", user...)
	var started handler.PaymentStart
	check.Must(t, json.Unmarshal([]byte(got.body), &started))
	if got.status != http.StatusAccepted || started.PaymentID != "p1" || started.PaymentURL != "https://pay.example/p1" || started.Order.ID != "o1.v1" || started.Order.UserID != "u" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if p := wantProblem(t, s.do(t, http.MethodPost, "/api/v1/orders/closed.v1/pay", "{}", user...), http.StatusConflict, model.CodeIllegalState); p.OrderStatus != "expired" {
		t.Errorf("%+v", p)
	}
}

// said is a notice without the message that it came in.
func said(n model.PaymentNotice) string {
	n.Message = nil
	return fmt.Sprintf("%+v", n)
}

// A webhook is what its bytes say, and nothing is done for one that is not signed or cannot be read.
func TestPaymentWebhooks(t *testing.T) {
	t.Parallel()
	var heard []model.PaymentNotice
	unheard := map[string]int{}
	s := setup(t, func(o *handler.Options) {
		o.Payments = payments{unheard: unheard, notice: func(n model.PaymentNotice) error {
			heard = append(heard, n)
			if n.PaymentID == "unknown" {
				return model.Invalid("body.data", "is no payment of ours")
			}
			return nil
		}}
	})
	by := check.Value(payment.NewSignatures([]string{webhookSecret}))(t)
	send := func(body string, at time.Time) answer {
		var headers []string
		for name, values := range check.Value(by.Sign("msg_1", at, []byte(body)))(t) {
			headers = append(headers, name, values[0])
		}
		return s.do(t, http.MethodPost, "/api/v1/webhooks/payments", body, headers...)
	}
	const good = `{"type":"payment.succeeded","more":[1],"data":{"payment_id":"p1","order_id":"o1.v1","amount":1000,"currency":"CNY","more":null}}`
	if got := send(good, time.Now()); got.status != http.StatusNoContent || got.body != "" || len(heard) != 1 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	digest := sha256.Sum256([]byte(good))
	n := heard[0]
	if n.PaymentID != "p1" || n.OrderID != "o1.v1" || !n.Succeeded || n.Amount != 1000 || n.Currency != "CNY" || n.Message.ID != "msg_1" || string(n.Message.Digest) != string(digest[:]) {
		t.Errorf("heard %+v", n)
	}
	send(strings.Replace(good, "succeeded", "failed", 1), time.Now())
	check.Equal(t, "a failed payment has succeeded", heard[1].Succeeded, false)
	for said, want := range map[string]struct {
		refunded int64
		disputed string // empty: it is not said
	}{
		`refunded","data":{"refunded":300,`:                   {300, ""},
		`refunded","data":{"refunded":1000,"disputed":false,`: {1000, "false"},
		`disputed","data":{`:                                  {0, "true"},
		`disputed","data":{"disputed":false,"refunded":7,`:    {7, "false"},
	} {
		if got := send(strings.Replace(good, `succeeded","more":[1],"data":{`, said, 1), time.Now()); got.status != http.StatusNoContent {
			t.Errorf("%s: %d %s", said, got.status, got.body)
		}
		n, disputed := heard[len(heard)-1], ""
		if n.Disputed != nil {
			disputed = strconv.FormatBool(*n.Disputed)
		}
		if !n.Moved || !n.Succeeded || n.Refunded != want.refunded || disputed != want.disputed {
			t.Errorf("%s: heard %+v, disputed %q", said, n, disputed)
		}
	}
	for _, wrong := range []string{`refunded","data":{`, `refunded","data":{"refunded":1001,`, `disputed","data":{"refunded":-1,`, `disputed","data":{"disputed":"yes",`, `disputed","data":{"disputed":null,`} {
		check.Equal(t, wrong, send(strings.Replace(good, `succeeded","more":[1],"data":{`, wrong, 1), time.Now()).status, http.StatusUnprocessableEntity)
	}
	for _, beside := range []string{`"Type":"payment.failed",`, `"Data":{"amount":1,"payment_id":"p2"},`, `"DATA":7,`} {
		send(strings.Replace(good, `"more":[1],`, beside, 1), time.Now())
		check.Equal(t, "heard beside "+beside, said(heard[len(heard)-1]), said(n))
	}
	if got := send(strings.Replace(good, `"more":null`, `"Amount":1`, 1), time.Now()); got.status != http.StatusNoContent || said(heard[len(heard)-1]) != said(n) {
		t.Errorf("two amounts: %d, %+v", got.status, heard[len(heard)-1])
	}
	for _, amount := range []string{"1000.0", "1e3", "10000e-1"} {
		send(strings.Replace(good, "1000", amount, 1), time.Now())
		check.Equal(t, "the amount "+amount, heard[len(heard)-1].Amount, 1000)
	}
	wantProblem(t, send(strings.Replace(good, "p1", "unknown", 1), time.Now()), http.StatusUnprocessableEntity, model.CodeValidation)

	heard = nil
	old := send(good, time.Now().Add(-301*time.Second))
	wantProblem(t, old, http.StatusUnauthorized, model.CodeUnauthenticated)
	if challenge := old.header.Get("WWW-Authenticate"); challenge == "" || strings.Contains(challenge, "Bearer") {
		t.Errorf("the challenge is %q", challenge)
	}
	wantProblem(t, s.do(t, http.MethodPost, "/api/v1/webhooks/payments", good), http.StatusUnauthorized, model.CodeUnauthenticated)
	for body, status := range map[string]int{
		"": 400, "x": 400, good + good: 400, "null": 422, "[]": 422, "{}": 422,
		strings.Replace(good, `"type":"payment.succeeded"`, `"type":""`, 1):                           422,
		strings.Replace(good, `"type":"payment.succeeded"`, `"type":1`, 1):                            422,
		strings.Replace(good, `"amount":1000`, `"amount":"1000"`, 1):                                  422,
		strings.Replace(good, `"type"`, `"TYPE"`, 1):                                                  422,
		strings.Replace(good, `"data"`, `"Data"`, 1):                                                  422,
		strings.Replace(good, `"payment_id"`, `"Payment_ID"`, 1):                                      422,
		strings.Replace(good, `"data":{"payment_id":"p1",`, `"Data":{"payment_id":"p1"},"data":{`, 1): 422,
		strings.Replace(good, `"data":{`, `"data":[],"more":{`, 1):                                    422,
		strings.Replace(good, `"amount":1000`, `"amount":1000.5`, 1):                                  422,
		strings.Replace(good, `"amount":1000`, `"amount":1000.00000000000001`, 1):                     422,
		strings.Replace(good, `"amount":1000`, `"amount":1000e-400`, 1):                               422,
		strings.Replace(good, `"amount":1000`, `"amount":null`, 1):                                    422,
		strings.Replace(good, `"amount":1000`, `"amount":1000,"amount":1`, 1):                         422,
		strings.Replace(good, `"p1"`, `"p 1"`, 1):                                                     422,
		strings.Replace(good, `"data":{`, `"data":{"payment_id":"p2",`, 1):                            422,
		strings.Replace(good, `"amount":1000`, `"amount":99999999999999999999999999999`, 1):           422,
	} {
		if got := send(body, time.Now()); got.status != status || !strings.Contains(got.body, `"code":"VALIDATION"`) {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	if len(heard) != 0 {
		t.Errorf("heard %+v", heard)
	}
	check.Equal(t, "strangers and late ones", unheard["UNAUTHENTICATED"], 2)

	// A test, or news of something else, whatever it says: its sender must not take the endpoint for broken.
	for n, other := range []string{
		strings.Replace(good, "payment.succeeded", "payment.perhaps", 1), `{"type":"endpoint.test"}`, `{"type":"ping","data":null}`,
		`{"type":"customer.updated","data":{"amount":"many"},"data":1}`, strings.Replace(good, `"type":"payment.succeeded"`, `"type":"Payment.Succeeded"`, 1),
	} {
		if got := send(other, time.Now()); got.status != http.StatusNoContent || got.body != "" {
			t.Errorf("%s: %d %s", other, got.status, got.body)
		}
		check.Equal(t, "of a type that is not known", unheard["UNKNOWN_TYPE"], n+1)
	}
	check.Equal(t, "heard of them", len(heard), 0)
}

// The headers of Svix count as those of the standard, also for the id that a message is known by.
func TestWebhooksOfSvix(t *testing.T) {
	t.Parallel()
	var heard []model.PaymentNotice
	s := setup(t, func(o *handler.Options) {
		o.Payments = payments{notice: func(n model.PaymentNotice) error {
			heard = append(heard, n)
			return nil
		}}
	})
	const body = `{"type":"payment.succeeded","data":{"payment_id":"p1","order_id":"o1.v1","amount":1000,"currency":"CNY"}}`
	signed := check.Value(check.Value(payment.NewSignatures([]string{webhookSecret}))(t).Sign("msg_7", time.Now(), []byte(body)))(t)
	s.do(t, http.MethodPost, "/api/v1/webhooks/payments", body, "svix-id", signed.Get("webhook-id"), "svix-timestamp", signed.Get("webhook-timestamp"),
		"svix-signature", signed.Get("webhook-signature")).is(t, http.StatusNoContent)
	if len(heard) != 1 || heard[0].Message.ID != "msg_7" {
		t.Errorf("heard %+v", heard)
	}
}

// A sender whom nobody knows is in the log once a minute, so that a wrong secret is found; who is late is told so.
func TestRefusedWebhooksAreLogged(t *testing.T) {
	t.Parallel()
	log := &check.Log{}
	s := setup(t, func(o *handler.Options) {
		o.Payments, o.Log = payments{unheard: map[string]int{}}, slog.New(slog.NewTextHandler(log, nil))
	})
	stranger := check.Value(payment.NewSignatures([]string{"another secret, as long as ours"}))(t)
	ours := check.Value(payment.NewSignatures([]string{webhookSecret}))(t)
	send := func(by *payment.Signatures, at time.Time) problem {
		header := check.Value(by.Sign("msg_1", at, []byte("{}")))(t)
		got := s.do(t, http.MethodPost, "/api/v1/webhooks/payments", "{}", "webhook-id", "msg_1",
			"webhook-timestamp", header.Get("webhook-timestamp"), "webhook-signature", header.Get("webhook-signature"))
		return wantProblem(t, got, http.StatusUnauthorized, model.CodeUnauthenticated)
	}
	check.Equal(t, "to a stranger", send(stranger, time.Now()).Detail, "The webhook's signature is not valid.")
	check.Equal(t, "to a late one", send(ours, time.Now().Add(-time.Hour)).Detail, "The webhook's timestamp is more than 5 minutes off.")
	check.Equal(t, "lines", strings.Count(log.String(), "a webhook is refused"), 1)
	check.Equal(t, "says why", log.Has("level=INFO", "a webhook is refused", "no matching signature"), true)
}
