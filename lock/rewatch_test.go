package lock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/lock"
)

// The last watch of a lock stops and a new one comes at once, as when a waiter
// gives up and the next one arrives: messages reach the new one, and the lock
// is handed over to it rather than freed. Guard: differ compares channels, not names.
func TestWatchAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := lock.NewRedisStore(b.direct)
	t.Cleanup(func() { _ = store.Close() })
	wakes := make(chan struct{}, 1)
	wake := func() {
		select {
		case wakes <- struct{}{}:
		default:
		}
	}
	watch := store.Watch("k", wake)
	for range 50 {
		eventually(t, 5*time.Second, "the watch is live", watch.Live)
		for len(wakes) > 0 {
			<-wakes
		}
		watch.Stop()
		watch = store.Watch("k", wake)
		select {
		case <-wakes: // it became live: what came between the two is not missed
		case <-time.After(5 * time.Second):
			t.Fatal("the watch was not told that it is live")
		}
	}
	eventually(t, 5*time.Second, "the watch is live", watch.Live)
	from := lock.Request{Name: "k", Holder: "00000000-0000-4000-8000-000000000000:1", Holds: 1, Lease: time.Minute}
	to := from
	to.Holder = "00000000-0000-4000-8000-000000000000:2"
	if grant, err := store.Acquire(t.Context(), from); err != nil || grant.State != lock.StateHeld {
		t.Fatalf("%v, %v", grant, err)
	}
	if passed, err := store.Pass(t.Context(), from, to); err != nil || !passed.Held {
		t.Errorf("not handed over: %v, %v", passed, err)
	}
	watch.Stop()
	eventually(t, 5*time.Second, "no subscription left", func() bool { return subscribed(t, b.direct, "k") == 0 })
}

// Redis refuses to subscribe: the pause before the next connection doubles each time, so
// that a waiter does not open a connection after the other. Guard: heard in
// subscriptions.receive.
func TestRefusedSubscriptionIsTriedLessAndLess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.direct.Do(t.Context(), "acl", "setuser", "app", "on", "nopass", "~*", "&*", "+@all", "-subscribe").Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: b.server.Addr(), Username: "app", Password: "any"})
	t.Cleanup(func() { _ = client.Close() })
	store := lock.NewRedisStore(client)
	t.Cleanup(func() { _ = store.Close() })
	start := time.Now()
	watch := store.Watch("k", func() {})
	defer watch.Stop()
	const attempts, pauses = 6, (20 + 40 + 80 + 160 + 320) * time.Millisecond
	eventually(t, 20*time.Second, "some attempts", func() bool {
		_, stats, _ := strings.Cut(b.direct.Info(t.Context(), "commandstats").Val(), "cmdstat_subscribe:")
		_, rejected, _ := strings.Cut(stats, "rejected_calls=")
		var n int
		_, _ = fmt.Sscanf(rejected, "%d", &n)
		return n >= attempts
	})
	if took := time.Since(start); took < pauses {
		t.Errorf("%d attempts within %s, the pauses between them are %s", attempts, took, pauses)
	}
}
