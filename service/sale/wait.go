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
	// maxLooks orders are looked at in one round, the longest not seen first: waiting costs Redis no more.
	maxLooks = 500
	// lookTimeout bounds one look at an order, a round of them, and one query for rows.
	lookTimeout = 3 * budget.Look
	// maxWaits requests wait at once. Each keeps some 30 kB with its connection, a quarter of a gigabyte in all.
	maxWaits = 8000
	// maxUserWaits of them are of one user: as many orders as a person looks at.
	maxUserWaits = 8
)

type waiters struct {
	mu      sync.Mutex
	byOrder map[string]*waited
	byUser  map[string]int // requests
	count   int
	limit   int

	draining chan struct{}
	drain    func() // closes draining: all waiting requests answer with what is known now
	metrics  *telemetry.Admission
}

// waited is an order that requests wait for. It is looked at once for all of them.
type waited struct {
	requests int
	order    *model.Order // processing, as one of them has found it; nil until then
	looked   time.Time    // at the hot copy

	reading, again bool // its row is being read, and must be once more
	row            *model.Order
	there          chan struct{} // closed when row is
}

func newWaiters(metrics *telemetry.Admission) *waiters {
	w := &waiters{
		byOrder: map[string]*waited{}, byUser: map[string]int{}, limit: maxWaits,
		draining: make(chan struct{}), metrics: metrics,
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
	case w.count >= w.limit:
		refused.Detail = "Too many requests are waiting for orders."
		return nil, nil, refused
	}
	order = w.byOrder[orderID]
	if order == nil {
		order = &waited{there: make(chan struct{})}
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
	if order.requests--; order.requests == 0 {
		w.forget(orderID, order)
	}
}

// forget makes a later request begin with a look of its own.
func (w *waiters) forget(orderID string, order *waited) {
	if w.byOrder[orderID] == order {
		delete(w.byOrder, orderID)
	}
}

// known is the order as another waiting request found it, still processing; nil when nobody has.
func (w *waiters) known(order *waited) *model.Order {
	w.mu.Lock()
	defer w.mu.Unlock()
	return order.order
}

func (w *waiters) found(order *waited, processing model.Order) {
	w.mu.Lock()
	defer w.mu.Unlock()
	order.order, order.looked = &processing, time.Now()
}

// begin tells that an order's row may be there, and returns what to read it for; nil: nobody waits, or it is read.
func (w *waiters) begin(orderID string) *waited {
	w.mu.Lock()
	defer w.mu.Unlock()
	order := w.byOrder[orderID]
	if order == nil || order.reading {
		if order != nil {
			order.again = true
		}
		return nil
	}
	order.reading = true
	return order
}

// end ends a reading, which has found the row or nil, and reports whether to read again.
func (w *waiters) end(orderID string, order *waited, row *model.Order) (again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if row != nil {
		order.row = row
		w.forget(orderID, order)
		close(order.there)
		return false
	}
	again, order.again = order.again, false
	order.reading = again
	return again
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
		order := s.waiters.begin(id)
		if order == nil {
			continue
		}
		s.jobs.Go(func() {
			for again := true; again; {
				row, _ := s.row(ctx, id) // one that cannot be read now is looked at later
				again = s.waiters.end(id, order, row) && ctx.Err() == nil
			}
		})
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
	order := s.waiters.known(waited)
	if order == nil {
		looked, err := s.look(ctx, userID, orderID)
		if err != nil || looked.Status != model.OrderProcessing {
			return looked, err
		}
		s.waiters.found(waited, looked)
		order = &looked
	}
	if _, err := own(*order, userID); err != nil {
		return model.Order{}, err
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
	return *order, nil
}
