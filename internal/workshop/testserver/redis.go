package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// redisURL is where clients find a server, as engine.url.
const redisURL = "redis://%s/0"

// Redis starts a redis-server of the test's own from deployments/redis.conf. It writes an append-only file
// as in production, so that a killed one comes back with its data. Further arguments win over the file,
// e.g. "--appendonly", "no".
func Redis(t testing.TB, args ...string) *Server {
	t.Helper()
	return Home("").Redis(t, args...)
}

// SharedRedis returns the URL of the Redis that all tests share. Tests use names of their own and never
// flush it.
func SharedRedis(t testing.TB) string {
	t.Helper()
	return process.redis.get(t, sharedRedis()).URL()
}

// launchSharedRedis starts a server without an append-only file, and thus without a disk: no test kills it.
func launchSharedRedis() (*Server, error) {
	return launch(stderr{}, redisEngine(), []string{"--appendonly", "no"})
}

func redisEngine() engine {
	return engine{
		program: "redis-server",
		apt:     "redis-server",
		url:     redisURL,
		prepare: func(ctx context.Context, data string) error { return copyConfig(ctx, data, "redis.conf") },
		args: func(s *Server) []string {
			args := []string{
				filepath.Join(s.data(), "redis.conf"),
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

// copyConfig prepares a directory with a copy of a file in deployments/: Sentinels, and Redis when they tell it
// to (CONFIG REWRITE), write into theirs.
func copyConfig(ctx context.Context, data, name string) error {
	text, err := os.ReadFile(configFile(name))
	if err != nil {
		return fmt.Errorf("read a configuration: %w", err)
	}
	return errors.Join(emptyDirectory(ctx, data), os.WriteFile(filepath.Join(data, filepath.Base(name)), text, 0o600))
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
