package service

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/ids"
	"seckill/internal/payment"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/internal/tracing"
	"seckill/model"
)

// Payments lets buyers pay, and applies what the payment provider says.
type Payments struct {
	PaymentDeps

	refundNow chan struct{} // a refund is waiting
}

// PaymentDeps is what Payments works with.
type PaymentDeps struct {
	Store    PaymentStore
	Refunds  RefundQueue
	Provider Provider // nil: nothing can be paid
	Codes    *Codes
	// The provider's page shows Title and a name by Buyers. It leads to ReturnURL, with the {order_id}; empty: nowhere.
	Title     func(ctx context.Context, voucherID string) (string, error)
	Buyers    func(userID string) string
	ReturnURL string
	// Own finds a user's order, also one that has no row yet.
	Own      func(ctx context.Context, userID, orderID string, wait time.Duration) (model.Order, error)
	Detail   func(ctx context.Context, orderID string) (model.OrderDetail, error) // of anybody's order, likewise
	Returned func(ctx context.Context, voucherID string) error                    // is told of a unit that came back
	Trace    *tracing.Tracer                                                      // of what the provider is asked; nil records nothing
	Metrics  *telemetry.Payments
	Log      *slog.Logger
}

// NewPayments makes the service.
func NewPayments(deps PaymentDeps) *Payments {
	return &Payments{PaymentDeps: deps, refundNow: make(chan struct{}, 1)}
}

// Pay starts or repeats the payment of a user's unpaid order, and returns both. The payment is stored first. An order
// that cost nothing, and is paid or used, comes back without a payment. NOT_FOUND: no such order. ILLEGAL_STATE, with
// its status: it cannot be paid. UNAVAILABLE: no provider, or no answer; then the same call repeats the same payment.
func (s *Payments) Pay(ctx context.Context, userID, orderID string) (model.Payment, model.Order, error) {
	if _, ok := model.VoucherOf(orderID); !ok {
		return model.Payment{}, model.Order{}, model.NotFound("order")
	}
	ctx, enough := context.WithTimeout(context.WithoutCancel(ctx), budget.Work)
	defer enough()
	p, order, err := s.begin(ctx, userID, orderID)
	if err == nil && p.Status == model.PaymentFailed { // and the buyer wants to pay: once more, with a new one
		p, order, err = s.begin(ctx, userID, orderID)
	}
	if s.Provider == nil || model.CodeOf(err) == model.CodeIllegalState {
		paid, unread := s.Own(ctx, userID, orderID, 0)
		if unread == nil && paid.Free() && paid.PaidAt != nil && paid.Live() {
			return model.Payment{}, paid, nil
		}
	}
	return p, s.Codes.Show(ctx, order), err
}

// Elsewhere pays an unpaid order for an administrator with what no provider knows, and returns it with its code; again:
// the same. NOT_FOUND: no such order. ALREADY_PAID: with another reference. ILLEGAL_STATE, with its status: it is not
// unpaid. UNAVAILABLE: there are no codes.
func (s *Payments) Elsewhere(ctx context.Context, adminID, orderID string, paid model.Elsewhere) (model.Order, error) {
	if _, ok := model.VoucherOf(orderID); !ok {
		return model.Order{}, model.NotFound("order")
	}
	if s.Codes == nil {
		return model.Order{}, noCodes()
	}
	id, err := ids.New()
	if err = cmp.Or(paid.Check(), err); err != nil {
		return model.Order{}, err
	}
	ctx, enough := context.WithTimeout(context.WithoutCancel(ctx), budget.Work)
	defer enough()
	order, err := s.Store.Elsewhere(ctx, orderID, id, adminID, paid, s.Codes.New(orderID))
	if model.CodeOf(err) == model.CodeNotFound {
		found, err := s.Detail(ctx, orderID)
		return model.Order{}, absent(found.Order, err, model.OrderPaid, model.MoverAdmin)
	}
	return s.Codes.Show(ctx, order), err
}

func (s *Payments) begin(ctx context.Context, userID, orderID string) (p model.Payment, order model.Order, err error) {
	if s.Provider == nil {
		return p, order, model.Unavailable("Nothing can be paid here: there is no payment provider.", nil)
	}
	id, err := ids.New()
	if err != nil {
		return p, order, err
	}
	p, order, err = s.Store.Start(ctx, orderID, userID, id)
	if model.CodeOf(err) == model.CodeNotFound {
		found, err := s.Own(ctx, userID, orderID, 0)
		return p, order, absent(found, err, model.OrderPaid, model.MoverProvider)
	}
	if err != nil {
		return p, order, err
	}
	checkout, err := s.checkout(ctx, p, order)
	if err != nil {
		return p, order, err
	}
	failpoint.Reach(failpoint.BeforePaymentStart)
	starting, end := s.Trace.Work(ctx, "start payment", 1)
	told, err := s.Provider.Start(starting, checkout)
	end(err)
	failpoint.Reach(failpoint.AfterPaymentStart)
	switch {
	case errors.Is(err, payment.ErrRefused) && p.URL == "":
		return p, order, s.refused(ctx, p, err)
	case err != nil && p.URL != "":
		return p, order, nil // an earlier call has started it
	case err != nil:
		return p, order, model.Unavailable("The payment provider does not answer.", err)
	case told.Status != payment.Pending: // and the webhook has not arrived
		receipt, err := s.settle(ctx, answer(p, told))
		return receipt.Payment, receipt.Order, err
	case told.URL != p.URL:
		p.URL = told.URL
		if err := s.Store.SetURL(ctx, p.ID, p.URL); err != nil { // the provider tells it again
			s.Log.WarnContext(ctx, "the page of a payment was not kept", slog.String("payment_id", p.ID),
				slog.Any("error", err))
		}
	}
	return p, order, nil
}

func (s *Payments) checkout(ctx context.Context, p model.Payment, order model.Order) (payment.Checkout, error) {
	title, err := s.Title(ctx, order.VoucherID)
	if err != nil {
		return payment.Checkout{}, err
	}
	checkout := payment.Checkout{
		Request: payment.Request{
			ID: p.ID, OrderID: p.OrderID, Money: payment.Money{Amount: p.Amount, Currency: p.Currency},
		},
		Title: title, Buyer: s.Buyers(order.UserID),
		ReturnURL: strings.ReplaceAll(s.ReturnURL, "{order_id}", url.QueryEscape(order.ID)),
	}
	if order.ExpiresAt != nil {
		checkout.ExpiresAt = order.ExpiresAt.UTC()
	}
	return checkout, nil
}

// refused is the answer when the provider refuses a start; the payment failed only if it does not know it.
func (s *Payments) refused(ctx context.Context, p model.Payment, refusal error) error {
	s.Log.ErrorContext(ctx, "the payment provider refuses a payment", slog.String("order_id", p.OrderID),
		slog.Any("error", refusal))
	_, err := s.lookUp(ctx, p.ID)
	if errors.Is(err, payment.ErrNotFound) {
		_, err = s.settle(ctx, notice(p, false))
	}
	return model.Unavailable("The payment provider refuses this payment.", errors.Join(refusal, err))
}

// absent is NOT_FOUND, or the refusal of an order that has no row yet.
func absent(order model.Order, err error, to model.OrderStatus, by model.Mover) error {
	if err == nil {
		_, err = model.Move(order.Status, to, by)
	}
	return cmp.Or(err, error(model.Unavailable("The order was stored just now.", nil)))
}

// Notice durably applies a webhook. VALIDATION: no such payment, or another amount. Any other error: send it again.
func (s *Payments) Notice(ctx context.Context, n model.PaymentNotice) error {
	ctx, enough := context.WithTimeout(context.WithoutCancel(ctx), budget.Work)
	defer enough()
	receipt, err := s.settle(ctx, n)
	s.note(ctx, "webhook", n, receipt, err)
	return err
}

// Unheard counts a webhook that says nothing of a payment: of a type that is not known, or of a sender that is not.
func (s *Payments) Unheard(outcome string) {
	s.Metrics.Notices.WithLabelValues("webhook", outcome).Inc()
}

// Ask asks the provider what became of a payment, and applies what it says. Nil says that it was asked.
func (s *Payments) Ask(ctx context.Context, p model.Payment) error {
	_, err := s.ask(ctx, p)
	return err
}

// ask is Ask, and reports whether the payment is decided now.
func (s *Payments) ask(ctx context.Context, p model.Payment) (decided bool, err error) {
	told, err := s.lookUp(ctx, p.ID)
	n := answer(p, told)
	switch {
	case errors.Is(err, payment.ErrNotFound):
		if time.Since(p.CreatedAt) < budget.Late {
			return false, nil // it may be about to be started
		}
	case err != nil:
		return false, err
	case told.Status == payment.Pending:
		return false, nil
	default:
		n.OrderID, n.Amount, n.Currency = told.OrderID, told.Amount, told.Currency
	}
	receipt, err := s.settle(ctx, n)
	s.note(ctx, "question", n, receipt, err)
	if model.CodeOf(err) == model.CodeValidation {
		return false, nil // the provider was asked, and its answer, which pays nothing, is in the log
	}
	return err == nil, err
}

func (s *Payments) lookUp(ctx context.Context, id string) (payment.Payment, error) {
	ctx, end := s.Trace.Work(ctx, "look up payment", 1)
	found, err := s.Provider.LookUp(ctx, id)
	end(err)
	return found, err
}

func answer(p model.Payment, told payment.Payment) model.PaymentNotice {
	n := notice(p, told.Status == payment.Succeeded)
	n.Moved = n.Succeeded && (told.Refunded != p.Refunded || told.Disputed != p.Disputed)
	n.Refunded, n.Disputed = told.Refunded, &told.Disputed
	return n
}

func notice(p model.Payment, succeeded bool) model.PaymentNotice {
	return model.PaymentNotice{
		PaymentID: p.ID, OrderID: p.OrderID, Succeeded: succeeded, Amount: p.Amount, Currency: p.Currency,
	}
}

// settle applies a notice. Money that moves has arrived before, which is applied first if nobody has said so.
func (s *Payments) settle(ctx context.Context, n model.PaymentNotice) (receipt model.Receipt, err error) {
	if n.Moved {
		arrived := n
		arrived.Moved, arrived.Message = false, nil
		if _, err := s.settle(ctx, arrived); err != nil && model.CodeOf(err) != model.CodeValidation {
			return receipt, err
		}
	}
	if n.RefundID, err = ids.New(); err != nil {
		return model.Receipt{}, err
	}
	n.Code = s.Codes.New(n.OrderID)
	failpoint.Reach(failpoint.BeforePaymentSettle)
	receipt, err = s.Store.Settle(ctx, n)
	failpoint.Reach(failpoint.AfterPaymentSettle)
	if err == nil && receipt.Refund != nil && receipt.Refund.Status == model.RefundPending {
		poll.Wake(s.refundNow)
	}
	if n.Moved && receipt.Changed { // the hot copy is told by the outbox
		if err := s.Returned(ctx, receipt.Order.VoucherID); err != nil {
			s.Log.DebugContext(ctx, "a returned unit was not announced; caches see it within a second",
				slog.Any("error", err))
		}
	}
	return receipt, err
}

// note counts a notice, and logs one that cannot be applied: there may be money without an order.
func (s *Payments) note(ctx context.Context, source string, n model.PaymentNotice, receipt model.Receipt, err error) {
	outcome := "OK"
	if err != nil {
		outcome = string(model.CodeOf(err))
	}
	if receipt.UsedUnpaid {
		outcome = telemetry.UsedUnpaid
		s.Log.ErrorContext(ctx, "the money of a used order is back at its buyer, or disputed: somebody has to look",
			slog.String("order_id", n.OrderID), slog.String("payment_id", n.PaymentID),
			slog.Int64("refunded", receipt.Payment.Refunded), slog.Bool("disputed", receipt.Payment.Disputed))
	}
	s.Metrics.Notices.WithLabelValues(source, outcome).Inc()
	if model.CodeOf(err) == model.CodeValidation {
		s.Log.ErrorContext(ctx, "the payment provider tells of a payment that is not ours, or of another amount",
			slog.String("source", source), slog.String("payment_id", n.PaymentID), slog.String("order_id", n.OrderID),
			slog.Bool("succeeded", n.Succeeded), slog.Int64("amount", n.Amount), slog.String("currency", n.Currency),
			slog.Any("error", err))
	}
}

const (
	// paymentsPage are read at once, providerAtOnce worked on, so that one slow answer holds up few.
	paymentsPage   = 100
	providerAtOnce = 8

	// An old paid one is asked for twice as rarely each time, daily at least, until banks take no dispute.
	settled = 180 * budget.Day

	// longestRefundPause follows every late attempt of a refund that had no answer, and budget.Look the first.
	longestRefundPause = budget.Late / 2
)

// Run makes refunds and asks for payments without a webhook, until ctx ends. On several instances each happens once.
func (s *Payments) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { repeat(ctx, s.Log, "refunds", s.refundNow, s.Refunds.Due, s.refund) })
	both.Go(func() { repeat(ctx, s.Log, "payments", nil, s.Store.Due, s.reconcile) })
	both.Wait()
}

// repeat does what is due again and again, at once when it is woken and after a full page.
func repeat[T any](
	ctx context.Context, log *slog.Logger, what string, wake <-chan struct{},
	due func(context.Context, int) ([]T, error), do func(context.Context, T) error,
) {
	var trouble telemetry.Trouble
	tick := time.NewTicker(budget.Look)
	defer tick.Stop()
	for ctx.Err() == nil {
		found, err := work(ctx, due, do)
		if ctx.Err() == nil {
			trouble.Note(ctx, log, err, "what is due could not be read or noted; it is tried again",
				"what is due can be worked off again", slog.String("what", what))
		}
		if found == paymentsPage && err == nil {
			continue
		}
		select {
		case <-tick.C:
		case <-wake:
		case <-ctx.Done():
		}
	}
}

// work does a page of what is due, some at once, and reports how much it was.
func work[T any](
	ctx context.Context, due func(context.Context, int) ([]T, error), do func(context.Context, T) error,
) (int, error) {
	page, err := due(ctx, paymentsPage)
	if err != nil {
		return 0, err
	}
	failed := make([]error, len(page))
	var group errgroup.Group
	group.SetLimit(providerAtOnce)
	for i, one := range page {
		group.Go(func() error {
			failed[i] = do(ctx, one)
			return nil // it is this one's own
		})
	}
	_ = group.Wait()
	return len(page), errors.Join(failed...)
}

// refund makes one attempt, again after a death with the same key. Only a refusal ends it without money.
func (s *Payments) refund(ctx context.Context, r model.Refund) error {
	failpoint.Reach(failpoint.BeforeRefund)
	asking, end := s.Trace.Work(ctx, "refund", 1)
	err := s.Provider.Refund(asking, r.ID, payment.Refund{
		PaymentID: r.PaymentID, Money: payment.Money{Amount: r.Amount, Currency: r.Currency},
	})
	end(err)
	if err != nil && ctx.Err() != nil {
		return err // the stop has cut it off; the next start repeats it
	}
	failpoint.Reach(failpoint.AfterRefund)
	defer failpoint.Reach(failpoint.AfterRefundNoted)
	if errors.Is(err, payment.ErrRefused) {
		err = s.unlessBack(ctx, r, err)
	}
	switch {
	case err == nil:
		s.Metrics.Refunds.WithLabelValues("done").Inc()
		return s.Refunds.Done(ctx, r.ID)
	case errors.Is(err, payment.ErrRefused):
		s.Metrics.Refunds.WithLabelValues("failed").Inc()
		s.Log.ErrorContext(ctx, "the payment provider refuses a refund for good: somebody has to look",
			slog.String("refund_id", r.ID), slog.String("order_id", r.OrderID), slog.Any("error", err))
		return s.Refunds.GiveUp(ctx, r.ID, err.Error())
	default:
		s.Metrics.Refunds.WithLabelValues("later").Inc()
		s.Log.WarnContext(ctx, "a refund is not made yet; it is tried again",
			slog.String("refund_id", r.ID), slog.Int("attempt", r.Attempts+1), slog.Any("error", err))
		return s.Refunds.Retry(ctx, r.ID, err.Error(), pauseOfRefund(r.Attempts))
	}
}

// unlessBack is the refusal of a refund: none where all the money went back already, on the provider's page perhaps, and
// what hinders the provider to tell while it does not.
func (s *Payments) unlessBack(ctx context.Context, r model.Refund, refusal error) error {
	told, err := s.lookUp(ctx, r.PaymentID)
	switch {
	case err != nil && !errors.Is(err, payment.ErrRefused):
		return err
	case err == nil && told.Currency == r.Currency && told.Refunded > 0 && told.Refunded == told.Amount:
		return nil
	}
	return refusal
}

// pauseOfRefund doubles with each attempt, with a random part, so that refunds do not all come back at once.
func pauseOfRefund(attempts int) time.Duration {
	longest := backoff.Doubled(budget.Look, longestRefundPause, attempts)
	return longest/2 + rand.N(longest/2) //nolint:gosec // spreads the load, guards nothing
}

// reconcile asks for one payment without a webhook. An unknown one is asked for again later.
func (s *Payments) reconcile(ctx context.Context, p model.Payment) error {
	age := time.Since(p.CreatedAt)
	pause := min(max(age/60, budget.Survey), budget.Hour)
	decided, err := s.ask(ctx, p)
	if p.Status == model.PaymentSucceeded {
		decided = false
		if pause = min(max(age, budget.Hour), budget.Day); age > settled {
			pause = 0
		}
	} else if err == nil && !decided && age > budget.Week {
		_, err = s.settle(ctx, notice(p, false))
		decided = err == nil
	}
	if decided || ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		s.Log.WarnContext(ctx, "the end of a payment could not be learnt; it is asked for again",
			slog.String("payment_id", p.ID), slog.Any("error", err))
	}
	return s.Store.Postpone(ctx, p.ID, pause)
}
