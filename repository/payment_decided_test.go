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

// TestAnotherMessageUnderAUsedID: a message that has the id of another one is none of its repetitions. It is refused, so that
// its sender learns of it, and changes nothing.
func TestAnotherMessageUnderAUsedID(t *testing.T) {
	t.Parallel()
	over(t, dialects(), newFixture, func(t *testing.T, f *fixture) {
		l := lifeOf(f)
		v := l.onSale(t, 2)
		first, other := l.started(t, l.bought(t, v.ID, "alice")), l.started(t, l.bought(t, v.ID, "bob"))
		check.Must(t, check.ErrorOf(l.payments.Settle(t.Context(), webhook(t, money(t, first), "message 1"))))
		check.Must(t, check.ErrorOf(l.payments.Settle(t.Context(), webhook(t, money(t, first), "message 1"))))
		wantCode(t, check.ErrorOf(l.payments.Settle(t.Context(), webhook(t, money(t, other), "message 1"))), model.CodeValidation)
		check.Equal(t, "the other payment", check.Value(l.payments.Get(t.Context(), other.ID))(t).Status, model.PaymentStarted)
	})
}
