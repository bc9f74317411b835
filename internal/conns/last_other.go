//go:build !linux

package conns

import (
	"context"
	"net"
)

// TakeNoMore would prepare a listener for its end, see last_linux.go. Other kernels have no such filter.
func TakeNoMore(context.Context, net.Listener) {}
