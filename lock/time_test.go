package lock_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/lock/driver"
)

// TestTime is what a lock does in time, by the time of a bubble: with every store it does the same.
func TestTime(t *testing.T) {
	t.Parallel()
	for what, run := range map[string]func(t *testing.T){
		"watchdog":            inTimeWatchdog,
		"fixed lease":         inTimeLease,
		"extended":            inTimeExtended,
		"life":                inTimeLife,
		"waiting":             inTimeWaiting,
		"re-entered later":    inTimeReentered,
		"a slow acquisition":  inTimeSlow,
		"a refused renewal":   inTimeRefused,
		"cause of another":    inTimeCause,
		"unlock beside owner": inTimeBeside,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, run)
		})
	}
}

// drift is what a holder takes off its lease: one percent and two milliseconds.
func drift(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }

const term = 3 * time.Second

// A lock is renewed each third of its lease for as long as it is held, and another process gets it never.
func inTimeWatchdog(t *testing.T) {
	store := newFake()
	held := mustLock(t, t.Context(), store.locks(t, lock.WatchdogLease(term)).Mutex("k"))
	check.Is(t, "while it is renewed", check.ErrorOf(store.others(t).Mutex("k").Lock(t.Context(), lock.Wait(4*term))), lock.ErrTimeout)
	check.Equal(t, "renewals in four leases", store.renewed.Load(), 12)
	check.Is(t, "the lease", context.Cause(held.Context()), nil)
	mustUnlock(t, held)
	check.Is(t, "the cause", context.Cause(held.Context()), lock.ErrUnlocked)
}

// A lease that is not renewed ends a drift before another can have the lock, and its unlock leaves that one alone.
func inTimeLease(t *testing.T) {
	store := newFake()
	one, two := store.locks(t).Mutex("k"), store.others(t).Mutex("k")
	start := time.Now()
	held := mustLock(t, t.Context(), one, lock.LeaseTime(term))
	waiter := begin(t.Context(), two)
	<-held.Context().Done()
	check.Equal(t, "it ended after", time.Since(start), term-drift(term))
	check.Equal(t, "it was valid for", held.ValidUntil().Sub(start), term-drift(term))
	next := got(t, "the next one", waiter)
	check.Equal(t, "the next one had it after", time.Since(start), term)
	wantLost(t, held)
	check.Is(t, "the second is left alone", check.ErrorOf(one.TryLock(t.Context())), lock.ErrHeld)
	mustUnlock(t, next)
}

func inTimeExtended(t *testing.T) {
	store := newFake()
	m := store.locks(t).Mutex("k")
	held := mustLock(t, t.Context(), m, lock.LeaseTime(term))
	check.Must(t, held.Extend(t.Context(), time.Minute))
	check.Must(t, held.Extend(t.Context(), term))
	check.Equal(t, "it is valid for", time.Until(held.ValidUntil()), term-drift(term))
	inner := mustLock(t, held.Context(), m, lock.LeaseTime(time.Minute))
	check.Must(t, inner.Extend(t.Context(), term))
	check.Equal(t, "with two holds it is valid for", time.Until(held.ValidUntil()), time.Minute-drift(time.Minute))
	mustUnlock(t, inner)
	check.Is(t, "after the first lease", check.ErrorOf(store.others(t).Mutex("k").Lock(t.Context(), lock.Wait(2*term))), lock.ErrTimeout)
	// A copy of what shortened it may come late: no extension is relied on beyond that. Guard: limit.
	store.renew = func(ctx context.Context, rs []driver.Request) []error {
		time.Sleep(time.Second)
		return store.Store.Renew(ctx, rs)
	}
	check.Must(t, held.Extend(t.Context(), 2*term))
	check.Must(t, held.Extend(t.Context(), time.Minute))
	check.Equal(t, "after a slow answer it is valid for", time.Until(held.ValidUntil()), 2*term-drift(2*term)-time.Second)
	mustUnlock(t, held)
	watched := mustLock(t, t.Context(), store.others(t).Mutex("watched"))
	check.Must(t, watched.Extend(t.Context(), term))
	check.Equal(t, "one that is renewed is valid for", time.Until(watched.ValidUntil()), 30*time.Second-drift(30*time.Second))
	mustUnlock(t, watched)
}

// The context given to Lock bounds the acquisition, and no more; that of While bounds the hold too. Guard: lifeOf.
func inTimeLife(t *testing.T) {
	locks := newFake().locks(t, lock.WatchdogLease(term))
	for kind, l := range map[string]lock.Locker{"mutex": locks.Mutex("k"), "all": lock.All(locks.Mutex("a"), locks.Mutex("b"))} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		held := mustLock(t, ctx, l)
		bound := mustLock(t, t.Context(), locks.Mutex("bound "+kind), lock.While(ctx))
		time.Sleep(10 * term)
		check.Is(t, kind+": the lease", context.Cause(held.Context()), nil)
		check.Is(t, kind+": re-entered", check.ErrorOf(l.TryLock(lock.Detach(held.Context()))), lock.ErrHeld)
		check.Is(t, kind+": with While", context.Cause(bound.Context()), context.DeadlineExceeded)
		check.Is(t, kind+": its unlock", bound.Unlock(), lock.ErrLost)
		mustUnlock(t, held)
	}
}

// A caller that does not get the lock leaves when its budget or its context ends, and not before.
func inTimeWaiting(t *testing.T) {
	store := newFake()
	held := mustLock(t, t.Context(), store.locks(t).Mutex("k"))
	start := time.Now()
	check.Is(t, "a budget", check.ErrorOf(store.others(t).Mutex("k").Lock(t.Context(), lock.Wait(80*time.Millisecond))), lock.ErrTimeout)
	check.Equal(t, "it waited for", time.Since(start), 80*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), term)
	defer cancel()
	check.Is(t, "a deadline", check.ErrorOf(store.others(t).Mutex("k").Lock(ctx)), context.DeadlineExceeded)
	check.Equal(t, "both waited for", time.Since(start), 80*time.Millisecond+term)
	mustUnlock(t, held)
}

// The life of the outer lease ends and the watchdog drops the lock; then its owner
// re-enters without such: the lock is renewed again. Guard: schedule for each
// lease, in holding.add.
func inTimeReentered(t *testing.T) {
	m := newFake().locks(t, lock.WatchdogLease(term)).Mutex("k")
	request, done := context.WithCancel(t.Context())
	outer := mustLock(t, t.Context(), m, lock.While(request))
	done()
	time.Sleep(term / 2) // the watchdog has looked
	inner := mustLock(t, context.WithoutCancel(outer.Context()), m)
	time.Sleep(10 * term)
	check.Is(t, "the re-entry", context.Cause(inner.Context()), nil)
	mustUnlock(t, inner)
	mustUnlock(t, outer)
}

// An acquisition takes most of its lease: the first renewal comes before the rest is over.
// Guard: until, in holding.add.
func inTimeSlow(t *testing.T) {
	store := newFake()
	store.answers = term * 9 / 10
	start := time.Now()
	held := mustLock(t, t.Context(), store.locks(t, lock.WatchdogLease(term)).Mutex("k"))
	check.Equal(t, "it is valid for, from the asking", held.ValidUntil().Sub(start), term-drift(term))
	time.Sleep(10 * term)
	check.Is(t, "the lease", context.Cause(held.Context()), nil)
	mustUnlock(t, held)
	_, err := store.others(t).Mutex("k").TryLock(t.Context())
	check.Is(t, "it is free", err, nil)
	store.answers = term
	check.Is(t, "an answer that takes longer than the lease",
		check.ErrorOf(store.locks(t, lock.WatchdogLease(term)).Mutex("other").TryLock(t.Context())), lock.ErrLost)
}

// The store refuses to renew one lock of many: that one runs out, and the others, which were renewed, do not. Guard:
// errs, of each request, in watchdog.renew.
func inTimeRefused(t *testing.T) {
	store := newFake()
	store.renew = func(ctx context.Context, rs []driver.Request) []error {
		errs := store.Store.Renew(ctx, rs)
		for i, r := range rs {
			if r.Name == "bad" {
				errs[i] = lock.ErrRefused
			}
		}
		return errs
	}
	locks := store.locks(t, lock.WatchdogLease(term))
	var good []*lock.Lease
	for _, name := range []string{"a", "b", "c"} {
		good = append(good, mustLock(t, t.Context(), locks.Mutex(name)))
	}
	bad := mustLock(t, t.Context(), locks.Mutex("bad"))
	start := time.Now()
	<-bad.Context().Done()
	check.Equal(t, "it ran out after", time.Since(start), term-drift(term))
	time.Sleep(4 * term)
	for _, l := range good {
		check.Is(t, "a lock whose renewals are not refused", context.Cause(l.Context()), nil)
	}
}

// The context given to Extend is that of another lock's lease, which was lost: its cause
// is no answer about this lock. Guard: ErrUnknown in isGone.
func inTimeCause(t *testing.T) {
	store := newFake()
	store.renew = func(ctx context.Context, rs []driver.Request) []error {
		if ctx.Err() != nil { // as a store over a network says it
			return []error{silent(ctx)}
		}
		return store.Store.Renew(ctx, rs)
	}
	held := mustLock(t, t.Context(), store.locks(t).Mutex("k"))
	ctx, lose := context.WithCancelCause(t.Context())
	lose(lock.ErrLost)
	check.Is(t, "extend", held.Extend(ctx, time.Minute), lock.ErrUnknown)
	check.Is(t, "the lease", context.Cause(held.Context()), nil)
	mustUnlock(t, held)
}

// Another goroutine of the owner is in the middle of a request for the lock: Unlock waits for it
// no longer than UnlockTimeout, and the hold is given back behind it. Guard: WithTimeout in holding.unlock.
func inTimeBeside(t *testing.T) {
	store := newFake()
	goOn := make(chan struct{})
	store.acquire = func(ctx context.Context, r driver.Request) (driver.Grant, error) {
		if r.Holds == 2 {
			<-goOn
		}
		return store.Store.Acquire(ctx, r)
	}
	m := store.locks(t, lock.UnlockTimeout(time.Second)).Mutex("k")
	outer := mustLock(t, t.Context(), m)
	inner := begin(context.WithoutCancel(outer.Context()), m)
	synctest.Wait()
	start := time.Now()
	if err := outer.Unlock(); !errors.Is(err, lock.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("unlock: %v", err)
	}
	check.Equal(t, "it took", time.Since(start), time.Second)
	close(goOn)
	mustUnlock(t, got(t, "the re-entry", inner))
	synctest.Wait()
	check.Equal(t, "it is free", store.free(t, "k"), true)
}

// A driver has a timer of its own for the deadline of its call. Whichever of the two runs out first, the error names the
// cause.
func TestCauseOfADriversTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("the client hung up")
		for range 100 {
			drivers := time.After(time.Second)
			ctx, stop := context.WithTimeoutCause(t.Context(), time.Second, gone)
			<-drivers
			check.Is(t, "the cause", lock.CutBy(ctx, os.ErrDeadlineExceeded), gone)
			stop()
		}
	})
}
