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

// slowStore is a store whose calls take effect at once, or only when it
// answers, and which answers when it is told to. Like those over a network it
// refuses calls once it is closed.
type slowStore struct {
	*lock.MemoryStore
	acquired, released chan struct{} // nil: it answers at once
	unknown            error         // what becomes of the answer to an Acquire
	closed             atomic.Bool
}

func (s *slowStore) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	grant, err := s.MemoryStore.Acquire(ctx, r)
	if s.acquired != nil {
		<-s.acquired
	}
	return grant, errors.Join(err, s.unknown)
}

func (s *slowStore) Release(ctx context.Context, r lock.Request) (bool, error) {
	if s.released != nil {
		<-s.released
	}
	if s.closed.Load() || ctx.Err() != nil {
		return false, errors.Join(lock.ErrNotSent, lock.ErrClosed)
	}
	return s.MemoryStore.Release(ctx, r)
}

func (s *slowStore) Close() error {
	s.closed.Store(true)
	return nil
}

// free tells whether another client of the same locks finds one free.
func (s *slowStore) free(t *testing.T, name string) bool {
	t.Helper()
	other := lock.New(s.MemoryStore)
	defer func() {
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	_, err := other.Mutex(name).TryLock(t.Context())
	if err != nil && !errors.Is(err, lock.ErrHeld) {
		t.Error(err)
	}
	return err == nil
}

// An acquisition whose answer comes only once Close has looked is given back all
// the same, also when its caller had left: a part of All that was no longer
// needed. Guards: enter in Mutex.lock, underWay.Wait in settled.
func TestCloseWaitsForAcquisitions(t *testing.T) {
	t.Parallel()
	for what, outcome := range map[string]error{"granted": nil, "unknown": lock.ErrUnknown} {
		for kind, fails := range map[string]error{"single": nil, "part": lock.ErrRefused} {
			t.Run(kind+" "+what, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := &slowStore{MemoryStore: lock.NewMemoryStore(), acquired: make(chan struct{}), unknown: outcome}
					locks := lock.New(store)
					var l lock.Locker = locks.Mutex("k")
					answer := make(chan struct{}) // of the other part
					if fails != nil {
						other := &slowStore{MemoryStore: lock.NewMemoryStore(), acquired: answer, unknown: fails}
						broken := lock.New(other)
						defer closeLocks(t, broken)
						l = lock.All(l, broken.Mutex("k"))
					}
					go func() {
						if lease, err := l.TryLock(t.Context()); err == nil {
							t.Errorf("got %v after Close", lease)
						}
					}()
					synctest.Wait()
					close(answer)
					synctest.Wait()
					go closeLocks(t, locks)
					synctest.Wait()
					close(store.acquired)
					synctest.Wait()
					if !store.closed.Load() {
						t.Error("Close did not end")
					}
					if !store.free(t, "k") {
						t.Error("the lock is left behind")
					}
				})
			})
		}
	}
}

// An Unlock under way gets its answer, whatever Close does. Guards: enter in
// entry.unlockNow, underWay.Wait in settled.
func TestCloseWaitsForUnlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{MemoryStore: lock.NewMemoryStore(), released: make(chan struct{})}
		locks := lock.New(store)
		lease := mustLock(t, t.Context(), locks.Mutex("k"))
		go mustUnlock(t, lease)
		synctest.Wait()
		go closeLocks(t, locks)
		synctest.Wait()
		close(store.released)
		synctest.Wait()
		if !store.closed.Load() {
			t.Error("Close did not end")
		}
		if !store.free(t, "k") {
			t.Error("the lock is left behind")
		}
	})
}

// An Unlock that comes when Close has looked leaves the lock to it.
func TestUnlockAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{MemoryStore: lock.NewMemoryStore(), released: make(chan struct{})}
		locks := lock.New(store)
		lease := mustLock(t, t.Context(), locks.Mutex("k"))
		go closeLocks(t, locks)
		synctest.Wait()
		mustUnlock(t, lease)
		close(store.released)
		synctest.Wait()
		if !store.free(t, "k") {
			t.Error("the lock is left behind")
		}
	})
}

// Close ends the leases of locks of several parts as it does any other, and gives them
// back. Guards: the cause in bundle.ended; ErrClosed in bundle.unlock.
func TestCloseEndsQuorums(t *testing.T) {
	t.Parallel()
	for what, join := range map[string]func(...lock.Locker) *lock.Quorum{"all": lock.All, "majority": lock.Majority} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &slowStore{MemoryStore: lock.NewMemoryStore()}
				locks := lock.New(store)
				lease := mustLock(t, t.Context(), join(locks.Mutex("a"), locks.Mutex("b"), locks.Mutex("c")))
				closeLocks(t, locks)
				if cause := context.Cause(lease.Context()); !errors.Is(cause, lock.ErrClosed) {
					t.Errorf("cause: %v", cause)
				}
				mustUnlock(t, lease)
				for _, name := range []string{"a", "b", "c"} {
					if !store.free(t, name) {
						t.Errorf("%s is left behind", name)
					}
				}
			})
		})
	}
}

// A store that is gone does not use up the time there is for closing. Guard:
// closeUndoTime in settled.
func TestCloseBesideDeadStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{MemoryStore: lock.NewMemoryStore(), unknown: lock.ErrUnknown}
		store.closed.Store(true)
		locks := lock.New(store)
		if _, err := locks.Mutex("k").TryLock(t.Context()); !errors.Is(err, lock.ErrUnknown) {
			t.Errorf("the acquisition: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if err := locks.Close(ctx); !errors.Is(err, lock.ErrUnknown) {
			t.Errorf("closed: %v", err)
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("closing took %s", took)
		}
	})
}

// Close waits for a call that does not end as long as its context lasts.
func TestCloseGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{MemoryStore: lock.NewMemoryStore(), acquired: make(chan struct{})}
		locks := lock.New(store)
		go func() { _, _ = locks.Mutex("k").TryLock(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := locks.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closed: %v", err)
		}
		close(store.acquired)
	})
}

func closeLocks(t *testing.T, locks *lock.Client) {
	t.Helper()
	if err := locks.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
