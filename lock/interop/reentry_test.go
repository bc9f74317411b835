//go:build interop

package interop_test

import (
	"errors"
	"testing"

	"seckill/lock"
)

// TestJavaReenters: what Java counts is what Go sees, and the last unlock is the one that frees.
func TestJavaReenters(t *testing.T) {
	t.Parallel()
	b := setup(t, longLease)
	name := name(t)
	owner, other := b.java.thread("owner"), b.java.thread("other")

	owner.lock(t, name)
	owner.lock(t, name)
	owner.begin(t, "holds", "plain", name).want(t, "2")
	b.wantHolds(t, name, 2)
	other.begin(t, "holds", "plain", name).want(t, "0")
	for left := 1; left >= 0; left-- {
		if _, err := b.locks.Mutex(name).TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("TryLock with %d holds of Java gave %v, want ErrHeld", left+1, err)
		}
		owner.unlock(t, name)
		b.wantHolds(t, name, left)
	}
	mustUnlock(t, mustLock(t, b.locks.Mutex(name)))
}

// TestGoReenters: the same with the roles exchanged.
func TestGoReenters(t *testing.T) {
	t.Parallel()
	b := setup(t, longLease)
	name := name(t)
	m := b.locks.Mutex(name)
	other := b.java.thread("other")

	outer := mustLock(t, m)
	holder := b.wantHolds(t, name, 1)
	inner, err := m.TryLock(outer.Context())
	if err != nil {
		t.Fatal(err)
	}
	if again := b.wantHolds(t, name, 2); again != holder {
		t.Fatalf("the holder changed from %s to %s at a re-entry", holder, again)
	}
	if _, err := m.TryLock(lock.Detach(outer.Context())); !errors.Is(err, lock.ErrHeld) {
		t.Fatalf("TryLock with a detached context gave %v, want ErrHeld", err)
	}
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
func mustReenter(t *testing.T, b both, name string, lease *lock.Lease) int64 {
	t.Helper()
	inner, err := b.locks.Mutex(name).TryLock(lease.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, inner)
	return inner.Token()
}
