//go:build interop

package interop_test

import (
	"errors"
	"testing"
	"time"

	"seckill/lock"
)

// TestWatchdogs: a lock that is held on outlives its first lease, on both sides, and the other side sees it held
// all the time.
func TestWatchdogs(t *testing.T) {
	t.Parallel()
	b := setup(t, shortLease)

	t.Run("Java", func(t *testing.T) {
		t.Parallel()
		name := name(t)
		holder := b.java.thread("holder")
		holder.lock(t, name)
		start := time.Now()
		waiting := begin(t, b.locks.Mutex(name), lock.Wait(2*shortLease))
		b.wantRenewals(t, name, 3)
		if got := <-waiting.done; !errors.Is(got.err, lock.ErrTimeout) {
			t.Fatalf("Go's lock gave %v while Java held on, want ErrTimeout", got.err)
		}
		t.Logf("Java renewed at least 3 times and held for %v", time.Since(start))
		b.wantHolds(t, name, 1)
		holder.unlock(t, name)
		b.wantHolds(t, name, 0)
	})
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		name := name(t)
		lease := mustLock(t, b.locks.Mutex(name))
		waiting := b.java.thread("waiter").begin(t, "try", "plain", name, (2 * shortLease).Milliseconds(), -1)
		b.wantRenewals(t, name, 3)
		waiting.want(t, "false")
		if err := lease.Context().Err(); err != nil {
			t.Fatalf("the lease's context ended while the watchdog renewed: %v", err)
		}
		b.wantHolds(t, name, 1)
		mustUnlock(t, lease)
		b.wantHolds(t, name, 0)
	})
}

// wantRenewals waits until the time to live of a lock has grown so many times: once for each renewal.
func (b both) wantRenewals(t *testing.T, name string, count int) {
	t.Helper()
	last := b.ttl(t, name)
	eventually(t, "renewals of "+name, func() bool {
		left := b.ttl(t, name)
		if left <= 0 {
			t.Fatalf("%s expired while it was held", name)
		}
		if left > last+shortLease/10 {
			count--
		}
		last = left
		return count == 0
	})
}

// TestFixedLeases: a lock taken for a fixed time ends by itself, and the other side then has it.
func TestFixedLeases(t *testing.T) {
	t.Parallel()
	b := setup(t, longLease)
	const term = 1500 * time.Millisecond

	t.Run("Java", func(t *testing.T) {
		t.Parallel()
		name := name(t)
		start := time.Now()
		b.java.thread("fixed").begin(t, "lock", "plain", name, term.Milliseconds()).want(t, "")
		lease, at := begin(t, b.locks.Mutex(name), lock.Wait(patience)).lease(t)
		wantTakeOver(t, at.Sub(start), term)
		b.java.thread("fixed").wantRefused(t, "unlock", "plain", name)
		mustUnlock(t, lease)
	})
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		name := name(t)
		start := time.Now()
		lease := mustLock(t, b.locks.Mutex(name), lock.LeaseTime(term))
		at := b.java.thread("next").begin(t, "try", "plain", name, patience.Milliseconds(), -1).want(t, "true")
		wantTakeOver(t, at.Sub(start), term)
		if lease.Context().Err() == nil {
			t.Error("Java has the lock and the context of Go's lease has not ended")
		}
		if err := lease.Unlock(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Unlock after the lease gave %v, want ErrLost", err)
		}
		b.wantHolds(t, name, 1)
		b.java.thread("next").unlock(t, name)
	})
}

// wantTakeOver checks that a lock went to the other side when its lease was over, and soon after that.
func wantTakeOver(t *testing.T, after, lease time.Duration) {
	t.Helper()
	t.Logf("taken over after %v of a lease of %v", after, lease)
	// A millisecond is the granularity of Redis' expiry.
	if after < lease-time.Millisecond || after > lease+byMessage {
		t.Errorf("taken over after %v, want the lease of %v to have passed, and not much more", after, lease)
	}
}
