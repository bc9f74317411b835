package bench

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startRedis runs a redis-server of its own, without persistence, so that no disk is measured.
func startRedis(t *testing.T, args ...string) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = listener.Addr().String()
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", t.TempDir(), "--loglevel", "warning",
	}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The kernel kills the server when the thread that started it ends, so that thread has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		started <- cmd.Start()
		_ = cmd.Wait()
	}()
	if err := <-started; err != nil {
		t.Fatalf("start redis-server (apt-get install redis-server): %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})

	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it is up within 50 ms
	defer cancel()
	for tick := time.Tick(5 * time.Millisecond); client.Ping(ctx).Err() != nil; {
		select {
		case <-tick:
		case <-ctx.Done():
			t.Fatalf("redis-server on %s does not answer", addr)
		}
	}
	return addr
}

// executed is how many commands the server has carried out, those inside scripts included, but for INFO.
func executed(ctx context.Context, client *redis.Client) (int64, error) {
	text, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, fmt.Errorf("read the command statistics: %w", err)
	}
	var sum int64
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "cmdstat_")
		command, stats, _ := strings.Cut(rest, ":calls=")
		if !ok || command == "info" {
			continue
		}
		calls, _, _ := strings.Cut(stats, ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the command statistics %q: %w", line, err)
		}
		sum += n
	}
	return sum, nil
}
