package testserver

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Line is a Proxy that can be made to fail, and healed. What is on its way is not looked at.
type Line struct {
	*Proxy

	mu       sync.Mutex
	fault    fault
	healed   chan struct{} // closed by the next Heal
	silenced [][2]net.Conn // something of theirs was swallowed
}

// fault is what happens to what arrives. Nothing is the zero value.
type fault struct {
	swallowRequests, swallowReplies, cutReplies bool
	delay                                       time.Duration // of each reply
}

// NewLine starts a line to an address.
func NewLine(t testing.TB, target string) *Line {
	t.Helper()
	l := &Line{healed: make(chan struct{})}
	l.Proxy = NewProxy(t, target, l.carry)
	return l
}

// CutReplies lets requests through and breaks the connection at the reply.
func (l *Line) CutReplies() { l.fail(func(f *fault) { f.cutReplies = true }) }

// SwallowReplies lets requests through and lets the caller wait for ever.
func (l *Line) SwallowReplies() { l.fail(func(f *fault) { f.swallowReplies = true }) }

// Hole swallows everything, both ways, without a word.
func (l *Line) Hole() { l.fail(func(f *fault) { f.swallowRequests, f.swallowReplies = true, true }) }

// Slow holds what arrives of replies back for a time, one part after the other, and beside what it was held back for before.
func (l *Line) Slow(d time.Duration) { l.fail(func(f *fault) { f.delay += d }) }

func (l *Line) fail(change func(*fault)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.fault)
}

// Heal ends every fault. Connections that lost something are closed: a stream with a gap is of no use.
func (l *Line) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = fault{}
	for _, pair := range l.silenced {
		_, _ = pair[0].Close(), pair[1].Close()
	}
	l.silenced = nil
	close(l.healed)
	l.healed = make(chan struct{})
}

func (l *Line) carry(client, server net.Conn) {
	pair := [2]net.Conn{client, server}
	var replies sync.WaitGroup
	replies.Go(func() {
		defer client.Close()
		pass(client, server, func() bool { return l.reply(pair) })
	})
	pass(server, client, func() bool { return l.request(pair) })
	_ = server.Close()
	replies.Wait()
}

// pass carries one direction until an end is closed or arrived closes one. What arrived does not let through is lost.
func pass(to, from net.Conn, arrived func() bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && arrived() {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// request reports whether a request goes through.
func (l *Line) request(pair [2]net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault.swallowRequests {
		l.silenced = append(l.silenced, pair)
	}
	return !l.fault.swallowRequests
}

// reply reports whether a reply goes through, after its delay.
func (l *Line) reply(pair [2]net.Conn) bool {
	l.mu.Lock()
	f, healed := l.fault, l.healed
	switch {
	case f.cutReplies:
		_, _ = pair[0].Close(), pair[1].Close()
	case f.swallowReplies:
		l.silenced = append(l.silenced, pair)
	}
	l.mu.Unlock()
	if f.cutReplies || f.swallowReplies {
		return false
	}
	if f.delay > 0 {
		delay := time.NewTimer(f.delay)
		defer delay.Stop()
		select {
		case <-delay.C:
		case <-healed:
		}
	}
	return true
}
