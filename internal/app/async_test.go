package app

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/config"
	"seckill/internal/testserver"
)

// relay carries connections to a server, and can speak in the server's place.
type relay struct {
	listener net.Listener
	mu       sync.Mutex
	clients  []net.Conn
}

func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			r.mu.Lock()
			r.clients = append(r.clients, client)
			r.mu.Unlock()
			for to, from := range map[net.Conn]net.Conn{client: server, server: client} {
				go func() { defer to.Close(); defer from.Close(); _, _ = io.Copy(to, from) }()
			}
		}
	}()
	return r
}

func (r *relay) say(t *testing.T, line string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, client := range r.clients {
		if _, err := client.Write([]byte(line)); err != nil {
			t.Error(err)
		}
	}
}

// Without its connection to the queue an instance can keep no promise: when the
// client library has given it up, the instance ends, in every role.
func TestInstanceEndsWithoutItsQueue(t *testing.T) {
	t.Parallel()
	for _, role := range []config.Role{config.RoleAPI, config.RoleWorker, config.RoleAll} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			r := newRelay(t, strings.TrimPrefix(testserver.SharedNATS(t), "nats://"))
			cfg, err := config.Load([]string{
				"SECKILL_ORDER_MODE=async", "SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_REDIS_URL=" + testserver.SharedRedis(t),
				"SECKILL_NATS_URL=nats://" + r.listener.Addr().String(), "SECKILL_JWT_SECRET=" + strings.Repeat("x", 32),
				"SECKILL_ROLE=" + string(role), "SECKILL_HTTP_ADDR=127.0.0.1:0", "SECKILL_OPS_ADDR=127.0.0.1:0", "SECKILL_DATA_DIR=" + t.TempDir(),
			})
			if err != nil {
				t.Fatal(err)
			}
			instance, err := Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = instance.Stop(t.Context()) }() // its consumer's end is an error
			r.say(t, "-ERR 'nobody knows this one'\r\n")
			select {
			case err := <-instance.Failed():
				if err == nil || !strings.Contains(err.Error(), "queue") {
					t.Errorf("it ends with %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Error("it lives on")
			}
		})
	}
}
