package lock

import (
	"time"
)

// queue holds the waiters of one process for one lock, first come first
// served. Only the first asks the store; so one unlock message costs one
// request per process, however many wait.
type queue struct {
	name       string
	head, tail *waiter
	watch      Watch
	listening  bool // watch has been asked for; nil all the same if the store has none
}

// waiter is one Lock call that waits. Its fields but wake are guarded by Client.mu.
type waiter struct {
	h    *holding
	wake chan struct{} // something changed: look again

	prev, next *waiter
	queued     bool
	offered    bool          // a Pass to it is on its way
	unsure     bool          // a request for it ended with an unknown outcome
	got        bool          // a Pass gave it the lock
	token      int64         // with got
	sent       time.Time     // with got
	once       bool          // with got: Passed.Once
	ask        bool          // as the head: ask at once
	busy       time.Duration // as the head: how long the lease in the way may run
}

// signal makes the waiter look again; it never blocks.
func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
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

// leave takes a waiter out of the line. The next one asks at once unless the
// lock was just taken for a term that is known. It reports whether the store
// may have given the lock to the waiter meanwhile.
func (c *Client) leave(q *queue, w *waiter, took time.Duration) (unsure bool) {
	c.mu.Lock()
	watch := c.unlink(q, w, took)
	unsure = w.offered || w.unsure
	c.mu.Unlock()
	if watch != nil {
		watch.Stop()
	}
	return unsure
}

// unlink is leave under Client.mu. It returns the watch to be stopped when
// no waiter is left.
func (c *Client) unlink(q *queue, w *waiter, took time.Duration) Watch {
	if !w.queued {
		return nil
	}
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
	w.queued, w.prev, w.next = false, nil, nil
	if q.head == nil {
		delete(c.queues, q.name)
		watch := q.watch
		q.watch = nil
		return watch
	}
	if wasHead {
		q.head.ask, q.head.busy = took == 0, took
		q.head.signal()
	}
	return nil
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
func (c *Client) settle(w *waiter, passed Passed, sent time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.offered = false
	switch {
	case err != nil:
		w.unsure, w.ask = true, true
		w.signal()
	case !w.queued:
		// It is gone: either it has the lock by its own asking, or it left
		// with the offer pending and is being undone.
	case passed.Held:
		w.got, w.token, w.sent = true, passed.Token, sent
		w.once = passed.Once && !w.unsure
	}
	q := c.queues[w.h.name]
	switch {
	case w.got:
		w.signal()
	case q != nil && (q.head == w && !c.messages(q)):
		q.head.ask = true
		q.head.signal()
	}
}

// nudge makes the first waiter of this process ask, where no message will.
func (c *Client) nudge(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues[name]; q != nil && !c.messages(q) {
		q.head.ask = true
		q.head.signal()
	}
}

// rouse makes the first waiter ask: a message came, or messages start or stop
// to come.
func (c *Client) rouse(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues[name]; q != nil {
		q.head.ask = true
		q.head.signal()
	}
}

// messages tells whether unlock messages reach the queue.
func (c *Client) messages(q *queue) bool {
	return q.watch != nil && q.watch.Live()
}
