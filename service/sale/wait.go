package sale

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	maxLooks    = 500             // orders are looked at in a round, the longest not seen first: waiting costs no more
	lookTimeout = 3 * budget.Look // of one look at an order, a round of them, and one query for rows
	// maxWaits requests wait at once. Each keeps some 30 kB with its connection, a quarter of a gigabyte in all.
	maxWaits     = 8000
	maxUserWaits = 8 // of one user: as many orders as a person looks at
)

type waiters struct {
	mu      sync.Mutex
	byOrder map[string]*waited
	byUser  map[string]int // requests
	count   int

	draining chan struct{}
	drain    func() // closes draining: all waiting requests answer with what is known now
	metrics  *telemetry.Admission
}

type waited struct {
	requests int
	looked   time.Time // at the hot copy
	row      *model.Order
	there    chan struct{} // closed when row is
}

func newWaiters(metrics *telemetry.Admission) *waiters {
	w := &waiters{
		byOrder: map[string]*waited{}, byUser: map[string]int{}, draining: make(chan struct{}), metrics: metrics,
	}
	w.drain = sync.OnceFunc(func() { close(w.draining) })
	return w
}

// join begins a wait, which leave ends. Too many, of a user or in all, are RATE_LIMITED.
func (w *waiters) join(userID, orderID string) (order *waited, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	refused := &model.Error{Code: model.CodeRateLimited, RetryAfter: budget.Look}
	switch {
	case w.byUser[userID] >= maxUserWaits:
		refused.Detail = "You are waiting for too many orders at once."
		return nil, nil, refused
	case w.count >= maxWaits:
		refused.Detail = "Too many requests are waiting for orders."
		return nil, nil, refused
	}
	order = w.byOrder[orderID]
	if order == nil {
		order = &waited{looked: time.Now(), there: make(chan struct{})} // its request looks
		w.byOrder[orderID] = order
	}
	order.requests++
	w.byUser[userID]++
	w.count++
	w.metrics.Waiting.Inc()
	return order, func() { w.leave(userID, orderID, order) }, nil
}

func (w *waiters) leave(userID, orderID string, order *waited) {
	w.metrics.Waiting.Dec()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	if w.byUser[userID]--; w.byUser[userID] == 0 {
		delete(w.byUser, userID)
	}
	if order.requests--; order.requests == 0 && w.byOrder[orderID] == order {
		delete(w.byOrder, orderID)
	}
}

// wake answers the requests for an order that has a row; later ones begin with a look of their own.
func (w *waiters) wake(orderID string, row *model.Order) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if order := w.byOrder[orderID]; order != nil {
		delete(w.byOrder, orderID)
		order.row = row
		close(order.there)
	}
}

func (w *waiters) waits(orderID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byOrder[orderID] != nil
}

func (w *waiters) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.byOrder))
}

func (w *waiters) next() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := slices.SortedFunc(maps.Keys(w.byOrder), func(a, b string) int {
		return w.byOrder[a].looked.Compare(w.byOrder[b].looked)
	})
	ids = ids[:min(len(ids), maxLooks)]
	for _, id := range ids {
		w.byOrder[id].looked = time.Now()
	}
	return ids
}

func (s *asyncSeller) watch(ctx context.Context) {
	s.async.Hot.Watch(ctx,
		func(orderIDs []string) { s.readWaited(ctx, orderIDs) },
		func() { s.readWaited(ctx, s.waiters.all()) })
}

// readWaited reads rows of waited orders behind the caller, without hot copies: a closed one may still name them.
func (s *asyncSeller) readWaited(ctx context.Context, orderIDs []string) {
	for _, id := range orderIDs {
		if s.waiters.waits(id) {
			s.jobs.Go(func() {
				if row, _ := s.row(ctx, id); row != nil { // one that cannot be read now is looked at later
					s.waiters.wake(id, row)
				}
			})
		}
	}
}

// lookAround looks at orders that requests wait for until ctx ends, once for all: messages may be lost.
func (s *asyncSeller) lookAround(ctx context.Context) {
	poll.Every(ctx, budget.Look, func() {
		round, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		for _, id := range s.waiters.next() {
			// A closed or silent hot copy tells nothing: the message about the committed row still comes.
			if _, pending, err := s.async.Hot.Pending(round, id); err == nil && !pending {
				s.readWaited(ctx, []string{id})
			}
		}
	})
}

// await returns an order as soon as it is not processing any more, or as it is when the wait is over.
func (s *asyncSeller) await(ctx context.Context, userID, orderID string, wait time.Duration) (model.Order, error) {
	end := time.NewTimer(min(wait, budget.Settled))
	defer end.Stop()
	// Join before the look: of an order that is settled in between, the request hears.
	waited, leave, err := s.waiters.join(userID, orderID)
	if err != nil {
		return model.Order{}, err
	}
	defer leave()
	order, err := s.look(ctx, userID, orderID)
	if err != nil || order.Status != model.OrderProcessing {
		return order, err
	}
	select {
	case <-waited.there:
		return *waited.row, nil
	case <-end.C: // a last look: messages may have been lost
		if row, err := s.row(ctx, orderID); err == nil && row != nil {
			return *row, nil
		}
	case <-s.waiters.draining:
	case <-ctx.Done():
	}
	return order, nil
}
