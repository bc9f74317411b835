package queue

import (
	"context"
	"sync"
	"time"
)

// hand knows the messages that this instance has and has not answered yet. It keeps
// telling the server that they are being worked on, also those that wait for their
// turn: the server would give them to another instance.
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
