package e2e_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"seckill/handler"
	"seckill/internal/api"
	"seckill/internal/failpoint"
	"seckill/internal/payment"
	"seckill/internal/payment/simulator"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
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
	check.Need(t, got.Status == http.StatusAccepted, "pay order %s: %d %s", order.ID, got.Status, got.Body)
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

// moneySteps are the steps of the road of money.
func moneySteps() []failpoint.Step { return slices.Concat(paySteps(), refundSteps()) }

func paySteps() []failpoint.Step {
	return []failpoint.Step{failpoint.BeforePaymentStart, failpoint.AfterPaymentStart, failpoint.BeforePaymentSettle, failpoint.AfterPaymentSettle}
}

func refundSteps() []failpoint.Step {
	return []failpoint.Step{failpoint.BeforeRefund, failpoint.AfterRefund, failpoint.AfterRefundNoted}
}

// The real program is killed with SIGKILL, by itself, at every step of a payment and of a refund, one process after the
// other on one database. In the end each order is paid with one payment, or its money is back once, and the provider's
// ledger agrees.
func TestKilledWithMoneyUnderWay(t *testing.T) {
	t.Parallel()
	x := openTill(t)
	p := prepare(t, testserver.Program(t, "failpoint"), onServers(t).with(x.settings()))
	x.tells(t, p.app)
	dies := func(step failpoint.Step, ask func()) {
		t.Helper()
		p.start(t, settings{"SECKILL_FAILPOINT": string(step)})
		check.Patiently(t, "the program is ready, or dead", func() bool { return !p.alive() || p.Status("/readyz") == http.StatusOK })
		ask()
		check.Receive(t, "the program is at the step "+string(step), p.exited)
		if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
			t.Fatalf("the program ended with %v, not by SIGKILL at %s", p.cmd.ProcessState, step)
		}
	}
	ask := func(path, token string) (api.Answer, error) {
		return p.Send(http.MethodPost, path, token, nil)
	}

	p.start(t)
	p.awaitReady(t)
	voucher := p.onSale(t, 7)
	var paying, refunding []model.Order
	for n := range paySteps() {
		paying = append(paying, p.buys(t, voucher.ID, p.user(n)))
	}
	for n := range refundSteps() {
		refunding = append(refunding, p.paid(t, x, voucher.ID, p.user(10+n)))
	}
	p.kill()
	for n, step := range paySteps() {
		dies(step, func() {
			got, err := ask("/orders/"+paying[n].ID+"/pay", p.Token(t, paying[n].UserID, model.RoleUser))
			if err == nil && got.Status == http.StatusAccepted {
				x.approve(t, remote.Decode[handler.PaymentStart](t, got)) // its webhook comes
			}
		})
	}
	for n, step := range refundSteps() {
		dies(step, func() { _, _ = ask("/admin/orders/"+refunding[n].ID+"/refund", p.Admin(t)) })
	}

	p.start(t)
	p.awaitReady(t)
	for _, order := range paying {
		if p.now(t, order).Status == model.OrderUnpaid {
			got := p.Insist(t, http.MethodPost, "/orders/"+order.ID+"/pay", p.Token(t, order.UserID, model.RoleUser), nil)
			if got.Status == http.StatusAccepted {
				_ = x.Decide(t.Context(), remote.Decode[handler.PaymentStart](t, got).PaymentID, simulator.Approve) // it may be approved already
			}
		}
		p.reaches(t, order, model.OrderPaid)
	}
	for _, order := range refunding {
		if p.now(t, order).Status == model.OrderPaid { // the process had died of what another order was owed
			p.refund(t, order)
		}
	}
	p.back(t, len(refunding))
	for _, order := range refunding {
		check.Equal(t, "order", p.now(t, order).Status, model.OrderRefunded)
		p.buys(t, voucher.ID, order.UserID) // its unit
	}
	x.balance(t, int64(len(moneySteps())), int64(len(refunding)))
	check.Equal(t, "payments that nobody made", check.Value(x.Balance(t.Context()))(t).Undecided, 0)
	check.That(t, p.Audit(t, voucher.ID).Balanced, "the stock does not add up")
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
