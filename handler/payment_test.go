package handler_test

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"seckill/handler"
	"seckill/internal/payment"
	"seckill/internal/workshop/check"
	"seckill/model"
)

type payments struct {
	pay    func(userID, orderID string) (model.Payment, model.Order, error)
	notice func(model.PaymentNotice) error
	// unheard counts webhooks that say nothing of a payment.
	unheard map[string]int
}

func (f payments) Pay(_ context.Context, userID, orderID string) (model.Payment, model.Order, error) {
	return f.pay(userID, orderID)
}

func (f payments) Elsewhere(context.Context, string, string, model.Elsewhere) (model.Order, error) {
	return model.Order{}, nil
}

func (f payments) Unheard(outcome string) { f.unheard[outcome]++ }

func (f payments) Notice(_ context.Context, n model.PaymentNotice) error { return f.notice(n) }

func TestPay(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *handler.Options) {
		o.Payments = payments{pay: func(userID, orderID string) (model.Payment, model.Order, error) {
			if orderID == "closed.v1" {
				return model.Payment{}, model.Order{},
					&model.Error{Code: model.CodeIllegalState, Detail: "x", OrderStatus: model.OrderExpired}
			}
			return model.Payment{ID: "p1", URL: "https://pay.example/p1"},
				model.Order{ID: orderID, UserID: userID, Status: model.OrderUnpaid}, nil
		}}
	})
	user := s.as(t, "u", model.RoleUser)
	got := s.do(t, http.MethodPost, "/api/v1/orders/o1.v1/pay", "", user...)
	got.is(t, http.StatusAccepted)
	check.That(t, strings.HasPrefix(got.body,
		`{"payment_id":"p1","payment_url":"https://pay.example/p1","order":{"id":"o1.v1","voucher_id":"","user_id":"u"`), "%s", got.body)
	p := wantProblem(t, s.do(t, http.MethodPost, "/api/v1/orders/closed.v1/pay", "{}", user...), http.StatusConflict,
		model.CodeIllegalState)
	check.Equal(t, "the order's status", p.OrderStatus, "expired")
}

type provider struct {
	s       *server
	by      *payment.Signatures
	heard   []model.PaymentNotice
	unheard map[string]int
}

func newProvider(t *testing.T, change ...func(*handler.Options)) *provider {
	t.Helper()
	p := &provider{by: check.Value(payment.NewSignatures([]string{webhookSecret}))(t), unheard: map[string]int{}}
	p.s = setup(t, append(change, func(o *handler.Options) {
		o.Payments = payments{unheard: p.unheard, notice: func(n model.PaymentNotice) error {
			p.heard = append(p.heard, n)
			if n.PaymentID == "unknown" {
				return model.Invalid("body.data", "is no payment of ours")
			}
			return nil
		}}
	})...)
	return p
}

func (p *provider) send(t *testing.T, body string, at time.Time) answer {
	t.Helper()
	var headers []string
	for name, values := range check.Value(p.by.Sign("msg_1", at, []byte(body)))(t) {
		headers = append(headers, name, values[0])
	}
	return p.s.do(t, http.MethodPost, webhooksPath, body, headers...)
}

// hears sends a webhook that is applied as a notice, whatever message that came in.
func (p *provider) hears(t *testing.T, body string, want model.PaymentNotice) {
	t.Helper()
	before := len(p.heard)
	got := p.send(t, body, time.Now())
	got.is(t, http.StatusNoContent)
	check.Need(t, got.body == "" && len(p.heard) == before+1, "%s: %q, heard %d", body, got.body, len(p.heard)-before)
	notice := p.heard[before]
	notice.Message = nil
	check.That(t, reflect.DeepEqual(notice, want), "%s: heard %+v, want %+v", body, notice, want)
}

const (
	webhooksPath = "/api/v1/webhooks/payments"
	succeeded    = `{"type":"payment.succeeded","more":[1],"data":{"payment_id":"p1","order_id":"o1.v1","amount":1000,"currency":"CNY","more":null}}`
)

// but is the webhook of a payment that succeeded with another text in a place of its own.
func but(old, other string) string { return strings.Replace(succeeded, old, other, 1) }

func TestPaymentWebhooks(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	paid := model.PaymentNotice{PaymentID: "p1", OrderID: "o1.v1", Succeeded: true, Amount: 1000, Currency: "CNY"}
	p.hears(t, succeeded, paid)
	digest := sha256.Sum256([]byte(succeeded))
	message := p.heard[0].Message
	check.That(t, message.ID == "msg_1" && string(message.Digest) == string(digest[:]), "%+v", message)
	for _, same := range []string{
		but("1000", "1000.0"), but("1000", "1e3"), but("1000", "10000e-1"), but(`"more":null`, `"Amount":1`),
		but(`"more":[1],`, `"Type":"payment.failed",`), but(`"more":[1],`, `"Data":{"amount":1,"payment_id":"p2"},`),
		but(`"more":[1],`, `"DATA":7,`),
	} {
		p.hears(t, same, paid)
	}
	failed := paid
	failed.Succeeded = false
	p.hears(t, but("succeeded", "failed"), failed)
	paid.Moved = true
	const moved = `succeeded","more":[1],"data":{`
	for said, want := range map[string]struct {
		refunded int64
		disputed *bool
	}{
		`refunded","data":{"refunded":300,`:                   {300, nil},
		`refunded","data":{"refunded":1000,"disputed":false,`: {1000, new(false)},
		`disputed","data":{`:                                  {0, new(true)},
		`disputed","data":{"disputed":false,"refunded":7,`:    {7, new(false)},
	} {
		paid.Refunded, paid.Disputed = want.refunded, want.disputed
		p.hears(t, but(moved, said), paid)
	}
	wantProblem(t, p.send(t, but("p1", "unknown"), time.Now()), http.StatusUnprocessableEntity, model.CodeValidation)
}

func TestWrongWebhooks(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	old := p.send(t, succeeded, time.Now().Add(-301*time.Second))
	wantProblem(t, old, http.StatusUnauthorized, model.CodeUnauthenticated)
	challenge := old.header.Get("WWW-Authenticate")
	check.That(t, challenge != "" && !strings.Contains(challenge, "Bearer"), "the challenge is %q", challenge)
	wantProblem(t, p.s.do(t, http.MethodPost, webhooksPath, succeeded), http.StatusUnauthorized,
		model.CodeUnauthenticated)
	check.Equal(t, "strangers and late ones", p.unheard["UNAUTHENTICATED"], 2)
	const kind, moved, data, amount = `"type":"payment.succeeded"`, `succeeded","more":[1],"data":{`, `"data":{"payment_id":"p1",`, `"amount":1000`
	for status, bodies := range map[int][]string{
		400: {"", "x", succeeded + succeeded},
		422: {
			"null", "[]", "{}", but(kind, `"type":""`), but(kind, `"type":1`), but(`"type"`, `"TYPE"`), but(`"data"`, `"Data"`),
			but(`"payment_id"`, `"Payment_ID"`), but(data, `"Data":{"payment_id":"p1"},"data":{`),
			but(`"data":{`, `"data":[],"more":{`),
			but(amount, `"amount":"1000"`), but(amount, `"amount":1000.5`), but(amount, `"amount":1000.00000000000001`),
			but(amount, `"amount":1000e-400`),
			but(amount, `"amount":null`), but(amount, `"amount":1000,"amount":1`),
			but(amount, `"amount":99999999999999999999999999999`),
			but(`"p1"`, `"p 1"`), but(`"data":{`, `"data":{"payment_id":"p2",`),
			but(moved, `refunded","data":{`), but(moved, `refunded","data":{"refunded":1001,`),
			but(moved, `disputed","data":{"refunded":-1,`),
			but(moved, `disputed","data":{"disputed":"yes",`), but(moved, `disputed","data":{"disputed":null,`),
		},
	} {
		for _, body := range bodies {
			wantProblem(t, p.send(t, body, time.Now()), status, model.CodeValidation)
		}
	}
	// A test, or news of something else, whatever it says: its sender must not take the endpoint for broken.
	for n, other := range []string{
		but("payment.succeeded", "payment.perhaps"), `{"type":"endpoint.test"}`, `{"type":"ping","data":null}`,
		`{"type":"customer.updated","data":{"amount":"many"},"data":1}`, but(kind, `"type":"Payment.Succeeded"`),
	} {
		p.send(t, other, time.Now()).is(t, http.StatusNoContent)
		check.Equal(t, "of a type that is not known", p.unheard["UNKNOWN_TYPE"], n+1)
	}
	check.Equal(t, "heard of them", len(p.heard), 0)
}

// The headers of Svix count as those of the standard, also for the id that a message is known by.
func TestWebhooksOfSvix(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	signed := check.Value(p.by.Sign("msg_7", time.Now(), []byte(succeeded)))(t)
	p.s.do(t, http.MethodPost, webhooksPath, succeeded, "svix-id", signed.Get("webhook-id"), "svix-timestamp",
		signed.Get("webhook-timestamp"),
		"svix-signature", signed.Get("webhook-signature")).is(t, http.StatusNoContent)
	check.That(t, len(p.heard) == 1 && p.heard[0].Message.ID == "msg_7", "heard %+v", p.heard)
}

// A sender whom nobody knows is in the log once a minute, so that a wrong secret is found; who is late is told so.
func TestRefusedWebhooksAreLogged(t *testing.T) {
	t.Parallel()
	log := &check.Log{}
	p := newProvider(t, func(o *handler.Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
	ours := p.by
	p.by = check.Value(payment.NewSignatures([]string{"another secret, as long as ours"}))(t)
	stranger := wantProblem(t, p.send(t, "{}", time.Now()), http.StatusUnauthorized, model.CodeUnauthenticated)
	check.Equal(t, "to a stranger", stranger.Detail, "The webhook's signature is not valid.")
	p.by = ours
	late := wantProblem(t, p.send(t, "{}", time.Now().Add(-time.Hour)), http.StatusUnauthorized,
		model.CodeUnauthenticated)
	check.Equal(t, "to a late one", late.Detail, "The webhook's timestamp is more than 5 minutes off.")
	check.Equal(t, "lines", strings.Count(log.String(), "a webhook is refused"), 1)
	check.Equal(t, "says why", log.Has("level=INFO", "a webhook is refused", "no matching signature"), true)
}
