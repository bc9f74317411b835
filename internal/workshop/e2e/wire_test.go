package e2e_test

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"testing"
)

// direction is one of a connection.
type direction int

const (
	up   direction = iota // to the server
	down                  // to the client
)

// wire is a connection to a server, through which a test can make it look slow or dead at a chosen moment. Nothing that
// is held is lost: it arrives, late, unless the connection is cut meanwhile.
type wire struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	links map[*link]bool
	traps []*trap
	held  [2]chan struct{} // closed when the direction may go on; nil: nothing is held
	// answer answers in the server's place what is not to reach it; nil: everything does.
	answer func(data []byte) []byte
}

// link is one connection through the wire.
type link struct {
	client, server net.Conn
	held           [2]chan struct{}
	over           chan struct{}
}

// trap waits for pieces of bytes on their way up, one after the other on the same connection.
type trap struct {
	pieces []string
	link   *link // nil: the first piece has not come yet
	hold   direction
	gate   chan struct{}
	sprung chan struct{}
}

// meets notes bytes, and reports whether the trap has sprung with them.
func (p *trap) meets(l *link, data []byte) bool {
	if p.link != nil && p.link != l || !bytes.Contains(data, []byte(p.pieces[0])) {
		return false
	}
	p.link, p.pieces = l, p.pieces[1:]
	if len(p.pieces) > 0 {
		return false
	}
	l.held[p.hold] = p.gate
	close(p.sprung)
	return true
}

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{target: target, listener: listener, links: map[*link]bool{}}
	w.wg.Go(w.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		w.cut()
		w.wg.Wait()
	})
	return w
}

func (w *wire) addr() string { return w.listener.Addr().String() }

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{client: client, server: server, over: make(chan struct{})}
		w.mu.Lock()
		w.links[l] = true
		w.mu.Unlock()
		w.wg.Go(func() { w.carry(l, up, server, client) })
		w.wg.Go(func() { w.carry(l, down, client, server) })
	}
}

// carry moves bytes in one direction until the connection ends.
func (w *wire) carry(l *link, d direction, to, from net.Conn) {
	defer w.end(l)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !w.pass(l, d, buffer[:n]) {
				return
			}
			if reply := w.answered(d, buffer[:n]); reply != nil {
				if _, err := from.Write(reply); err != nil {
					return
				}
				continue
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass returns once bytes may go on, or reports that the connection is over.
func (w *wire) pass(l *link, d direction, data []byte) bool {
	w.mu.Lock()
	if d == up {
		w.traps = slices.DeleteFunc(w.traps, func(p *trap) bool { return p.meets(l, data) })
	}
	gates := []chan struct{}{w.held[d], l.held[d]}
	w.mu.Unlock()
	for _, gate := range gates {
		if gate == nil {
			continue
		}
		select {
		case <-gate:
		case <-l.over:
			return false
		}
	}
	return true
}

// answered is the answer to bytes on their way up that the server shall not see.
func (w *wire) answered(d direction, data []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d == down || w.answer == nil {
		return nil
	}
	return w.answer(data)
}

// answers gives answers in the server's place, or to nil none any more.
func (w *wire) answers(answer func(data []byte) []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

func (w *wire) end(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.links[l] {
		return
	}
	delete(w.links, l)
	close(l.over)
	_ = l.client.Close()
	_ = l.server.Close()
}

// cut ends every connection there is now.
func (w *wire) cut() {
	w.mu.Lock()
	var links []*link
	for l := range w.links {
		links = append(links, l)
	}
	w.mu.Unlock()
	for _, l := range links {
		w.end(l)
	}
}

// hold keeps everything of a direction back until the returned function is called; twice does no harm.
func (w *wire) hold(d direction) (release func()) {
	gate := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[d] = gate
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.held[d] = nil
		close(gate)
	})
}

// holdAt waits for pieces of bytes on their way to the server, all of them on one connection, and with the last one
// begins to keep back what goes in one direction there: that piece itself, or the answer to it. The channel is closed
// when it came. To lose the answer for good, cut the wire then.
func (w *wire) holdAt(d direction, pieces ...string) (came <-chan struct{}, release func()) {
	p := &trap{pieces: pieces, hold: d, gate: make(chan struct{}), sprung: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traps = append(w.traps, p)
	return p.sprung, sync.OnceFunc(func() { close(p.gate) })
}
