package service

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// maxWait is the longest a status request waits: the contract's cap.
	maxWait = 30 * time.Second
	// lookEvery is when a waiting request looks by itself, because messages may be
	// lost. It looks at the hot copy: the database must not be polled.
	lookEvery = time.Second
	// lookTimeout bounds one look at an order, and one query for rows.
	lookTimeout = 3 * time.Second
	// maxWaiters bounds the memory of the requests that are woken. Those on top of
	// them only look by themselves.
	maxWaiters = 50_000
	// watchPause is between two tries to hear of settled orders.
	watchPause = time.Second
)

// waiters are the requests that wait for an order to leave processing.
type waiters struct {
	mu      sync.Mutex
	byOrder map[string][]chan struct{}
	count   int
	limit   int

	draining chan struct{}
	drained  sync.Once
	metrics  *telemetry.Admission
}

func newWaiters(metrics *telemetry.Admission) *waiters {
	return &waiters{
		byOrder: map[string][]chan struct{}{}, limit: maxWaiters, draining: make(chan struct{}), metrics: metrics,
	}
}

// join returns a channel that gets a token whenever the order may have left
// processing, and how to leave. When there are too many it never gets one.
func (w *waiters) join(orderID string) (woken <-chan struct{}, leave func()) {
	w.metrics.Waits(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= w.limit {
		return nil, func() { w.metrics.Waits(-1) }
	}
	w.count++
	mine := make(chan struct{}, 1)
	w.byOrder[orderID] = append(w.byOrder[orderID], mine)
	return mine, func() { w.leave(orderID, mine) }
}

func (w *waiters) leave(orderID string, mine chan struct{}) {
	w.metrics.Waits(-1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	others := w.byOrder[orderID]
	for i, other := range others {
		if other == mine {
			others[i] = others[len(others)-1]
			others = others[:len(others)-1]
			break
		}
	}
	if len(others) == 0 {
		delete(w.byOrder, orderID)
		return
	}
	w.byOrder[orderID] = others
}

// settled wakes the requests that wait for the orders.
func (w *waiters) settled(orderIDs []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range orderIDs {
		w.wake(id)
	}
}

// missed wakes all of them: messages may have been lost.
func (w *waiters) missed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.byOrder {
		w.wake(id)
	}
}

func (w *waiters) wake(orderID string) {
	for _, waiter := range w.byOrder[orderID] {
		select {
		case waiter <- struct{}{}:
		default: // it has not looked since the last one
		}
	}
}

// drain has all of them answered with what is known now.
func (w *waiters) drain() { w.drained.Do(func() { close(w.draining) }) }

// watch hears of settled orders until ctx ends.
func (s *asyncSeller) watch(ctx context.Context) {
	for {
		err := s.Hot.Watch(ctx, s.waiters.settled, s.waiters.missed)
		if ctx.Err() != nil {
			return
		}
		s.Log.WarnContext(ctx, "the messages about settled orders ended; they are subscribed anew", slog.Any("error", err))
		poll.Pause(ctx, watchPause)
	}
}

// await returns an order as soon as it is not processing any more, at most
// after the wait, and then as it is.
func (s *asyncSeller) await(ctx context.Context, userID, orderID string, wait time.Duration) (model.Order, error) {
	end := time.NewTimer(min(wait, maxWait))
	defer end.Stop()
	// Joined first, looked second: whatever is settled in between wakes.
	woken, leave := s.waiters.join(orderID)
	defer leave()
	order, err := s.look(ctx, userID, orderID)
	if err != nil || order.Status != model.OrderProcessing {
		return order, err
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for over := false; !over; {
		gone := false
		select {
		case <-woken:
			// The row was committed before the message was sent, and a hot copy
			// that is closed may name the order still.
			gone = true
		case <-tick.C:
			gone = s.left(ctx, orderID)
		case <-end.C:
			gone, over = true, true // a last look: messages may have been lost
		case <-s.waiters.draining:
			over = true
		case <-ctx.Done():
			over = true
		}
		if !gone {
			continue
		}
		if row, err := s.row(ctx, orderID); err == nil && row != nil {
			return own(*row, userID)
		}
	}
	return order, nil
}

// left reports whether the hot copy has let go of an order. One that is closed
// or cannot be reached does not say so: the worker that commits the row will.
func (s *asyncSeller) left(ctx context.Context, orderID string) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	_, found, err := s.Hot.Pending(ctx, orderID)
	return err == nil && !found
}
