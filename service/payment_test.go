package service

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/budget"
	"seckill/internal/payment"
	"seckill/internal/telemetry"
	"seckill/internal/vouchercode"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// cashier has one payment and one refund, on a fast clock. The real provider and tables are tried end to end.
type cashier struct {
	mu sync.Mutex

	says   payment.Payment // of the payment, when it is asked
	fails  error           // every call of the provider, when not nil
	silent error           // of looking up
	start  error           // the start of a payment, when not nil

	checkout payment.Checkout // of the last start

	untitled error // the look for a voucher's title, when not nil

	started int            // payments
	missing error          // instead of every start of a payment in the database, when not nil
	receipt *model.Receipt // of every notice, when not nil

	payment model.Payment
	due     time.Time // of the payment; zero: decided
	asked   []time.Time
	settled []model.PaymentNotice

	refund    model.Refund
	refundDue time.Time // zero: closed
	refunded  []time.Time

	service *Payments
}

func (c *cashier) Start(ctx context.Context, asked payment.Checkout) (payment.Payment, error) {
	c.with(func() { c.checkout = asked })
	return c.says, cmp.Or(ctx.Err(), c.start, c.fails)
}

func (c *cashier) LookUp(context.Context, string) (payment.Payment, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, time.Now())
	return c.says, cmp.Or(c.silent, c.fails)
}

func (c *cashier) Refund(ctx context.Context, key string, r payment.Refund) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if key != c.refund.ID || r.PaymentID != c.refund.PaymentID || r.Amount != c.refund.Amount ||
		r.Currency != c.refund.Currency {
		return payment.ErrRefused
	}
	c.refunded = append(c.refunded, time.Now())
	return c.fails
}

type table struct{ *cashier }

func (t table) Start(ctx context.Context, orderID, userID, _ string) (model.Payment, model.Order, error) {
	t.started++
	_, voucherID, _ := strings.Cut(orderID, ".")
	order := model.Order{
		ID: orderID, VoucherID: voucherID, UserID: userID, Status: model.OrderUnpaid, ExpiresAt: new(expiry),
	}
	return t.payment, order, cmp.Or(ctx.Err(), t.missing)
}

func (t table) Elsewhere(
	context.Context, string, string, string, model.Elsewhere, model.SealedCode,
) (model.Order, error) {
	return model.Order{}, model.NotFound("order")
}

func (t table) SetURL(context.Context, string, string) error { return nil }

func (t table) Settle(ctx context.Context, n model.PaymentNotice) (model.Receipt, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.receipt != nil || ctx.Err() != nil {
		return *cmp.Or(t.receipt, &model.Receipt{}), ctx.Err()
	}
	if n.Amount != t.payment.Amount {
		return model.Receipt{}, model.Invalid("body.data", "is another amount")
	}
	t.settled = append(t.settled, n)
	t.due = time.Time{}
	return model.Receipt{Payment: t.payment}, nil
}

func (t table) Due(context.Context, int) ([]model.Payment, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.due.IsZero() || t.due.After(time.Now()) {
		return nil, nil
	}
	return []model.Payment{t.payment}, nil
}

func (t table) Postpone(_ context.Context, _ string, pause time.Duration) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.due.IsZero() {
		t.due = time.Now().Add(pause)
	}
	return nil
}

type queue struct{ *cashier }

func (q queue) Due(context.Context, int) ([]model.Refund, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refundDue.IsZero() || q.refundDue.After(time.Now()) {
		return nil, nil
	}
	return []model.Refund{q.refund}, nil
}

func (q queue) Done(context.Context, string) error { return q.close(model.RefundDone) }

func (q queue) GiveUp(context.Context, string, string) error { return q.close(model.RefundFailed) }

func (q queue) close(status model.RefundStatus) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refund.Status, q.refundDue = status, time.Time{}
	return nil
}

func (q queue) Retry(_ context.Context, _, reason string, pause time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refund.Error, q.refundDue = reason, time.Now().Add(pause)
	q.refund.Attempts++
	return nil
}

func inTill(t *testing.T, test func(t *testing.T, c *cashier)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cashier{
			payment: model.Payment{
				ID: "p1", OrderID: "o1.v1", Status: model.PaymentStarted, Amount: 1000,
				Currency: "CNY", CreatedAt: time.Now(),
			},
			refund: model.Refund{
				ID: "r1", PaymentID: "p0", OrderID: "o0.v1", Amount: 1000, Currency: "CNY",
				Status: model.RefundPending,
			},
		}
		money := payment.Money{Amount: 1000, Currency: "CNY"}
		c.says = payment.Payment{
			Request: payment.Request{ID: "p1", OrderID: "o1.v1", Money: money},
			Status:  payment.Pending,
		}
		keys := check.Value(vouchercode.NewKeys("a key of codes in tests, 32 bytes or more"))(t)
		log := slog.New(slog.DiscardHandler)
		c.service = NewPayments(PaymentDeps{
			Store: table{c}, Refunds: queue{c}, Provider: c, Codes: NewCodes(keys, log),
			Title: func(_ context.Context, voucherID string) (string, error) {
				return "Coffee of " + voucherID,
					c.untitled
			},
			Own: func(context.Context, string, string, time.Duration) (model.Order, error) {
				return model.Order{}, model.NotFound("order")
			},
			Buyers:    check.Value(payment.Buyers("a key of codes in tests, 32 bytes or more"))(t),
			ReturnURL: "https://shop.example/orders?id={order_id}",
			Metrics:   telemetry.NewPayments(prometheus.NewRegistry()), Log: log,
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.service.Run(ctx) })
		defer running.Wait()
		defer cancel()
		test(t, c)
	})
}

func passes(d time.Duration) {
	servicetest.Pass(d)
	synctest.Wait()
}

func (c *cashier) with(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// A payment that nobody makes is asked for once a minute, ever more rarely when it is old, and at last given up.
func TestAPaymentIsAskedForAgainAndAgain(t *testing.T) {
	t.Parallel()
	inTill(t, func(t *testing.T, c *cashier) {
		c.with(func() { c.due = time.Now().Add(time.Minute) })
		passes(30*time.Minute + 30*time.Second)
		c.with(func() {
			n := len(c.asked)
			check.That(t, n >= 28 && n <= 30, "in half an hour it was asked for %d times", n)
			c.asked = nil
			c.payment.CreatedAt = time.Now().Add(2*time.Hour - budget.Week)
		})
		passes(4 * time.Hour)
		c.with(func() {
			n := len(c.asked)
			check.That(t, n >= 2 && n <= 4, "in the last two hours it was asked for %d times", n)
			check.That(t, len(c.settled) == 1 && !c.settled[0].Succeeded, "after a week: %+v", c.settled)
		})
	})
}

// A repeated start may be refused after a lost answer: only a payment unknown to the provider has failed.
func TestARefusedStartIsLookedUp(t *testing.T) {
	t.Parallel()
	inTill(t, func(t *testing.T, c *cashier) {
		for _, try := range []struct {
			lookUp error
			failed int
		}{{nil, 0}, {model.ErrUnknownOutcome, 0}, {errors.Join(payment.ErrRefused, payment.ErrNotFound), 1}} {
			c.with(func() { c.start, c.fails = payment.ErrRefused, try.lookUp })
			_, _, err := c.service.begin(t.Context(), "u1", "o1.v1")
			check.That(t, model.CodeOf(err) == model.CodeUnavailable, "looked up with %v: %v", try.lookUp, err)
			c.with(func() {
				check.That(t, len(c.settled) == try.failed, "looked up with %v: settled %+v", try.lookUp, c.settled)
			})
		}
	})
}

// What the provider says when it is asked is applied, and only what fits the payment. Otherwise it is asked again.
func TestWhatTheProviderSaysIsApplied(t *testing.T) {
	t.Parallel()
	unknown := errors.Join(payment.ErrRefused, payment.ErrNotFound)
	for name, try := range map[string]struct {
		say          func(*cashier)
		paid, failed bool
	}{
		"paid":     {func(c *cashier) { c.says.Status = payment.Succeeded }, true, false},
		"declined": {func(c *cashier) { c.says.Status = payment.Failed }, false, true},
		"another amount": {func(c *cashier) {
			c.says.Status, c.says.Amount = payment.Succeeded, 1
		}, false, false},
		"nothing":                            {func(c *cashier) { c.fails = model.ErrUnknownOutcome }, false, false},
		"that it knows none, of a young one": {func(c *cashier) { c.fails = unknown }, false, false},
		"that it knows none, of an old one": {func(c *cashier) {
			c.fails, c.payment.CreatedAt = unknown, time.Now().Add(-budget.Late)
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTill(t, func(t *testing.T, c *cashier) {
				c.with(func() {
					try.say(c)
					c.due = time.Now()
				})
				passes(3 * time.Minute)
				c.with(func() {
					if !try.paid && !try.failed {
						check.That(t, len(c.settled) == 0 && len(c.asked) > 1, "asked %d times, %+v", len(c.asked),
							c.settled)
						return
					}
					check.Need(t, len(c.settled) == 1, "settled %+v", c.settled)
					got := c.settled[0]
					check.That(t, got.Succeeded == try.paid && got.RefundID != "" && got.Message == nil, "%+v", got)
					check.Equal(t, "bytes of the code's hash", len(got.Code.Hash), 32)
				})
			})
		})
	}
}

// The pause doubles up to five minutes; a refund is never given up, and only a refusal ends it.
func TestARefundIsTriedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	inTill(t, func(t *testing.T, c *cashier) {
		c.with(func() { c.fails, c.refundDue = model.ErrUnknownOutcome, time.Now() })
		passes(2 * time.Hour)
		c.with(func() {
			n := len(c.refunded)
			check.Need(t, n >= 2*12 && n <= 2*12*2+10, "in two hours it was tried %d times", n)
			first := c.refunded[1].Sub(c.refunded[0])
			check.That(t, first <= 3*time.Second, "it was tried again after %s", first)
			check.That(t, c.refund.Status == model.RefundPending && c.refund.Error != "", "after two hours: %+v",
				c.refund)
			c.fails = nil
		})
		passes(longestRefundPause + budget.Look)
		c.with(func() { check.Equal(t, "after an answer", c.refund.Status, model.RefundDone) })

		c.with(func() {
			c.refund.Status, c.fails, c.refundDue = model.RefundPending, payment.ErrRefused, time.Now()
			c.silent = model.ErrUnknownOutcome
		})
		passes(longestRefundPause)
		c.with(func() {
			check.Equal(t, "refused, while nobody tells whether it is back", c.refund.Status, model.RefundPending)
			c.silent = nil
		})
		passes(longestRefundPause + budget.Look)
		c.with(func() { check.Equal(t, "after a refusal", c.refund.Status, model.RefundFailed) })
	})
}

// A client's hang-up changes nothing: the provider knows the started payment, and its answer is applied.
func TestPaymentsOutliveTheirClients(t *testing.T) {
	t.Parallel()
	inTill(t, func(t *testing.T, c *cashier) {
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		started, order, err := c.service.Pay(gone, "u1", "o1.v1")
		check.That(t, err == nil && started.ID == "p1" && order.ID == "o1.v1",
			"paid: %+v, %+v, %v", started, order, err)
		check.Must(t, c.service.Notice(gone, model.PaymentNotice{
			PaymentID: "p1", OrderID: "o1.v1", Succeeded: true, Amount: 1000, Currency: "CNY",
		}))
		c.with(func() { check.Equal(t, "notices that were applied", len(c.settled), 1) })
	})
}

// The webhook has not come yet.
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

var expiry = time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)

func TestAFailedPaymentIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	inTill(t, func(t *testing.T, c *cashier) {
		c.says.Status = payment.Failed
		c.receipt = &model.Receipt{Payment: model.Payment{ID: "p1", Status: model.PaymentFailed}}
		check.Must(t, errorOf3(c.service.Pay(t.Context(), "u1", "o1.v1")))
		check.Equal(t, "payments that were started", c.started, 2)
	})
}

// Without an answer an earlier call's payment goes on on its page; a new one has no page.
func TestAStartWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]model.Code{"": model.CodeUnavailable, "https://pay.example/p1": ""} {
		inTill(t, func(t *testing.T, c *cashier) {
			c.payment.URL, c.start = page, model.ErrUnknownOutcome
			started, _, err := c.service.Pay(t.Context(), "u1", "o1.v1")
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
			c.missing = model.NotFound("order")
			c.service.Own = func(context.Context, string, string, time.Duration) (model.Order, error) {
				return tt.found, tt.err
			}
			_, _, err := c.service.Pay(t.Context(), "u1", "o1.v1")
			refused, ok := errors.AsType[*model.Error](err)
			if !ok || refused.Code != tt.want ||
				tt.want == model.CodeIllegalState && refused.OrderStatus != tt.found.Status {
				t.Errorf("%s: %v, want %s", name, err, tt.want)
			}
		})
	}
}

func TestLateMoneyGoesBackAtOnce(t *testing.T) {
	t.Parallel()
	inTill(t, func(t *testing.T, c *cashier) {
		passes(budget.Look / 2) // between two looks
		c.with(func() { c.refundDue = time.Now() })
		c.receipt = &model.Receipt{Refund: &c.refund}
		check.Must(t, c.service.Notice(t.Context(), model.PaymentNotice{
			PaymentID: "p0", OrderID: "o0.v1", Succeeded: true,
		}))
		synctest.Wait()
		c.with(func() {
			check.Equal(t, "refunds that were made without waiting", len(c.refunded), 1)
			check.Equal(t, "the refund", c.refund.Status, model.RefundDone)
		})
	})
}

// The provider gets what is bought, until when, and the way back; of the buyer only that it is the same one.
func TestWhatTheProviderIsTold(t *testing.T) {
	t.Parallel()
	inTill(t, func(t *testing.T, c *cashier) {
		check.Must(t, errorOf3(c.service.Pay(t.Context(), "u1", "o1.v1")))
		c.with(func() {
			check.Equal(t, "told", c.checkout, payment.Checkout{
				Request: payment.Request{
					ID: "p1", OrderID: "o1.v1",
					Money: payment.Money{Amount: 1000, Currency: "CNY"},
				},
				Title: "Coffee of v1", ReturnURL: "https://shop.example/orders?id=o1.v1", ExpiresAt: expiry,
				Buyer: c.service.Buyers("u1"),
			})
			c.checkout, c.untitled = payment.Checkout{}, model.Unavailable("The database is away.", nil)
		})
		err := errorOf3(c.service.Pay(t.Context(), "u1", "o1.v1"))
		check.Equal(t, "without a title", model.CodeOf(err), model.CodeUnavailable)
		c.with(func() { check.Equal(t, "told without a title", c.checkout, payment.Checkout{}) })
	})
}

// The next start repeats a refund that a stop cut off; only the provider's attempts lengthen the pauses.
func TestARefundThatAStopCutsOffIsNoAttempt(t *testing.T) {
	t.Parallel()
	inTill(t, func(t *testing.T, c *cashier) {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		check.That(t, c.service.refund(ctx, c.refund) != nil, "it was cut off and says nothing")
		c.with(func() {
			check.Equal(t, "attempts", c.refund.Attempts, 0)
			check.Equal(t, "the refund", c.refund.Status, model.RefundPending)
			check.Equal(t, "what is kept of it", c.refund.Error, "")
		})
	})
}
