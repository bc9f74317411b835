package e2e_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"seckill/internal/failpoint"
	"seckill/internal/payment/simulator"
	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// moneySteps are the steps of the road of money.
func moneySteps() []failpoint.Step {
	return []failpoint.Step{
		failpoint.BeforePaymentStart, failpoint.AfterPaymentStart, failpoint.BeforePaymentSettle, failpoint.AfterPaymentSettle,
		failpoint.BeforeRefund, failpoint.AfterRefund, failpoint.AfterRefundNoted,
	}
}

// The real program is killed with SIGKILL, by itself, at every step of a payment and of a refund. After the next
// start the order is paid with one payment, or its money is back once, and the provider's ledger agrees.
func TestKilledWithMoneyUnderWay(t *testing.T) {
	t.Parallel()
	testserver.Program(t, "failpoint")
	for _, step := range moneySteps() {
		t.Run(string(step), func(t *testing.T) {
			t.Parallel()
			x := openTill(t)
			p := prepare(t, testserver.Program(t, "failpoint"), onServers(t).with(x.settings()))
			p.start(t, settings{"SECKILL_FAILPOINT": string(step)})
			p.awaitReady(t)
			x.tells(t, p.app)
			refunding := strings.HasSuffix(string(step), "refund") || step == failpoint.AfterRefundNoted
			voucher := p.onSale(t, 1)
			order := p.buys(t, voucher.ID, p.user(1))
			_, _ = send(p.client, http.MethodPost, p.url+"/api/v1/orders/"+order.ID+"/pay", p.token(t, order.UserID, model.RoleUser), nil)
			if step != failpoint.BeforePaymentStart && step != failpoint.AfterPaymentStart {
				check.Must(t, x.Decide(t.Context(), p.pays(t, order).PaymentID, simulator.Approve))
			}
			if refunding {
				p.reaches(t, order, model.OrderPaid, refundedWithin)
				_, _ = send(p.client, http.MethodPost, p.url+"/api/v1/admin/orders/"+order.ID+"/refund", p.admin(t), nil)
			}
			select {
			case <-p.exited:
			case <-time.After(settlement):
				t.Fatalf("the program was never at the step %s", step)
			}
			if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
				t.Fatalf("the program ended with %v, not by SIGKILL", p.cmd.ProcessState)
			}

			p.start(t)
			p.awaitReady(t)
			switch {
			case refunding:
				until(t, settlement, "the money is back", func() bool { return len(p.refunds(t, "done")) == 1 })
				check.Equal(t, "order", p.now(t, order).Status, model.OrderRefunded)
				x.balance(t, 1, 1)
				p.buys(t, voucher.ID, p.user(2)) // its unit
			case step == failpoint.BeforePaymentStart || step == failpoint.AfterPaymentStart:
				check.Must(t, x.Decide(t.Context(), p.pays(t, order).PaymentID, simulator.Approve))
				fallthrough
			default:
				p.reaches(t, order, model.OrderPaid, settlement)
				x.balance(t, 1, 0)
			}
			check.Equal(t, "payments that nobody made", check.Value(x.Balance(t.Context()))(t).Undecided, 0)
			if !p.audit(t, voucher.ID).Balanced {
				t.Error("the stock does not add up")
			}
		})
	}
}

// No code is in a log, however much is logged: not when it is made, shown, used, or mistyped.
func TestNoLogHasACode(t *testing.T) {
	t.Parallel()
	x := openTill(t)
	p := launch(t, embeddedSettings(t).with(x.settings()).with(settings{"SECKILL_LOG_LEVEL": "debug"}))
	x.tells(t, p.app)
	order := p.buys(t, p.onSale(t, 1).ID, p.user(1))
	check.Must(t, x.Decide(t.Context(), p.pays(t, order).PaymentID, simulator.Approve))
	code := p.reaches(t, order, model.OrderPaid, refundedWithin).Code
	const guess = "0000-0000-0000-0000-0000"
	wrong := code[:23] + otherThan(code[23])
	for _, typed := range []string{wrong, guess, code, code} {
		p.call(t, http.MethodPost, "/admin/redemptions", p.admin(t), map[string]string{"code": typed})
	}
	check.Equal(t, "order", p.now(t, order).Status, model.OrderRedeemed)
	p.call(t, http.MethodGet, "/admin/log", p.admin(t), nil)
	log := strings.ToUpper(p.output.String())
	for what, secret := range map[string]string{"used": code, "mistyped": wrong, "guessed": guess} {
		if strings.Contains(log, secret) || strings.Contains(log, strings.ReplaceAll(secret, "-", "")) {
			t.Errorf("a code that was %s is in the log", what)
		}
	}
	if !strings.Contains(log, "REDEMPTIONS") && !strings.Contains(log, "REQUEST REFUSED") {
		t.Error("the control: the log says nothing of refusals")
	}
	recorded := string(p.call(t, http.MethodGet, "/admin/log", p.admin(t), nil).body)
	if strings.Contains(recorded, code) {
		t.Error("the administrators' log has the code")
	}
}
