package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/lock"
)

// trio is three independent instances and two processes that lock on them.
type trio struct {
	t       *testing.T
	servers []*testserver.Server
	direct  []*redis.Client
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	tr := &trio{t: t}
	for range 3 {
		s := testserver.Redis(t, "--appendonly", "no")
		tr.servers, tr.direct = append(tr.servers, s), append(tr.direct, dial(t, s.URL()))
	}
	return tr
}

// parts makes what one process would: clients of its own.
func (tr *trio) parts(name string, opts ...lock.ClientOption) []lock.Locker {
	tr.t.Helper()
	var parts []lock.Locker
	for _, s := range tr.servers {
		store := lock.NewRedisStore(dial(tr.t, s.URL()), lock.CallTimeout(300*time.Millisecond))
		locks := newLocks(tr.t, store, append(opts, lock.UnlockTimeout(500*time.Millisecond))...)
		parts = append(parts, locks.Mutex(name))
	}
	return parts
}

func (tr *trio) noOrphans(name string, of ...int) {
	tr.t.Helper()
	for _, i := range of {
		eventually(tr.t, 15*time.Second, fmt.Sprintf("no orphan on instance %d", i), func() bool {
			n, err := tr.direct[i].Exists(context.Background(), name).Result()
			return err == nil && n == 0
		})
	}
}

// TestQuorumFaults: one of three instances may fail in any way and a majority
// still locks; with two gone it says so in time and leaves nothing behind. All
// needs every one.
func TestQuorumFaults(t *testing.T) {
	t.Parallel()
	faults := map[string]struct {
		strike, mend func(*testserver.Server)
		answers      bool // the instance still answers, as an empty one
	}{
		"killed":  {strike: (*testserver.Server).Kill, mend: (*testserver.Server).Start},
		"stopped": {strike: (*testserver.Server).Pause, mend: (*testserver.Server).Resume},
		"restarted empty": {strike: func(s *testserver.Server) {
			s.Kill()
			s.ClearData()
			s.Start()
		}, mend: func(*testserver.Server) {}, answers: true},
	}
	for what, f := range faults {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			tr := newTrio(t)
			one, two := tr.parts("k"), tr.parts("k")
			for _, p := range [][]lock.Locker{one, two} {
				mustUnlock(t, mustLock(t, t.Context(), lock.All(p...)))
			}

			// Held across the fault: nobody else gets in, and nobody is told it is lost.
			lease := mustLock(t, t.Context(), lock.Majority(one...))
			eventually(t, 5*time.Second, "all three parts", func() bool {
				for _, d := range tr.direct {
					if d.Exists(t.Context(), "k").Val() != 1 {
						return false
					}
				}
				return true
			})
			f.strike(tr.servers[0])
			if _, err := lock.Majority(two...).TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("a second holder tries with one instance %s: %v", what, err)
			}
			if err := context.Cause(lease.Context()); err != nil {
				t.Errorf("one instance of three ended the lease: %v", err)
			}
			err := lease.Unlock()
			if errors.Is(err, lock.ErrLost) || f.answers && err != nil {
				t.Errorf("unlock: %v", err)
			}
			next := mustLock(t, t.Context(), lock.Majority(two...))
			_ = next.Unlock()
			tr.noOrphans("k", 1, 2)

			if !f.answers {
				if _, err := lock.All(one...).TryLock(t.Context()); err == nil || errors.Is(err, lock.ErrHeld) {
					t.Errorf("all, one %s: %v", what, err)
				}
				f.strike(tr.servers[1])
				start := time.Now()
				if _, err := lock.Majority(one...).Lock(t.Context(), lock.Wait(500*time.Millisecond)); err == nil || errors.Is(err, lock.ErrTimeout) {
					t.Errorf("majority, two %s: %v", what, err)
				}
				if d := time.Since(start); d > 3*time.Second {
					t.Errorf("the error came after %s", d)
				}
				tr.noOrphans("k", 2)
				f.mend(tr.servers[1])
			}
			f.mend(tr.servers[0])
			tr.noOrphans("k", 0, 1, 2)
			again := mustLock(t, t.Context(), lock.All(two...))
			mustUnlock(t, again)
		})
	}
}

// TestQuorumSlow: a majority does not wait for the one instance that is slow.
func TestQuorumSlow(t *testing.T) {
	t.Parallel()
	var parts []lock.Locker
	var benches []bench
	for range 3 {
		b := newBench(t)
		m := newLocks(t, lock.NewRedisStore(dial(t, b.url()+"?read_timeout=1h"), lock.CallTimeout(time.Hour))).Mutex("k")
		mustUnlock(t, mustLock(t, t.Context(), m))
		parts, benches = append(parts, m), append(benches, b)
	}
	line := benches[1].line
	line.Slow(time.Hour) // who waits for it does not get the lock
	defer line.Heal()
	patient, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lease := mustLock(t, patient, lock.Majority(parts...))
	line.Heal()
	mustUnlock(t, lease)
	line.Slow(200 * time.Millisecond)
	lease = mustLock(t, t.Context(), lock.All(parts...))
	mustUnlock(t, lease)
	for _, b := range benches {
		b.noOrphan(t)
	}
}

// TestQuorumExclusion: four processes on three instances while these are killed
// and stopped in turn, never two at once. A restarted instance keeps its data,
// as Redlock demands (or it must stay away for a lease).
func TestQuorumExclusion(t *testing.T) {
	t.Parallel()
	tr := &trio{t: t}
	for range 3 {
		s := testserver.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
		tr.servers, tr.direct = append(tr.servers, s), append(tr.direct, dial(t, s.URL()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), duration(3*time.Second, time.Minute))
	defer cancel()
	var wg sync.WaitGroup
	n, last := 0, int64(0) // the race detector watches
	for range 4 {
		q := lock.Majority(tr.parts("k", lock.WatchdogLease(4*time.Second))...)
		wg.Go(func() {
			for ctx.Err() == nil {
				lease, err := q.Lock(t.Context(), lock.Wait(time.Second), lock.Fenced())
				if err != nil {
					continue // an instance is gone: its error, or the budget
				}
				if lease.Context().Err() == nil {
					n++
					if lease.Token() <= last {
						t.Errorf("token %d after %d", lease.Token(), last)
					}
					last = lease.Token()
				}
				_ = lease.Unlock()
			}
		})
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		s := tr.servers[i%3]
		if i%2 == 0 {
			s.Pause()
			<-tick.C
			s.Resume()
		} else {
			s.Kill()
			<-tick.C
			s.Start()
		}
		<-tick.C
	}
	wg.Wait()
	t.Logf("%d acquisitions", n)
	if n < 10 {
		t.Errorf("only %d acquisitions", n)
	}
	tr.noOrphans("k", 0, 1, 2)
}

// ValidUntil of a majority counts the parts that are still held: not one that was lost after
// it had been extended further than the others. Guard: cause in bundle.validUntil.
func TestQuorumValidUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var parts []lock.Locker
		first := lock.NewMemoryStore()
		for i := range 3 {
			s := &altered{Store: lock.NewMemoryStore()}
			switch i {
			case 0:
				s.Store = first
			case 2:
				s.renew = func(context.Context, []lock.Request) []error { return []error{lock.ErrUnknown} }
			}
			locks := lock.New(s)
			defer closeLocks(t, locks)
			parts = append(parts, locks.Mutex("k"))
		}
		lease := mustLock(t, t.Context(), lock.Majority(parts...), lock.LeaseTime(3*time.Second))
		synctest.Wait()                                                // the third part joins
		if err := lease.Extend(t.Context(), time.Minute); err != nil { // two of three
			t.Fatal(err)
		}
		if was, err := first.ForceRelease(t.Context(), "k"); err != nil || !was {
			t.Fatalf("%t, %v", was, err)
		}
		if err := lease.Extend(t.Context(), time.Second); !errors.Is(err, lock.ErrLost) { // one of them is found gone
			t.Errorf("extend: %v", err)
		}
		until := lease.ValidUntil()
		<-lease.Context().Done()
		if left := time.Until(until); left > 0 {
			t.Errorf("it ended %s before", left)
		}
		_ = lease.Unlock()
	})
}

// An owner loses a fenced lock of several parts to another one, and takes it again before
// it unlocks what it lost: its token is greater than the other's. Guard: forget in
// bundle.ended.
func TestQuorumTokenGrowsAfterALoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := lock.NewMemoryStore()
		one, two := lock.New(memory), lock.New(memory)
		defer closeLocks(t, one)
		defer closeLocks(t, two)
		mine, other := lock.All(one.Mutex("a"), one.Mutex("b")), lock.All(two.Mutex("a"), two.Mutex("b"))
		owner := mustLock(t, t.Context(), one.Mutex("owner")).Context()
		lost := mustLock(t, owner, mine)
		for _, name := range []string{"a", "b"} {
			if was, err := one.ForceUnlock(owner, name); err != nil || !was {
				t.Fatalf("%t, %v", was, err)
			}
		}
		between := mustLock(t, t.Context(), other)
		<-lost.Context().Done() // its renewal finds a part gone
		synctest.Wait()         // and the other one, at the same instant
		mustUnlock(t, between)
		again := mustLock(t, owner, mine)
		if again.Token() <= between.Token() {
			t.Errorf("token %d after %d, and %d before", again.Token(), between.Token(), lost.Token())
		}
		if err := lost.Unlock(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("the unlock of what was lost: %v", err)
		}
		inner := mustLock(t, again.Context(), mine)
		if inner.Token() != again.Token() {
			t.Errorf("token %d, re-entered %d", again.Token(), inner.Token())
		}
	})
}
