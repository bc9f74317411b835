package lock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/lock/driver"
)

// The callers of one process, and of four, that want the same three parts, and
// half of them in the opposite order: they do not take parts from one another,
// so that each acquisition costs little more than it would alone (six calls).
// Guards: Quorum.join, the pause in Quorum.await after a round that got only some parts.
func TestQuorumContention(t *testing.T) {
	t.Parallel()
	for kind, join := range joins() {
		for processes, most := range map[int]int{1: 9, 4: 24} {
			t.Run(fmt.Sprint(kind, " in ", processes), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					const workers, rounds = 8, 25
					stores, _ := instances(t, 3)
					var parts [][]lock.Locker
					for range processes {
						parts = append(parts, partsOf(t, stores))
					}
					for _, s := range stores {
						s.takes, s.answers = 100*time.Microsecond, 100*time.Microsecond
					}
					held := 0 // the race detector watches
					var wg sync.WaitGroup
					for i := range workers {
						p := slices.Clone(parts[i%processes])
						if i/processes%2 == 1 {
							slices.Reverse(p)
						}
						wg.Go(func() {
							for range rounds {
								lease, err := join(p...).Lock(t.Context(), lock.Wait(check.Deadline))
								if err != nil {
									t.Error(err)
									return
								}
								held++
								time.Sleep(200 * time.Microsecond) // the work
								mustUnlock(t, lease)
							}
						})
					}
					wg.Wait()
					used := 0
					for _, s := range stores {
						used += s.calls()
					}
					t.Logf("%d calls for %d acquisitions", used, held)
					if used > most*held {
						t.Errorf("%d calls for %d acquisitions, more than %d each", used, held, most)
					}
					noOrphans(t, stores)
				})
			})
		}
	}
}

// The callers of one process get a lock of several parts in the order they
// came; who gives up leaves the line, and who holds a part does not wait in it.
func TestQuorumLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stores, parts := instances(t, 3)
		q := lock.All(parts...)
		held := mustLock(t, t.Context(), q)

		const callers = 6
		var order []int // guarded by the lock
		var wg sync.WaitGroup
		quit, cancel := context.WithCancel(t.Context())
		for i := range callers {
			ctx := t.Context()
			if i == 2 {
				ctx = quit
			}
			wg.Go(func() {
				l, err := take(ctx, q)
				if i == 2 {
					check.Is(t, "the one that gave up", err, context.Canceled)
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				mustUnlock(t, l)
			})
			synctest.Wait()
			check.Equal(t, "in line", lock.WaitingFor(q), i+1)
		}
		check.Is(t, "a budget spent in the line", check.ErrorOf(q.Lock(t.Context(), lock.Wait(term))), lock.ErrTimeout)
		cancel()
		synctest.Wait()
		check.Equal(t, "in line when one is gone", lock.WaitingFor(q), callers-1)

		// Behind the others, whose turn never comes before it, it would wait for ever.
		mustUnlock(t, mustLock(t, held.Context(), q))
		mustUnlock(t, mustLock(t, held.Context(), lock.Majority(parts...)))

		mustUnlock(t, held)
		wg.Wait()
		check.Equal(t, "served in the order", fmt.Sprint(order), "[0 1 3 4 5]")
		check.Equal(t, "lines that are left", lock.Queues(q), 0)
		noOrphans(t, stores)
	})
}

// A lease whose keys are gone, which nobody is told, does not keep the line waiting until it is over.
func TestQuorumLineFlushed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stores, parts := instances(t, 3)
		q := lock.All(parts...)
		held := mustLock(t, t.Context(), q)
		for _, s := range stores {
			s.empty()
		}
		start := time.Now()
		next := mustLock(t, t.Context(), q)
		if took := time.Since(start); took > lock.DefaultProbe {
			t.Errorf("the next one waited %s", took)
		}
		check.Is(t, "the one whose keys were deleted", held.Unlock(), lock.ErrLost)
		mustUnlock(t, next)
	})
}

// TestQuorumContentionBesideSilence: one of three instances is stopped, and four processes need both others. Each has one of
// them for as long as it waits for the silent one, and still they get both in turn. Guard: slowest in Quorum.await.
func TestQuorumContentionBesideSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const processes, rounds, givenUp, jitter = 4, 10, 300 * time.Millisecond, 2 * time.Millisecond
		stores, _ := instances(t, 3)
		random := check.Seeded(t)
		var mu sync.Mutex // guards random
		for _, s := range stores {
			s.acquire = func(ctx context.Context, r driver.Request) (driver.Grant, error) {
				mu.Lock()
				late := time.Duration(random.Int64N(int64(jitter)))
				mu.Unlock()
				time.Sleep(late)
				return s.Store.Acquire(ctx, r)
			}
		}
		stores[2].takes = givenUp
		stores[2].acquire = func(context.Context, driver.Request) (driver.Grant, error) { return driver.Grant{}, lock.ErrUnknown }
		stores[2].release = func(context.Context, driver.Request) (bool, error) { return false, lock.ErrUnknown }
		start := time.Now()
		var wg sync.WaitGroup
		for i := range processes {
			parts := partsOf(t, stores)
			if i%2 == 1 {
				parts[0], parts[1] = parts[1], parts[0]
			}
			q := lock.Majority(parts...)
			wg.Go(func() {
				for range rounds {
					lease, err := q.Lock(t.Context(), lock.Wait(check.Deadline))
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond) // the work
					_ = lease.Unlock()           // the silent one's part goes on in the background
				}
			})
		}
		wg.Wait()
		t.Logf("%d acquisitions took %s", processes*rounds, time.Since(start))
		noOrphans(t, stores[:2])
	})
}
