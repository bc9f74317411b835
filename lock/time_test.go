package lock_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/lock"
)

// TestTime is what a lock does in time, by the time of a bubble: with every store it does the same.
func TestTime(t *testing.T) {
	t.Parallel()
	bubbles(t, map[string]func(t *testing.T){
		"watchdog":             inTimeWatchdog,
		"fixed lease":          inTimeLease,
		"extended":             inTimeExtended,
		"life":                 inTimeLife,
		"waiting":              inTimeWaiting,
		"re-entered later":     inTimeReentered,
		"a slow acquisition":   inTimeSlow,
		"a refused renewal":    inTimeRefused,
		"cause of another":     inTimeCause,
		"cause of a loss":      inTimeLoss,
		"cause of a timeout":   inTimeTimeout,
		"unlock beside owner":  inTimeBeside,
		"longest lease":        inTimeLongest,
		"least wait and lease": inTimeLeast,
		"unlock in no time":    inTimeNoTime,
		"ask all the time":     func(t *testing.T) { inTimeNoPause(t, nil) },
		"ask without messages": func(t *testing.T) { inTimeNoPause(t, func(context.Context, string, func()) lock.Watch { return nil }) },
		"leader":               inTimeCampaign,
		"together":             inTimeTogether,
		"together, not known":  inTimeTogetherUnknown,
		"an unlock not sent":   inTimeNotSent,
	})
}

// drift is what a holder takes off its lease: one percent and two milliseconds.
func drift(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }

const term = 3 * time.Second

// A lock is renewed each third of its lease for as long as it is held, and another process gets it never.
func inTimeWatchdog(t *testing.T) {
	store := newFake()
	held := mustLock(t, t.Context(), store.locks(t, lock.WatchdogLease(term)).Mutex("k"))
	check.Is(t, "while it is renewed", check.ErrorOf(store.others(t).Mutex("k").Lock(t.Context(), lock.Wait(4*term))),
		lock.ErrTimeout)
	check.Equal(t, "renewals in four leases", store.renewed.Load(), 12)
	wantHeld(t, "the lease", held)
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
	wantBusy(t, "the second is left alone", one)
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
	check.Is(t, "after the first lease", check.ErrorOf(store.others(t).Mutex("k").Lock(t.Context(), lock.Wait(2*term))),
		lock.ErrTimeout)
	// A copy of what shortened it may come late: no extension is relied on beyond that. Guard: limit.
	store.renew = func(ctx context.Context, rs []lock.Request) []error {
		time.Sleep(time.Second)
		return store.Store.Renew(ctx, rs)
	}
	check.Must(t, held.Extend(t.Context(), 2*term))
	check.Must(t, held.Extend(t.Context(), time.Minute))
	check.Equal(t, "after a slow answer it is valid for", time.Until(held.ValidUntil()),
		2*term-drift(2*term)-time.Second)
	mustUnlock(t, held)
	watched := mustLock(t, t.Context(), store.others(t).Mutex("watched"))
	check.Must(t, watched.Extend(t.Context(), term))
	check.Equal(t, "one that is renewed is valid for", time.Until(watched.ValidUntil()),
		30*time.Second-drift(30*time.Second))
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
	over, end := context.WithCancel(t.Context())
	end()
	late := newFake().locks(t, lock.WatchdogLease(term))
	mustLock(t, t.Context(), late.Mutex("k"), lock.While(over))
	time.Sleep(2 * term)
	check.Equal(t, "locks of a life that was over before, behind their lease", lock.Live(late), 0)
}

// Locks that were taken together are renewed, and lost, each for itself.
func inTimeTogether(t *testing.T) {
	store := newFake()
	locks := store.locks(t, lock.WatchdogLease(term))
	errs, unlock := locks.TryAll(t.Context(), "a", "b", "c")
	check.Must(t, errors.Join(errs...))
	time.Sleep(10 * term)
	for _, name := range []string{"a", "b", "c"} {
		wantBusy(t, name+" behind ten leases", store.others(t).Mutex(name))
	}
	check.Equal(t, "renewals, each of all", store.renewed.Load(), 30)
	check.Equal(t, "forced open", check.Value(store.others(t).ForceUnlock(t.Context(), "a"))(t), true)
	time.Sleep(term)
	check.Equal(t, "locks held", lock.Live(locks), 2)
	check.Is(t, "the unlock", unlock(), lock.ErrLost)
	check.That(t, store.free(t, "a") && store.free(t, "b") && store.free(t, "c"), "one is still held")

	_, unlock = locks.TryAll(t.Context(), "a", "b")
	closeLocks(t, locks)
	check.Is(t, "the unlock behind a Close", unlock(), nil)
	check.That(t, store.free(t, "a") && store.free(t, "b"), "one is held behind a Close")
	errs, _ = locks.TryAll(t.Context(), "a")
	check.Is(t, "taken from a closed client", errs[0], lock.ErrClosed)
}

// An acquisition of unknown outcome is undone, and is nothing to those beside it.
func inTimeTogetherUnknown(t *testing.T) {
	store := newFake()
	store.acquire = func(ctx context.Context, r lock.Request) (lock.Grant, error) {
		grant, err := store.Store.Acquire(ctx, r)
		if r.Name == "a" {
			err = lock.ErrUnknown
		}
		return grant, err
	}
	errs, unlock := store.locks(t).TryAll(t.Context(), "a", "b")
	check.Is(t, "the one that was not answered", errs[0], lock.ErrUnknown)
	check.Is(t, "the one beside it", errs[1], nil)
	synctest.Wait()
	check.That(t, store.free(t, "a") && !store.free(t, "b"), "a is held, or b is free")
	check.Must(t, unlock())
	check.That(t, store.free(t, "b"), "b is held behind its unlock")
}

// An unlock that could not be sent within its time is not left to the lease.
func inTimeNotSent(t *testing.T) {
	store := newFake()
	locks := store.locks(t, lock.WatchdogLease(calm), lock.UnlockTimeout(term))
	full := time.Now().Add(2 * term)
	store.release = func(ctx context.Context, r lock.Request) (bool, error) {
		if time.Now().Before(full) {
			return false, lock.ErrNotSent
		}
		return store.Store.Release(ctx, r)
	}
	lease := mustLock(t, t.Context(), locks.Mutex("a"))
	_, unlock := locks.TryAll(t.Context(), "b")
	check.Is(t, "the unlock", lease.Unlock(), lock.ErrNotSent)
	check.Is(t, "the unlock of those taken together", unlock(), lock.ErrNotSent)
	time.Sleep(2 * term)
	check.That(t, store.free(t, "a") && store.free(t, "b"), "one is left to its lease")
}

func inTimeWaiting(t *testing.T) {
	store := newFake()
	held := mustLock(t, t.Context(), store.locks(t).Mutex("k"))
	start := time.Now()
	check.Is(t, "a budget", check.ErrorOf(store.others(t).Mutex("k").Lock(t.Context(), lock.Wait(80*time.Millisecond))),
		lock.ErrTimeout)
	check.Equal(t, "it waited for", time.Since(start), 80*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), term)
	defer cancel()
	check.Is(t, "a deadline", check.ErrorOf(store.others(t).Mutex("k").Lock(ctx)), context.DeadlineExceeded)
	check.Equal(t, "both waited for", time.Since(start), 80*time.Millisecond+term)
	mustUnlock(t, held)
}

// An owner re-enters after its outer life ended: it is renewed again. Guard: schedule for each lease, in holding.add.
func inTimeReentered(t *testing.T) {
	m := newFake().locks(t, lock.WatchdogLease(term)).Mutex("k")
	request, done := context.WithCancel(t.Context())
	outer := mustLock(t, t.Context(), m, lock.While(request))
	done()
	time.Sleep(term / 2) // the watchdog has looked
	inner := mustLock(t, context.WithoutCancel(outer.Context()), m)
	time.Sleep(10 * term)
	wantHeld(t, "the re-entry", inner)
	mustUnlock(t, inner)
	mustUnlock(t, outer)
}

// A slow acquisition takes most of its lease: the first renewal comes in time. Guard: until, in holding.add.
func inTimeSlow(t *testing.T) {
	store := newFake()
	store.answers = term * 9 / 10
	start := time.Now()
	held := mustLock(t, t.Context(), store.locks(t, lock.WatchdogLease(term)).Mutex("k"))
	check.Equal(t, "it is valid for, from the asking", held.ValidUntil().Sub(start), term-drift(term))
	time.Sleep(10 * term)
	wantHeld(t, "the lease", held)
	mustUnlock(t, held)
	_, err := store.others(t).Mutex("k").TryLock(t.Context())
	check.Is(t, "it is free", err, nil)
	store.answers = term
	check.Is(t, "an answer that takes longer than the lease",
		check.ErrorOf(store.locks(t, lock.WatchdogLease(term)).Mutex("other").TryLock(t.Context())), lock.ErrLost)
}

// One refused renewal of many ends that lock alone. Guard: errs, of each request, in watchdog.renew.
func inTimeRefused(t *testing.T) {
	store := newFake()
	store.renew = func(ctx context.Context, rs []lock.Request) []error {
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
		wantHeld(t, "a lock whose renewals are not refused", l)
	}
}

// Extend under another lock's lost lease: its cause does not answer for this lock. Guard: ErrUnknown in isGone.
func inTimeCause(t *testing.T) {
	store := newFake()
	store.renew = func(ctx context.Context, rs []lock.Request) []error {
		if ctx.Err() != nil { // as a store over a network says it
			return []error{silent(ctx)}
		}
		return store.Store.Renew(ctx, rs)
	}
	held := mustLock(t, t.Context(), store.locks(t).Mutex("k"))
	ctx, lose := context.WithCancelCause(t.Context())
	lose(lock.ErrLost)
	check.Is(t, "extend", held.Extend(ctx, time.Minute), lock.ErrUnknown)
	wantHeld(t, "the lease", held)
	mustUnlock(t, held)
}

// Unlock waits for a sibling's request for UnlockTimeout at most. Guard: WithTimeout in holding.unlock.
func inTimeBeside(t *testing.T) {
	store := newFake()
	goOn := make(chan struct{})
	store.acquire = func(ctx context.Context, r lock.Request) (lock.Grant, error) {
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
	err := outer.Unlock()
	check.That(t, errors.Is(err, lock.ErrUnknown) && errors.Is(err, context.DeadlineExceeded), "unlock: %v", err)
	check.Equal(t, "it took", time.Since(start), time.Second)
	close(goOn)
	mustUnlock(t, got(t, "the re-entry", inner))
	synctest.Wait()
	check.Equal(t, "it is free", store.free(t, "k"), true)
}

// A driver has its own timer for a call's deadline: the error names the cause, whichever timer is first.
func inTimeTimeout(t *testing.T) {
	gone := errors.New("the client hung up")
	for range 100 {
		drivers := time.After(time.Second)
		ctx, stop := context.WithTimeoutCause(t.Context(), time.Second, gone)
		<-drivers
		check.Is(t, "the cause", lock.CutBy(ctx, os.ErrDeadlineExceeded), gone)
		stop()
	}
}

// The error says why renewals failed; Logger(nil) is no logger. Guard: cmp.Or in Logger.
func inTimeLoss(t *testing.T) {
	store, refused := newCut(), errors.New("connection refused")
	store.says = func(context.Context) error { return refused }
	lease := mustLock(t, t.Context(), store.locks(t, lock.WatchdogLease(term), lock.Logger(nil)).Mutex("k"))
	store.gone.Store(true)
	<-lease.Context().Done()
	store.gone.Store(false)
	for what, err := range map[string]error{"context": context.Cause(lease.Context()), "unlock": lease.Unlock()} {
		check.Is(t, what, err, lock.ErrLost)
		check.Is(t, what, err, refused)
	}
}

// No lease exceeds the client's LongestLease. Guards: bound in Mutex.lock and in extend.
func inTimeLongest(t *testing.T) {
	locks := newFake().locks(t, lock.LongestLease(time.Second))
	lease := mustLock(t, t.Context(), locks.Mutex("k"), lock.LeaseTime(time.Hour))
	check.That(t, time.Until(lease.ValidUntil()) <= time.Second, "it lasts until %s", lease.ValidUntil())
	check.Must(t, lease.Extend(t.Context(), time.Hour))
	check.That(t, time.Until(lease.ValidUntil()) <= time.Second, "extended, it lasts until %s", lease.ValidUntil())
	holder, left, err := locks.Holder(t.Context(), "k")
	check.Must(t, err)
	check.That(t, left <= time.Second, "the store has %s", left)
	check.That(t, strings.Contains(holder, "000003e8:"), "the holder %s does not say that it is a second", holder)
	mustUnlock(t, lease)
}

// A wait or an extension that makes no sense is the least that does: one attempt, and 10 ms.
func inTimeLeast(t *testing.T) {
	const least = 10 * time.Millisecond
	m := newFake().locks(t).Mutex("k")
	held := mustLock(t, t.Context(), m, lock.LeaseTime(0))
	check.Equal(t, "a lease of nothing is valid for", time.Until(held.ValidUntil()), least-drift(least))
	check.Is(t, "less than no wait", check.ErrorOf(m.Lock(t.Context(), lock.Wait(-time.Second))), lock.ErrTimeout)
	time.Sleep(least / 2)
	check.Must(t, held.Extend(t.Context(), -time.Second))
	check.Equal(t, "extended by less than nothing it is valid for", time.Until(held.ValidUntil()), least-drift(least))
	mustUnlock(t, held)
}

// A timeout of nothing is the default, rather than one that has always passed. Guard: orDefault.
func inTimeNoTime(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}) // of a name the resolver is asked, outside the bubble
	defer client.Close()
	check.Equal(t, "statements", lock.StatementTimeoutOf(lock.NewMySQLStore(nil, lock.StatementTimeout(-time.Second))),
		lock.DefaultCallTimeout)
	check.Equal(t, "calls", lock.CallTimeoutOf(lock.NewRedisStore(client, lock.CallTimeout(0))),
		lock.DefaultCallTimeout)
	store := newFake()
	store.answers = time.Second
	cycle(t, store.locks(t, lock.UnlockTimeout(0)).Mutex("k"))
}

// An interval of nothing is the default, rather than a waiter that asks without a pause. Guard: orDefault.
func inTimeNoPause(t *testing.T, watch func(context.Context, string, func()) lock.Watch) {
	store := newFake()
	store.watch = watch
	store.acquire = func(ctx context.Context, r lock.Request) (lock.Grant, error) {
		if store.acquired.Load() > 100 {
			return lock.Grant{}, lock.ErrRefused
		}
		return store.Store.Acquire(ctx, r)
	}
	m := store.locks(t, lock.PollEvery(0), lock.ProbeEvery(-1)).Mutex("k")
	held := mustLock(t, t.Context(), m)
	check.Is(t, "the waiter", check.ErrorOf(m.Lock(t.Context(), lock.Wait(2*time.Second))), lock.ErrTimeout)
	mustUnlock(t, held)
}

// TestDo: the work has a context that ends with the caller's, or with the lock; the lock is free afterwards.
func TestDo(t *testing.T) {
	t.Parallel()
	bubbles(t, inTimeDo())
}

func inTimeDo() map[string]func(t *testing.T) {
	failed, gone := errors.New("the work failed"), errors.New("the client hung up")
	tests := map[string]func(t *testing.T){}
	for what, c := range map[string]struct {
		work func(ctx context.Context, s *fake, hangUp func()) error
		want []error
	}{
		"done":   {func(context.Context, *fake, func()) error { return nil }, []error{nil}},
		"failed": {func(context.Context, *fake, func()) error { return failed }, []error{failed}},
		"lost":   {func(ctx context.Context, s *fake, _ func()) error { s.empty(); <-ctx.Done(); return failed }, []error{failed, lock.ErrLost}},
		"hung up": {func(ctx context.Context, _ *fake, hangUp func()) error {
			hangUp()
			<-ctx.Done()
			return context.Cause(ctx)
		}, []error{gone}},
		"a long time": {func(ctx context.Context, _ *fake, _ func()) error { time.Sleep(10 * term); return context.Cause(ctx) }, []error{nil}},
		"hung up long": {func(_ context.Context, s *fake, hangUp func()) error {
			hangUp()
			time.Sleep(10 * term)
			return askedBeside(s)
		}, []error{lock.ErrHeld}},
		"a panic": {func(context.Context, *fake, func()) error { panic(failed) }, []error{failed}},
	} {
		tests[what] = func(t *testing.T) {
			store := newFake()
			ctx, hangUp := context.WithCancelCause(t.Context())
			defer hangUp(nil)
			err := func() (err error) {
				defer func() {
					if panicked, _ := recover().(error); panicked != nil {
						err = panicked
					}
				}()
				return store.locks(t, lock.WatchdogLease(term)).Do(ctx, "k", func(ctx context.Context) error {
					return c.work(ctx, store, func() { hangUp(gone) })
				})
			}()
			for _, want := range c.want {
				check.Is(t, what, err, want)
			}
			check.Equal(t, "it is free afterwards", store.free(t, "k"), true)
		}
	}
	return tests
}

func askedBeside(s *fake) error {
	_, err := lock.New(s.Store).Mutex("k").TryLock(context.Background())
	return err
}

func inTimeCampaign(t *testing.T) {
	store := newFake()
	leads := make(chan string)
	done := errors.New("done")
	ctx, stop := context.WithCancelCause(t.Context())
	ended := map[string]chan error{"one": make(chan error, 1), "two": make(chan error, 1)}
	for name, end := range ended {
		locks := store.locks(t, lock.WatchdogLease(term))
		go func() {
			end <- locks.Campaign(ctx, "leader", func(ctx context.Context) error {
				leads <- name
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
	}
	first := <-leads
	synctest.Wait()
	holder, left, err := store.others(t).Holder(t.Context(), "leader")
	check.Must(t, err)
	check.That(t, strings.Contains(holder, ":") && left > 0, "the leader is %q, for %s", holder, left)
	store.empty()
	second := <-leads
	stop(done)
	for name, end := range ended {
		check.Is(t, name+" ends", <-end, done)
	}
	t.Logf("%s led, then %s", first, second)
}

// slowStore carries a call out at once or late, answers on demand, and refuses calls once it is closed.
type slowStore struct {
	*fake
	acquired, released chan struct{} // nil: it answers at once
	unknown            error         // what becomes of the answer to an Acquire
	closed             atomic.Bool
}

func newSlowStore() *slowStore {
	s := &slowStore{fake: newFake()}
	s.acquire = func(ctx context.Context, r lock.Request) (lock.Grant, error) {
		grant, err := s.Store.Acquire(ctx, r)
		if s.acquired != nil {
			<-s.acquired
		}
		return grant, errors.Join(err, s.unknown)
	}
	s.release = func(ctx context.Context, r lock.Request) (bool, error) {
		if s.released != nil {
			<-s.released
		}
		if s.closed.Load() || ctx.Err() != nil {
			return false, errors.Join(lock.ErrNotSent, lock.ErrClosed)
		}
		return s.Store.Release(ctx, r)
	}
	s.close = func() error {
		s.closed.Store(true)
		return nil
	}
	return s
}

func (s *slowStore) wantFree(t *testing.T, name string) {
	t.Helper()
	check.Equal(t, "Close has ended", s.closed.Load(), true)
	check.Equal(t, name+" is free", s.free(t, name), true)
}

func TestClose(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T){
		"waits for an unlock": func(t *testing.T) { closeBesideUnlock(t, false) },
		"is left an unlock":   func(t *testing.T) { closeBesideUnlock(t, true) },
		"beside a dead store": closeBesideDeadStore,
		"gives up in the end": closeGivesUp,
	}
	for what, outcome := range map[string]error{"granted": nil, "unknown": lock.ErrUnknown} {
		tests["waits for what is "+what] = func(t *testing.T) { closeBesideAcquire(t, outcome, false) }
		tests["waits for a part that is "+what] = func(t *testing.T) { closeBesideAcquire(t, outcome, true) }
	}
	bubbles(t, tests)
}

// An answer after Close has looked: the lock is given back all the same, also when its caller has left, as with a part
// that All no longer needs. Guards: enter in Mutex.lock, underWay.Wait in settled.
func closeBesideAcquire(t *testing.T, outcome error, part bool) {
	store := newSlowStore()
	store.acquired, store.unknown = make(chan struct{}), outcome
	locks := lock.New(store)
	var l lock.Locker = locks.Mutex("k")
	answer := make(chan struct{}) // of the other part
	if part {
		other := newSlowStore()
		other.acquired, other.unknown = answer, lock.ErrRefused
		broken := lock.New(other)
		defer closeLocks(t, broken)
		l = lock.All(l, broken.Mutex("k"))
	}
	go func() {
		if lease, err := l.TryLock(t.Context()); err == nil {
			t.Errorf("got %v after Close", lease)
		}
	}()
	synctest.Wait()
	close(answer)
	synctest.Wait()
	go closeLocks(t, locks)
	synctest.Wait()
	close(store.acquired)
	synctest.Wait()
	store.wantFree(t, "k")
}

// A late Unlock leaves the lock to Close. Guards: enter in holding.unlockNow, underWay.Wait in settled.
func closeBesideUnlock(t *testing.T, after bool) {
	store := newSlowStore()
	store.released = make(chan struct{})
	locks := lock.New(store)
	lease := mustLock(t, t.Context(), locks.Mutex("k"))
	if !after {
		go mustUnlock(t, lease)
		synctest.Wait()
	}
	go closeLocks(t, locks)
	synctest.Wait()
	if after {
		mustUnlock(t, lease)
	}
	close(store.released)
	synctest.Wait()
	store.wantFree(t, "k")
}

// A store that is gone does not use up the time there is for closing. Guard: closeUndoTime in settled.
func closeBesideDeadStore(t *testing.T) {
	store := newSlowStore()
	store.unknown = lock.ErrUnknown
	store.release = func(ctx context.Context, _ lock.Request) (bool, error) { return false, silent(ctx) }
	locks := lock.New(store)
	check.Is(t, "the acquisition", check.ErrorOf(locks.Mutex("k").TryLock(t.Context())), lock.ErrUnknown)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	check.Is(t, "closed", locks.Close(ctx), lock.ErrUnknown)
	check.That(t, time.Since(start) <= 6*time.Second, "closing took %s", time.Since(start))
}

func closeGivesUp(t *testing.T) {
	store := newSlowStore()
	store.acquired = make(chan struct{})
	locks := lock.New(store)
	go func() { _, _ = locks.Mutex("k").TryLock(t.Context()) }()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	check.Is(t, "closed", locks.Close(ctx), context.DeadlineExceeded)
	close(store.acquired)
}

func closeLocks(t *testing.T, locks *lock.Client) {
	t.Helper()
	check.Is(t, "closed", locks.Close(t.Context()), nil)
}
