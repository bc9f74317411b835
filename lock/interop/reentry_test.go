//go:build interop

//part:interop

package interop_test

import (
	"testing"

	"seckill/internal/workshop/check"
	"seckill/lock"
)

// TestJavaReenters: what Java counts is what Go sees, and the last unlock is the one that frees.
func TestJavaReenters(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	name := name(t)
	owner, other := b.java.thread("owner"), b.java.thread("other")

	owner.lock(t, name)
	owner.lock(t, name)
	owner.begin(t, "holds", "plain", name).want(t, "2")
	b.wantHolds(t, name, 2)
	other.begin(t, "holds", "plain", name).want(t, "0")
	for left := 1; left >= 0; left-- {
		check.Is(t, "TryLock while Java holds", check.ErrorOf(b.locks.Mutex(name).TryLock(t.Context())), lock.ErrHeld)
		owner.unlock(t, name)
		b.wantHolds(t, name, left)
	}
	mustUnlock(t, mustLock(t, b.locks.Mutex(name)))
}

// TestGoReenters: the same with the roles exchanged.
func TestGoReenters(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	name := name(t)
	m := b.locks.Mutex(name)
	other := b.java.thread("other")

	outer := mustLock(t, m)
	holder := b.wantHolds(t, name, 1)
	inner := check.Value(m.TryLock(outer.Context()))(t)
	if again := b.wantHolds(t, name, 2); again != holder {
		t.Fatalf("the holder changed from %s to %s at a re-entry", holder, again)
	}
	check.Is(t, "TryLock with a detached context", check.ErrorOf(m.TryLock(lock.Detach(outer.Context()))), lock.ErrHeld)
	other.begin(t, "locked", "plain", name).want(t, "true")
	other.wantBusy(t, name)

	mustUnlock(t, inner)
	b.wantHolds(t, name, 1)
	other.wantBusy(t, name)

	mustUnlock(t, outer)
	b.wantHolds(t, name, 0)
	other.begin(t, "try", "plain", name, 0, -1).want(t, "true")
	other.unlock(t, name)
}

// mustReenter takes a lock once more under its own lease and gives that hold back. It returns the token it had.
func mustReenter(t testing.TB, b both, name string, lease *lock.Lease) int64 {
	t.Helper()
	inner := check.Value(b.locks.Mutex(name).TryLock(lease.Context()))(t)
	mustUnlock(t, inner)
	return inner.Token()
}
