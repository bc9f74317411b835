package embedded_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"seckill/internal/embedded"
	"seckill/internal/workshop/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func client(t *testing.T) *redis.Client {
	t.Helper()
	server, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	if host, _, err := net.SplitHostPort(options.Addr); err != nil || host != "127.0.0.1" {
		t.Fatalf("it listens on %s, where strangers may reach it (%v)", options.Addr, err)
	}
	c := redis.NewClient(options)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// A lock whose holder died must become free by itself.
func TestKeysExpireByThemselves(t *testing.T) {
	t.Parallel()
	c, ctx := client(t), t.Context()
	if err := c.HSet(ctx, "lock:order:1", "holder:1", 1).Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.PExpire(ctx, "lock:order:1", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	left, err := c.PTTL(ctx, "lock:order:1").Result()
	if err != nil || left <= 0 || left > time.Minute {
		t.Fatalf("PTTL = %s, %v", left, err)
	}
	start := time.Now()
	if err := c.PExpire(ctx, "lock:order:1", 80*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	check.Eventually(t, "the key expires", func() bool {
		n, err := c.Exists(ctx, "lock:order:1").Result()
		if err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	if age := time.Since(start); age < 80*time.Millisecond {
		t.Errorf("it expired after %s, too early", age)
	}
}

func TestScriptsRunBySHA(t *testing.T) {
	t.Parallel()
	c, ctx := client(t), t.Context()
	script := redis.NewScript(`
		if redis.call('exists', KEYS[1]) == 0 then
			redis.call('hset', KEYS[1], ARGV[1], 1)
			redis.call('pexpire', KEYS[1], ARGV[2])
			return nil
		end
		return redis.call('pttl', KEYS[1])`)
	if err := script.Load(ctx, c).Err(); err != nil {
		t.Fatal(err)
	}
	if err := script.EvalSha(ctx, c, []string{"l"}, "a", 60_000).Err(); err != redis.Nil { //nolint:errorlint // redis.Nil is never wrapped
		t.Fatalf("the first: %v, want nil", err)
	}
	left, err := script.EvalSha(ctx, c, []string{"l"}, "b", 60_000).Int64()
	if err != nil || left <= 0 || left > 60_000 {
		t.Fatalf("the second: %d, %v", left, err)
	}
}

// A script that releases a lock publishes, and a waiting client receives it.
func TestScriptsWakeSubscribers(t *testing.T) {
	t.Parallel()
	c := client(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	subscription := c.Subscribe(ctx, "redisson_lock__channel:{l}")
	t.Cleanup(func() { _ = subscription.Close() })
	if _, err := subscription.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Eval(ctx, `return redis.call('publish', KEYS[1], ARGV[1])`,
		[]string{"redisson_lock__channel:{l}"}, "0").Err(); err != nil {
		t.Fatal(err)
	}
	message, err := subscription.ReceiveMessage(ctx)
	if err != nil || message.Payload != "0" {
		t.Fatalf("received %v, %v", message, err)
	}
}

func TestEveryServerIsEmptyAndItsOwn(t *testing.T) {
	t.Parallel()
	first, second := client(t), client(t)
	if err := first.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := second.DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Errorf("the second server has %d keys, %v", n, err)
	}
}

func TestCloseTwice(t *testing.T) {
	t.Parallel()
	server, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	server.Close()
}
