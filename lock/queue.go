package lock

import (
	"context"
	"fmt"
	"time"

	"seckill/lock/driver"
)

// queue holds the waiters of one process for one lock, first come first
// served. Only the first asks the store; so one unlock message costs one
// request per process, however many wait.
type queue struct {
	name       string
	head, tail *waiter
	watch      driver.Watch
	listening  bool // watch has been asked for; nil all the same if the store has none
}

// waiter is one Lock call that waits. Its fields but wake are guarded by Client.mu.
type waiter struct {
	h    *holding
	wake bell // something changed: look again

	prev, next *waiter
	queued     bool
	gone       bool          // it left the line without the lock
	offered    bool          // a Pass to it is on its way
	unsure     bool          // a request for it ended with an unknown outcome
	got        bool          // a Pass gave it the lock
	grant      driver.Grant  // with got
	sent       time.Time     // with got
	ask        bool          // as the head: ask at once
	busy       time.Duration // how long the lease in the way may run; the head alone uses it
}

// waitedFor tells whether a call of this process waits for the lock: a later call
// then stands in line behind it.
func (c *Client) waitedFor(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queues[name] != nil
}

// enqueue puts a waiter at the end of the line. A waiter that is the first then
// has just asked, and knows how long the lease in its way runs; one that has
// not asked yet does so.
func (c *Client) enqueue(w *waiter, asked bool) *queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[w.h.name]
	if q == nil {
		q = &queue{name: w.h.name}
		c.queues[q.name] = q
	}
	w.queued, w.prev = true, q.tail
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	w.ask = !asked
	return q
}

// leave takes a waiter out of the line: with the lock, for a term that is known,
// or without it, 0. Then the next one asks at once, and what a Pass gave the
// waiter, or may still give it, is undone, whatever it left for.
func (c *Client) leave(q *queue, w *waiter, took time.Duration) {
	c.mu.Lock()
	wasHead := q.head == w
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.queued, w.gone = false, took == 0
	var watch driver.Watch
	switch {
	case q.head == nil:
		delete(c.queues, q.name)
		watch = q.watch
	case wasHead:
		q.head.ask, q.head.busy = took == 0, took
		q.head.wake.ring()
	}
	undo := w.gone && (w.got || w.offered || w.unsure)
	c.mu.Unlock()
	if watch != nil {
		watch.Stop()
	}
	if undo {
		w.h.undo(nil)
	}
}

// offer picks the waiter of this process that a lock is to be handed to.
func (c *Client) offer(name string) *waiter {
	if c.passer == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[name]
	if q == nil || q.head.offered || q.head.got || c.closed {
		return nil
	}
	q.head.offered = true
	return q.head
}

// settle tells the waiter what became of an offer.
func (c *Client) settle(w *waiter, passed driver.Passed, sent time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.offered = false
	switch {
	case w.gone:
		// The Pass may have come after what leave had undone.
		if err != nil || passed.Held {
			w.h.undo(nil)
		}
	case !w.queued:
		// It has the lock by its own asking.
	case err != nil:
		w.unsure, w.ask = true, true
		w.wake.ring()
	case passed.Held:
		w.got, w.sent = true, sent
		w.grant = driver.Grant{Token: passed.Token, Once: passed.Once && !w.unsure, Unsynced: passed.Unsynced}
	}
	if w.got {
		w.wake.ring()
	} else if q := c.queues[w.h.name]; q != nil && q.head == w && !q.messages() {
		q.ask()
	}
}

// nudge makes the first waiter of this process ask, where no message will.
func (c *Client) nudge(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues[name]; q != nil && !q.messages() {
		q.ask()
	}
}

// rouse makes the first waiter ask: it is time, a message came, or messages
// start or stop to come.
func (c *Client) rouse(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues[name]; q != nil {
		q.ask()
	}
}

// ask makes the first waiter ask. Under Client.mu.
func (q *queue) ask() {
	q.head.ask = true
	q.head.wake.ring()
}

// messages tells whether unlock messages arrive. Under Client.mu.
func (q *queue) messages() bool { return q.watch != nil && q.watch.Live() }

const (
	// defaultPoll is how often the first waiter asks without messages: what
	// a waiter loses at most, at 20 requests a second, process and lock.
	defaultPoll = 50 * time.Millisecond
	// defaultProbe is how often it asks with messages: a deleted key sends
	// none. Two requests a second, process and lock.
	defaultProbe = 500 * time.Millisecond
)

// await stands in line for a lock until it has it, the budget has passed, or
// ctx has ended. busy is what an attempt made just before learnt; 0 for none.
func (c *Client) await(ctx context.Context, h *holding, a attempt, busy time.Duration) (*holding, error) {
	w := &waiter{h: h, wake: newBell(), busy: busy}
	q := c.enqueue(w, busy > 0)
	if err := c.stand(ctx, q, w, a.budget()); err != nil {
		c.leave(q, w, 0)
		return nil, err
	}
	c.leave(q, w, h.first)
	return h, nil
}

// stand returns nil once the waiter has the lock.
func (c *Client) stand(ctx context.Context, q *queue, w *waiter, budget <-chan time.Time) error {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		step := c.look(q, w, retry)
		switch {
		case step.listen:
			c.listen(q)
			continue
		case step.closed:
			return fmt.Errorf("lock %s: %w", q.name, ErrClosed)
		case step.got:
			return c.got(ctx, w.h, w.sent, w.grant)
		case step.ask:
			ok, left, err := c.try(ctx, w.h)
			if ok || err != nil {
				return err
			}
			w.busy = left
			continue
		}
		select {
		case <-w.wake:
		case <-retry.C:
			c.rouse(q.name)
		case <-budget:
			return fmt.Errorf("lock %s: %w", q.name, ErrTimeout)
		case <-ctx.Done():
			return fmt.Errorf("lock %s: %w", q.name, context.Cause(ctx))
		}
	}
}

type step struct{ closed, got, ask, listen bool }

// look decides what a waiter does next. The first one that has nothing to ask
// sets the timer for the next time.
func (c *Client) look(q *queue, w *waiter, retry *time.Timer) step {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return step{closed: true}
	case w.got:
		return step{got: true}
	case q.head != w:
		return step{}
	case w.ask:
		w.ask = false
		return step{ask: true}
	case !q.listening:
		return step{listen: true}
	}
	pause := c.set.poll
	if q.messages() {
		pause = c.set.probe
	}
	if w.busy > 0 {
		// A millisecond more, because that is the granularity of expiry.
		pause = min(pause, w.busy+time.Millisecond)
	}
	retry.Reset(pause)
	return step{}
}

// listen begins to watch the lock for the queue. The store is called without
// Client.mu, which its wake takes. Only the first waiter comes here, and it
// stays in line meanwhile, so the queue does.
func (c *Client) listen(q *queue) {
	watch := c.store.Watch(q.name, func() { c.rouse(q.name) })
	c.mu.Lock()
	q.watch, q.listening = watch, true
	c.mu.Unlock()
}
