package lock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"seckill/lock"
)

// A lock of three parts is given back part by part, as Redisson and any other
// process does, and a caller has waited for it for a while: it has the lock
// within a few milliseconds of the last part, although it may have asked in the
// middle and got some parts in vain. While it waits it asks at the intervals of a
// single lock. Guards: raced and interval in Quorum.await. (The time is not the
// machine's. A pause that had doubled while it waited was slept out: 64 ms on average.)
func TestQuorumWakesSoon(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(...lock.Locker) *lock.Quorum{"all": lock.All, "majority": lock.Majority}
	for kind, join := range kinds {
		for gap := range 5 {
			t.Run(fmt.Sprint(kind, " ", gap, " ms apart"), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					for range 20 {
						wakeQuorum(t, join, time.Duration(gap)*time.Millisecond)
					}
				})
			})
		}
	}
}

func wakeQuorum(t *testing.T, join func(...lock.Locker) *lock.Quorum, gap time.Duration) {
	t.Helper()
	const waited, soon = 3 * time.Second, 10 * time.Millisecond
	var stores []*counting
	var parts []lock.Locker
	var held []*lock.Lease
	for range 3 {
		s := &counting{MemoryStore: lock.NewMemoryStore()}
		other := newLocks(t, s.MemoryStore)
		held = append(held, mustLock(t, t.Context(), other.Mutex("k")))
		stores, parts = append(stores, s), append(parts, newLocks(t, s).Mutex("k"))
	}
	got := make(chan *lock.Lease)
	go func() { got <- mustLock(t, t.Context(), join(parts...)) }()
	time.Sleep(waited) //nolint:forbidigo // in a bubble this is exact
	for i, s := range stores {
		// At once, when it watches, and twice a second.
		if n := s.asked.Load(); n > 2+int64(waited/lock.DefaultProbe) {
			t.Errorf("part %d was asked for %d times in %v", i, n, waited)
		}
	}
	for _, lease := range held {
		time.Sleep(gap) //nolint:forbidigo // as above
		mustUnlock(t, lease)
	}
	start := time.Now()
	mustUnlock(t, <-got)
	if took := time.Since(start); took > soon {
		t.Errorf("woken %v after the last part was free", took)
	}
}

// counting counts what a store is asked for.
type counting struct {
	*lock.MemoryStore
	asked atomic.Int64
}

func (s *counting) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	s.asked.Add(1)
	return s.MemoryStore.Acquire(ctx, r)
}

// All parts are said to be free, but another caller is faster at one of them, before the
// other two have answered: a round in vain, which neither got them nor saw them held. Once
// that one is free too, its message alone is enough. Guards: what Quorum.await remembers of
// a round in vain. (It slept out a pause, which doubles each time.)
func TestQuorumRemembersWhatItWasTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const waited, answer = 3200 * time.Millisecond, 5 * time.Millisecond
		contested := &overtaken{MemoryStore: lock.NewMemoryStore()}
		stores := []lock.Store{
			&slow{lock.NewMemoryStore(), answer}, &slow{lock.NewMemoryStore(), answer}, contested,
		}
		var parts []lock.Locker
		var held []*lock.Lease
		for _, s := range stores {
			held = append(held, mustLock(t, t.Context(), newLocks(t, s).Mutex("k")))
			parts = append(parts, newLocks(t, s).Mutex("k"))
		}
		got := make(chan *lock.Lease)
		go func() { got <- mustLock(t, t.Context(), lock.All(parts...)) }()
		time.Sleep(waited) //nolint:forbidigo // in a bubble this is exact
		contested.next.Store(true)
		for _, lease := range held {
			mustUnlock(t, lease)
		}
		time.Sleep(answer) //nolint:forbidigo // as above
		contested.letGo(t)
		start := time.Now()
		mustUnlock(t, <-got)
		// It asks once, and once more for a token that is the same everywhere.
		if took := time.Since(start); took > 2*answer {
			t.Errorf("woken %v after the last part was free, and an answer takes %v", took, answer)
		}
	})
}

// slow takes its time to answer whether a lock may be had.
type slow struct {
	*lock.MemoryStore
	after time.Duration
}

func (s *slow) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	select {
	case <-time.After(s.after):
		return s.MemoryStore.Acquire(ctx, r)
	case <-ctx.Done():
		return lock.Grant{}, ctx.Err()
	}
}

// overtaken lets another owner be faster than the next request.
type overtaken struct {
	*lock.MemoryStore
	next atomic.Bool
}

func (s *overtaken) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	if s.next.CompareAndSwap(true, false) {
		if _, err := s.MemoryStore.Acquire(ctx, lock.Request{Name: r.Name, Holder: "the other", Holds: 1, Lease: time.Minute}); err != nil {
			return lock.Grant{}, err
		}
	}
	return s.MemoryStore.Acquire(ctx, r)
}

func (s *overtaken) letGo(t *testing.T) {
	t.Helper()
	if was, err := s.Release(t.Context(), lock.Request{Name: "k", Holder: "the other"}); !was || err != nil {
		t.Errorf("the other owner had it: %t, %v", was, err)
	}
}

// A caller has waited for a lease of its own process for so long that it listens to the
// messages. The last one comes before the answer that ends the lease, and counts once it
// has ended. Guards: what Quorum.await forgets, and when. (Of one part, so that no first
// message of several has it ask again soon.)
func TestQuorumWakesBehindItsOwnProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const waited, answer, soon = 3200 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond
		locks := newLocks(t, &answering{MemoryStore: lock.NewMemoryStore(), after: answer})
		held := mustLock(t, t.Context(), lock.All(locks.Mutex("k")))
		got := make(chan *lock.Lease)
		go func() { got <- mustLock(t, t.Context(), lock.All(locks.Mutex("k"))) }()
		time.Sleep(waited) //nolint:forbidigo // in a bubble this is exact
		mustUnlock(t, held)
		start := time.Now()
		next := <-got
		if took := time.Since(start); took > soon {
			t.Errorf("woken %v after the lease has ended", took)
		}
		mustUnlock(t, next)
	})
}

// answering carries a release out at once, and takes its time to say so.
type answering struct {
	*lock.MemoryStore
	after time.Duration
}

func (s *answering) Release(ctx context.Context, r lock.Request) (bool, error) {
	was, err := s.MemoryStore.Release(ctx, r)
	time.Sleep(s.after) //nolint:forbidigo // as above
	return was, err
}
