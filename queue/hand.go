package queue

import (
	"context"
	"sync"
	"time"

	"seckill/internal/budget"
)

// hand knows the messages that this instance has and has not answered yet. It keeps telling the server that they are
// being worked on, also those that wait for their turn: the server would give them to another instance.
type hand struct {
	wait time.Duration // of the server, for a sign of life

	mu       sync.Mutex
	messages map[*message]time.Time // when the server last heard of it
}

func newHand(wait time.Duration) *hand {
	return &hand{wait: wait, messages: make(map[*message]time.Time)}
}

func (h *hand) take(m *message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages[m] = time.Now()
}

func (h *hand) release(m *message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.messages, m)
}

// beat gives a sign of life for each message after every third of the wait, so that
// one sign may get lost, until ctx ends.
func (h *hand) beat(ctx context.Context) {
	// Twice as often as a sign is due, so that none is late by more than half.
	ticker := time.NewTicker(h.wait / 6)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			h.sign(now)
		}
	}
}

func (h *hand) sign(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for m, last := range h.messages {
		if now.Sub(last) < h.wait/3 {
			continue
		}
		if m.InProgress() == nil { // else the connection is down: again at the next tick
			h.messages[m] = now
		}
	}
}

// gatherTime is between the beginnings of two calls of persist that are not full: while messages keep coming, orders
// share a transaction, also when they are spread over several instances, or over many vouchers. What comes after a
// quiet moment does not wait, and nothing waits for a call that takes longer.
const gatherTime = 2 * budget.Blink

// feed keeps the line of messages that wait for a worker. It asks for a fetch while
// the line is too short for a full call.
func (c *consumption) feed(ctx context.Context) {
	defer close(c.batches)
	var line []*message
	var latest time.Time // when the latest call began
	again := time.NewTimer(0)
	defer again.Stop()
	over := ctx.Done()
	for stopping := false; ; {
		var wish chan<- struct{}
		var batches chan<- []*message
		n, full := nextCall(line, c.options.MaxOrders)
		if !stopping && !full {
			wish = c.wish
		}
		if !stopping && n > 0 {
			if wait := gatherTime - time.Since(latest); full || wait <= 0 {
				batches = c.batches
			} else {
				again.Reset(wait)
			}
		}
		select {
		case m, more := <-c.arrivals:
			if !more {
				c.giveBack(ctx, line)
				return
			}
			line = append(line, m)
		case wish <- struct{}{}:
		case batches <- line[:n:n]:
			line = line[n:]
			latest = time.Now()
		case <-again.C:
		case <-over:
			stopping, over = true, nil
		}
	}
}

// nextCall tells how many messages at the head of a line make the next call: whole ones while their orders fit into the
// limit, at least one. It is full when no further message could join them.
func nextCall(line []*message, limit int) (n int, full bool) {
	orders := 0
	for _, m := range line {
		if n > 0 && orders+len(m.orders) > limit {
			return n, true
		}
		n++
		if orders += len(m.orders); orders >= limit {
			return n, true
		}
	}
	return n, false
}
