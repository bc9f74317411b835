package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"seckill/lock"
)

// Unlock takes no longer than UnlockTimeout, though the store bounds its calls later and
// the lock is given back only then. Guard: WithTimeout in holding.unlock.
func TestUnlockIsBoundedWhileTheStoreIsSilent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const patience = 300 * time.Millisecond
	store := lock.NewRedisStore(dial(t, b.url()), lock.CallTimeout(20*time.Second))
	locks := newLocks(t, store, lock.UnlockTimeout(patience))
	undisturbed(t, 6*time.Second, "k", func(name string) error {
		lease, err := take(t.Context(), locks.Mutex(name))
		if err != nil {
			return err
		}
		b.line.Hole()
		start := time.Now()
		err = lease.Unlock()
		took := time.Since(start)
		b.line.Heal()
		if !errors.Is(err, lock.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("unlock: %v", err)
		}
		if took > 10*patience {
			t.Errorf("an unlock of %s took %s", patience, took)
		}
		eventually(t, 10*time.Second, "it goes on in the background", func() bool { return b.direct.Exists(t.Context(), name).Val() == 0 })
		return nil
	})
}

// Another goroutine of the owner is in the middle of a request for the lock: Unlock waits for it
// no longer than UnlockTimeout, and the hold is given back behind it. Guard: as above.
func TestUnlockIsBoundedBesideItsOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := lock.NewMemoryStore()
		inside, goOn := make(chan struct{}), make(chan struct{})
		locks := lock.New(&altered{Store: memory, acquire: func(ctx context.Context, r lock.Request) (lock.Grant, error) {
			if r.Holds == 2 {
				close(inside)
				<-goOn
			}
			return memory.Acquire(ctx, r)
		}}, lock.UnlockTimeout(time.Second))
		defer closeLocks(t, locks)
		outer := mustLock(t, t.Context(), locks.Mutex("k"))
		lasting := context.WithoutCancel(outer.Context())
		go func() { mustUnlock(t, mustLock(t, lasting, locks.Mutex("k"))) }()
		<-inside
		unlocked := make(chan error, 1)
		go func() { unlocked <- outer.Unlock() }()
		select {
		case err := <-unlocked:
			if !errors.Is(err, lock.ErrUnknown) {
				t.Errorf("unlock: %v", err)
			}
		case <-time.After(time.Second + time.Millisecond):
			t.Error("an unlock of a second takes longer")
		}
		close(goOn)
		synctest.Wait()
		mustUnlock(t, mustLock(t, t.Context(), locks.Mutex("k"), lock.Wait(0)))
	})
}
