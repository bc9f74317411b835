//go:build interop

//part:interop

package interop_test

import (
	"context"
	"testing"
	"time"

	"seckill/internal/workshop/check"
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
		b.wantRenewals(t, name, 2)
		check.Is(t, "Go's lock while Java holds on", check.ErrorOf(b.locks.Mutex(name).TryLock(t.Context())), lock.ErrHeld)
		b.wantHolds(t, name, 1)
		holder.unlock(t, name)
		b.wantHolds(t, name, 0)
	})
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		name := name(t)
		lease := mustLock(t, b.locks.Mutex(name))
		b.wantRenewals(t, name, 2)
		b.java.thread("waiter").wantBusy(t, name)
		check.Is(t, "the lease while the watchdog renews", context.Cause(lease.Context()), nil)
		b.wantHolds(t, name, 1)
		mustUnlock(t, lease)
		b.wantHolds(t, name, 0)
	})
}

// wantRenewals waits until the time to live of a lock has grown so many times: once for each renewal.
func (b both) wantRenewals(t testing.TB, name string, count int) {
	t.Helper()
	last := b.ttl(t, name)
	check.Eventually(t, "renewals of "+name, func() bool {
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
	b := setup(t, quiet)
	const term = 12 * time.Second

	t.Run("Java", func(t *testing.T) {
		t.Parallel()
		name := name(t)
		b.java.thread("fixed").begin(t, "lock", "plain", name, term.Milliseconds()).want(t, "")
		lease := begin(t, b.locks.Mutex(name), lock.Wait(check.Deadline)).lease(t)
		b.java.thread("fixed").wantRefused(t, "unlock", "plain", name)
		mustUnlock(t, lease)
	})
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		name := name(t)
		lease := mustLock(t, b.locks.Mutex(name), lock.LeaseTime(term))
		b.java.thread("next").begin(t, "try", "plain", name, check.Deadline.Milliseconds(), -1).want(t, "true")
		check.Receive(t, "the end of Go's lease", lease.Context().Done())
		check.Is(t, "the unlock after the lease", lease.Unlock(), lock.ErrLost)
		b.wantHolds(t, name, 1)
		b.java.thread("next").unlock(t, name)
	})
}
