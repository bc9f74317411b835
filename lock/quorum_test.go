package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/lock"
)

// TestQuorum is what locks of several parts do, by the time of a bubble. Traps are numbered as in trap_test.go.
func TestQuorum(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T){
		"trap 09: partial":             quorumPartial,
		"trap 15: unlock tries all":    quorumUnlock,
		"one is slow":                  quorumSlow,
		"valid until":                  quorumValidUntil,
		"token after a loss":           quorumTokenAfterLoss,
		"token of other parts":         quorumTokenOfOtherParts,
		"in the order they came":       quorumOrder,
		"flushed in front of a waiter": quorumFlushed,
		"one is silent":                quorumBesideSilence,
		"remembers messages":           quorumRemembers,
	}
	for what, join := range wholes() {
		tests["trap 08: canceled: "+what] = func(t *testing.T) { quorumCanceled(t, join) }
	}
	for kind, join := range joins() {
		for processes, most := range map[int]int{1: 9, 4: 24} {
			tests[fmt.Sprint("trap 15: opposite order: ", kind, " in ", processes)] = func(t *testing.T) { quorumContention(t, join, processes, most) }
		}
		for gap := range 5 {
			tests[fmt.Sprint("woken soon: ", kind, " ", gap, " ms apart")] = func(t *testing.T) {
				for range 20 { // it waits for a while at random
					quorumWokenSoon(t, join, time.Duration(gap)*time.Millisecond)
				}
			}
		}
	}
	refused := func(context.Context) error { return errors.New("connection refused") }
	for what, answer := range map[string]func(context.Context) error{"killed": refused, "stopped": silent, "emptied": nil} {
		tests["one is "+what] = func(t *testing.T) { quorumFaults(t, answer) }
	}
	bubbles(t, tests)
}

// instances are independent stores of a bubble, and locks "k" of one process on them.
func instances(t testing.TB, n int) (stores []*fake, parts []lock.Locker) {
	t.Helper()
	for range n {
		stores = append(stores, newFake())
	}
	return stores, partsOf(t, stores)
}

func partsOf(t testing.TB, stores []*fake) (parts []lock.Locker) {
	t.Helper()
	for _, s := range stores {
		parts = append(parts, s.locks(t).Mutex("k"))
	}
	return parts
}

func noOrphans(t testing.TB, stores []*fake) {
	t.Helper()
	synctest.Wait()
	for i, s := range stores {
		check.Equal(t, fmt.Sprintf("instance %d is free", i), s.free(t, "k"), true)
	}
}

func holdEach(t *testing.T, stores []*fake) (held []*lock.Lease) {
	t.Helper()
	for _, s := range stores {
		held = append(held, mustLock(t, t.Context(), s.others(t).Mutex("k")))
	}
	return held
}

func joins() map[string]func(...lock.Locker) *lock.Quorum {
	return map[string]func(...lock.Locker) *lock.Quorum{"all": lock.All, "majority": lock.Majority}
}

// wholes are all, a majority, and for comparison one, of three.
func wholes() map[string]func(...lock.Locker) lock.Locker {
	return map[string]func(...lock.Locker) lock.Locker{
		"all":      func(parts ...lock.Locker) lock.Locker { return lock.All(parts...) },
		"majority": func(parts ...lock.Locker) lock.Locker { return lock.Majority(parts...) },
		"single":   func(parts ...lock.Locker) lock.Locker { return parts[1] },
	}
}

// A canceled call to a silent instance returns at once, and no lock stays. Guards: ctx.Done in decided; holding.undo.
func quorumCanceled(t *testing.T, join func(...lock.Locker) lock.Locker) {
	stores, parts := instances(t, 3)
	for _, s := range stores[1:] {
		s.acquire = func(ctx context.Context, r lock.Request) (lock.Grant, error) {
			_, _ = s.Store.Acquire(ctx, r)
			return lock.Grant{}, silent(ctx)
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
}

// The same over a line that swallows replies, with a client that ignores deadlines. Guards: ctx.Done in batcher.do;
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
			cycle(t, lock.All(parts...)) // connections and scripts are there
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
				check.Eventually(t, "it is executed", func() bool { return b.token() != before[b.name] })
			}
			cancel()
			a := check.Receive(t, "the end of the call", failed)
			check.That(t, a.lease == nil && errors.Is(a.err, context.Canceled), "lease %v, error %v", a.lease, a.err)
			for _, b := range silent {
				b.line.Heal()
			}
			for _, b := range benches {
				b.noOrphan(t)
			}
			cycle(t, q)
		})
	}
}

// Parts of a failed round go back together, late ones do not count. Guards: b.giveUp in round, wg.Go in each;
// validUntil in begin.
func quorumPartial(t *testing.T) {
	const answer = 300 * time.Millisecond
	stores, parts := instances(t, 5)
	inVain := func(what string, q lock.Locker, held int) {
		t.Helper()
		var others []*lock.Lease
		for i, s := range stores {
			if s.answers = answer - time.Millisecond; i < held {
				s.answers = answer // those that refuse answer last: what was taken is to be given back, together
				others = append(others, mustLock(t, t.Context(), s.others(t).Mutex("k")))
			}
		}
		start := time.Now()
		wantBusy(t, what, q)
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
}

// An unlock tries all parts and reports all that failed. Guard: each in bundle.unlock.
func quorumUnlock(t *testing.T) {
	one, two := newCut(), newFake()
	first, third := one.locks(t, lock.UnlockTimeout(time.Second)), one.locks(t, lock.UnlockTimeout(time.Second))
	held := mustLock(t, t.Context(), lock.All(first.Mutex("first"), two.locks(t).Mutex("second"), third.Mutex("third")))
	one.gone.Store(true)
	start := time.Now()
	says := fmt.Sprint(held.Unlock())
	check.Equal(t, "it took", time.Since(start), time.Second)
	for part, failed := range map[string]bool{"first": true, "second": false, "third": true} {
		check.That(t, strings.Contains(says, "unlock "+part) == failed, "the unlock reports: %s", says)
	}
	check.Equal(t, "the part that could be reached is free", two.free(t, "second"), true)
	one.gone.Store(false)
}

// A majority of three survives one failing instance; without two it fails in time, and leaves nothing. All needs all.
func quorumFaults(t *testing.T, answer func(context.Context) error) {
	var cuts []*cut
	var stores []*fake
	for range 3 {
		c := newCut()
		c.says = answer
		cuts, stores = append(cuts, c), append(stores, c.fake)
	}
	one, two := partsOf(t, stores), partsOf(t, stores)
	held := mustLock(t, t.Context(), lock.Majority(one...))
	synctest.Wait() // the third part joins
	if answer == nil {
		cuts[0].empty()
	} else {
		cuts[0].gone.Store(true)
	}
	wantBusy(t, "a second holder", lock.Majority(two...))
	time.Sleep(time.Minute)
	wantHeld(t, "the lease", held)
	err := held.Unlock()
	check.That(t, !errors.Is(err, lock.ErrLost) && (answer != nil || err == nil), "unlock: %v", err)
	_ = mustLock(t, t.Context(), lock.Majority(two...)).Unlock()
	noOrphans(t, stores[1:])
	if answer != nil {
		ctx, cancel := context.WithTimeout(t.Context(), term)
		defer cancel()
		_, err := lock.All(one...).TryLock(ctx)
		check.That(t, err != nil && !errors.Is(err, lock.ErrHeld), "all, one gone: %v", err)
		cuts[1].gone.Store(true)
		start := time.Now()
		_, err = lock.Majority(one...).Lock(ctx, lock.Wait(term))
		check.That(t, err != nil && !errors.Is(err, lock.ErrTimeout), "majority, two gone: %v", err)
		check.That(t, time.Since(start) <= term, "the error came after %s", time.Since(start))
		noOrphans(t, stores[2:])
	}
	for _, c := range cuts {
		c.gone.Store(false)
	}
	cycle(t, lock.All(two...))
	noOrphans(t, stores)
}

func quorumSlow(t *testing.T) {
	stores, parts := instances(t, 3)
	stores[1].answers = term
	start := time.Now()
	held := mustLock(t, t.Context(), lock.Majority(parts...))
	check.Equal(t, "a majority had it after", time.Since(start), 0)
	mustUnlock(t, held)
	time.Sleep(3 * term) // what it was asked for comes late, and goes
	noOrphans(t, stores)
	start = time.Now()
	cycle(t, lock.All(parts...))
	check.Equal(t, "all had it, were fenced and given back after", time.Since(start), 3*term)
}

// ValidUntil ignores a part that was extended further and then lost. Guard: cause in bundle.validUntil.
func quorumValidUntil(t *testing.T) {
	stores, parts := instances(t, 3)
	stores[2].renew = func(context.Context, []lock.Request) []error { return []error{lock.ErrUnknown} }
	held := mustLock(t, t.Context(), lock.Majority(parts...), lock.LeaseTime(term))
	synctest.Wait()                                      // the third part joins
	check.Must(t, held.Extend(t.Context(), time.Minute)) // two of three
	check.Equal(t, "one is taken away", check.Value(stores[0].ForceRelease(t.Context(), "k"))(t), true)
	check.Is(t, "extended", held.Extend(t.Context(), time.Second), lock.ErrLost) // one of them is found gone
	until := held.ValidUntil()
	<-held.Context().Done()
	check.That(t, !time.Now().Before(until), "it ended %s before", time.Until(until))
	_ = held.Unlock()
}

// An owner takes a lost lock again: its token exceeds that of the holder between. Guard: forget in bundle.ended.
func quorumTokenAfterLoss(t *testing.T) {
	store := newFake()
	one, two := store.locks(t), store.locks(t)
	mine, other := lock.All(one.Mutex("a"), one.Mutex("b")), lock.All(two.Mutex("a"), two.Mutex("b"))
	owner := mustLock(t, t.Context(), one.Mutex("owner")).Context()
	lost := mustLock(t, owner, mine)
	for _, name := range []string{"a", "b"} {
		check.Equal(t, "forced", check.Value(one.ForceUnlock(owner, name))(t), true)
	}
	between := mustLock(t, t.Context(), other)
	<-lost.Context().Done() // its renewal finds a part gone
	synctest.Wait()         // and the other one, at the same instant
	mustUnlock(t, between)
	again := mustLock(t, owner, mine)
	wantLater(t, again.Token(), between.Token())
	check.Is(t, "the unlock of what was lost", lost.Unlock(), lock.ErrLost)
	check.Equal(t, "the token re-entered", mustLock(t, again.Context(), mine).Token(), again.Token())
}

// A token written back to a part counts for the next holder. Guard: raise in bundle.fence; r.Token in the stores.
func quorumTokenOfOtherParts(t *testing.T) {
	stores, parts := instances(t, 3)
	for range 5 { // the tokens of the third are ahead
		cycle(t, stores[2].others(t).Mutex("k"))
	}
	first := mustLock(t, t.Context(), lock.Majority(parts[1:]...))
	mustUnlock(t, first)
	second := mustLock(t, t.Context(), lock.Majority(parts[:2]...))
	wantLater(t, second.Token(), first.Token())
	mustUnlock(t, second)
}

// Callers want the same three parts, half of them in the opposite order: no deadlock, and an acquisition costs little
// more than alone (six calls). Guards: one.try in round; the queue in Quorum.await, the pause in Client.round.
func quorumContention(t *testing.T, join func(...lock.Locker) *lock.Quorum, processes, most int) {
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
	check.Volley(workers, func(i int) {
		p := slices.Clone(parts[i%processes])
		if i/processes%2 == 1 {
			slices.Reverse(p)
		}
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
	check.Equal(t, "turns", held, workers*rounds)
	used := 0
	for _, s := range stores {
		used += s.calls()
	}
	t.Logf("%d calls for %d acquisitions", used, held)
	check.That(t, used <= most*held, "%d calls for %d acquisitions, more than %d each", used, held, most)
	noOrphans(t, stores)
}

// The callers of one process are served in order; who gives up leaves the queue, and who holds a part skips it.
func quorumOrder(t *testing.T) {
	stores, parts := instances(t, 3)
	q := lock.All(parts...)
	held := mustLock(t, t.Context(), q)

	const callers, leaver = 6, 2
	var order []int // guarded by the lock
	var wg sync.WaitGroup
	quit, cancel := context.WithCancel(t.Context())
	for i := range callers {
		wg.Go(func() {
			if i == leaver {
				check.Is(t, "the one that gave up", check.ErrorOf(take(quit, q)), context.Canceled)
				return
			}
			use(t, q, func(*lock.Lease) { order = append(order, i) })
		})
		synctest.Wait()
		check.Equal(t, "in the queue", lock.WaitingFor(q), i+1)
	}
	check.Is(t, "a budget spent in the queue", check.ErrorOf(q.Lock(t.Context(), lock.Wait(term))), lock.ErrTimeout)
	cancel()
	synctest.Wait()
	check.Equal(t, "in the queue when one is gone", lock.WaitingFor(q), callers-1)

	// Behind the others, whose turn never comes before it, it would wait for ever.
	mustUnlock(t, mustLock(t, held.Context(), q))
	mustUnlock(t, mustLock(t, held.Context(), lock.Majority(parts...)))

	mustUnlock(t, held)
	wg.Wait()
	check.Equal(t, "served in the order", fmt.Sprint(order), "[0 1 3 4 5]")
	check.Equal(t, "queues that are left", lock.Queues(q), 0)
	noOrphans(t, stores)
}

// A lease whose keys are gone, which nobody announces, does not keep the queue waiting until it is over.
func quorumFlushed(t *testing.T) {
	stores, parts := instances(t, 3)
	q := lock.All(parts...)
	held := mustLock(t, t.Context(), q)
	for _, s := range stores {
		s.empty()
	}
	start := time.Now()
	next := mustLock(t, t.Context(), q)
	check.That(t, time.Since(start) <= lock.DefaultProbe, "the next one waited %s", time.Since(start))
	check.Is(t, "the one whose keys were deleted", held.Unlock(), lock.ErrLost)
	mustUnlock(t, next)
}

// Four processes each hold a part beside a silent one: all get both in turn. Guard: slow in Client.round.
func quorumBesideSilence(t *testing.T) {
	const processes, rounds, givenUp, jitter = 4, 10, 300 * time.Millisecond, 2 * time.Millisecond
	stores, _ := instances(t, 3)
	random := check.Seeded(t)
	var mu sync.Mutex // guards random
	for _, s := range stores {
		s.acquire = func(ctx context.Context, r lock.Request) (lock.Grant, error) {
			mu.Lock()
			late := time.Duration(random.Int64N(int64(jitter)))
			mu.Unlock()
			time.Sleep(late)
			return s.Store.Acquire(ctx, r)
		}
	}
	stores[2].takes = givenUp
	stores[2].acquire = func(context.Context, lock.Request) (lock.Grant, error) { return lock.Grant{}, lock.ErrUnknown }
	stores[2].release = func(context.Context, lock.Request) (bool, error) { return false, lock.ErrUnknown }
	start := time.Now()
	check.Volley(processes, func(i int) {
		parts := partsOf(t, stores)
		if i%2 == 1 {
			parts[0], parts[1] = parts[1], parts[0]
		}
		for range rounds {
			lease, err := lock.Majority(parts...).Lock(t.Context(), lock.Wait(check.Deadline))
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Millisecond) // the work
			_ = lease.Unlock()           // the silent one's part goes on in the background
		}
	})
	t.Logf("%d acquisitions took %s", processes*rounds, time.Since(start))
	noOrphans(t, stores[:2])
}

// A lock is given back part by part, as Redisson does: its waiter asks as often as for a single lock, and has it in
// milliseconds, not after a doubled pause (64 ms on average). Guards: news and until in Client.round.
func quorumWokenSoon(t *testing.T, join func(...lock.Locker) *lock.Quorum, gap time.Duration) {
	const waited, soon = 3 * time.Second, 10 * time.Millisecond
	stores, parts := instances(t, 3)
	held := holdEach(t, stores)
	waiter := begin(t.Context(), join(parts...))
	time.Sleep(waited)
	for i, s := range stores {
		n := s.acquired.Load() // at once, when it watches, and twice a second
		check.That(t, n <= 2+int64(waited/lock.DefaultProbe), "part %d was asked for %d times in %v", i, n, waited)
	}
	for _, lease := range held {
		time.Sleep(gap)
		mustUnlock(t, lease)
	}
	start := time.Now()
	mustUnlock(t, got(t, "the lock", waiter))
	check.That(t, time.Since(start) <= soon, "woken %v after the last part was free", time.Since(start))
}

// Another caller is faster at one part, and the round fails: later that part's message alone is enough. Guard: what
// Client.round knows of the parts after a failed one. (It slept out a doubling pause.)
func quorumRemembers(t *testing.T) {
	const waited, answer = 3200 * time.Millisecond, 5 * time.Millisecond
	stores, parts := instances(t, 3)
	held := holdEach(t, stores)
	stores[0].takes, stores[1].takes = answer, answer
	contested, other := stores[2].Store, request("k", 1)
	var overtaken atomic.Bool
	stores[2].acquire = func(ctx context.Context, r lock.Request) (lock.Grant, error) {
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
	check.Equal(t, "the other one had it",
		check.Value(contested.Release(t.Context(), lock.Request{Name: "k", Holder: other.Holder}))(t), true)
	start := time.Now()
	lease := got(t, "the lock", waiter)
	// It asks once, and once more for a token that is the same everywhere.
	check.That(t, time.Since(start) <= 2*answer, "woken %v after the last part was free, and an answer takes %v",
		time.Since(start), answer)
	mustUnlock(t, lease)
}
