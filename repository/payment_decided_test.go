package repository_test

import (
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestASucceededPaymentStaysSo: the provider's messages may come in any order. One that says that a payment has failed
// takes nothing back of what it has paid, and the payment can still be refunded.
func TestASucceededPaymentStaysSo(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		v := l.onSale(t, 1)
		o := l.bought(t, v.ID, "alice")
		payment := l.started(t, o)
		check.Must(t, check.ErrorOf(l.payments.Settle(t.Context(), money(t, payment))))
		late := money(t, payment)
		late.Succeeded = false
		check.Equal(t, "the order changes", check.Value(l.payments.Settle(t.Context(), late))(t).Changed, false)
		check.Equal(t, "the payment", check.Value(l.payments.Get(t.Context(), payment.ID))(t).Status, model.PaymentSucceeded)
		check.Equal(t, "the order", check.Value(l.orders.Get(t.Context(), o.ID))(t).Status, model.OrderPaid)
		check.Must(t, errorOf2(l.refunds.Request(t.Context(), o.ID, newID(t), "boss")))
	})
}
