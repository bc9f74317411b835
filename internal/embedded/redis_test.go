package embedded_test

import (
	"net"
	"strings"
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
	check.Must(t, err)
	t.Cleanup(server.Close)
	t.Cleanup(server.Close) // twice does no harm
	options, err := redis.ParseURL(server.URL())
	check.Must(t, err)
	if host, _, err := net.SplitHostPort(options.Addr); err != nil || host != "127.0.0.1" {
		t.Fatalf("it listens on %s, where strangers may reach it (%v)", options.Addr, err)
	}
	c := redis.NewClient(options)
	t.Cleanup(func() { check.Must(t, c.Close()) })
	return c
}

// A lock whose holder died must become free by itself.
func TestKeysExpireByThemselves(t *testing.T) {
	t.Parallel()
	c, ctx := client(t), t.Context()
	check.Must(t, c.HSet(ctx, "lock:order:1", "holder:1", 1).Err())
	check.Must(t, c.PExpire(ctx, "lock:order:1", time.Hour).Err())
	left, err := c.PTTL(ctx, "lock:order:1").Result()
	if err != nil || left <= 0 || left > time.Hour {
		t.Fatalf("PTTL = %s, %v", left, err)
	}
	check.Must(t, c.PExpire(ctx, "lock:order:1", check.Soon).Err())
	check.Eventually(t, "the key expires", func() bool { return check.Value(c.Exists(ctx, "lock:order:1").Result())(t) == 0 })
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
	check.Must(t, script.Load(ctx, c).Err())
	if err := script.EvalSha(ctx, c, []string{"l"}, "a", 3_600_000).Err(); err != redis.Nil { //nolint:errorlint // redis.Nil is never wrapped
		t.Fatalf("the first: %v, want nil", err)
	}
	left, err := script.EvalSha(ctx, c, []string{"l"}, "b", 3_600_000).Int64()
	if err != nil || left <= 0 || left > 3_600_000 {
		t.Fatalf("the second: %d, %v", left, err)
	}
}

// A script that releases a lock publishes, and a waiting client receives it.
func TestScriptsWakeSubscribers(t *testing.T) {
	t.Parallel()
	c := client(t)
	ctx := check.Context(t)
	subscription := c.Subscribe(ctx, "redisson_lock__channel:{l}")
	t.Cleanup(func() { _ = subscription.Close() })
	check.Must(t, check.ErrorOf(subscription.Receive(ctx)))
	if err := c.Eval(ctx, `return redis.call('publish', KEYS[1], ARGV[1])`,
		[]string{"redisson_lock__channel:{l}"}, "0").Err(); err != nil {
		t.Fatal(err)
	}
	message, err := subscription.ReceiveMessage(ctx)
	if err != nil || message.Payload != "0" {
		t.Fatalf("received %v, %v", message, err)
	}
}

// Every user of the machine reaches the server's port, and hears nothing there without the password, which each server
// has of its own.
func TestStrangersHearNothing(t *testing.T) {
	t.Parallel()
	known, other := client(t), client(t)
	check.Must(t, known.Set(t.Context(), "k", "v", 0).Err())
	if known.Options().Password == other.Options().Password {
		t.Error("two servers have one password")
	}
	for name, password := range map[string]string{"none": "", "another": other.Options().Password} {
		stranger := redis.NewClient(&redis.Options{Addr: known.Options().Addr, Password: password, Protocol: 2, DisableIdentity: true, MaxRetries: -1})
		for _, ask := range []*redis.Cmd{
			stranger.Do(t.Context(), "GET", "k"), stranger.Do(t.Context(), "FLUSHALL"), stranger.Do(t.Context(), "EVAL", "return redis.call('get', 'k')", "0"),
			stranger.Do(t.Context(), "PUBLISH", "c", "m"), stranger.Do(t.Context(), "SUBSCRIBE", "c"), stranger.Do(t.Context(), "INFO"),
		} {
			if err := ask.Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") && !strings.Contains(err.Error(), "WRONGPASS") {
				t.Errorf("with the password %s, %s: %v", name, ask.Args()[0], err)
			}
		}
		check.Must(t, stranger.Close())
	}
	check.Equal(t, "what was stored", check.Value(known.Get(t.Context(), "k").Result())(t), "v")
}

func TestEveryServerIsEmptyAndItsOwn(t *testing.T) {
	t.Parallel()
	first, second := client(t), client(t)
	check.Must(t, first.Set(t.Context(), "k", "v", 0).Err())
	if n, err := second.DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Errorf("the second server has %d keys, %v", n, err)
	}
}
