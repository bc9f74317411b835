package e2e_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
	faults     *simulator.Faults
	signatures *payment.Signatures
}

func openTill(t *testing.T) *till {
	t.Helper()
	x := &till{faults: &simulator.Faults{}, signatures: check.Value(payment.NewSignatures([]string{hookSecret}))(t)}
	x.Server = check.Value(simulator.New(t.Context(), simulator.Options{
		File: filepath.Join(t.TempDir(), "ledger.db"), Keys: check.Value(payment.Keys([]string{hookSecret}))(t),
		Signatures: x.signatures, Log: slog.New(slog.DiscardHandler), Faults: x.faults,
	}))(t)
	server := httptest.NewServer(x.Server)
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

// tells sends the provider's webhooks to an instance until the test ends.
func (x *till) tells(t *testing.T, a *app) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.Run(ctx, a.URL+"/api/v1/webhooks/payments")
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
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
	return a.Call(t, method, "/orders/"+order.ID+what, a.Token(t, order.UserID, model.RoleUser), nil)
}

// pays starts a payment.
func (a *app) pays(t testing.TB, order model.Order) handler.PaymentStart {
	t.Helper()
	got := a.Insist(t, http.MethodPost, "/orders/"+order.ID+"/pay", a.Token(t, order.UserID, model.RoleUser), nil)
	if got.Status != http.StatusAccepted {
		t.Fatalf("pay order %s: %d %s", order.ID, got.Status, got.Body)
	}
	return remote.Decode[handler.PaymentStart](t, got)
}

// now reads an order again.
func (a *app) now(t testing.TB, order model.Order) model.Order {
	t.Helper()
	return remote.Decode[model.Order](t, a.Insist(t, http.MethodGet, "/orders/"+order.ID, a.Token(t, order.UserID, model.RoleUser), nil))
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
	if got.Status != http.StatusOK {
		t.Fatalf("refunds: %d %s", got.Status, got.Body)
	}
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
	if got.Status != http.StatusNoContent || len(got.Body) != 0 {
		t.Errorf("webhook %s: %d %s", h.id, got.Status, got.Body)
	}
}

// same demands that two documents say the same.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}
