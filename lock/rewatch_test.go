package lock_test

import (
	"testing"
	"time"

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
