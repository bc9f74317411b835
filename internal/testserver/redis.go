package testserver

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Redis starts a redis-server of the test's own from deployments/redis.conf. It writes an append-only file
// as in production, so that a killed one comes back with its data. Further arguments win over the file,
// e.g. "--appendonly", "no".
func Redis(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, redisEngine(), args)
}

// SharedRedis returns the URL of the Redis that all tests of this binary share. Tests keep apart by names
// of their own and never flush it.
func SharedRedis(t testing.TB) string {
	t.Helper()
	url, err := process.redis.get()
	if err != nil {
		t.Fatalf("testserver: shared Redis: %v", err)
	}
	return url
}

func redisEngine() engine {
	return engine{
		program: "redis-server",
		apt:     "redis-server",
		url:     "redis://%s/0",
		prepare: func(_ context.Context, data string) error { return os.MkdirAll(data, 0o700) },
		args: func(s *Server) []string {
			args := []string{
				configFile("redis.conf"),
				"--bind", loopback,
				"--port", strconv.Itoa(s.port.number),
				"--dir", s.data(),
				"--daemonize", "no",
				"--logfile", "",
			}
			return append(args, s.extra...)
		},
		ready: redisReady,
	}
}

// redisReady asks for the process id, so that another test's server on the same port is not taken for
// this one.
func redisReady(ctx context.Context, s *Server) error {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, PoolSize: 1, Protocol: 2, DisableIdentity: true})
	defer client.Close()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return fmt.Errorf("ask redis-server on %s: %w", s.Addr(), err)
	}
	if want := fmt.Sprintf("process_id:%d\r\n", s.child.process.Pid); !strings.Contains(info, want) {
		return fmt.Errorf("another redis-server answers on %s", s.Addr())
	}
	return nil
}

// sharedRedis starts on the first call.
type sharedRedis struct {
	once   sync.Once
	server *Server
	err    error
}

func (r *sharedRedis) get() (string, error) {
	r.once.Do(func() {
		// Nobody kills this one: no append-only file, and thus no disk.
		r.server, r.err = launch(stderr{}, redisEngine(), []string{"--appendonly", "no"})
	})
	if r.err != nil {
		return "", r.err
	}
	return r.server.URL(), nil
}

func (r *sharedRedis) close() {
	if r.server != nil {
		r.server.discard()
	}
}
