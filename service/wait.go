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
	// lookEvery is between two looks of a waiting request of its own, because messages
	// may be lost. They are at the hot copy: the database must not be polled.
	lookEvery = time.Second
	// lookTimeout bounds one look at an order, and one query for rows.
	lookTimeout = 3 * time.Second
	// maxWaiters bounds the memory of the requests that are woken. Further requests are
	// not woken, and only look from time to time.
	maxWaiters = 50_000
	// watchPause is between two tries to subscribe to the messages about settled orders.
	watchPause = time.Second
)

// waiters are the requests that wait for an order to leave processing.
type waiters struct {
	mu      sync.Mutex
	byOrder map[string]map[chan struct{}]struct{}
	count   int
	limit   int

	draining chan struct{}
	drain    func() // closes draining: all waiting requests answer with what is known now
	metrics  *telemetry.Admission
}

func newWaiters(metrics *telemetry.Admission) *waiters {
	w := &waiters{
		byOrder: map[string]map[chan struct{}]struct{}{}, limit: maxWaiters,
		draining: make(chan struct{}), metrics: metrics,
	}
	w.drain = sync.OnceFunc(func() { close(w.draining) })
	return w
}

// join returns a channel that gets a token whenever the order may have left
// processing, and a function that ends the wait. When too many requests wait, the
// channel gets none.
func (w *waiters) join(orderID string) (woken <-chan struct{}, leave func()) {
	w.metrics.Waits(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= w.limit {
		return nil, func() { w.metrics.Waits(-1) }
	}
	w.count++
	mine := make(chan struct{}, 1)
	if w.byOrder[orderID] == nil {
		w.byOrder[orderID] = map[chan struct{}]struct{}{}
	}
	w.byOrder[orderID][mine] = struct{}{}
	return mine, func() { w.leave(orderID, mine) }
}

func (w *waiters) leave(orderID string, mine chan struct{}) {
	w.metrics.Waits(-1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	if delete(w.byOrder[orderID], mine); len(w.byOrder[orderID]) == 0 {
		delete(w.byOrder, orderID)
	}
}

// settled wakes the requests that wait for the orders.
func (w *waiters) settled(orderIDs []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range orderIDs {
		w.wake(id)
	}
}

// missed wakes all waiting requests: messages may have been lost.
func (w *waiters) missed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.byOrder {
		w.wake(id)
	}
}

func (w *waiters) wake(orderID string) {
	for waiter := range w.byOrder[orderID] {
		select {
		case waiter <- struct{}{}:
		default: // it has not looked since the token before
		}
	}
}

// watch listens to the messages about settled orders until ctx ends.
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

// await returns an order as soon as it is not processing any more, or as it is when
// the wait is over.
func (s *asyncSeller) await(ctx context.Context, userID, orderID string, wait time.Duration) (model.Order, error) {
	end := time.NewTimer(min(wait, maxWait))
	defer end.Stop()
	// Join before the look: an order that is settled in between wakes the request.
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
			// The row was committed before the message was sent. The hot copy is not
			// asked, because a closed one may still name the order.
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

// left reports whether an order has left its hot copy. When the hot copy is closed or
// cannot be reached it is false: the message about the committed row still comes.
func (s *asyncSeller) left(ctx context.Context, orderID string) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	_, found, err := s.Hot.Pending(ctx, orderID)
	return err == nil && !found
}
