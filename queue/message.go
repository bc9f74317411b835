package queue

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"seckill/model"
)

// message is one message in hand, with what could be read of it.
type message struct {
	jetstream.Msg
	sequence  uint64
	delivered uint64 // how often, this time included
	orders    []model.Reservation
	flaws     []flaw
	newer     bool // of a later version: what it says is not known
}

// receive reads a message and takes it into the hand.
func (c *consumption) receive(raw jetstream.Msg) *message {
	m := &message{Msg: raw}
	if about, err := raw.Metadata(); err == nil { // the server's own words: it never fails
		m.sequence, m.delivered = about.Sequence.Stream, about.NumDelivered
	}
	m.orders, m.flaws = decode(raw.Data(), m.sequence)
	if len(m.flaws) > 0 && newer(raw.Data()) {
		m.newer, m.flaws = true, nil
	}
	c.hand.take(m)
	return m
}

// hand knows the messages that this instance has and has not answered yet, and
// tells the server again and again that they are being worked on. One that
// waits for its turn counts: the server would give it to somebody else.
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

// beat gives signs of life until ctx ends: each message after a third of the
// wait, so that one sign may get lost.
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

// line is what waits for a worker. Its head is the next call: whole messages
// while they fit, at least one.
type line struct {
	limit    int // orders in a call
	messages []*message
	head     int // messages of the next call
	orders   int // in them
	closed   bool
}

func newLine(limit int) *line { return &line{limit: limit} }

func (l *line) add(m *message) {
	l.messages = append(l.messages, m)
	l.extend()
}

// extend lets messages join the head while they fit.
func (l *line) extend() {
	for !l.closed && l.head < len(l.messages) {
		n := len(l.messages[l.head].orders)
		if l.head > 0 && l.orders+n > l.limit {
			l.closed = true
			return
		}
		l.head++
		l.orders += n
		l.closed = l.orders >= l.limit
	}
}

// full tells whether nothing more fits into the next call.
func (l *line) full() bool { return l.closed }

func (l *line) next() []*message { return l.messages[:l.head:l.head] }

func (l *line) all() []*message { return l.messages }

// take removes the next call from the line.
func (l *line) take() {
	l.messages = l.messages[l.head:]
	l.head, l.orders, l.closed = 0, 0, false
	l.extend()
}
