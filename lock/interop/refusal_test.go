//go:build interop

package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"seckill/lock"
)

// TestJavaCannotUnlockGo: Java's unlock of a lock that Go holds is refused and changes nothing.
func TestJavaCannotUnlockGo(t *testing.T) {
	t.Parallel()
	b := setup(t, longLease)
	name := name(t)
	lease := mustLock(t, b.locks.Mutex(name))
	holder := b.wantHolds(t, name, 1)
	left := b.ttl(t, name)

	b.java.thread("other").wantRefused(t, "unlock", "plain", name)
	if still := b.wantHolds(t, name, 1); still != holder {
		t.Fatalf("the holder changed from %s to %s", holder, still)
	}
	if now := b.ttl(t, name); now > left || now < left-patience {
		t.Fatalf("the time to live went from %v to %v", left, now)
	}
	mustUnlock(t, lease)
}

// TestGoCannotUnlockJava: a Go lease whose lock is Java's by now unlocks nothing, and says that it was lost.
func TestGoCannotUnlockJava(t *testing.T) {
	t.Parallel()
	b := setup(t, longLease)
	name := name(t)
	operator, next := b.java.thread("operator"), b.java.thread("next")
	lease := mustLock(t, b.locks.Mutex(name))
	operator.begin(t, "force", "plain", name).want(t, "true")
	next.lock(t, name)
	holder := b.wantHolds(t, name, 1)

	if err := lease.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Fatalf("Unlock of a lock that was forced open gave %v, want ErrLost", err)
	}
	if still := b.wantHolds(t, name, 1); still != holder {
		t.Fatalf("the holder changed from %s to %s", holder, still)
	}
	next.unlock(t, name)
}

// TestJavaForcesGo: Java's forceUnlock frees Go's lock: the waiter of Go is woken, and the holder learns of it at
// its next renewal.
func TestJavaForcesGo(t *testing.T) {
	t.Parallel()
	b := setup(t, shortLease)
	name := name(t)
	lease := mustLock(t, b.locks.Mutex(name))
	waiting := begin(t, b.locks.Mutex(name), lock.Wait(patience))
	b.waitForWaiters(t, "redisson_lock__channel:{"+name+"}", 1)

	forced := time.Now()
	b.java.thread("operator").begin(t, "force", "plain", name).want(t, "true")
	next, at := waiting.lease(t)
	if took := at.Sub(forced); took > byMessage {
		t.Errorf("the waiter of Go had the lock %v after Java's forceUnlock, want at most %v", took, byMessage)
	}
	select {
	case <-lease.Context().Done():
		if cause := context.Cause(lease.Context()); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("the first lease ended with %v, want ErrLost", cause)
		}
		t.Logf("the holder knew %v after it (renewals each %v)", time.Since(forced), shortLease/3)
	case <-time.After(shortLease):
		t.Errorf("the holder did not learn within a lease that its lock was forced open")
	}
	if err := lease.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Unlock gave %v, want ErrLost", err)
	}
	mustUnlock(t, next)
	b.wantHolds(t, name, 0)
}

// TestGoForcesJava: the same with the roles exchanged.
func TestGoForcesJava(t *testing.T) {
	t.Parallel()
	b := setup(t, longLease)
	name := name(t)
	holder, waiter := b.java.thread("holder"), b.java.thread("waiter")
	holder.lock(t, name)
	waiting := waiter.begin(t, "try", "plain", name, patience.Milliseconds(), -1)
	b.waitForWaiters(t, "redisson_lock__channel:{"+name+"}", 1)

	forced := time.Now()
	if was, err := b.locks.ForceUnlock(t.Context(), name); err != nil || !was {
		t.Fatalf("ForceUnlock gave %v, error %v; want that it was held", was, err)
	}
	if took := waiting.want(t, "true").Sub(forced); took > byMessage {
		t.Errorf("Java's waiter had the lock %v after Go's ForceUnlock, want at most %v", took, byMessage)
	}
	holder.wantRefused(t, "unlock", "plain", name)
	waiter.unlock(t, name)
	b.wantHolds(t, name, 0)
}
