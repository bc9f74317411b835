package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"seckill/lock"
)

// mute is a store that sends no messages.
type mute struct{ lock.Store }

func (mute) Watch(string, func()) lock.Watch { return nil }

// A timeout of nothing is the default, rather than one that has always passed. Guard:
// orDefault.
func TestTimeoutsOfNothing(t *testing.T) {
	t.Parallel()
	table := lock.NewMySQLStore(openDB(t), lock.StatementTimeout(-time.Second))
	if err := table.EnsureTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	for kind, store := range map[string]lock.Store{"mysql": table, "redis": lock.NewRedisStore(newBench(t).direct, lock.CallTimeout(0))} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			lease := mustLock(t, t.Context(), newLocks(t, store, lock.UnlockTimeout(0)).Mutex("k"))
			if err := lease.Extend(t.Context(), time.Minute); err != nil {
				t.Error(err)
			}
			mustUnlock(t, lease)
		})
	}
}

// An interval of nothing is the default, rather than a waiter that asks without a pause.
// Guard: orDefault.
func TestIntervalsOfNothing(t *testing.T) {
	t.Parallel()
	for kind, store := range map[string]func(lock.Store) lock.Store{
		"messages":    func(s lock.Store) lock.Store { return s },
		"no messages": func(s lock.Store) lock.Store { return mute{s} },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory := lock.NewMemoryStore()
				var asked atomic.Int64
				counting := &altered{Store: memory, acquire: func(ctx context.Context, r lock.Request) (lock.Grant, error) {
					if asked.Add(1) > 100 {
						return lock.Grant{}, lock.ErrRefused
					}
					return memory.Acquire(ctx, r)
				}}
				locks := lock.New(store(counting), lock.PollEvery(0), lock.ProbeEvery(-1))
				defer closeLocks(t, locks)
				held := mustLock(t, t.Context(), locks.Mutex("k"))
				if _, err := locks.Mutex("k").Lock(t.Context(), lock.Wait(2*time.Second)); !errors.Is(err, lock.ErrTimeout) {
					t.Errorf("after %d requests: %v", asked.Load(), err)
				}
				mustUnlock(t, held)
			})
		})
	}
}

// A wait or an extension that makes no sense is the least that does: one attempt, and 10 ms.
func TestLeastWaitAndExtension(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := lock.New(lock.NewMemoryStore())
		defer closeLocks(t, locks)
		held := mustLock(t, t.Context(), locks.Mutex("k"), lock.LeaseTime(0))
		if left := time.Until(held.ValidUntil()); left <= 0 || left > 10*time.Millisecond {
			t.Errorf("a lease of nothing lasts %s", left)
		}
		if _, err := locks.Mutex("k").Lock(t.Context(), lock.Wait(-time.Second)); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("less than no wait: %v", err)
		}
		<-time.After(5 * time.Millisecond)
		if err := held.Extend(t.Context(), -time.Second); err != nil {
			t.Error(err)
		}
		if left := time.Until(held.ValidUntil()); left < 7*time.Millisecond || left > 10*time.Millisecond {
			t.Errorf("extended by less than nothing it lasts %s", left)
		}
		mustUnlock(t, held)
	})
}

// Logger(nil) is no logger, also when there is something to tell. Guard: cmp.Or in Logger.
func TestNoLogger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := lock.New(lock.NewMemoryStore(), lock.Logger(nil))
		defer closeLocks(t, locks)
		lease := mustLock(t, t.Context(), locks.Mutex("k"), lock.LeaseTime(time.Second))
		<-lease.Context().Done()
		synctest.Wait()
		if err := lease.Unlock(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("unlock: %v", err)
		}
	})
}
