//go:build linux

package conns_test

import (
	"net"
	"syscall"
	"testing"

	"seckill/internal/conns"
	"seckill/internal/workshop/check"
)

// A closing listener accepts the connections that stand. Others are refused, and never reset with a request inside.
func TestNoConnectionIsLeftUnseen(t *testing.T) {
	t.Parallel()
	listener := check.Value(conns.Listen(t.Context(), "127.0.0.1:0"))(t)
	dial := func() (net.Conn, error) {
		return (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	}
	const early = 3
	for range early {
		defer check.Value(dial())(t).Close()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conns.TakeNoMore(check.Context(t), listener)
	}()
	check.Stays(t, "it waits for those that stand", func() bool {
		select {
		case <-done:
			return false
		default:
			return true
		}
	})
	late := make(chan error, 1)
	go func() { late <- check.ErrorOf(dial()) }()
	for range early {
		_ = check.Value(listener.Accept())(t).Close()
	}
	check.Receive(t, "the end of the wait", done)
	check.Must(t, listener.Close())
	check.Is(t, "who came late", check.Receive(t, "the late one", late), syscall.ECONNREFUSED)
}
