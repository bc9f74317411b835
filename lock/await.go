package lock

import (
	"context"
	"fmt"
	"time"
)

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
	w := &waiter{h: h, wake: make(chan struct{}, 1), busy: busy}
	q := c.enqueue(w, busy > 0)

	var budget <-chan time.Time
	if !a.forever {
		t := time.NewTimer(a.wait)
		defer t.Stop()
		budget = t.C
	}
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()

	for {
		step := c.look(q, w, retry)
		switch {
		case step.listen:
			c.listen(q)
			continue
		case step.closed:
			return nil, c.giveUp(q, w, ErrClosed)
		case step.got:
			ok, _, err := c.got(ctx, h, w.sent, w.token, w.once)
			if !ok {
				c.leave(q, w, 0)
				return nil, err
			}
			c.leave(q, w, h.first)
			return h, nil
		case step.ask:
			ok, left, err := c.try(ctx, h)
			if err != nil {
				c.leave(q, w, 0)
				return nil, err
			}
			if ok {
				c.leave(q, w, h.first)
				return h, nil
			}
			c.learnt(w, left)
			continue
		}
		select {
		case <-w.wake:
		case <-retry.C:
			c.askNow(w)
		case <-budget:
			return nil, c.giveUp(q, w, ErrTimeout)
		case <-ctx.Done():
			return nil, c.giveUp(q, w, context.Cause(ctx))
		}
	}
}

// giveUp leaves the line without the lock. What a pending offer may still
// bring is undone.
func (c *Client) giveUp(q *queue, w *waiter, why error) error {
	c.mu.Lock()
	unsure := w.got || w.offered || w.unsure
	c.mu.Unlock()
	if c.leave(q, w, 0) || unsure {
		w.h.undo(nil)
	}
	return fmt.Errorf("lock %s: %w", w.h.name, why)
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
	}
	if !q.listening {
		return step{listen: true}
	}
	pause := c.set.poll
	if c.messages(q) {
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

func (c *Client) learnt(w *waiter, busy time.Duration) {
	c.mu.Lock()
	w.busy = busy
	c.mu.Unlock()
}

func (c *Client) askNow(w *waiter) {
	c.mu.Lock()
	w.ask = true
	c.mu.Unlock()
}
