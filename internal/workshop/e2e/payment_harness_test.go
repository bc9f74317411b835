package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"seckill/handler"
	"seckill/internal/api"
	"seckill/internal/payment"
	"seckill/internal/payment/simulator"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// The secrets of webhooks: the provider signs with the first, and one that is about to be replaced verifies too.
const (
	hookSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	oldHookSecret = "a secret of webhooks that is replaced"
)

// till is a simulated provider of its own, outside of the instances, so that it can go wrong and they can die.
type till struct {
	*simulator.Server

	url        string
	front      *check.Front
	signatures *payment.Signatures
}

func openTill(t *testing.T) *till {
	t.Helper()
	x := &till{signatures: check.Value(payment.NewSignatures([]string{hookSecret}))(t)}
	x.Server = check.Value(simulator.New(t.Context(), simulator.Options{
		File: filepath.Join(t.TempDir(), "ledger.db"), Keys: check.Value(payment.Keys([]string{hookSecret}))(t),
		Signatures: x.signatures, Log: slog.New(slog.DiscardHandler),
	}))(t)
	x.front = &check.Front{Server: x.Server}
	server := httptest.NewServer(x.front)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	x.url = server.URL
	t.Cleanup(func() {
		server.Close()
		check.Must(t, x.Close())
	})
	return x
}

// settings of an instance that is paid through this provider.
func (x *till) settings() settings {
	return settings{
		"SECKILL_PAYMENT_URL":     x.url,
		"SECKILL_WEBHOOK_SECRETS": hookSecret + "," + oldHookSecret,
		"SECKILL_CODE_KEY":        "a key of codes in tests, 32 bytes or more",
	}
}

// tells sends the provider's webhooks to an instance until the test ends, or the function it returns is called.
func (x *till) tells(t *testing.T, a *app) (stop func()) {
	t.Helper()
	return x.runs(t, a.URL+"/api/v1/webhooks/payments")
}

// runs sends the provider's webhooks to an address.
func (x *till) runs(t *testing.T, address string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.Run(ctx, address)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// tellsTwice is tells through somebody who sends every webhook twice, and says what the second answer says.
func (x *till) tellsTwice(t *testing.T, a *app) {
	t.Helper()
	twice := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, status := check.Value(io.ReadAll(r.Body))(t), http.StatusBadGateway
		for range 2 {
			again := r.Clone(r.Context())
			again.Body, again.RequestURI = io.NopCloser(bytes.NewReader(body)), ""
			again.URL = check.Value(url.Parse(a.URL + "/api/v1/webhooks/payments"))(t)
			if got, err := a.Client.Do(again); err == nil {
				_ = got.Body.Close()
				status = got.StatusCode
			}
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(twice.Close)
	x.runs(t, twice.URL)
}

// balance demands what the ledger adds up to: payments that succeeded and refunds, of 1000 each.
func (x *till) balance(t testing.TB, payments, refunds int64) {
	t.Helper()
	got := check.Value(x.Balance(t.Context()))(t)
	if got.Payments != payments || got.Received != 1000*payments || got.Refunds != refunds || got.Refunded != 1000*refunds {
		t.Errorf("the provider's ledger is %+v, want %d payments and %d refunds of 1000", got, payments, refunds)
	}
}

// paidEverywhere runs a test with a provider on the real servers and on the embedded ones.
func paidEverywhere(t *testing.T, test func(t *testing.T, a *app, x *till)) {
	t.Helper()
	for name, deployment := range map[string]func(*testing.T) settings{"servers": onServers, "embedded": embeddedSettings} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := openTill(t)
			test(t, start(t, deployment(t).with(x.settings())), x)
		})
	}
}

// asks makes one call as the order's user.
func (a *app) asks(t testing.TB, order model.Order, method, what string) api.Answer {
	t.Helper()
	return a.Call(t, method, "/orders/"+order.ID+what, a.as(t, order.UserID), nil)
}

// pays starts a payment.
func (a *app) pays(t testing.TB, order model.Order) handler.PaymentStart {
	t.Helper()
	got := a.Insist(t, http.MethodPost, "/orders/"+order.ID+"/pay", a.as(t, order.UserID), nil)
	check.Need(t, got.Status == http.StatusAccepted, "pay order %s: %d %s", order.ID, got.Status, got.Body)
	return remote.Decode[handler.PaymentStart](t, got)
}

// now reads an order again.
func (a *app) now(t testing.TB, order model.Order) model.Order {
	t.Helper()
	return remote.Decode[model.Order](t, a.Insist(t, http.MethodGet, "/orders/"+order.ID, a.as(t, order.UserID), nil))
}

// reaches waits until an order has a status.
func (a *app) reaches(t *testing.T, order model.Order, want model.OrderStatus) model.Order {
	t.Helper()
	check.Patiently(t, "order "+order.ID+" is "+string(want), func() bool {
		order = a.now(t, order)
		return order.Status == want
	})
	return order
}

// refund asks for the money of an order back, as an administrator.
func (a *app) refund(t testing.TB, order model.Order) {
	t.Helper()
	got := a.Insist(t, http.MethodPost, "/admin/orders/"+order.ID+"/refund", a.Admin(t), nil)
	check.Equal(t, "refund", got.Status, http.StatusAccepted)
}

// back waits until the money of so many orders is back.
func (a *app) back(t testing.TB, count int) {
	t.Helper()
	check.Patiently(t, "the money is back", func() bool { return len(a.refunds(t, "done")) == count })
}

// approve moves the money of a payment.
func (x *till) approve(t testing.TB, started handler.PaymentStart) {
	t.Helper()
	check.Must(t, x.Decide(t.Context(), started.PaymentID, simulator.Approve))
}

// paid makes an order and pays it with the provider's own webhook.
func (a *app) paid(t *testing.T, x *till, voucherID, user string) model.Order {
	t.Helper()
	order := a.buys(t, voucherID, user)
	x.approve(t, a.pays(t, order))
	return a.reaches(t, order, model.OrderPaid)
}

// refunds lists refunds.
func (a *app) refunds(t testing.TB, status string) []model.Refund {
	t.Helper()
	got := a.Insist(t, http.MethodGet, "/admin/refunds?status="+status, a.Admin(t), nil)
	check.Need(t, got.Status == http.StatusOK, "refunds: %d %s", got.Status, got.Body)
	return remote.Decode[model.RefundPage](t, got).Items
}

// hook is a webhook, as a test makes one by hand.
type hook struct {
	id     string
	secret string
	at     time.Time
	event  payment.Event
	body   string // in the place of the event
}

// of is a webhook of a payment that went well.
func of(start handler.PaymentStart) hook {
	return hook{id: "msg_" + start.PaymentID, secret: hookSecret, at: time.Now(), event: payment.Event{
		Type: payment.EventSucceeded,
		Data: payment.EventData{
			PaymentID: start.PaymentID, OrderID: start.Order.ID,
			Money: payment.Money{Amount: start.Order.Price, Currency: start.Order.Currency},
		},
	}}
}

// hears sends a webhook to an instance.
func (a *app) hears(t testing.TB, h hook) api.Answer {
	t.Helper()
	if h.body == "" {
		h.body = string(check.Value(json.Marshal(h.event))(t))
	}
	by := check.Value(payment.NewSignatures([]string{h.secret}))(t)
	var headers []string
	for name, values := range check.Value(by.Sign(h.id, h.at, []byte(h.body)))(t) {
		headers = append(headers, name+": "+strings.Join(values, ","))
	}
	return a.Call(t, http.MethodPost, "/webhooks/payments", "", h.body, headers...)
}

// heard is hears for a webhook that must be applied.
func (a *app) heard(t testing.TB, h hook) {
	t.Helper()
	got := remote.Insist(t, "webhook "+h.id, func(int) (api.Answer, error) { return a.hears(t, h), nil })
	check.That(t, got.Status == http.StatusNoContent && len(got.Body) == 0,
		"webhook %s: %d %s", h.id, got.Status, got.Body)
}

// same demands that two documents say the same.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	check.That(t, reflect.DeepEqual(got, want), "%s: %+v, want %+v", what, got, want)
}

// No code is in a log, however much is logged: not when it is made, shown, used, or mistyped.
func TestNoLogHasACode(t *testing.T) {
	t.Parallel()
	x := openTill(t)
	p := launch(t, embeddedSettings(t).with(x.settings()).with(settings{"SECKILL_LOG_LEVEL": "debug"}))
	x.tells(t, p.app)
	order := p.paid(t, x, p.onSale(t, 1).ID, p.user(1))
	code := order.Code
	const guess = "0000-0000-0000-0000-0000"
	wrong := code[:23] + otherThan(code[23])
	for _, typed := range []string{wrong, guess, code, code} {
		p.Call(t, http.MethodPost, "/admin/redemptions", p.Admin(t), map[string]string{"code": typed})
	}
	check.Equal(t, "order", p.now(t, order).Status, model.OrderRedeemed)
	p.Call(t, http.MethodGet, "/admin/log", p.Admin(t), nil)
	log := strings.ToUpper(p.output.String())
	for what, secret := range map[string]string{"used": code, "mistyped": wrong, "guessed": guess} {
		check.That(t, !strings.Contains(log, secret) && !strings.Contains(log, strings.ReplaceAll(secret, "-", "")),
			"a code that was %s is in the log", what)
	}
	check.That(t, strings.Contains(log, "REDEMPTIONS") || strings.Contains(log, "REQUEST REFUSED"),
		"the control: the log says nothing of refusals")
	recorded := string(p.Call(t, http.MethodGet, "/admin/log", p.Admin(t), nil).Body)
	check.That(t, !strings.Contains(recorded, code), "the administrators' log has the code")
}
