package simulator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/payment"
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
	// maxAnswer of a receiver is read, in bytes, so that the connection can be used again.
	maxAnswer = 4 << 10
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
// with a 2xx, ever more slowly, for three days.
func (s *Server) Run(ctx context.Context, target string) {
	client := &http.Client{
		Transport:     &http.Transport{MaxConnsPerHost: deliverers, MaxIdleConnsPerHost: deliverers, IdleConnTimeout: time.Minute},
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
	err := s.post(ctx, client, target, hook)
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

func (s *Server) post(ctx context.Context, client *http.Client, target string, hook webhook) error {
	ctx, cancel := context.WithTimeout(ctx, deliverTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(hook.body))
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	if request.Header, err = s.Signatures.Sign(hook.id, time.Now(), hook.body); err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("send it: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, maxAnswer) // a short answer lets the connection live on
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return fmt.Errorf("the answer is %s", response.Status)
	}
	return nil
}
