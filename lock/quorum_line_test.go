package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/lock"
)

// scripts counts the scripts that instances have carried out.
func scripts(t *testing.T, direct []*redis.Client) (sum int) {
	t.Helper()
	for _, d := range direct {
		for l := range strings.Lines(d.Info(t.Context(), "commandstats").Val()) {
			var n int
			if _, err := fmt.Sscanf(l, "cmdstat_evalsha:calls=%d,", &n); err == nil {
				sum += n
			}
		}
	}
	return sum
}

// The callers of one process, and of four, that want the same three parts, and
// half of them in the opposite order: they do not take parts from one another,
// so that each acquisition costs little more than it would alone (six scripts).
// Guards: Quorum.join, the pause after a part was got in vain in Quorum.await.
//
//nolint:paralleltest // callers look again after some time: how often, for one acquisition, says nothing beside other tests
func TestQuorumContention(t *testing.T) {
	kinds := map[string]func(...lock.Locker) *lock.Quorum{"all": lock.All, "majority": lock.Majority}
	for kind, join := range kinds {
		for processes, most := range map[int]int{1: 9, 4: 24} {
			t.Run(fmt.Sprint(kind, " in ", processes), func(t *testing.T) {
				const workers, rounds = 8, 25
				tr := newTrio(t)
				var parts [][]lock.Locker
				for range processes {
					p := tr.parts("k")
					mustUnlock(t, mustLock(t, t.Context(), join(p...)))
					parts = append(parts, p)
				}
				before := scripts(t, tr.direct)
				held := 0 // the race detector watches
				var wg sync.WaitGroup
				for i := range workers {
					p := slices.Clone(parts[i%processes])
					if i/processes%2 == 1 {
						slices.Reverse(p)
					}
					wg.Go(func() {
						for range rounds {
							lease, err := join(p...).Lock(t.Context(), lock.Wait(30*time.Second))
							if err != nil {
								t.Error(err)
								return
							}
							held++
							<-time.After(200 * time.Microsecond) // the work
							if err := lease.Unlock(); err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				used := scripts(t, tr.direct) - before
				t.Logf("%d scripts for %d acquisitions", used, held)
				if used > most*held {
					t.Errorf("%d scripts for %d acquisitions, more than %d each", used, held, most)
				}
				tr.noOrphans("k", 0, 1, 2)
			})
		}
	}
}

// The callers of one process get a lock of several parts in the order they
// came; who gives up leaves the line, and who holds a part does not wait in it.
func TestQuorumLine(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	parts := tr.parts("k")
	q := lock.All(parts...)
	lease := mustLock(t, t.Context(), q)

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
			l, err := q.Lock(ctx, lock.Wait(20*time.Second))
			if i == 2 {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("the one that gave up: %v", err)
				}
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, i)
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
		})
		eventually(t, 5*time.Second, "in line", func() bool { return lock.WaitingFor(q) >= i+1 })
	}
	if _, err := q.Lock(t.Context(), lock.Wait(20*time.Millisecond)); !errors.Is(err, lock.ErrTimeout) {
		t.Errorf("a budget spent in the line: %v", err)
	}
	cancel()
	eventually(t, 5*time.Second, "one gone", func() bool { return lock.WaitingFor(q) == callers-1 })

	// Behind the others, whose turn never comes before it, it would wait for ever.
	mustUnlock(t, mustLock(t, lease.Context(), q))
	mustUnlock(t, mustLock(t, lease.Context(), lock.Majority(parts...)))

	mustUnlock(t, lease)
	wg.Wait()
	if want := []int{0, 1, 3, 4, 5}; !slices.Equal(order, want) {
		t.Errorf("served in the order %v, want %v", order, want)
	}
	if n := lock.Lines(q); n != 0 {
		t.Errorf("%d lines are left", n)
	}
	tr.noOrphans("k", 0, 1, 2)
}

// A lease whose keys are gone does not keep the line waiting until it is over.
func TestQuorumLineFlushed(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	q := lock.All(tr.parts("k")...)
	lease := mustLock(t, t.Context(), q)
	for _, d := range tr.direct {
		d.FlushAll(t.Context())
	}
	start := time.Now()
	next := mustLock(t, t.Context(), q, lock.Wait(10*time.Second))
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("the next one waited %s", d)
	}
	if err := lease.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the one whose keys were deleted: %v", err)
	}
	mustUnlock(t, next)
}
