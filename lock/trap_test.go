//part:locks

package lock_test

import (
	"cmp"
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

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// TestTraps are the ways in which single locks are known to go wrong: on a real Redis where its scripts, its messages
// or the line to it matter, and in a bubble where time does. Traps 8, 9 and 15 are about quorums, see quorum_test.go;
// the 12th, an unlock by another, is "one holder" of TestStores, and the 14th is in TestRedisLayout. The comment of
// each test names the code it guards: without that the test was seen to fail.
func TestTraps(t *testing.T) {
	t.Parallel()
	for what, run := range map[string]func(t *testing.T){
		"01: reply to an acquisition lost": trapAcquireReplyLost,
		"02: reply to an unlock lost":      trapUnlockReplyLost,
		"03: wake-up lost":                 func(t *testing.T) { trapLostWakeUp(t, redisStore(dial(t, testserver.SharedRedis(t)))) },
		"03: wake-up lost in memory":       func(t *testing.T) { trapLostWakeUp(t, lock.NewMemoryStore()) },
		"04: key deleted":                  func(t *testing.T) { trapKeyGone(t) },
		"04: keys flushed":                 func(t *testing.T) { trapKeyGone(t, "redisson_lock_token") },
		"05: line breaks":                  trapLineBreaks,
		"10: many waiters":                 trapManyWaiters,
		"10: many keys":                    trapManyKeys,
		"13: leaks":                        trapLeaks,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
	bubbles(t, map[string]func(t *testing.T){
		"05: renewal fails":     trapRenewalFails,
		"06: renewal outlives":  trapRenewalOutlives,
		"07: holder is cut off": trapHolderCutOff,
		"11: forgotten":         trapForgotten,
		"13: leaks in memory":   trapLeaksInMemory,
	})
}

// A reply is lost after the acquire ran; go-redis sends it again. The count is 1 all the same. Guard: acquire.lua
// writes holds, it does not add 1.
func trapAcquireReplyLost(t *testing.T) {
	b := newBench(t)
	m := locksOn(t, plain(t, b.url())).Mutex(b.name)
	cycle(t, m) // connections and scripts are there

	b.line.CutReplies()
	locking := begin(t.Context(), m)
	check.Eventually(t, "the acquire ran", b.held)
	b.line.Heal()
	lease := got(t, "the lock", locking)
	for holder, count := range b.direct.HGetAll(t.Context(), b.name).Val() {
		check.Equal(t, "the count of "+holder, count, "1")
	}
	mustUnlock(t, lease)
	check.Equal(t, "held after its unlock", b.held(), false)
}

// An unlock is repeated because its reply was lost. It answers what the first one answered, though somebody else has
// the lock by now. Guard: the latch, get latch in release.lua.
func trapUnlockReplyLost(t *testing.T) {
	b := newBench(t)
	m := locksOn(t, plain(t, b.url())).Mutex(b.name)
	cycle(t, m) // connections and scripts are there
	lease := mustLock(t, t.Context(), m)
	b.line.CutReplies()
	done := make(chan error, 1)
	go func() { done <- lease.Unlock() }()
	other := mustLock(t, t.Context(), locksOn(t, b.direct).Mutex(b.name))
	b.line.Heal()
	check.Is(t, "the owner was told", check.Receive(t, "the unlock", done), nil)
	mustUnlock(t, other)
}

// The lock is released after a waiter tried and before its subscription is there: no message will come. Guards: receive
// wakes the watchers when a subscription is confirmed, so that they try once more; wake in memoryStore.Watch, where
// nothing confirms one.
func trapLostWakeUp(t *testing.T, store lock.Store) {
	name := nameOf(t)
	lease := mustLock(t, t.Context(), newLocks(t, store).Mutex(name))
	release := sync.OnceFunc(func() { mustUnlock(t, lease) })
	late := &fake{Store: store, watch: func(ctx context.Context, name string, wake func()) lock.Watch {
		release()
		return store.Watch(ctx, name, wake)
	}}
	cycle(t, newLocks(t, late, onlyMessages()...).Mutex(name))
}

// The key is deleted, alone or with its token counter as by a FLUSHALL, under a waiter: nobody publishes anything.
// Guard: look sets the timer to the probe interval, not to the TTL.
func trapKeyGone(t *testing.T, more ...string) {
	b := newBench(t)
	first := mustLock(t, t.Context(), locksOn(t, b.direct).Mutex(b.name))
	waiter := begin(t.Context(), locksOn(t, b.direct, lock.ProbeEvery(check.Soon)).Mutex(b.name))
	check.Eventually(t, "the waiter waits", func() bool { return subscribed(t, b.direct, b.name) == 1 })
	keys := []string{b.name}
	for _, prefix := range more {
		keys = append(keys, prefix+":{"+b.name+"}")
	}
	check.Equal(t, "keys deleted", check.Value(b.direct.Del(t.Context(), keys...).Result())(t), int64(len(keys)))
	next := got(t, "the lock whose key is gone", waiter) // and not when its TTL is over
	wantLater(t, next.Token(), first.Token())
	mustUnlock(t, next)
	check.Is(t, "the first holder", first.Unlock(), lock.ErrLost)
}

// A renewal fails: the watchdog goes on. It is told "not the owner": the lease ends at once. Guards in watchdog.renew:
// again after an error; lose when isGone.
func trapRenewalFails(t *testing.T) {
	store := newFake()
	store.renew = func(ctx context.Context, rs []lock.Request) []error {
		if store.renewed.Load() < 5 {
			return []error{fmt.Errorf("%w: no answer", lock.ErrUnknown)}
		}
		return store.Store.Renew(ctx, rs)
	}
	log := &check.Log{}
	held := mustLock(t, t.Context(), store.locks(t, lock.WatchdogLease(term), lock.Logger(log.Logger())).Mutex("k"))
	time.Sleep(4 * term)
	wantHeld(t, "the lease after four failed renewals", held)
	check.Equal(t, "the log tells of it", log.Has("locks could not be renewed, trying again", "no answer"), true)
	check.Equal(t, "the lock is taken away", check.Value(store.ForceRelease(t.Context(), "k"))(t), true)
	start := time.Now()
	<-held.Context().Done()
	check.That(t, time.Since(start) <= term/3, "the loss came after %s of a renewal interval of %s", time.Since(start),
		term/3)
	wantLost(t, held)
}

// A line that breaks is no loss: what a store says of a renewal that got no answer is not ErrLost. Guard: direct, exec
// and classify, which say ErrUnknown.
func trapLineBreaks(t *testing.T) {
	b := newBench(t)
	opt := patient(t, b.url())
	opt.MaxRetries = -1
	s := newAsked(t, redisStore(connect(t, opt)))
	mine := request(b.name, 1)
	s.acquire("taken", mine, lock.StateHeld)
	b.line.CutReplies()
	if err := s.Renew(t.Context(), []lock.Request{mine})[0]; !errors.Is(err, lock.ErrUnknown) ||
		errors.Is(err, lock.ErrLost) {
		t.Errorf("a renewal without an answer: %v", err)
	}
	b.line.Heal()
	check.Eventually(t, "it is renewed again",
		func() bool { return s.Renew(t.Context(), []lock.Request{mine})[0] == nil })
	s.release("released", mine, true)
}

// No renewal is sent after Unlock, even one that could not reach the store. That takes no longer than UnlockTimeout,
// and the lock is given back in the background. Guards: h.end before free in unlockNow; behind it, what remove does for
// the last watchdog, and wanted (red with all three gone); WithTimeout in holding.unlock.
func trapRenewalOutlives(t *testing.T) {
	const long = 10 * term
	store := newCut()
	store.says = func(ctx context.Context) error { return cmp.Or(pass(ctx, time.Second), lock.ErrUnknown) }
	renew := store.renew
	store.renew = func(ctx context.Context, rs []lock.Request) []error {
		check.That(t, !store.gone.Load(), "renewed during or after the unlock")
		return renew(ctx, rs)
	}
	held := mustLock(t, t.Context(), store.locks(t, lock.WatchdogLease(long), lock.UnlockTimeout(term)).Mutex("k"))
	time.Sleep(long)
	check.Equal(t, "renewals before", store.renewed.Load() > 1, true)
	store.gone.Store(true)
	start := time.Now()
	err := held.Unlock()
	check.That(t, errors.Is(err, lock.ErrUnknown) && errors.Is(err, context.DeadlineExceeded),
		"an unlock that gets no answer: %v", err)
	check.Equal(t, "it took", time.Since(start), term)
	time.Sleep(4 * term)
	check.Equal(t, "free while the store is silent", store.free(t, "k"), false)
	store.gone.Store(false)
	time.Sleep(2 * time.Second)
	synctest.Wait()
	check.Equal(t, "free before its lease is over", store.free(t, "k"), true)
}

// A holder is cut off from the store after some renewals. Its context ends a drift before somebody else has the lock,
// counted from before the last renewal was sent. Guards: the timer in holding.begin; sent in watchdog.renew;
// validUntil.
func trapHolderCutOff(t *testing.T) {
	const slow = time.Second // an answer takes so long
	store := newCut()
	renew := store.renew
	var last time.Time
	store.renew = func(ctx context.Context, rs []lock.Request) []error {
		sent := time.Now()
		errs := renew(ctx, rs)
		if errs[0] == nil {
			last = sent
			time.Sleep(slow)
		}
		return errs
	}
	const long = 10 * time.Second
	held := mustLock(t, t.Context(), store.locks(t, lock.WatchdogLease(long)).Mutex("k"))
	waiter := begin(t.Context(), store.others(t).Mutex("k"))
	time.Sleep(long)
	store.gone.Store(true)
	<-held.Context().Done()
	check.Equal(t, "it ended, after the last renewal was sent", time.Since(last), long-drift(long))
	next := got(t, "the next holder", waiter)
	check.That(t, time.Since(last) >= long, "the next holder came %s after the last renewal, the lease is %s",
		time.Since(last), long)
	store.gone.Store(false)
	wantLost(t, held)
	mustUnlock(t, next)
}

// Many waiters on one key, in two processes: they are served in the order they came, an acquisition costs at most four
// requests, and each process has one subscription. Guards: only q.head asks, in Client.look.
func trapManyWaiters(t *testing.T) {
	b := newBench(t)
	each := check.Count(t, "WAITERS", 25, 100)
	var requests gate
	var processes [2]*lock.Client
	for i := range processes {
		client := named(t, b)
		client.AddHook(&requests)
		processes[i] = locksOn(t, client, onlyMessages()...)
	}
	blocker := mustLock(t, t.Context(), locksOn(t, b.direct).Mutex(b.name))
	var order [2][]int // guarded by the lock
	var wg sync.WaitGroup
	for i := range each {
		for p, locks := range processes {
			wg.Go(func() {
				use(t, locks.Mutex(b.name), func(*lock.Lease) { order[p] = append(order[p], i) })
			})
		}
		check.Eventually(t, "in line", func() bool {
			return lock.Waiting(processes[0], b.name) == i+1 && lock.Waiting(processes[1], b.name) == i+1
		})
	}
	check.Eventually(t, "one subscription a process", func() bool { return subscribed(t, b.direct, b.name) == 2 })
	check.Equal(t, "subscription connections of two processes", listeners(t, b), 2)
	before := requests.count()
	mustUnlock(t, blocker)
	wg.Wait()
	per := float64(requests.count()-before) / float64(2*each)
	check.That(t, per <= 4, "%.1f requests an acquisition", per)
	for p := range order {
		check.That(t, len(order[p]) == each && slices.IsSorted(order[p]), "process %d served %v", p, order[p])
	}
	noSubscription(t, b.direct, b.name)
}

// named is a client whose connections bear the name of the bench's lock. It does not give calls up that take long.
func named(t *testing.T, b bench) *redis.Client {
	t.Helper()
	opt := patient(t, "redis://"+b.direct.Options().Addr)
	opt.ClientName = strings.ReplaceAll(b.name, "/", "-")
	return connect(t, opt)
}

// listeners counts the subscription connections of the clients that named made.
func listeners(t *testing.T, b bench) (n int) {
	t.Helper()
	mine := " name=" + strings.ReplaceAll(b.name, "/", "-") + " "
	for line := range strings.Lines(check.Value(b.direct.ClientList(t.Context()).Result())(t)) {
		if strings.Contains(line, mine) && !strings.Contains(line, " sub=0 ") {
			n++
		}
	}
	return n
}

// Waiters on many keys share one subscription connection. Guard: subscriptions is one per store.
func trapManyKeys(t *testing.T) {
	b := newBench(t)
	keys := check.Count(t, "KEYS", 60, 500)
	holder, waiter := locksOn(t, b.direct), locksOn(t, named(t, b))
	var leases []*lock.Lease
	var waiting []<-chan attempt
	for i := range keys {
		name := fmt.Sprint(b.name, i)
		leases = append(leases, mustLock(t, t.Context(), holder.Mutex(name)))
		waiting = append(waiting, begin(t.Context(), waiter.Mutex(name)))
	}
	check.Eventually(t, "a channel a key", func() bool {
		return len(check.Value(b.direct.PubSubChannels(t.Context(),
			"redisson_lock__channel:*"+b.name+"*").Result())(t)) == keys
	})
	check.Equal(t, "subscription connections", listeners(t, b), 1)
	for i, l := range leases {
		mustUnlock(t, l)
		mustUnlock(t, got(t, "its waiter", waiting[i]))
	}
}

// A holder panics and forgets to unlock; the context of While ends with it, its process lives on. The lease ends the
// lock. Guard: life.Err in wanted.
func trapForgotten(t *testing.T) {
	store := newFake()
	locks := store.locks(t, lock.WatchdogLease(term))
	func() {
		request, end := context.WithCancel(t.Context())
		defer end()
		defer func() { _ = recover() }()
		mustLock(t, request, locks.Mutex("k"), lock.While(request))
		panic("between lock and unlock")
	}()
	start := time.Now()
	cycle(t, store.others(t).Mutex("k"))
	check.That(t, time.Since(start) <= term+time.Millisecond, "a forgotten lock of %s lasts for %s", term,
		time.Since(start))
}

// Waiters give up in every way; no goroutine, no subscription and no key stays. Guards: leave's watch.Stop; the drop of
// slots. (TestMain looks for goroutines, and so does the end of a bubble.)
func trapLeaks(t *testing.T) {
	b := newBench(t)
	giveUp(t, locksOn(t, b.direct), locksOn(t, b.direct), b.name, 30)
	noSubscription(t, b.direct, b.name)
	onlyPassing(t, b.direct, b.name)
}

func trapLeaksInMemory(t *testing.T) {
	store := newFake()
	var watches atomic.Int64
	store.watch = func(ctx context.Context, name string, wake func()) lock.Watch {
		watches.Add(1)
		return counted{store.Store.Watch(ctx, name, wake), &watches}
	}
	giveUp(t, store.others(t), store.locks(t), "k", 200)
	check.Equal(t, "watches that are left", watches.Load(), 0)
}

type counted struct {
	lock.Watch
	left *atomic.Int64
}

func (w counted) Stop() {
	w.left.Add(-1)
	w.Watch.Stop()
}

// giveUp has callers wait for a lock that stays held: until their budget is used up, or their context ends.
func giveUp(t *testing.T, holder, waiters *lock.Client, name string, callers int) {
	t.Helper()
	lease := mustLock(t, t.Context(), holder.Mutex(name))
	check.Volley(callers, func(i int) {
		wait := check.Soon + time.Duration(i)*time.Millisecond // one after the other, out of the middle of the queue
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		var err error
		if i%2 == 0 {
			_, err = waiters.Mutex(name).Lock(ctx)
		} else {
			_, err = waiters.Mutex(name).Lock(t.Context(), lock.Wait(wait))
		}
		check.That(t, err != nil, "got a lock that is held")
	})
	check.Equal(t, "callers that are still in line", lock.Waiting(waiters, name), 0)
	mustUnlock(t, lease)
}
