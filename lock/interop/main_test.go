//go:build interop

package interop_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/lock"
)

const (
	// patience is how long a test waits for what must happen: far above a JVM's start on a busy machine, and
	// below the longest lease here, so that an expiry is never taken for a message.
	patience = 20 * time.Second
	// byMessage is the longest wake-up that is still taken for one by message. Without messages the waiters
	// here would ask again after quiet at the earliest, or when the lease of patience or more ends.
	byMessage = 2 * time.Second
	// quiet is how long a Go waiter of these tests relies on messages alone.
	quiet = 15 * time.Second
	// longLease is Redisson's default for its watchdog.
	longLease = 30 * time.Second
	// shortLease is the watchdog's where renewals and expiries are waited for: still three renewals a lease,
	// each with half a second of tolerance on a busy machine.
	shortLease = 3 * time.Second
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
func setup(t *testing.T, lease time.Duration) both {
	t.Helper()
	url := testserver.SharedRedis(t)
	client := dial(t, url)
	return both{redis: client, locks: locksOn(t, client, lease), java: startJava(t, lease, url)}
}

func dial(t *testing.T, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

func locksOn(t *testing.T, client *redis.Client, lease time.Duration) *lock.Client {
	t.Helper()
	// Tokens are kept for ever, as the documentation asks for where Java uses RFencedLock.
	store := lock.NewRedisStore(client, lock.TokenRetention(0))
	locks := lock.New(store, lock.WatchdogLease(lease), lock.PollEvery(quiet), lock.ProbeEvery(quiet))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return locks
}

// name is a lock's name that no other test uses.
func name(t *testing.T) string {
	t.Helper()
	return "interop:" + t.Name()
}

// eventually asks until the answer is yes.
func eventually(t *testing.T, what string, ask func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ask() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// holds returns who holds a lock, as it is written in Redis.
func (b both) holds(t *testing.T, name string) map[string]string {
	t.Helper()
	fields, err := b.redis.HGetAll(t.Context(), name).Result()
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// wantHolds checks that a lock is held by exactly one holder so many times (0: that nobody holds it), and
// returns the holder.
func (b both) wantHolds(t *testing.T, name string, count int) string {
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
func (b both) waitForWaiters(t *testing.T, channel string, count int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d subscriptions of %s", count, channel), func() bool {
		subscribers, err := b.redis.PubSubNumSub(t.Context(), channel).Result()
		if err != nil {
			t.Fatal(err)
		}
		return subscribers[channel] == count
	})
	// Who has just subscribed asks once more, and would find a lock that is freed now without any message. That
	// takes one round trip; so many of Java's take much longer.
	const roundTrips = 25
	for range roundTrips {
		b.java.thread("bystander").begin(t, "locked", "plain", "interop:nobody's").want(t, "false")
	}
}

// ttl is how long a lock lasts unless it is renewed.
func (b both) ttl(t *testing.T, name string) time.Duration {
	t.Helper()
	left, err := b.redis.PTTL(t.Context(), name).Result()
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// mustLock takes a lock for the Go side, at once.
func mustLock(t *testing.T, m lock.Locker, opts ...lock.Option) *lock.Lease {
	t.Helper()
	lease, err := m.Lock(t.Context(), append([]lock.Option{lock.Wait(0)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func mustUnlock(t *testing.T, lease *lock.Lease) {
	t.Helper()
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
}

// attempt is a Lock of the Go side that is under way.
type attempt struct{ done chan attempted }

type attempted struct {
	lease *lock.Lease
	err   error
	at    time.Time
}

// begin starts to wait for a lock in the background.
func begin(t *testing.T, m lock.Locker, opts ...lock.Option) attempt {
	t.Helper()
	ctx := t.Context()
	a := attempt{make(chan attempted, 1)}
	go func() {
		lease, err := m.Lock(ctx, opts...)
		a.done <- attempted{lease, err, time.Now()}
	}()
	return a
}

// lease waits for the attempt's success, and says when that was.
func (a attempt) lease(t *testing.T) (*lock.Lease, time.Time) {
	t.Helper()
	select {
	case got := <-a.done:
		if got.err != nil {
			t.Fatal(got.err)
		}
		return got.lease, got.at
	case <-time.After(patience):
		t.Fatalf("no lock within %v", patience)
	}
	return nil, time.Time{}
}
