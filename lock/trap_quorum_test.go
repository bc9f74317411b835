package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/lock"
)

// Holders are cut off from Redis. The context of each ends before somebody else
// has its lock, 100 of 100. Guard: the timer in holding.begin.
func TestTrap07HolderCutOff(t *testing.T) {
	t.Parallel()
	const holders = 100
	b := newBench(t)
	cut := locksOn(t, dial(t, b.url()), lock.WatchdogLease(1500*time.Millisecond))
	others := locksOn(t, b.direct)
	ended := make([]time.Time, holders)
	taken := make([]time.Time, holders)
	var wg sync.WaitGroup
	for i := range holders {
		name := fmt.Sprint("k", i)
		lease := mustLock(t, t.Context(), cut.Mutex(name))
		wg.Go(func() {
			<-lease.Context().Done()
			ended[i] = time.Now()
			if !errors.Is(context.Cause(lease.Context()), lock.ErrLost) {
				t.Errorf("%s: cause %v", name, context.Cause(lease.Context()))
			}
		})
		wg.Go(func() {
			next, err := others.Mutex(name).Lock(t.Context(), lock.Wait(30*time.Second))
			taken[i] = time.Now()
			if err != nil {
				t.Error(err)
				return
			}
			if lease.Context().Err() == nil {
				t.Errorf("%s: two holders", name)
			}
			mustUnlock(t, next)
		})
	}
	b.line.Hole()
	wg.Wait()
	b.line.Heal()
	first := time.Hour
	for i := range holders {
		first = min(first, taken[i].Sub(ended[i]))
	}
	if first <= 0 {
		t.Errorf("a context ended %s after the lock was taken", -first)
	}
	t.Logf("the contexts of %d ended at least %s before", holders, first)
}

// A quorum is canceled, or meets its deadline, while an instance has carried
// out its part and does not answer: the call returns in time and no instance
// keeps a key. So for a single lock. Guards: ctx.Done in decided, in batcher.do;
// holding.undo.
func TestTrap08QuorumCanceled(t *testing.T) {
	t.Parallel()
	second := func(parts ...lock.Locker) lock.Locker { return parts[1] }
	all := func(parts ...lock.Locker) lock.Locker { return lock.All(parts...) }
	majority := func(parts ...lock.Locker) lock.Locker { return lock.Majority(parts...) }
	for what, join := range map[string]func(...lock.Locker) lock.Locker{"all": all, "majority": majority, "single": second} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var benches []bench
			var clients []*redis.Client
			var parts []lock.Locker
			for range 3 {
				b := newBench(t)
				client := plain(t, b.url())
				m := locksOn(t, client).Mutex("k")
				mustUnlock(t, mustLock(t, t.Context(), m))
				benches, clients, parts = append(benches, b), append(clients, client), append(parts, m)
			}
			q := join(parts...)
			silent := benches[1:] // two of three: no majority either
			for _, cancel := range []bool{false, true} {
				for i, p := range parts { // each has connections that work
					mustUnlock(t, mustLock(t, t.Context(), p))
					warm(t, clients[i])
				}
				for _, b := range silent {
					b.line.SwallowReplies()
				}
				tokens := func() (now []string) {
					for _, b := range benches {
						now = append(now, b.direct.Get(context.Background(), "redisson_lock_token:{k}").Val())
					}
					return now
				}
				before := tokens()
				// Long enough for the requests to arrive on a busy machine: what is
				// tried here is an end that comes after them.
				ctx, stop := context.WithTimeout(t.Context(), 1500*time.Millisecond)
				ended, _ := ctx.Deadline()
				want := context.DeadlineExceeded
				var arrival sync.WaitGroup
				if cancel {
					stop()
					ctx, stop = context.WithCancel(t.Context())
					want = context.Canceled
					arrival.Go(func() { // the call is canceled once its requests were carried out
						defer func() { ended = time.Now(); stop() }()
						for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
							if now := tokens(); now[1] != before[1] && (what == "single" || now[2] != before[2]) {
								return
							}
							<-time.After(time.Millisecond)
						}
					})
				}
				lease, err := q.Lock(ctx)
				returned := time.Now()
				arrival.Wait()
				if d := returned.Sub(ended); d > 280*time.Millisecond {
					t.Errorf("returned %s after its end", d)
				}
				if lease != nil || !errors.Is(err, want) {
					t.Errorf("lease %v, error %v", lease, err)
				}
				for i, b := range silent {
					// The undo may have arrived already; the token tells.
					if what != "single" && b.direct.Get(t.Context(), "redisson_lock_token:{k}").Val() == before[i+1] {
						t.Error("the instance was to have carried out its part")
					}
					b.line.Heal()
				}
				for i, b := range benches {
					eventually(t, 5*time.Second, fmt.Sprintf("no orphan on instance %d", i), func() bool {
						return b.direct.Exists(context.Background(), "k").Val() == 0
					})
				}
				stop()
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
	const rtt = 150 * time.Millisecond
	var benches []bench
	var parts []lock.Locker
	for range 5 {
		b := newBench(t)
		client := plain(t, b.url())
		m := locksOn(t, client).Mutex("k")
		mustUnlock(t, mustLock(t, t.Context(), m))
		warm(t, client)
		benches, parts = append(benches, b), append(parts, m)
	}
	for _, b := range benches[:3] {
		mustLock(t, t.Context(), locksOn(t, b.direct).Mutex("k"))
	}
	for _, b := range benches {
		b.line.Slow(rtt)
	}
	start := time.Now()
	if _, err := lock.Majority(parts...).TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("two of five: %v", err)
	}
	// One round trip to ask and one to undo; one part after the other would
	// take seven.
	if d := time.Since(start); d > 4*rtt {
		t.Errorf("took %s: the parts were asked one after the other", d)
	}
	for i, b := range benches[3:] {
		eventually(t, 2*time.Second, fmt.Sprintf("no orphan on instance %d", i+3), func() bool {
			return b.direct.Exists(context.Background(), "k").Val() == 0
		})
	}
	for _, b := range benches[:3] {
		b.direct.Del(t.Context(), "k")
	}

	// The one that refuses answers last: four are to be given back, together.
	mustLock(t, t.Context(), locksOn(t, benches[0].direct).Mutex("k"))
	benches[0].line.Slow(80 * time.Millisecond)
	start = time.Now()
	if _, err := lock.All(parts...).TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("four of five: %v", err)
	}
	if d := time.Since(start); d > 4*rtt {
		t.Errorf("took %s: the parts were given back one after the other", d)
	}
	for i, b := range benches[1:] {
		eventually(t, 2*time.Second, fmt.Sprintf("no orphan on instance %d", i+1), func() bool {
			return b.direct.Exists(context.Background(), "k").Val() == 0
		})
	}
	benches[0].direct.Del(t.Context(), "k")

	if _, err := lock.All(parts...).TryLock(t.Context(), lock.LeaseTime(rtt-50*time.Millisecond)); !errors.Is(err, lock.ErrLost) {
		t.Errorf("a lease shorter than the answers took: %v", err)
	}
	for i, b := range benches {
		b.line.Heal()
		eventually(t, 5*time.Second, fmt.Sprintf("no orphan on instance %d", i), func() bool {
			return b.direct.Exists(context.Background(), "k").Val() == 0
		})
	}
}
