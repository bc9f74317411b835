//go:build interop

//part:interop

package interop_test

import (
	"context"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/lock"
)

// TestJavaCannotUnlockGo: Java's unlock of a lock that Go holds is refused and changes nothing.
func TestJavaCannotUnlockGo(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	name := name(t)
	lease := mustLock(t, b.locks.Mutex(name))
	holder := b.wantHolds(t, name, 1)
	left := b.ttl(t, name)

	b.java.thread("other").wantRefused(t, "unlock", "plain", name)
	if still := b.wantHolds(t, name, 1); still != holder {
		t.Fatalf("the holder changed from %s to %s", holder, still)
	}
	if now := b.ttl(t, name); now > left || now < quiet/2 {
		t.Fatalf("the time to live went from %v to %v", left, now)
	}
	mustUnlock(t, lease)
}

// TestGoCannotUnlockJava: a Go lease whose lock is Java's by now unlocks nothing, and says that it was lost.
func TestGoCannotUnlockJava(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	name := name(t)
	operator, next := b.java.thread("operator"), b.java.thread("next")
	lease := mustLock(t, b.locks.Mutex(name))
	operator.begin(t, "force", "plain", name).want(t, "true")
	next.lock(t, name)
	holder := b.wantHolds(t, name, 1)

	check.Is(t, "the unlock of a lock that was forced open", lease.Unlock(), lock.ErrLost)
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
	waiting := begin(t, b.locks.Mutex(name), lock.Wait(check.Deadline))
	b.waitForWaiters(t, "redisson_lock__channel:{"+name+"}", 1)

	b.java.thread("operator").begin(t, "force", "plain", name).want(t, "true")
	next := waiting.lease(t)
	check.Receive(t, "the end of the first lease, at its next renewal", lease.Context().Done())
	check.Is(t, "its cause", context.Cause(lease.Context()), lock.ErrLost)
	check.Is(t, "the unlock", lease.Unlock(), lock.ErrLost)
	mustUnlock(t, next)
	b.wantHolds(t, name, 0)
}

// TestGoForcesJava: the same with the roles exchanged.
func TestGoForcesJava(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	name := name(t)
	holder, waiter := b.java.thread("holder"), b.java.thread("waiter")
	holder.lock(t, name)
	waiting := waiter.begin(t, "try", "plain", name, check.Deadline.Milliseconds(), -1)
	b.waitForWaiters(t, "redisson_lock__channel:{"+name+"}", 1)

	check.Equal(t, "it was held", check.Value(b.locks.ForceUnlock(t.Context(), name))(t), true)
	waiting.want(t, "true")
	holder.wantRefused(t, "unlock", "plain", name)
	waiter.unlock(t, name)
	b.wantHolds(t, name, 0)
}
