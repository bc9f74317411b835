//go:build interop

//part:interop

package interop_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

const (
	// quiet is how long a Go waiter of these tests relies on messages alone, and how long locks last: a waiter that has a
	// lock before the common deadline was woken by a message.
	quiet = 10 * time.Minute
	// shortLease is the watchdog's where renewals and expiries are waited for: a machine that stands still for less than
	// two thirds of it loses no lock.
	shortLease = 30 * time.Second
)

// TestMain runs the tests, or, started by one of them under a role, a Go process that holds a lock.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == roleHolder {
		if err := hold(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testserver.Main(m)
}

// holderField is what Redisson calls the owner of a lock: "<uuid>:<thread>".
var holderField = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:\d+$`)

// both are the two sides of a test on one Redis: three Java threads and a Go client.
type both struct {
	redis *redis.Client // for looking into Redis behind the locks' backs
	locks *lock.Client
	java  *java
}

// setup starts both sides on the shared Redis. The Go side trusts in messages, so that a lost one shows.
func setup(t testing.TB, lease time.Duration) both {
	t.Helper()
	url := testserver.SharedRedis(t)
	client := dial(t, url)
	return both{redis: client, locks: locksOn(t, client, lease), java: startJava(t, lease, url)}
}

func dial(t testing.TB, url string) *redis.Client {
	t.Helper()
	options := check.Value(redis.ParseURL(url))(t)
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = check.Deadline, check.Deadline, check.Deadline, check.Deadline
	client := redis.NewClient(options)
	t.Cleanup(func() { check.Must(t, client.Close()) })
	return client
}

func locksOn(t testing.TB, client *redis.Client, lease time.Duration) *lock.Client {
	t.Helper()
	// Tokens are kept for ever, as the documentation asks for where Java uses RFencedLock.
	store := lock.NewRedisStore(client, lock.TokenRetention(0), lock.CallTimeout(check.Deadline))
	locks := lock.New(store, lock.WatchdogLease(lease), lock.UnlockTimeout(check.Deadline), lock.PollEvery(quiet), lock.ProbeEvery(quiet))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), check.Deadline)
		defer cancel()
		check.Is(t, "close the locks", locks.Close(ctx), nil)
	})
	return locks
}

// name is a lock's name that no other test uses.
func name(t testing.TB) string {
	t.Helper()
	return "interop:" + t.Name() + ":" + rand.Text()[:8]
}

// holds returns who holds a lock, as it is written in Redis.
func (b both) holds(t testing.TB, name string) map[string]string {
	t.Helper()
	return check.Value(b.redis.HGetAll(t.Context(), name).Result())(t)
}

// wantHolds checks that a lock is held by exactly one holder so many times (0: that nobody holds it), and
// returns the holder.
func (b both) wantHolds(t testing.TB, name string, count int) string {
	t.Helper()
	fields := b.holds(t, name)
	if count == 0 {
		if len(fields) != 0 {
			t.Fatalf("%s is held by %v, want nobody", name, fields)
		}
		return ""
	}
	for holder, held := range fields {
		if len(fields) != 1 || held != strconv.Itoa(count) || !holderField.MatchString(holder) {
			break
		}
		return holder
	}
	t.Fatalf("%s is held by %v, want one uuid:integer with the count %d", name, fields, count)
	return ""
}

// waitForWaiters returns once so many connections listen for the unlock message of a lock, and have nothing to
// do any more but to listen.
func (b both) waitForWaiters(t testing.TB, channel string, count int64) {
	t.Helper()
	check.Eventually(t, fmt.Sprintf("%d subscriptions of %s", count, channel), func() bool {
		return check.Value(b.redis.PubSubNumSub(t.Context(), channel).Result())(t)[channel] == count
	})
	// Who has just subscribed asks once more, and would find a lock that is freed now without any message. That
	// takes one round trip; so many of Java's take much longer.
	const roundTrips = 25
	for range roundTrips {
		b.java.thread("bystander").begin(t, "locked", "plain", "interop:nobody's").want(t, "false")
	}
}

// ttl is how long a lock lasts unless it is renewed.
func (b both) ttl(t testing.TB, name string) time.Duration {
	t.Helper()
	return check.Value(b.redis.PTTL(t.Context(), name).Result())(t)
}

// mustLock takes a lock for the Go side, at once.
func mustLock(t testing.TB, m lock.Locker, opts ...lock.Option) *lock.Lease {
	t.Helper()
	return check.Value(m.Lock(t.Context(), append([]lock.Option{lock.Wait(0)}, opts...)...))(t)
}

func mustUnlock(t testing.TB, lease *lock.Lease) {
	t.Helper()
	check.Must(t, lease.Unlock())
}

// attempt is a Lock of the Go side that is under way.
type attempt struct{ done chan attempted }

type attempted struct {
	lease *lock.Lease
	err   error
}

// begin starts to wait for a lock in the background.
func begin(t testing.TB, m lock.Locker, opts ...lock.Option) attempt {
	t.Helper()
	ctx := t.Context()
	a := attempt{make(chan attempted, 1)}
	go func() {
		lease, err := m.Lock(ctx, opts...)
		a.done <- attempted{lease, err}
	}()
	return a
}

// lease waits for the attempt's success.
func (a attempt) lease(t testing.TB) *lock.Lease {
	t.Helper()
	got := check.Receive(t, "the lock", a.done)
	check.Must(t, got.err)
	return got.lease
}
