package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/lock"
)

// Holders are cut off from Redis. The context of each ends before somebody else
// has its lock, 100 of 100. The lease is long, because a timer that is late by
// more than 1 % of it and 2 ms shows nothing about the lock, but that the machine
// stood still. Guard: the timer in holding.begin.
func TestTrap07HolderCutOff(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Second
	testserver.Undisturbed(t, lease/100+2*time.Millisecond, func() error {
		b := newBench(t)
		cut := locksOn(t, dial(t, b.url()), lock.WatchdogLease(lease))
		others := locksOn(t, b.direct)
		var gaps [100]func() time.Duration
		for i := range gaps {
			name := fmt.Sprint("k", i)
			gaps[i] = succeed(t, mustLock(t, t.Context(), cut.Mutex(name)), others.Mutex(name))
		}
		b.line.Hole()
		first := time.Hour
		for _, gap := range gaps {
			first = min(first, gap())
		}
		b.line.Heal()
		t.Logf("the contexts of %d ended at least %s before", len(gaps), first)
		if first <= 0 {
			return fmt.Errorf("two holders: a context ended %s after the lock was taken", -first)
		}
		return nil
	})
}

// succeed waits for the lock of a holder that is cut off. It returns a call that
// waits until both the holder and the next one are through, and tells how long
// before the next one had the lock the context of the holder ended.
func succeed(t *testing.T, lease *lock.Lease, m lock.Locker) (gap func() time.Duration) {
	t.Helper()
	var ended, taken time.Time
	var wg sync.WaitGroup
	wg.Go(func() {
		<-lease.Context().Done()
		ended = time.Now()
		if !errors.Is(context.Cause(lease.Context()), lock.ErrLost) {
			t.Errorf("%s: cause %v", lease.Name(), context.Cause(lease.Context()))
		}
	})
	wg.Go(func() {
		next, err := m.Lock(t.Context(), lock.Wait(time.Minute))
		taken = time.Now()
		if err != nil {
			t.Error(err)
			return
		}
		mustUnlock(t, next)
	})
	return func() time.Duration {
		wg.Wait()
		return taken.Sub(ended)
	}
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
			u := &unanswered{t: t, single: what == "single"}
			for range 3 {
				b := newBench(t)
				client := plain(t, b.url())
				m := locksOn(t, client).Mutex("k")
				mustUnlock(t, mustLock(t, t.Context(), m))
				u.benches, u.clients, u.parts = append(u.benches, b), append(u.clients, client), append(u.parts, m)
			}
			q := join(u.parts...)
			for _, cancel := range []bool{false, true} {
				testserver.Undisturbed(t, 100*time.Millisecond, func() error { return u.end(q, cancel) })
			}
			mustUnlock(t, mustLock(t, t.Context(), q))
		})
	}
}

// unanswered is a call whose second and third instance, of three, do not answer: no majority either.
type unanswered struct {
	t       *testing.T
	single  bool // only the second is asked
	benches []bench
	clients []*redis.Client
	parts   []lock.Locker
}

// tokens grow on each instance that carries out its part.
func (u *unanswered) tokens() (now []string) {
	for _, b := range u.benches {
		now = append(now, b.direct.Get(context.Background(), "redisson_lock_token:{k}").Val())
	}
	return now
}

// end lets the call end while it is unanswered: canceled, or by its deadline.
func (u *unanswered) end(q lock.Locker, cancel bool) error {
	for i, p := range u.parts { // each has connections that work
		mustUnlock(u.t, mustLock(u.t, u.t.Context(), p))
		warm(u.t, u.clients[i])
	}
	silent := u.benches[1:]
	for _, b := range silent {
		b.line.SwallowReplies()
	}
	before := u.tokens()
	// Long enough for the requests to arrive on a busy machine: what is
	// tried here is an end that comes after them.
	ctx, stop := context.WithTimeout(u.t.Context(), 1500*time.Millisecond)
	ended, _ := ctx.Deadline()
	want := context.DeadlineExceeded
	var arrival sync.WaitGroup
	if cancel {
		stop()
		ctx, stop = context.WithCancel(u.t.Context())
		want = context.Canceled
		arrival.Go(func() { // the call is canceled once its requests were carried out
			defer func() { ended = time.Now(); stop() }()
			for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
				if now := u.tokens(); now[1] != before[1] && (u.single || now[2] != before[2]) {
					return
				}
				<-time.After(time.Millisecond)
			}
		})
	}
	defer stop()
	lease, err := q.Lock(ctx)
	returned := time.Now()
	arrival.Wait()
	if lease != nil || !errors.Is(err, want) {
		u.t.Errorf("lease %v, error %v", lease, err)
	}
	var failed error
	if d := returned.Sub(ended); d > 280*time.Millisecond {
		failed = fmt.Errorf("returned %s after its end", d)
	}
	for i, b := range silent {
		// The undo may have arrived already; the token tells.
		if !u.single && b.direct.Get(u.t.Context(), "redisson_lock_token:{k}").Val() == before[i+1] {
			failed = errors.Join(failed, errors.New("the instance was to have carried out its part"))
		}
		b.line.Heal()
	}
	for _, b := range u.benches {
		b.noOrphan(u.t)
	}
	return failed
}

// Not enough parts: all that were got are given back, on all instances at the
// same time; and enough parts that answer too late do not count. Guards:
// b.giveUp in round, wg.Go in each; validUntil in begin.
func TestTrap09PartialQuorum(t *testing.T) {
	t.Parallel()
	const rtt = 300 * time.Millisecond // long against what a busy machine adds to each step
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
	// One round trip to ask and one to undo; one part after the other would
	// take seven.
	inVain(t, lock.Majority(parts...), benches[3:], 4*rtt)
	for _, b := range benches[:3] {
		b.direct.Del(t.Context(), "k")
	}

	// The one that refuses answers last: four are to be given back, together.
	mustLock(t, t.Context(), locksOn(t, benches[0].direct).Mutex("k"))
	benches[0].line.Slow(80 * time.Millisecond)
	inVain(t, lock.All(parts...), benches[1:], 4*rtt)
	benches[0].direct.Del(t.Context(), "k")

	if _, err := lock.All(parts...).TryLock(t.Context(), lock.LeaseTime(rtt-50*time.Millisecond)); !errors.Is(err, lock.ErrLost) {
		t.Errorf("a lease shorter than the answers took: %v", err)
	}
	for _, b := range benches {
		b.line.Heal()
		b.noOrphan(t)
	}
}

// inVain tries to get a lock of which some parts are held. It leaves nothing on the instances of the others, and is quicker than
// limit, a quarter of which is to spare.
func inVain(t *testing.T, q lock.Locker, others []bench, limit time.Duration) {
	t.Helper()
	testserver.Undisturbed(t, limit/8, func() error {
		start := time.Now()
		if _, err := q.TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("some parts are held: %v", err)
		}
		took := time.Since(start)
		for _, b := range others {
			b.noOrphan(t)
		}
		if took > limit {
			return fmt.Errorf("took %s: the parts were asked, or given back, one after the other", took)
		}
		return nil
	})
}
