package queue_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
)

// wire is a proxy in front of a server that can lose an answer with its
// connection.
type wire struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	word  []byte // an answer that contains it is lost
	lost  int
}

func newWire(t testing.TB, target string) *wire {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	w := &wire{listener: listener, target: target}
	w.wg.Go(w.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		w.sever()
		w.wg.Wait()
	})
	return w
}

func (w *wire) url() string { return "nats://" + w.listener.Addr().String() }

// cutAt makes the next answer that contains a word be lost.
func (w *wire) cutAt(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.word = []byte(word)
}

// cuts is how many answers were lost.
func (w *wire) cuts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// say makes the server seem to say something to every client.
func (w *wire) say(t testing.TB, line string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := 0; i < len(w.conns); i += 2 {
		if _, err := w.conns[i].Write([]byte(line)); err != nil {
			t.Errorf("say %q: %v", line, err)
		}
	}
}

// sever cuts every connection.
func (w *wire) sever() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.conns {
		_ = conn.Close()
	}
	w.conns = nil
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", w.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, client, server)
		w.mu.Unlock()
		w.wg.Go(func() { w.carry(client, server, func([]byte) bool { return true }) })
		w.wg.Go(func() { w.carry(server, client, w.passes) })
	}
}

// carry takes bytes from one side to the other until one of them is closed, or
// something must not pass.
func (w *wire) carry(from, to net.Conn, passes func([]byte) bool) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || !passes(buffer[:n]) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (w *wire) passes(answer []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.word == nil || !bytes.Contains(answer, w.word) {
		return true
	}
	w.word = nil
	w.lost++
	return false
}
