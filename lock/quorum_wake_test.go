package lock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/lock/driver"
)

// A lock of three parts is given back part by part, as Redisson and any other
// process does, and a caller has waited for it for a while: it has the lock
// within a few milliseconds of the last part, although it may have asked in the
// middle and got only some of the parts. While it waits it asks at the intervals of a
// single lock. Guards: raced and interval in Quorum.await. (A pause that had
// doubled while it waited was slept out: 64 ms on average.)
func TestQuorumWakesSoon(t *testing.T) {
	t.Parallel()
	const waited, soon = 3 * time.Second, 10 * time.Millisecond
	for kind, join := range joins() {
		for gap := range 5 {
			t.Run(fmt.Sprint(kind, " ", gap, " ms apart"), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					for range 20 { // it waits for a while at random
						stores, parts := instances(t, 3)
						held := holdEach(t, stores)
						waiter := begin(t.Context(), join(parts...))
						time.Sleep(waited)
						for i, s := range stores {
							// At once, when it watches, and twice a second.
							if n := s.acquired.Load(); n > 2+int64(waited/lock.DefaultProbe) {
								t.Errorf("part %d was asked for %d times in %v", i, n, waited)
							}
						}
						for _, lease := range held {
							time.Sleep(time.Duration(gap) * time.Millisecond)
							mustUnlock(t, lease)
						}
						start := time.Now()
						mustUnlock(t, got(t, "the lock", waiter))
						if took := time.Since(start); took > soon {
							t.Errorf("woken %v after the last part was free", took)
						}
					}
				})
			})
		}
	}
}

// holdEach has other processes hold the lock of each instance.
func holdEach(t *testing.T, stores []*fake) (held []*lock.Lease) {
	t.Helper()
	for _, s := range stores {
		held = append(held, mustLock(t, t.Context(), s.others(t).Mutex("k")))
	}
	return held
}

// All parts are said to be free, but another caller is faster at one of them, before the
// other two have answered: the round fails, although it found no part held for long. Once
// that one is free too, its message alone is enough. Guards: what Quorum.await remembers of
// a round that failed. (It slept out a pause, which doubles each time.)
func TestQuorumRemembersWhatItWasTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const waited, answer = 3200 * time.Millisecond, 5 * time.Millisecond
		stores, parts := instances(t, 3)
		held := holdEach(t, stores)
		stores[0].takes, stores[1].takes = answer, answer
		contested, other := stores[2].Store, request("k", 1)
		var overtaken atomic.Bool
		stores[2].acquire = func(ctx context.Context, r driver.Request) (driver.Grant, error) {
			if overtaken.CompareAndSwap(true, false) {
				check.Must(t, check.ErrorOf(contested.Acquire(ctx, other)))
			}
			return contested.Acquire(ctx, r)
		}
		waiter := begin(t.Context(), lock.All(parts...))
		time.Sleep(waited)
		overtaken.Store(true)
		for _, lease := range held {
			mustUnlock(t, lease)
		}
		time.Sleep(answer)
		check.Equal(t, "the other one had it", check.Value(contested.Release(t.Context(), driver.Request{Name: "k", Holder: other.Holder}))(t), true)
		start := time.Now()
		lease := got(t, "the lock", waiter)
		// It asks once, and once more for a token that is the same everywhere.
		if took := time.Since(start); took > 2*answer {
			t.Errorf("woken %v after the last part was free, and an answer takes %v", took, answer)
		}
		mustUnlock(t, lease)
	})
}

// A caller has waited for a lease of its own process for so long that it listens to the
// messages. The last one comes before the answer that ends the lease, and counts once it
// has ended. Guards: what Quorum.await forgets, and when. (Of one part, so that no first
// message of several has it ask again soon.)
func TestQuorumWakesBehindItsOwnProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const waited, answer, soon = 3200 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond
		store := newFake()
		store.release = func(ctx context.Context, r driver.Request) (bool, error) {
			was, err := store.Store.Release(ctx, r)
			time.Sleep(answer) // it says so later
			return was, err
		}
		m := store.locks(t).Mutex("k")
		held := mustLock(t, t.Context(), lock.All(m))
		waiter := begin(t.Context(), lock.All(m))
		time.Sleep(waited)
		mustUnlock(t, held)
		start := time.Now()
		next := got(t, "the lock", waiter)
		if took := time.Since(start); took > soon {
			t.Errorf("woken %v after the lease has ended", took)
		}
		mustUnlock(t, next)
	})
}
