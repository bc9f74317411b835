package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/lock/driver"
)

// instances are independent stores of a bubble, and locks "k" of one process on them.
func instances(t testing.TB, n int) (stores []*fake, parts []lock.Locker) {
	t.Helper()
	for range n {
		s := newFake()
		stores = append(stores, s)
	}
	return stores, partsOf(t, stores)
}

// partsOf is what one more process makes of them.
func partsOf(t testing.TB, stores []*fake) (parts []lock.Locker) {
	t.Helper()
	for _, s := range stores {
		parts = append(parts, s.locks(t).Mutex("k"))
	}
	return parts
}

// noOrphans wants nobody to have the lock on any instance, once all is quiet.
func noOrphans(t testing.TB, stores []*fake) {
	t.Helper()
	synctest.Wait()
	for i, s := range stores {
		check.Equal(t, fmt.Sprintf("instance %d is free", i), s.free(t, "k"), true)
	}
}

// wholes are all, a majority, and for comparison one, of three.
func wholes() map[string]func(...lock.Locker) lock.Locker {
	return map[string]func(...lock.Locker) lock.Locker{
		"all":      func(parts ...lock.Locker) lock.Locker { return lock.All(parts...) },
		"majority": func(parts ...lock.Locker) lock.Locker { return lock.Majority(parts...) },
		"single":   func(parts ...lock.Locker) lock.Locker { return parts[1] },
	}
}

// A quorum is canceled, or meets its deadline, while an instance has carried
// out its part and does not answer: the call returns at that instant and no instance
// keeps a lock. So for a single one. Guards: ctx.Done in decided; holding.undo.
func TestTrap08QuorumCanceled(t *testing.T) {
	t.Parallel()
	for what, join := range wholes() {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				stores, parts := instances(t, 3)
				for _, s := range stores[1:] {
					s.acquire = func(ctx context.Context, r driver.Request) (driver.Grant, error) {
						_, _ = s.Store.Acquire(ctx, r)
						return driver.Grant{}, silent(ctx)
					}
				}
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), term)
				defer cancel()
				check.Is(t, "deadline", check.ErrorOf(join(parts...).Lock(ctx)), context.DeadlineExceeded)
				check.Equal(t, "it took", time.Since(start), term)
				noOrphans(t, stores)

				gone := errors.New("the client hung up")
				ctx, hangUp := context.WithCancelCause(t.Context())
				time.AfterFunc(term, func() { hangUp(gone) })
				check.Is(t, "canceled", check.ErrorOf(join(parts...).Lock(ctx)), gone)
				check.Equal(t, "both took", time.Since(start), 2*term)
				noOrphans(t, stores)
			})
		})
	}
}

// The same over a line to Redis that swallows the replies, with a client that minds no deadlines: the call returns
// while the line is silent, and nothing of it stays once that speaks again. Guards: ctx.Done in batcher.do;
// holding.undo; exists latch in acquire.lua, for go-redis sends the request again.
func TestTrap08RedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for what, join := range wholes() {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var benches []bench
			var parts []lock.Locker
			for range 3 {
				b := newBench(t)
				benches, parts = append(benches, b), append(parts, locksOn(t, plain(t, b.url())).Mutex(b.name))
			}
			q := join(parts...)
			mustUnlock(t, mustLock(t, t.Context(), lock.All(parts...))) // connections and scripts are there
			silent := benches[1:]
			if what == "single" {
				silent = silent[:1]
			}
			before := map[string]string{}
			for _, b := range silent {
				b.line.SwallowReplies()
				before[b.name] = b.token()
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := begin(ctx, q)
			for _, b := range silent {
				check.Eventually(t, "it is carried out", func() bool { return b.token() != before[b.name] })
			}
			cancel()
			if a := check.Receive(t, "the end of the call", failed); a.lease != nil || !errors.Is(a.err, context.Canceled) {
				t.Errorf("lease %v, error %v", a.lease, a.err)
			}
			for _, b := range silent {
				b.line.Heal()
			}
			for _, b := range benches {
				b.noOrphan(t)
			}
			mustUnlock(t, mustLock(t, t.Context(), q))
		})
	}
}

// Not enough parts: all that were got are given back, on all instances at the
// same time; and enough parts that answer too late do not count. Guards:
// b.giveUp in round, wg.Go in each; validUntil in begin.
func TestTrap09PartialQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const answer = 300 * time.Millisecond
		stores, parts := instances(t, 5)
		inVain := func(what string, q lock.Locker, held int) {
			t.Helper()
			var others []*lock.Lease
			for i, s := range stores {
				if s.answers = answer - time.Millisecond; i < held {
					s.answers = answer // those that refuse answer last: what was got is to be given back, together
					others = append(others, mustLock(t, t.Context(), s.others(t).Mutex("k")))
				}
			}
			start := time.Now()
			check.Is(t, what, check.ErrorOf(q.TryLock(t.Context())), lock.ErrHeld)
			// One answer to ask and one to undo; one part after the other would take more.
			check.Equal(t, what+": it took", time.Since(start), 2*answer-time.Millisecond)
			for _, l := range others {
				mustUnlock(t, l)
			}
			noOrphans(t, stores)
		}
		inVain("a majority is held", lock.Majority(parts...), 3)
		inVain("one part is held", lock.All(parts...), 1)
		_, err := lock.All(parts...).TryLock(t.Context(), lock.LeaseTime(answer-50*time.Millisecond))
		check.Is(t, "a lease shorter than the answers took", err, lock.ErrLost)
		time.Sleep(answer)
		noOrphans(t, stores)
	})
}

// Two callers take the same parts in opposite order, again and again: no
// deadlock. Guard: the parts are asked without waiting (one.try in round).
func TestTrap15OppositeOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stores, _ := instances(t, 2)
		for _, s := range stores {
			s.takes, s.answers = 200*time.Microsecond, 200*time.Microsecond
		}
		var wg sync.WaitGroup
		n := 0
		for caller := range 4 {
			parts := partsOf(t, stores)
			if caller%2 == 1 {
				parts[0], parts[1] = parts[1], parts[0]
			}
			wg.Go(func() {
				for range 20 {
					lease, err := take(t.Context(), lock.All(parts...))
					if err != nil {
						t.Error(err)
						return
					}
					n++ // the race detector watches
					mustUnlock(t, lease)
				}
			})
		}
		wg.Wait()
		check.Equal(t, "turns", n, 80)
		noOrphans(t, stores)
	})
}

// An unlock tries all parts and reports all that failed. Guard: each in bundle.unlock.
func TestTrap15UnlockTriesAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two := newCut(), newFake()
		first, third := one.locks(t, lock.UnlockTimeout(time.Second)), one.locks(t, lock.UnlockTimeout(time.Second))
		held := mustLock(t, t.Context(), lock.All(first.Mutex("first"), two.locks(t).Mutex("second"), third.Mutex("third")))
		one.gone.Store(true)
		start := time.Now()
		err := held.Unlock()
		check.Equal(t, "it took", time.Since(start), time.Second)
		if err == nil || !strings.Contains(err.Error(), "unlock first") || !strings.Contains(err.Error(), "unlock third") || strings.Contains(err.Error(), "unlock second") {
			t.Errorf("the unlock reports: %v", err)
		}
		check.Equal(t, "the part that could be reached is free", two.free(t, "second"), true)
		one.gone.Store(false)
	})
}
