//part:weather

package e2e_test

import (
	"net/http"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// A provider that is down, slow, broken or talks nonsense delays a payment and a refund, and changes nothing else.
func TestTheProviderIsInTrouble(t *testing.T) {
	t.Parallel()
	paidEverywhere(t, func(t *testing.T, a *app, x *till, _ settings) {
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
