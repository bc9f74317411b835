package lock_test

import (
	"context"
	"fmt"
	"testing"
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
