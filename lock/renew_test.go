package lock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"seckill/lock"
)

// altered is a store some of whose answers a test gives in its place.
type altered struct {
	lock.Store
	acquire func(ctx context.Context, r lock.Request) (lock.Grant, error)
	renew   func(ctx context.Context, rs []lock.Request) []error
}

func (s *altered) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	if s.acquire != nil {
		return s.acquire(ctx, r)
	}
	return s.Store.Acquire(ctx, r)
}

func (s *altered) Renew(ctx context.Context, rs []lock.Request) []error {
	if s.renew != nil {
		return s.renew(ctx, rs)
	}
	return s.Store.Renew(ctx, rs)
}

// A transaction keeps the row of one lock: that one runs out, and the others, whose rows
// are free, do not. Guard: errs, of each request, in MySQLStore.Renew.
func TestLockedRowIsOneLocksTrouble(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	store := lock.NewMySQLStore(db)
	if err := store.EnsureTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	const leaseTime = 900 * time.Millisecond
	locks := newLocks(t, store, lock.WatchdogLease(leaseTime))
	undisturbed(t, leaseTime, "k", func(name string) error {
		var leases []*lock.Lease
		for i := range 5 {
			lease, err := take(t.Context(), locks.Mutex(fmt.Sprint(name, ":", i)))
			if err != nil {
				return err
			}
			leases = append(leases, lease)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM seckill_locks WHERE name = ? FOR UPDATE", leases[0].Name()); err != nil {
			t.Fatal(err)
		}
		<-leases[0].Context().Done()
		until := time.Now()
		for _, l := range leases[1:] {
			eventually(t, 5*time.Second, "it was renewed after the other one had run out", func() bool {
				return l.Context().Err() != nil || l.ValidUntil().After(until.Add(leaseTime/2))
			})
			if err := context.Cause(l.Context()); err != nil {
				return fmt.Errorf("a lock whose row is free: %w", err)
			}
		}
		return nil
	})
}

// The context of the outer lease ends and the watchdog drops the lock; then its owner
// re-enters with a context that lasts: the lock is renewed again. Guard: schedule for each
// lease, in holding.add.
func TestReentryIsRenewedAfterTheOuterContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const leaseTime = 3 * time.Second
		locks := lock.New(lock.NewMemoryStore(), lock.WatchdogLease(leaseTime))
		defer closeLocks(t, locks)
		request, done := context.WithCancel(t.Context())
		outer := mustLock(t, request, locks.Mutex("k"))
		lasting := context.WithoutCancel(outer.Context())
		done()
		<-time.After(leaseTime / 2) // the watchdog has looked
		inner := mustLock(t, lasting, locks.Mutex("k"))
		<-time.After(10 * leaseTime)
		if err := context.Cause(inner.Context()); err != nil {
			t.Errorf("the re-entry: %v", err)
		}
		mustUnlock(t, inner)
		mustUnlock(t, outer)
	})
}

// An acquisition takes most of its lease: the first renewal comes before the rest is over.
// Guard: until, in holding.add.
func TestFirstRenewalOfASlowAcquisition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const leaseTime = 3 * time.Second
		memory := lock.NewMemoryStore()
		locks := lock.New(&altered{Store: memory, acquire: func(ctx context.Context, r lock.Request) (lock.Grant, error) {
			grant, err := memory.Acquire(ctx, r)
			<-time.After(leaseTime * 9 / 10) // the answer is on its way
			return grant, err
		}}, lock.WatchdogLease(leaseTime))
		defer closeLocks(t, locks)
		lease := mustLock(t, t.Context(), locks.Mutex("k"))
		<-time.After(10 * leaseTime)
		if err := context.Cause(lease.Context()); err != nil {
			t.Errorf("the store answers, and yet: %v", err)
		}
		mustUnlock(t, lease)
	})
}
