package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/lock/driver"
)

// slowStore answers when it is told to; what it is asked for takes effect at once, or when it answers. Like stores over
// a network it refuses calls once it is closed.
type slowStore struct {
	*fake
	acquired, released chan struct{} // nil: it answers at once
	unknown            error         // what becomes of the answer to an Acquire
	closed             atomic.Bool
}

func newSlowStore() *slowStore {
	s := &slowStore{fake: newFake()}
	s.acquire = func(ctx context.Context, r driver.Request) (driver.Grant, error) {
		grant, err := s.Store.Acquire(ctx, r)
		if s.acquired != nil {
			<-s.acquired
		}
		return grant, errors.Join(err, s.unknown)
	}
	s.release = func(ctx context.Context, r driver.Request) (bool, error) {
		if s.released != nil {
			<-s.released
		}
		if s.closed.Load() || ctx.Err() != nil {
			return false, errors.Join(lock.ErrNotSent, lock.ErrClosed)
		}
		return s.Store.Release(ctx, r)
	}
	s.close = func() error {
		s.closed.Store(true)
		return nil
	}
	return s
}

// wantFree wants the store to be closed and the lock to be nobody's.
func (s *slowStore) wantFree(t *testing.T, name string) {
	t.Helper()
	check.Equal(t, "Close has ended", s.closed.Load(), true)
	check.Equal(t, name+" is free", s.free(t, name), true)
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
					store := newSlowStore()
					store.acquired, store.unknown = make(chan struct{}), outcome
					locks := lock.New(store)
					var l lock.Locker = locks.Mutex("k")
					answer := make(chan struct{}) // of the other part
					if fails != nil {
						other := newSlowStore()
						other.acquired, other.unknown = answer, fails
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
					store.wantFree(t, "k")
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
		store := newSlowStore()
		store.released = make(chan struct{})
		locks := lock.New(store)
		lease := mustLock(t, t.Context(), locks.Mutex("k"))
		go mustUnlock(t, lease)
		synctest.Wait()
		go closeLocks(t, locks)
		synctest.Wait()
		close(store.released)
		synctest.Wait()
		store.wantFree(t, "k")
	})
}

// An Unlock that comes when Close has looked leaves the lock to it.
func TestUnlockAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newSlowStore()
		store.released = make(chan struct{})
		locks := lock.New(store)
		lease := mustLock(t, t.Context(), locks.Mutex("k"))
		go closeLocks(t, locks)
		synctest.Wait()
		mustUnlock(t, lease)
		close(store.released)
		synctest.Wait()
		store.wantFree(t, "k")
	})
}

// Close ends the leases of locks of several parts as it does any other, and gives them
// back. Guards: the cause in bundle.ended; ErrClosed in bundle.unlock.
func TestCloseEndsQuorums(t *testing.T) {
	t.Parallel()
	for what, join := range joins() {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newSlowStore()
				locks := lock.New(store)
				lease := mustLock(t, t.Context(), join(locks.Mutex("a"), locks.Mutex("b"), locks.Mutex("c")))
				closeLocks(t, locks)
				check.Is(t, "the cause", context.Cause(lease.Context()), lock.ErrClosed)
				mustUnlock(t, lease)
				for _, name := range []string{"a", "b", "c"} {
					store.wantFree(t, name)
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
		store := newSlowStore()
		store.unknown = lock.ErrUnknown
		store.closed.Store(true)
		locks := lock.New(store)
		check.Is(t, "the acquisition", check.ErrorOf(locks.Mutex("k").TryLock(t.Context())), lock.ErrUnknown)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		check.Is(t, "closed", locks.Close(ctx), lock.ErrUnknown)
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("closing took %s", took)
		}
	})
}

// Close waits for a call that does not end as long as its context lasts.
func TestCloseGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newSlowStore()
		store.acquired = make(chan struct{})
		locks := lock.New(store)
		go func() { _, _ = locks.Mutex("k").TryLock(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		check.Is(t, "closed", locks.Close(ctx), context.DeadlineExceeded)
		close(store.acquired)
	})
}

func closeLocks(t *testing.T, locks *lock.Client) {
	t.Helper()
	check.Is(t, "closed", locks.Close(t.Context()), nil)
}
