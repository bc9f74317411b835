package conns

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"seckill/internal/budget"
	"seckill/internal/poll"
)

// TakeNoMore returns when no connection waits to be accepted, and none can come; at once where the kernel has no such
// filter. A listener that just closes resets those that its server has not seen yet, with their requests, and a proxy
// sends no purchase again. One that is not let in is tried again a second later: then the port is closed, nothing was
// sent, and the proxy goes to another instance.
func TakeNoMore(ctx context.Context, listener net.Listener) {
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil || !filtered(raw) {
		return
	}
	poll.Pause(ctx, budget.Blink)
	_ = poll.Until(ctx, budget.Blink, func() (bool, error) { return waiting(raw) == 0, nil })
}

// filtered has the kernel drop what begins a connection: segments with SYN and no ACK among the flags in byte fourteen.
func filtered(raw syscall.RawConn) (done bool) {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0x12},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0x02, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1},
	}
	program := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // five
	err := raw.Control(func(fd uintptr) {
		done = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, program) == nil
	})
	return done && err == nil
}

// waiting is how many connections wait to be accepted, which a listener tells as unacknowledged.
func waiting(raw syscall.RawConn) (count int) {
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			count = int(info.Unacked)
		}
	})
	return count
}
