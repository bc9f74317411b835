package conns_test

import (
	"io"
	"net"
	"testing"

	"seckill/internal/conns"
	"seckill/internal/workshop/check"
)

// Whoever waits for an answer on a connection of a set hears of its end at once; one that was closed before is not in
// it.
func TestSet(t *testing.T) {
	t.Parallel()
	var set conns.Set
	near, far := net.Pipe()
	kept := set.Keep(near)
	gone, _ := net.Pipe()
	check.Must(t, set.Keep(gone).Close())
	ended := make(chan error, 1)
	go func() { ended <- check.ErrorOf(kept.Read(make([]byte, 1))) }()
	set.Cut()
	check.Is(t, "who waited", check.Receive(t, "the end", ended), io.ErrClosedPipe)
	check.Is(t, "the other side", check.ErrorOf(far.Read(make([]byte, 1))), io.EOF)
	check.Must(t, kept.Close())
	set.Cut()
}
