package service

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"seckill/internal/backoff"
	"seckill/internal/failpoint"
	"seckill/internal/payment"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// paymentsEvery is how often the database is asked for refunds and payments that are due: late money goes back
	// within 10 s.
	paymentsEvery = time.Second
	// paymentsPage are read at once, and providerAtOnce of them worked on, so that one slow answer of the provider
	// does not hold up all.
	paymentsPage   = 100
	providerAtOnce = 8

	// askAgain is how often the provider is asked for a young payment. An old one is asked for ever more rarely, each
	// time a sixtieth of its age later, but at least every askRarely.
	askAgain  = time.Minute
	askRarely = time.Hour
	// An old paid one is asked for twice as rarely each time, at least every askPaidRarely: its money may move at the
	// provider until it is settled, the age after which banks take no dispute.
	askPaidRarely = 24 * time.Hour
	settled       = 180 * 24 * time.Hour
	// abandoned is the age at which a payment that was never made counts as failed. If money comes after that, its
	// webhook still counts.
	abandoned = 7 * 24 * time.Hour

	// refundPause follows the first attempt of a refund that had no answer, longestRefundPause every late one.
	refundPause        = time.Second
	longestRefundPause = 5 * time.Minute
)

// Run makes refunds, and asks the provider for payments whose webhook has not come, until ctx ends. Several instances
// may do so at once: the provider makes a refund once for its key, and what it says of a payment is applied once.
func (s *Payments) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() {
		s.repeat(ctx, "refunds", s.refundNow, func(ctx context.Context) (int, error) {
			return work(ctx, s.Refunds.Due, s.refund)
		})
	})
	both.Go(func() {
		s.repeat(ctx, "payments", nil, func(ctx context.Context) (int, error) {
			return work(ctx, s.Store.Due, s.reconcile)
		})
	})
	both.Wait()
}

// wakeRefunds has a refund made at once.
func (s *Payments) wakeRefunds() {
	select {
	case s.refundNow <- struct{}{}:
	default: // awake already
	}
}

// repeat looks for what is due again and again, at once when it is woken and after a full page.
func (s *Payments) repeat(ctx context.Context, what string, wake <-chan struct{}, look func(context.Context) (found int, err error)) {
	var trouble telemetry.Trouble
	tick := time.NewTicker(paymentsEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		found, err := look(ctx)
		if ctx.Err() == nil {
			trouble.Note(ctx, s.Log, err, "what is due could not be read or noted; it is tried again", "what is due can be worked off again", slog.String("what", what))
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
func work[T any](ctx context.Context, due func(context.Context, int) ([]T, error), do func(context.Context, T) error) (int, error) {
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

// refund makes one attempt. A process that dies after the provider has given the money back makes it again, with the
// same key. Only a refusal ends a refund without the money.
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
	switch {
	case err == nil, errors.Is(err, payment.ErrRefused) && s.isBack(ctx, r): // it may have been made on the provider's page
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

// isBack reports whether the provider knows that all the money of a payment went back.
func (s *Payments) isBack(ctx context.Context, r model.Refund) bool {
	told, err := s.lookUp(ctx, r.PaymentID)
	return err == nil && told.Currency == r.Currency && told.Refunded > 0 && told.Refunded == told.Amount
}

// pauseOfRefund is the wait after so many attempts and one more: twice as long each time, and at random, so that the
// refunds of an hour without a provider do not come back all at once.
func pauseOfRefund(attempts int) time.Duration {
	longest := backoff.Doubled(refundPause, longestRefundPause, attempts)
	return longest/2 + rand.N(longest/2) //nolint:gosec // spreads the load, guards nothing
}

// reconcile asks for one payment whose webhook has not come. One that the provider cannot tell of, or that nobody has
// made yet, is asked for again later.
func (s *Payments) reconcile(ctx context.Context, p model.Payment) error {
	age := time.Since(p.CreatedAt)
	pause := min(max(age/60, askAgain), askRarely)
	decided, err := s.ask(ctx, p)
	if p.Status == model.PaymentSucceeded {
		decided = false
		if pause = min(max(age, askRarely), askPaidRarely); age > settled {
			pause = 0
		}
	} else if err == nil && !decided && age > abandoned {
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
