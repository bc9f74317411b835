package service

import (
	"context"
	"testing"

	"seckill/internal/payment"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// attentive is a cashier that answers nobody who is gone.
type attentive struct{ *cashier }

func (a attentive) Start(ctx context.Context, r payment.Checkout) (payment.Payment, error) {
	if ctx.Err() != nil {
		return payment.Payment{}, ctx.Err()
	}
	return a.cashier.Start(ctx, r)
}

// attentiveTable is its database.
type attentiveTable struct{ table }

func (a attentiveTable) Start(ctx context.Context, orderID, userID, id string) (model.Payment, model.Order, error) {
	if ctx.Err() != nil {
		return model.Payment{}, model.Order{}, ctx.Err()
	}
	return a.table.Start(ctx, orderID, userID, id)
}

func (a attentiveTable) Settle(ctx context.Context, n model.PaymentNotice) (model.Receipt, error) {
	if ctx.Err() != nil {
		return model.Receipt{}, ctx.Err()
	}
	return a.table.Settle(ctx, n)
}

// Who hangs up changes nothing of what is begun: the payment that a buyer starts is known to the provider, and what the
// provider tells is applied.
func TestPaymentsOutliveTheirClients(t *testing.T) {
	t.Parallel()
	inTill(t, func(t *testing.T, c *cashier) {
		deps := c.service.PaymentDeps
		deps.Store, deps.Provider = attentiveTable{table{c}}, attentive{c}
		payments := NewPayments(deps)
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		started, order, err := payments.Pay(gone, "u1", "o1.v1")
		if err != nil || started.ID != "p1" || order.ID != "o1.v1" {
			t.Errorf("paid: %+v, %+v, %v", started, order, err)
		}
		check.Must(t, payments.Notice(gone, model.PaymentNotice{PaymentID: "p1", OrderID: "o1.v1", Succeeded: true, Amount: 1000, Currency: "CNY"}))
		c.with(func() { check.Equal(t, "notices that were applied", len(c.settled), 1) })
	})
}

// What the provider says at the start of a payment counts, when its webhook has not come yet.
func TestAPaymentThatIsDecidedAtItsStart(t *testing.T) {
	t.Parallel()
	for status, succeeded := range map[payment.Status]bool{payment.Succeeded: true, payment.Failed: false} {
		inTill(t, func(t *testing.T, c *cashier) {
			c.with(func() { c.says.Status = status })
			check.Must(t, errorOf3(c.service.begin(t.Context(), "u1", "o1.v1")))
			c.with(func() {
				if len(c.settled) != 1 || c.settled[0].Succeeded != succeeded || c.settled[0].PaymentID != "p1" {
					t.Errorf("%s: settled %+v", status, c.settled)
				}
			})
		})
	}
}

func errorOf3[A, B any](_ A, _ B, err error) error { return err }
