package lock_test

import (
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/lock/driver"
)

// The last watch of a lock stops and a new one comes at once, as when a waiter
// gives up and the next one arrives: messages reach the new one, and the lock
// is handed over to it rather than freed. Guard: differ compares channels, not names.
func TestWatchAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := redisStore(b.direct)
	s := &asked{t, store}
	t.Cleanup(func() { _ = s.Close() })
	wakes := make(chan struct{}, 1)
	wake := func() {
		select {
		case wakes <- struct{}{}:
		default:
		}
	}
	watch := s.Watch(b.name, wake)
	for range 20 {
		check.Eventually(t, "the watch is live", watch.Live)
		for len(wakes) > 0 {
			<-wakes
		}
		watch.Stop()
		watch = s.Watch(b.name, wake)
		check.Receive(t, "the news that the watch is live", wakes) // what came between the two is not missed
	}
	check.Eventually(t, "the watch is live", watch.Live)
	s.acquire("taken", request(b.name, 1), driver.StateHeld)
	passed := check.Value(store.(driver.Passer).Pass(t.Context(), request(b.name, 1), request(b.name, 2)))(t)
	check.Equal(t, "handed over", passed.Held, true)
	watch.Stop()
	noSubscription(t, b.direct, b.name)
	s.release("released", request(b.name, 2), true)
}

// A Pass is repeated after a lost reply, some time later: the receiver counts its lease from
// the repetition, and so must Redis. Guard: pexpire for a repetition in pass.lua.
func TestRepeatedPassRenewsTheLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := redisStore(b.direct)
	s := &asked{t, store}
	t.Cleanup(func() { _ = s.Close() })
	from, to := request(b.name, 1), request(b.name, 2)
	watch := s.Watch(b.name, func() {})
	defer watch.Stop()
	check.Eventually(t, "the watch is live", watch.Live)
	s.acquire("taken", from, driver.StateHeld)
	first := check.Value(store.(driver.Passer).Pass(t.Context(), from, to))(t)
	check.Equal(t, "handed over", first.Held, true)
	check.Equal(t, "most of the lease is over", b.direct.PExpire(t.Context(), b.name, time.Minute).Val(), true)
	again := check.Value(store.(driver.Passer).Pass(t.Context(), from, to))(t)
	again.Once = first.Once
	check.Equal(t, "the answer to the repetition", again, first)
	if left := b.direct.PTTL(t.Context(), b.name).Val(); left < calm/2 {
		t.Errorf("others may have the lock in %s, the receiver relies on %s", left, calm)
	}
	s.release("released", to, true)
}

// Whoever waits in another process has its turn too: with a subscription of somebody else's the lock is freed, and not
// handed on to a waiter of the same process. Guard: listeners in pass.lua.
func TestALockThatOthersWaitForIsNotHandedOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store, other := redisStore(b.direct), redisStore(b.direct)
	s := &asked{t, store}
	for _, each := range []driver.Store{store, other} {
		t.Cleanup(func() { _ = each.Close() })
		watch := each.Watch(b.name, func() {})
		t.Cleanup(watch.Stop)
		check.Eventually(t, "the watch is live", watch.Live)
	}
	s.acquire("taken", request(b.name, 1), driver.StateHeld)
	passed := check.Value(store.(driver.Passer).Pass(t.Context(), request(b.name, 1), request(b.name, 2)))(t)
	check.Equal(t, "it was the first one's, and is handed over", [2]bool{passed.Was, passed.Held}, [2]bool{true, false})
	s.acquire("taken by the other process", request(b.name, 3), driver.StateHeld)
	s.release("released", request(b.name, 3), true)
}
