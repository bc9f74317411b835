package simulator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/payment"
	"seckill/internal/poll"
	"seckill/model"
)

const (
	// deliverTimeout bounds one attempt: the service answers within 5 s.
	deliverTimeout = budget.Answer + budget.Look
	// deliverers send at once, so that one slow answer does not hold up all.
	deliverers = 8
	// lease is how long a webhook is left to the process that sends it: an attempt, and noting it.
	lease = deliverTimeout + budget.Answer
	// maxAttempts are three days' worth; then the webhook is given up, and the service finds the payment by asking.
	maxAttempts = 440
	// delayedPage is how many delayed payments approve themselves in one look.
	delayedPage = 100
)

// errDecision refuses what is no decision.
var errDecision = errors.New("there is no such decision")

// Decide does what a button on the payment's page does.
func (s *Server) Decide(ctx context.Context, id string, decision Decision) error {
	now := time.Now()
	switch decision {
	case Approve:
		return s.settle(now, func(at time.Time) error { return s.ledger.decide(ctx, id, payment.Succeeded, at) })
	case Decline:
		return s.settle(now, func(at time.Time) error { return s.ledger.decide(ctx, id, payment.Failed, at) })
	case Refund, RefundPart, Lose:
		amount := int64(model.MaxAmount) // all that is left
		if decision == RefundPart {
			amount = 1
		}
		err := s.settle(now, func(at time.Time) error { return s.ledger.back(ctx, id, amount, at) })
		if err != nil || decision != Lose {
			return err
		}
		return s.Decide(ctx, id, Win)
	case Dispute, Win:
		return s.settle(now, func(at time.Time) error { return s.ledger.dispute(ctx, id, decision == Dispute, at) })
	case Delay:
		return s.ledger.delay(ctx, id, now.Add(s.DelayFor))
	default:
		return errDecision
	}
}

// settle makes a change, and wakes who tells of it; the change is told when to.
func (s *Server) settle(now time.Time, change func(tellAt time.Time) error) error {
	if err := change(now); err != nil {
		return err
	}
	select {
	case s.wake <- struct{}{}:
	default: // awake already
	}
	return nil
}

// Run approves delayed payments and sends webhooks to a URL until ctx ends. Each is sent until it is answered
// with 204, ever more slowly, for three days.
func (s *Server) Run(ctx context.Context, target string) {
	client := &http.Client{
		Transport:     &http.Transport{MaxConnsPerHost: deliverers, MaxIdleConnsPerHost: deliverers, IdleConnTimeout: budget.Survey},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	var sending errgroup.Group
	sending.SetLimit(deliverers) // Go waits for a turn
	ticker := time.NewTicker(budget.Brief)
	defer ticker.Stop()
	for ctx.Err() == nil {
		more, err := s.look(ctx, func(hook webhook) {
			sending.Go(func() error {
				s.deliver(ctx, client, target, hook)
				return nil
			})
		})
		if err != nil && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "the payment simulator cannot work", slog.Any("error", err))
		}
		if more {
			continue
		}
		select {
		case <-ticker.C:
		case <-s.wake:
		case <-ctx.Done():
		}
	}
	_ = sending.Wait()
}

// look does what is due of delayed payments and one webhook, and reports whether there may be more.
func (s *Server) look(ctx context.Context, send func(webhook)) (more bool, err error) {
	due, err := s.ledger.delayed(ctx, time.Now(), delayedPage)
	if err != nil {
		return false, err
	}
	for _, id := range due {
		if err := s.Decide(ctx, id, Approve); err != nil && !errors.Is(err, errDecided) {
			return false, err
		}
	}
	hook, err := s.ledger.claim(ctx, time.Now(), lease)
	if err != nil || hook.id == "" {
		return false, err
	}
	send(hook)
	return true, nil
}

// pauseAfter is the wait after an attempt, from 1; zero says that it was the last.
func pauseAfter(attempts int) time.Duration {
	if attempts >= maxAttempts {
		return 0
	}
	return backoff.Doubled(budget.Look, budget.Late, attempts-1)
}

// deliver makes one attempt.
func (s *Server) deliver(ctx context.Context, client *http.Client, target string, hook webhook) {
	attempt, enough := context.WithTimeout(ctx, deliverTimeout)
	defer enough()
	err := s.Signatures.Send(attempt, client, target, hook.id, hook.body)
	next := time.Time{}
	if pause := pauseAfter(hook.attempts); err != nil && pause > 0 {
		next = time.Now().Add(pause)
	}
	// At the stop too, so that what was delivered is not sent again after the next start.
	noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget.Answer)
	defer cancel()
	if err := errors.Join(err, s.ledger.reschedule(noting, hook.id, next)); err != nil && ctx.Err() == nil {
		s.Log.InfoContext(ctx, "the payment simulator could not deliver a webhook",
			slog.String("webhook_id", hook.id), slog.Int("attempt", hook.attempts), slog.Any("error", err))
	}
}

// errSecondLedger tells of a second simulator.
var errSecondLedger = errors.New("another instance on this database has the payment simulator, and this one keeps a ledger of its own, which does not know the payments of the other: " +
	"set SECKILL_PAYMENT_SIMULATOR=off here, SECKILL_PAYMENT_URL to the other one's simulator, and SECKILL_WEBHOOK_SECRETS as there")

// Claim finds out whether this instance is the only one on its database that has the simulator, by a claim that one of
// them can hold. A second ledger does not know the first one's payments, and each instance asks its own: that does for
// trying out, and is logged. An error says that the database did not answer until ctx ended.
func Claim(ctx context.Context, held func(ctx context.Context) (bool, error), log *slog.Logger) error {
	var (
		ours   bool
		failed error     // of the last question, unless it was cut short
		taken  time.Time // when another instance was first seen to have it; a question that fails says nothing of that
	)
	_ = poll.Until(ctx, budget.Call/10, func() (bool, error) {
		var err error
		ours, err = held(ctx)
		if ctx.Err() == nil {
			failed = err
		}
		if err == nil && taken.IsZero() {
			taken = time.Now()
		}
		return ours || !taken.IsZero() && time.Since(taken) >= budget.Call, nil
	})
	switch {
	case ours:
	case failed != nil:
		return fmt.Errorf("claim the payment simulator: %w", failed)
	default:
		log.WarnContext(ctx, "this is a second payment simulator", slog.Any("error", errSecondLedger))
	}
	return nil
}
