package check

import (
	"context"
	"net"
	"sync"
)

// Network is a listener inside the process. What is said over it takes no time outside, so that a server and its clients
// can be in one bubble (testing/synctest).
type Network struct {
	dialed chan net.Conn
	closed chan struct{}
	close  func()
}

// NewNetwork makes one.
func NewNetwork() *Network {
	n := &Network{dialed: make(chan net.Conn), closed: make(chan struct{})}
	n.close = sync.OnceFunc(func() { close(n.closed) })
	return n
}

// Accept implements net.Listener.
func (n *Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.dialed:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *Network) Close() error {
	n.close()
	return nil
}

// Addr implements net.Listener.
func (*Network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// Dial connects to the listener, whatever the address (http.Transport.DialContext).
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case n.dialed <- near{server}:
		return client, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// near is a connection from this machine.
type near struct{ net.Conn }

// RemoteAddr implements net.Conn.
func (near) RemoteAddr() net.Addr { return (*Network)(nil).Addr() }
