//part:locks

package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/lock/driver"
)

// The ways in which single locks are known to go wrong: on a real Redis where its scripts, its messages or the line to
// it matter, and in a bubble where time does. (The traps of quorums are in trap_quorum_test.go; the 12th, an unlock by
// another, is "one holder" of TestStores, for every store.) The comment of each test names the line it guards: with
// that line gone the test was seen to fail.

// A reply is lost after the acquire ran; go-redis sends it again. The count is
// 1 all the same. Guard: acquire.lua writes holds, it does not add 1.
func TestTrap01AcquireReplyLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := locksOn(t, plain(t, b.url())).Mutex(b.name)
	mustUnlock(t, mustLock(t, t.Context(), m)) // connections and scripts are there

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

// An unlock is repeated because its reply was lost. It answers what the first
// one answered, though somebody else has the lock by now. Guard: the latch, get
// latch in release.lua.
func TestTrap02UnlockReplyLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := locksOn(t, plain(t, b.url())).Mutex(b.name)
	mustUnlock(t, mustLock(t, t.Context(), m)) // connections and scripts are there
	lease := mustLock(t, t.Context(), m)
	b.line.CutReplies()
	done := make(chan error, 1)
	go func() { done <- lease.Unlock() }()
	other := mustLock(t, t.Context(), locksOn(t, b.direct).Mutex(b.name))
	b.line.Heal()
	check.Is(t, "the owner was told", check.Receive(t, "the unlock", done), nil)
	mustUnlock(t, other)
}

// The lock is released after a waiter tried and before its subscription is
// there: no message will come. Guards: receive wakes the watchers when a
// subscription is confirmed, so that they try once more; wake in
// MemoryStore.Watch, where nothing confirms one.
func TestTrap03LostWakeUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for what, store := range map[string]driver.Store{"redis": redisStore(b.direct), "memory": lock.NewMemoryStore()} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			lease := mustLock(t, t.Context(), newLocks(t, store).Mutex(b.name))
			release := sync.OnceFunc(func() { mustUnlock(t, lease) })
			late := &fake{Store: store, watch: func(name string, wake func()) driver.Watch {
				release()
				return store.Watch(name, wake)
			}}
			waiter := newLocks(t, late, onlyMessages()...).Mutex(b.name)
			mustUnlock(t, mustLock(t, t.Context(), waiter))
		})
	}
}

// The key is deleted, alone or with its token counter as by a FLUSHALL, under a waiter: nobody publishes
// anything. Guard: look sets the timer to the probe interval, not to the TTL.
func TestTrap04KeyGone(t *testing.T) {
	t.Parallel()
	for what, counter := range map[string]bool{"deleted": false, "flushed": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			first := mustLock(t, t.Context(), locksOn(t, b.direct).Mutex(b.name))
			waiter := begin(t.Context(), locksOn(t, b.direct, lock.ProbeEvery(check.Soon)).Mutex(b.name))
			check.Eventually(t, "the waiter waits", func() bool { return subscribed(t, b.direct, b.name) == 1 })
			keys := []string{b.name}
			if counter {
				keys = append(keys, "redisson_lock_token:{"+b.name+"}")
			}
			check.Equal(t, "keys deleted", check.Value(b.direct.Del(t.Context(), keys...).Result())(t), int64(len(keys)))
			next := got(t, "the lock whose key is gone", waiter) // and not when its TTL is over
			if next.Token() <= first.Token() {
				t.Errorf("token %d after %d", next.Token(), first.Token())
			}
			mustUnlock(t, next)
			check.Is(t, "the first holder", first.Unlock(), lock.ErrLost)
		})
	}
}

// A renewal fails: the watchdog goes on. It is told "not the owner": the lease
// ends at once. Guards in watchdog.renew: again after an error; lose when isGone.
func TestTrap05RenewalFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		store.renew = func(ctx context.Context, rs []driver.Request) []error {
			if store.renewed.Load() < 5 {
				return []error{fmt.Errorf("%w: no answer", lock.ErrUnknown)}
			}
			return store.Store.Renew(ctx, rs)
		}
		log := &check.Log{}
		held := mustLock(t, t.Context(), store.locks(t, lock.WatchdogLease(term), lock.Logger(log.Logger())).Mutex("k"))
		time.Sleep(4 * term)
		check.Is(t, "the lease after four failed renewals", context.Cause(held.Context()), nil)
		check.Equal(t, "the log tells of it", log.Has("locks could not be renewed, trying again", "no answer"), true)
		check.Equal(t, "the lock is taken away", check.Value(store.ForceRelease(t.Context(), "k"))(t), true)
		start := time.Now()
		<-held.Context().Done()
		if took := time.Since(start); took > term/3 {
			t.Errorf("the loss was told after %s of a renewal interval of %s", took, term/3)
		}
		wantLost(t, held)
	})
}

// A line that breaks is no loss: what a store says of a renewal that got no answer is not ErrLost. Guard: direct, exec
// and classify, which say ErrUnknown.
func TestTrap05LineBreaksUnderARenewal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	opt := patient(t, b.url())
	opt.MaxRetries = -1
	s := &asked{t, redisStore(connect(t, opt))}
	t.Cleanup(func() { _ = s.Close() })
	mine := request(b.name, 1)
	s.acquire("taken", mine, driver.StateHeld)
	b.line.CutReplies()
	if err := s.Renew(t.Context(), []driver.Request{mine})[0]; !errors.Is(err, lock.ErrUnknown) || errors.Is(err, lock.ErrLost) {
		t.Errorf("a renewal without an answer: %v", err)
	}
	b.line.Heal()
	check.Eventually(t, "it is renewed again", func() bool { return s.Renew(t.Context(), []driver.Request{mine})[0] == nil })
	s.release("released", mine, true)
}

// No renewal is sent after Unlock, even one that could not reach the store. Guards:
// h.end before free in unlockNow; behind it, what remove does for the last
// watchdog, and wanted. (Red with all three gone.)
func TestTrap06RenewalOutlivesUnlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newCut()
		renew := store.renew
		store.renew = func(ctx context.Context, rs []driver.Request) []error {
			if store.gone.Load() {
				t.Error("renewed during or after the unlock")
			}
			return renew(ctx, rs)
		}
		held := mustLock(t, t.Context(), store.locks(t, lock.WatchdogLease(term), lock.UnlockTimeout(2*term)).Mutex("k"))
		time.Sleep(term)
		check.Equal(t, "renewals before", store.renewed.Load() > 1, true)
		store.gone.Store(true)
		check.Is(t, "an unlock that gets no answer", held.Unlock(), lock.ErrUnknown)
		time.Sleep(2 * term)
		store.gone.Store(false)
	})
}

// A holder is cut off from the store after some renewals. Its context ends a drift before somebody else has the lock,
// counted from before the last renewal was sent. Guards: the timer in holding.begin; sent in watchdog.renew; validUntil.
func TestTrap07HolderCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slow = time.Second // an answer takes so long
		store := newCut()
		renew := store.renew
		var last time.Time
		store.renew = func(ctx context.Context, rs []driver.Request) []error {
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
		if after := time.Since(last); after < long {
			t.Errorf("the next holder came %s after the last renewal, the lease is %s", after, long)
		}
		store.gone.Store(false)
		wantLost(t, held)
		mustUnlock(t, next)
	})
}

// Many waiters on one key, in two processes: they are served in the order they came, an acquisition costs at most four
// requests, and each process has one subscription. Guards: only q.head asks, in Client.look.
func TestTrap10ManyWaiters(t *testing.T) {
	t.Parallel()
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
	var mu sync.Mutex
	var order [2][]int
	var wg sync.WaitGroup
	for i := range each {
		for p, locks := range processes {
			wg.Go(func() {
				lease, err := take(t.Context(), locks.Mutex(b.name))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order[p] = append(order[p], i)
				mu.Unlock()
				mustUnlock(t, lease)
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
	if per := float64(requests.count()-before) / float64(2*each); per > 4 {
		t.Errorf("%.1f requests an acquisition", per)
	}
	for p := range order {
		for i, got := range order[p] {
			if got != i {
				t.Fatalf("process %d: number %d was served as number %d", p, got, i)
			}
		}
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
func TestTrap10ManyKeys(t *testing.T) {
	t.Parallel()
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
		return len(check.Value(b.direct.PubSubChannels(t.Context(), "redisson_lock__channel:*"+b.name+"*").Result())(t)) == keys
	})
	check.Equal(t, "subscription connections", listeners(t, b), 1)
	for i, l := range leases {
		mustUnlock(t, l)
		mustUnlock(t, got(t, "its waiter", waiting[i]))
	}
}

// nowhere is a client whose subscriptions go nowhere.
type nowhere struct {
	*redis.Client
	subscriptions *redis.Client
}

func (d nowhere) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return d.subscriptions.Subscribe(ctx, channels...)
}

// The subscription cannot be had: waiters ask at intervals, and nobody gets an
// error. Guard: messages(q) chooses the poll interval in Client.look.
func TestTrap10Deaf(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client := nowhere{b.direct, connect(t, &redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})}
	waiter := newLocks(t, redisStore(client), lock.ProbeEvery(calm))
	lease := mustLock(t, t.Context(), locksOn(t, b.direct).Mutex(b.name))
	waiting := begin(t.Context(), waiter.Mutex(b.name))
	check.Eventually(t, "in line", func() bool { return lock.Waiting(waiter, b.name) == 1 })
	mustUnlock(t, lease)
	mustUnlock(t, got(t, "the waiter", waiting))
}

// A holder panics and forgets to unlock; the context of While ends with it,
// its process lives on. The lease ends the lock. Guard: life.Err in wanted.
func TestTrap11Forgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
		mustUnlock(t, mustLock(t, t.Context(), store.others(t).Mutex("k")))
		if took := time.Since(start); took > term+time.Millisecond {
			t.Errorf("a forgotten lock of %s lasts for %s", term, took)
		}
	})
}

// Waiters give up in every way; no goroutine, no subscription and
// no key stays. Guards: leave's watch.Stop; the drop of slots. (TestMain looks
// for goroutines, and so does the end of a bubble.)
func TestTrap13Leaks(t *testing.T) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		giveUp(t, locksOn(t, b.direct), locksOn(t, b.direct), b.name, 30)
		noSubscription(t, b.direct, b.name)
		onlyPassing(t, b.direct, b.name)
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store := newFake()
			var watches atomic.Int64
			store.watch = func(name string, wake func()) driver.Watch {
				watches.Add(1)
				return counted{store.Store.Watch(name, wake), &watches}
			}
			giveUp(t, store.others(t), store.locks(t), "k", 200)
			check.Equal(t, "watches that are left", watches.Load(), 0)
		})
	})
}

type counted struct {
	driver.Watch
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
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			wait := check.Soon + time.Duration(i)*time.Millisecond // one after the other, out of the middle of the line
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			var err error
			if i%2 == 0 {
				_, err = waiters.Mutex(name).Lock(ctx)
			} else {
				_, err = waiters.Mutex(name).Lock(t.Context(), lock.Wait(wait))
			}
			if err == nil {
				t.Error("got a lock that is held")
			}
		})
	}
	wg.Wait()
	check.Equal(t, "callers that are still in line", lock.Waiting(waiters, name), 0)
	mustUnlock(t, lease)
}

// The owner re-enters, so does a sibling with its context, and the count says so; the order of unlocks does not
// matter. Guard: ownerOf in Mutex.lock. (A detached one does not, and a shorter inner lease does not shorten the outer
// one: TestConformance and TestStores, for every store.)
func TestTrap14Owner(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := locksOn(t, b.direct).Mutex(b.name)
	outer := mustLock(t, t.Context(), m)
	inner := mustLock(t, outer.Context(), m)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { mustUnlock(t, mustLock(t, inner.Context(), m)) })
	}
	wg.Wait()
	check.Equal(t, "counts", fmt.Sprint(b.direct.HVals(t.Context(), b.name).Val()), "[2]")
	mustUnlock(t, outer)
	check.Equal(t, "held after one unlock of two", b.held(), true)
	mustUnlock(t, inner)
	check.Equal(t, "held after two unlocks of two", b.held(), false)
}
