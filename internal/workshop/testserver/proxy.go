package testserver

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy stands between clients and a server for tests that lose, change or invent something on the way. Line is for
// those that cut, silence or delay without looking at what is said.
type Proxy struct {
	listener net.Listener
	carriers sync.WaitGroup

	mu     sync.Mutex
	pairs  [][2]net.Conn // client, server
	closed bool
}

// NewProxy starts a proxy to an address. Carry is called for each connection, and both ends of it are closed when
// carry returns; nil carries everything.
func NewProxy(t testing.TB, target string, carry func(client, server net.Conn)) *Proxy {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	if carry == nil {
		carry = carryAll
	}
	p := &Proxy{listener: listener}
	p.carriers.Go(func() { p.accept(target, carry) })
	t.Cleanup(p.Close)
	return p
}

// Close cuts every connection and refuses further ones.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Sever()
	p.carriers.Wait()
}

// Addr is where clients find the proxy, "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Sever cuts every connection.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pair := range p.pairs {
		_, _ = pair[0].Close(), pair[1].Close()
	}
	p.pairs = nil
}

// Say makes the server seem to say something to every client.
func (p *Proxy) Say(t testing.TB, text string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pair := range p.pairs {
		if _, err := pair[0].Write([]byte(text)); err != nil {
			t.Errorf("testserver: say %q: %v", text, err)
		}
	}
}

func (p *Proxy) accept(target string, carry func(client, server net.Conn)) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.keep(client, server) {
			return
		}
		p.carriers.Go(func() {
			defer client.Close()
			defer server.Close()
			carry(client, server)
		})
	}
}

// keep notes the ends of a connection, or closes them when the proxy is closed.
func (p *Proxy) keep(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_, _ = client.Close(), server.Close()
		return false
	}
	p.pairs = append(p.pairs, [2]net.Conn{client, server})
	return true
}

// carryAll carries both directions until one end is closed.
func carryAll(client, server net.Conn) {
	var answers sync.WaitGroup
	answers.Go(func() {
		defer client.Close()
		_, _ = io.Copy(client, server)
	})
	_, _ = io.Copy(server, client)
	_ = server.Close()
	answers.Wait()
}
