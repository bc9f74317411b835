package e2e_test

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"seckill/handler"
	"seckill/internal/api"
	"seckill/internal/failpoint"
	"seckill/internal/payment/simulator"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

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
	if !p.Audit(t, voucher.ID).Balanced {
		t.Error("the stock does not add up")
	}
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
		if strings.Contains(log, secret) || strings.Contains(log, strings.ReplaceAll(secret, "-", "")) {
			t.Errorf("a code that was %s is in the log", what)
		}
	}
	if !strings.Contains(log, "REDEMPTIONS") && !strings.Contains(log, "REQUEST REFUSED") {
		t.Error("the control: the log says nothing of refusals")
	}
	recorded := string(p.Call(t, http.MethodGet, "/admin/log", p.Admin(t), nil).Body)
	if strings.Contains(recorded, code) {
		t.Error("the administrators' log has the code")
	}
}
