package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
)

// plain is a client with go-redis' own defaults: it repeats commands and does
// not mind the deadlines of contexts.
func plain(t testing.TB, url string) *redis.Client {
	t.Helper()
	opt, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// warm leaves a client with several connections that work. The latch of an unlock
// is deleted a moment after it: on a busy machine that is when the line is slow
// or silent already, and it would take the only connection. Those that lost
// something are closed by Heal, which the client learns when it uses them.
func warm(t testing.TB, client *redis.Client) {
	t.Helper()
	const atOnce = 4 // more than anything of a test needs
	for range atOnce {
		c := client.Conn()
		defer c.Close()
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// bench is one Redis: looked at directly, used through a line.
type bench struct {
	server *testserver.Server
	line   *testserver.Line
	direct *redis.Client
}

func newBench(t testing.TB) bench {
	t.Helper()
	s := testserver.Redis(t)
	return bench{s, testserver.NewLine(t, s.Addr()), dial(t, s.URL())}
}

// url is Redis at the other end of the line.
func (b bench) url() string { return "redis://" + b.line.Addr() + "/0" }

// noOrphan waits until nobody has the lock "k".
func (b bench) noOrphan(t testing.TB) {
	t.Helper()
	eventually(t, 5*time.Second, "no orphan on "+b.server.Addr(), func() bool {
		n, err := b.direct.Exists(context.Background(), "k").Result()
		return err == nil && n == 0
	})
}
