//part:weather

package e2e_test

import (
	"net/http"
	"testing"

	"seckill/internal/payment"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// A provider that is down, slow, broken or talks nonsense delays a payment and a refund, and changes nothing else.
func TestTheProviderIsInTrouble(t *testing.T) {
	t.Parallel()
	paidEverywhere(t, func(t *testing.T, a *app, x *till) {
		x.tells(t, a)
		troubles := check.WrongAnswers()
		if !check.Faults {
			troubles = map[string]check.Wrong{"lost": troubles["lost"]}
		}
		voucher := a.onSale(t, len(troubles))
		n := 0
		for name, fault := range troubles {
			n++
			order := a.buys(t, voucher.ID, a.user(n))
			x.front.Set(fault)
			got := a.asks(t, order, http.MethodPost, "/pay")
			check.That(t, got.Code() == model.CodeUnavailable && got.Header.Get("Retry-After") != "",
				"pay, %s: %d %s", name, got.Status, got.Body)
			x.front.Set(nil)
			started := a.pays(t, order)
			x.approve(t, started)
			a.reaches(t, order, model.OrderPaid)

			x.front.Set(fault)
			a.refund(t, order)
			check.Equal(t, "its order, "+name, a.now(t, order).Status, model.OrderRefunded)
			check.Patiently(t, "an attempt has failed, "+name, func() bool {
				pending := a.refunds(t, "pending")
				return len(pending) == 1 && pending[0].Attempts > 0 && pending[0].Error != ""
			})
			x.front.Set(nil)
			a.back(t, n)
			x.balance(t, int64(n), int64(n))
		}
	})
}

// A refund that the provider refuses for good is visible, and can be asked for again.
func TestARefundThatFailsForGoodIsVisible(t *testing.T) {
	t.Parallel()
	x := openTill(t)
	a := start(t, onServers(t).with(x.settings()))
	x.tells(t, a)
	order := a.buys(t, a.onSale(t, 1).ID, a.user(1))
	started := a.pays(t, order)
	x.approve(t, started)
	a.reaches(t, order, model.OrderPaid)
	// Somebody has given a part of the money back by hand, at the provider.
	client := check.Value(payment.NewClient(x.url, check.Value(payment.Key(hookSecret))(t)))(t)
	defer client.Close()
	by := payment.Refund{PaymentID: started.PaymentID, Money: payment.Money{Amount: 400, Currency: "CNY"}}
	check.Must(t, client.Refund(t.Context(), "by hand", by))
	for attempts := 1; attempts <= 2; attempts++ {
		a.refund(t, order)
		check.Patiently(t, "it has failed", func() bool {
			failed := a.refunds(t, "failed")
			return len(failed) == 1 && failed[0].OrderID == order.ID && failed[0].Error != "" && failed[0].Attempts == attempts
		})
		check.Equal(t, "its buyer is told", a.now(t, order).Reason, model.ReasonRefundFailed)
	}
	check.Equal(t, "money that went back", check.Value(x.Balance(t.Context()))(t).Refunded, 400)
	// Now it is all of it: what was asked for has happened.
	by.Amount = 600
	check.Must(t, client.Refund(t.Context(), "by hand, again", by))
	a.refund(t, order)
	a.back(t, 1)
	check.Equal(t, "its buyer is told", a.now(t, order).Reason, "")
}
