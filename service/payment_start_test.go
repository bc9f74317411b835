package service

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/payment"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// expiry of the orders that are paid here.
var expiry = time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)

// ledger is a database that keeps count of the payments it starts, and says of each notice what the test wants.
type ledger struct {
	table

	started int
	receipt model.Receipt // of every notice
	missing error         // instead of every start, when not nil
}

func (l *ledger) Start(_ context.Context, orderID, userID, _ string) (model.Payment, model.Order, error) {
	l.started++
	_, voucherID, _ := strings.Cut(orderID, ".")
	return l.payment, model.Order{ID: orderID, VoucherID: voucherID, UserID: userID, Status: model.OrderUnpaid, ExpiresAt: new(expiry)}, l.missing
}

func (l *ledger) Settle(context.Context, model.PaymentNotice) (model.Receipt, error) {
	return l.receipt, nil
}

// besideTill is a service of its own on a cashier's till, with a ledger.
func besideTill(c *cashier) (*Payments, *ledger) {
	deps, book := c.service.PaymentDeps, &ledger{table: table{c}}
	deps.Store = book
	return NewPayments(deps), book
}

// A buyer whose payment has failed and who wants to pay gets another one with the same call.
func TestAFailedPaymentIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	inTill(t, func(t *testing.T, c *cashier) {
		c.says.Status = payment.Failed
		payments, book := besideTill(c)
		book.receipt.Payment = model.Payment{ID: "p1", Status: model.PaymentFailed}
		check.Must(t, errorOf3(payments.Pay(t.Context(), "u1", "o1.v1")))
		check.Equal(t, "payments that were started", book.started, 2)
	})
}

// The provider does not answer. A payment that an earlier call has started goes on on its page; of a new one it is not
// known.
func TestAStartWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]model.Code{"": model.CodeUnavailable, "https://pay.example/p1": ""} {
		inTill(t, func(t *testing.T, c *cashier) {
			c.payment.URL, c.start = page, model.ErrUnknownOutcome
			payments, _ := besideTill(c)
			started, _, err := payments.Pay(t.Context(), "u1", "o1.v1")
			if (err == nil) != (want == "") || err != nil && model.CodeOf(err) != want || started.URL != page {
				t.Errorf("page %q: %+v, %v, want %q", page, started, err, want)
			}
		})
	}
}

// An order that was accepted and has no row yet cannot be paid now, which is not to say that it is not there.
func TestPayingAnOrderWithoutARow(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		found model.Order
		err   error
		want  model.Code
	}{
		"processing":       {found: model.Order{Status: model.OrderProcessing}, want: model.CodeIllegalState},
		"stored just now":  {found: model.Order{Status: model.OrderUnpaid}, want: model.CodeUnavailable},
		"nobody's":         {err: model.NotFound("order"), want: model.CodeNotFound},
		"not known now":    {err: model.Unavailable("the copy is closed", nil), want: model.CodeUnavailable},
		"canceled already": {found: model.Order{Status: model.OrderCanceled}, want: model.CodeIllegalState},
	} {
		inTill(t, func(t *testing.T, c *cashier) {
			payments, book := besideTill(c)
			book.missing = model.NotFound("order")
			payments.Own = func(context.Context, string, string, time.Duration) (model.Order, error) { return tt.found, tt.err }
			_, _, err := payments.Pay(t.Context(), "u1", "o1.v1")
			refused, ok := errors.AsType[*model.Error](err)
			if !ok || refused.Code != tt.want || tt.want == model.CodeIllegalState && refused.OrderStatus != tt.found.Status {
				t.Errorf("%s: %v, want %s", name, err, tt.want)
			}
		})
	}
}

// Money that came too late goes back at once, and not at the next look.
func TestLateMoneyGoesBackAtOnce(t *testing.T) {
	t.Parallel()
	inTill(t, func(t *testing.T, c *cashier) {
		payments, book := besideTill(c)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { payments.Run(ctx) })
		defer running.Wait()
		defer stop()
		passes(paymentsEvery / 2) // between two looks
		c.with(func() { c.refundDue = time.Now() })
		book.receipt.Refund = &c.refund
		check.Must(t, payments.Notice(t.Context(), model.PaymentNotice{PaymentID: "p0", OrderID: "o0.v1", Succeeded: true}))
		synctest.Wait()
		c.with(func() {
			check.Equal(t, "refunds that were made without waiting", len(c.refunded), 1)
			check.Equal(t, "the refund", c.refund.Status, model.RefundDone)
		})
	})
}

// The provider's page can show what is bought and until when, and lead back; of the buyer it learns no more than that it is
// the same one again.
func TestWhatTheProviderIsTold(t *testing.T) {
	t.Parallel()
	inTill(t, func(t *testing.T, c *cashier) {
		payments, _ := besideTill(c)
		check.Must(t, errorOf3(payments.Pay(t.Context(), "u1", "o1.v1")))
		c.with(func() {
			check.Equal(t, "told", c.checkout, payment.Checkout{
				Request: payment.Request{ID: "p1", OrderID: "o1.v1", Money: payment.Money{Amount: 1000, Currency: "CNY"}},
				Title:   "Coffee of v1", ReturnURL: "https://shop.example/orders?id=o1.v1", ExpiresAt: expiry, Buyer: payments.Buyers.Name("u1"),
			})
			c.checkout, c.untitled = payment.Checkout{}, model.Unavailable("The database is away.", nil)
		})
		check.Equal(t, "without a title", model.CodeOf(errorOf3(payments.Pay(t.Context(), "u1", "o1.v1"))), model.CodeUnavailable)
		c.with(func() { check.Equal(t, "told without a title", c.checkout, payment.Checkout{}) })
	})
}
