package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// subject is one kind of lock under the conformance suite.
type subject struct {
	name string
	// process returns what a new process would make: locks by name, sharing
	// nothing in memory with those of other calls.
	process func(t *testing.T) func(name string) lock.Locker
	// gone are the ways to take the lock behind everybody's back.
	gone []func(t *testing.T, name string)
}

func subjects(t *testing.T) []subject {
	t.Helper()
	var list []subject
	for _, k := range kinds(t) {
		process := func(t *testing.T) func(string) lock.Locker {
			t.Helper()
			locks := newLocks(t, k.open())
			return func(name string) lock.Locker { return locks.Mutex(name) }
		}
		list = append(list, subject{k.name, process, []func(*testing.T, string){k.expire, k.remove}})
	}
	shared := dial(t, testserver.SharedRedis(t))
	part := func(name string, i int) string { return fmt.Sprint(name, " on instance ", i) }
	for name, join := range joins() {
		process := func(t *testing.T) func(string) lock.Locker {
			t.Helper()
			locks := []*lock.Client{locksOn(t, shared), locksOn(t, shared), locksOn(t, shared)}
			return func(name string) lock.Locker {
				var parts []lock.Locker
				for i, l := range locks {
					parts = append(parts, l.Mutex(part(name, i)))
				}
				return join(parts...)
			}
		}
		remove := func(t *testing.T, name string) {
			t.Helper()
			for i := range 3 {
				shared.Del(t.Context(), part(name, i))
			}
		}
		list = append(list, subject{name, process, []func(*testing.T, string){remove}})
	}
	return list
}

func joins() map[string]func(...lock.Locker) *lock.Quorum {
	return map[string]func(...lock.Locker) *lock.Quorum{"all": lock.All, "majority": lock.Majority}
}

// TestConformance is what every lock must do, whatever it is made of. What it does in time, TestTime tries.
func TestConformance(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, s subject, name string){
		"exclusion and tokens": conformExclusion,
		"re-entry":             conformReentry,
		"try and wait":         conformTry,
		"deadline and cancel":  conformContext,
		"loss":                 conformLoss,
		"close":                conformClose,
	}
	for _, s := range subjects(t) {
		for what, run := range cases {
			t.Run(s.name+"/"+what, func(t *testing.T) {
				t.Parallel()
				run(t, s, nameOf(t))
			})
		}
	}
}

func conformExclusion(t *testing.T, s subject, name string) {
	processes := []lock.Locker{s.process(t)(name), s.process(t)(name)}
	var wg sync.WaitGroup
	n, last := 0, int64(0) // the race detector watches: only the lock guards them
	var inside atomic.Int32
	const workers, times = 6, 4
	for i := range workers {
		wg.Go(func() {
			for range times {
				lease, err := take(t.Context(), processes[i%2])
				if err != nil {
					t.Errorf("lock: %v", err)
					return
				}
				check.Equal(t, "holders", inside.Add(1), 1)
				n++
				if lease.Token() <= last {
					t.Errorf("token %d after %d", lease.Token(), last)
				}
				last = lease.Token()
				inside.Add(-1)
				mustUnlock(t, lease)
			}
		})
	}
	wg.Wait()
	check.Equal(t, "turns", n, workers*times)
}

func conformReentry(t *testing.T, s subject, name string) {
	l := s.process(t)(name)
	outer := mustLock(t, t.Context(), l)
	inner := mustLock(t, outer.Context(), l)
	check.Equal(t, "the token of a re-entry", inner.Token(), outer.Token())
	// A sibling that was handed the context is the same owner; one that was
	// handed a detached one is not.
	mustUnlock(t, got(t, "sibling", begin(outer.Context(), l)))
	check.Is(t, "detached", check.ErrorOf(l.TryLock(lock.Detach(inner.Context()))), lock.ErrHeld)
	mustUnlock(t, inner)
	if inner.Context().Err() == nil || outer.Context().Err() != nil {
		t.Error("the inner lease's context must end, the outer one's not")
	}
	check.Is(t, "after the inner unlock", check.ErrorOf(l.TryLock(t.Context())), lock.ErrHeld)
	mustUnlock(t, outer)
	mustUnlock(t, mustLock(t, t.Context(), l))
	check.Is(t, "a second unlock", outer.Unlock(), lock.ErrNotHeld)
	check.Is(t, "extended after its unlock", outer.Extend(t.Context(), calm), lock.ErrNotHeld)
}

func conformTry(t *testing.T, s subject, name string) {
	one, two := s.process(t)(name), s.process(t)(name)
	lease := mustLock(t, t.Context(), one)
	for _, l := range []lock.Locker{one, two} {
		check.Is(t, "try", check.ErrorOf(l.TryLock(t.Context())), lock.ErrHeld)
		check.Is(t, "no wait", check.ErrorOf(l.Lock(t.Context(), lock.Wait(0))), lock.ErrTimeout)
		check.Is(t, "a wait", check.ErrorOf(l.Lock(t.Context(), lock.Wait(check.Soon))), lock.ErrTimeout)
	}
	waiter := begin(t.Context(), two)
	mustUnlock(t, lease)
	mustUnlock(t, got(t, "the waiter", waiter))
}

func conformContext(t *testing.T, s subject, name string) {
	one, two := s.process(t)(name), s.process(t)(name)
	lease := mustLock(t, t.Context(), one)
	gone := errors.New("the client hung up")
	for _, l := range []lock.Locker{one, two} {
		check.Is(t, "deadline", check.ErrorOf(l.Lock(check.Expiring(t))), context.DeadlineExceeded)
		ctx, hangUp := context.WithCancelCause(t.Context())
		time.AfterFunc(check.Soon, func() { hangUp(gone) })
		check.Is(t, "cancel", check.ErrorOf(l.Lock(ctx)), gone)
		check.Is(t, "canceled before", check.ErrorOf(l.Lock(ctx)), gone)
	}
	mustUnlock(t, lease)
	// Nothing of the failed attempts is in the way.
	mustUnlock(t, mustLock(t, t.Context(), two))
}

func conformLoss(t *testing.T, s subject, name string) {
	for i, end := range s.gone {
		name := fmt.Sprint(name, i)
		l, other := s.process(t)(name), s.process(t)(name)
		lease := mustLock(t, t.Context(), l)
		end(t, name)
		check.Is(t, "the extension of what is gone", lease.Extend(t.Context(), calm), lock.ErrLost)
		wantLost(t, lease)

		lease = mustLock(t, t.Context(), l)
		end(t, name)
		next := mustLock(t, t.Context(), other)
		if next.Token() <= lease.Token() {
			t.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		check.Is(t, "the unlock of what another has", lease.Unlock(), lock.ErrLost)
		check.Is(t, "after that", check.ErrorOf(l.TryLock(t.Context())), lock.ErrHeld)
		mustUnlock(t, next)

		outer := mustLock(t, t.Context(), l)
		end(t, name)
		if _, err := l.Lock(outer.Context(), lock.Wait(0)); err == nil {
			t.Error("a re-entry took a lock that had been lost in between")
		}
		_ = outer.Unlock()
	}
}

func conformClose(t *testing.T, s subject, name string) {
	waiting := s.process(t)(name)
	var lease *lock.Lease
	t.Run("holder", func(inner *testing.T) {
		lease = mustLock(inner, t.Context(), s.process(inner)(name))
	}) // its clients are closed here
	check.Is(t, "the cause", context.Cause(lease.Context()), lock.ErrClosed)
	mustUnlock(t, mustLock(t, t.Context(), waiting))
}
