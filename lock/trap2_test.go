package lock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/lock"
)

// Three hundred waiters on one key, in two processes: they are served in the
// order they came, an acquisition costs at most four requests, and each process
// has one subscription. Guards: only q.head asks, in Client.look.
func TestTrap10ManyWaiters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, two := locksOn(t, b.direct), locksOn(t, b.direct)
	blocker := mustLock(t, t.Context(), locksOn(t, b.direct).Mutex("k"))
	const each = 150
	var mu sync.Mutex
	var order [2][]int
	var wg sync.WaitGroup
	for i := range each {
		for p, locks := range []*lock.Client{one, two} {
			waiting := lock.Waiting(locks, "k")
			wg.Go(func() {
				lease, err := locks.Mutex("k").Lock(t.Context(), lock.Wait(time.Minute))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order[p] = append(order[p], i)
				mu.Unlock()
				mustUnlock(t, lease)
			})
			eventually(t, 5*time.Second, "in line", func() bool { return lock.Waiting(locks, "k") == waiting+1 })
		}
	}
	eventually(t, 5*time.Second, "one subscription a process", func() bool { return subscribed(t, b.direct, "k") == 2 })
	if n := strings.Count(b.direct.ClientList(t.Context()).Val(), "sub=1"); n != 2 {
		t.Errorf("%d subscription connections of two processes", n)
	}
	before := commands(t, b.direct)
	mustUnlock(t, blocker)
	wg.Wait()
	if per := float64(commands(t, b.direct)-before) / (2 * each); per > 4 {
		t.Errorf("%.1f requests an acquisition", per)
	} else {
		t.Logf("%.2f requests an acquisition", per)
	}
	for p := range order {
		for i, got := range order[p] {
			if got != i {
				t.Fatalf("process %d: number %d was served as number %d", p, got, i)
			}
		}
	}
	eventually(t, 5*time.Second, "no subscription left", func() bool { return subscribed(t, b.direct, "k") == 0 })
}

// A thousand waiters on a thousand keys share one subscription connection.
// Guard: subscriptions is one per store.
func TestTrap10ManyKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	holder, waiter := locksOn(t, b.direct), locksOn(t, b.direct)
	const keys = 1000
	leases := make([]*lock.Lease, keys)
	var wg sync.WaitGroup
	for i := range keys {
		leases[i] = mustLock(t, t.Context(), holder.Mutex(fmt.Sprint("k", i)))
		wg.Go(func() {
			lease, err := waiter.Mutex(fmt.Sprint("k", i)).Lock(t.Context(), lock.Wait(time.Minute))
			if err != nil {
				t.Error(err)
				return
			}
			mustUnlock(t, lease)
		})
	}
	eventually(t, 30*time.Second, "a thousand channels", func() bool {
		return len(b.direct.PubSubChannels(t.Context(), "redisson_lock__channel:*").Val()) == keys
	})
	n := 0
	for line := range strings.Lines(b.direct.ClientList(t.Context()).Val()) {
		if !strings.Contains(line, " sub=0 ") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d subscription connections", n)
	}
	for _, l := range leases {
		mustUnlock(t, l)
	}
	wg.Wait()
}

// deaf is a client whose subscriptions go nowhere.
type deaf struct {
	*redis.Client
	nowhere *redis.Client
}

func (d deaf) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return d.nowhere.Subscribe(ctx, channels...)
}

// The subscription cannot be had: waiters ask at intervals, and nobody gets an
// error. Guard: messages(q) chooses the poll interval in Client.look.
func TestTrap10Deaf(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	nowhere := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	t.Cleanup(func() { _ = nowhere.Close() })
	waiter := newLocks(t, lock.NewRedisStore(deaf{b.direct, nowhere}), lock.ProbeEvery(time.Hour))
	holder := locksOn(t, b.direct).Mutex("k")
	testserver.Undisturbed(t, 500*time.Millisecond, func() error {
		lease := mustLock(t, t.Context(), holder)
		got := make(chan error, 1)
		go func() {
			next, err := waiter.Mutex("k").Lock(t.Context(), lock.Wait(10*time.Second))
			if err == nil {
				err = next.Unlock()
			}
			got <- err
		}()
		eventually(t, 5*time.Second, "in line", func() bool { return lock.Waiting(waiter, "k") == 1 })
		mustUnlock(t, lease)
		start := time.Now()
		if err := <-got; err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d > time.Second {
			return fmt.Errorf("noticed after %s", d)
		}
		return nil
	})
}

// A holder panics and forgets to unlock; its request's context ends with it,
// its process lives on. The lease ends the lock. Guard: parent.Err in wanted.
func TestTrap11Forgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	locks := locksOn(t, b.direct, lock.WatchdogLease(300*time.Millisecond))
	func() {
		request, end := context.WithCancel(t.Context())
		defer end()
		defer func() { _ = recover() }()
		mustLock(t, request, locks.Mutex("k"))
		panic("between lock and unlock")
	}()
	next, err := locksOn(t, b.direct).Mutex("k").Lock(t.Context(), lock.Wait(5*time.Second))
	if err != nil {
		t.Fatalf("a forgotten lock is renewed for ever: %v", err)
	}
	mustUnlock(t, next)
}

// Somebody else unlocks: refused, nothing changes. Guard: hexists holder in
// release.lua, get ~= holder in setnx_release.lua.
func TestTrap12UnlockByAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, store := range map[string]lock.Store{"hash": lock.NewRedisStore(b.direct), "setnx": lock.NewSetNXStore(b.direct)} {
		locks := newLocks(t, store)
		lease := mustLock(t, t.Context(), locks.Mutex(name))
		for _, abandon := range []bool{false, true} {
			was, err := store.Release(t.Context(), lock.Request{Name: name, Holder: "somebody:1", Abandon: abandon})
			if err != nil || was {
				t.Errorf("%s: released by another: %v, %v", name, was, err)
			}
		}
		if b.direct.Exists(t.Context(), name).Val() != 1 {
			t.Errorf("%s: the lock is gone", name)
		}
		mustUnlock(t, lease)
	}
}

// Two hundred waiters give up in every way; no goroutine, no subscription and
// no key stays. Guards: unlink's watch.Stop; the drop of slots. (TestMain looks
// for goroutines again at the end.) It runs before the parallel tests, whose
// goroutines it would count.
//
//nolint:paralleltest // see above
func TestTrap13Leaks(t *testing.T) {
	b := newBench(t)
	lease := mustLock(t, t.Context(), locksOn(t, b.direct).Mutex("k"))
	waiters := locksOn(t, b.direct)
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
			defer cancel()
			var err error
			if i%2 == 0 {
				_, err = waiters.Mutex("k").Lock(ctx)
			} else {
				_, err = waiters.Mutex("k").Lock(t.Context(), lock.Wait(time.Duration(i)*time.Millisecond))
			}
			if err == nil {
				t.Error("got a lock that is held")
			}
		})
	}
	wg.Wait()
	if lock.Waiting(waiters, "k") != 0 {
		t.Error("somebody is still in line")
	}
	eventually(t, 5*time.Second, "no subscription left", func() bool { return subscribed(t, b.direct, "k") == 0 })
	mustUnlock(t, lease)
	onlyPassing(t, b.direct)
	if after := runtime.NumGoroutine(); after > before+100 {
		t.Errorf("%d goroutines, %d before", after, before)
	}
}

// The owner re-enters, so does a sibling with its context; a detached one does
// not; and a shorter inner lease does not shorten the outer one. Guards:
// ownerOf in Mutex.lock; Detach; pttl < lease in acquire.lua.
func TestTrap14Owner(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := locksOn(t, b.direct).Mutex("k")
	outer := mustLock(t, t.Context(), m, lock.LeaseTime(20*time.Second))
	inner := mustLock(t, outer.Context(), m, lock.LeaseTime(time.Second))
	if ttl := b.direct.PTTL(t.Context(), "k").Val(); ttl < 15*time.Second {
		t.Errorf("the inner lease shortened the outer one to %s", ttl)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { mustUnlock(t, mustLock(t, inner.Context(), m)) })
	}
	wg.Wait()
	if n := b.direct.HVals(t.Context(), "k").Val(); len(n) != 1 || n[0] != "2" {
		t.Errorf("counts %v, not 2", n)
	}
	if _, err := m.TryLock(lock.Detach(inner.Context())); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("a detached owner: %v", err)
	}
	mustUnlock(t, outer) // the order of unlocks does not matter
	if b.direct.Exists(t.Context(), "k").Val() != 1 {
		t.Error("one unlock of two freed the lock")
	}
	mustUnlock(t, inner)
	if b.direct.Exists(t.Context(), "k").Val() != 0 {
		t.Error("two unlocks of two did not free the lock")
	}
}

// Two callers take the same parts in opposite order, again and again: no
// deadlock. And an unlock tries all parts and reports all that failed. Guards:
// the parts are asked without waiting (one.try in round); each in unlock.
func TestTrap15OppositeOrder(t *testing.T) {
	t.Parallel()
	one, two := newBench(t), newBench(t)
	var wg sync.WaitGroup
	n := 0
	for caller := range 4 {
		a := locksOn(t, one.direct).Mutex("k")
		b := locksOn(t, two.direct).Mutex("k")
		q := lock.All(a, b)
		if caller%2 == 1 {
			q = lock.All(b, a)
		}
		wg.Go(func() {
			for range 20 {
				lease, err := q.Lock(t.Context(), lock.Wait(30*time.Second))
				if err != nil {
					t.Error(err)
					return
				}
				n++ // the race detector watches
				mustUnlock(t, lease)
			}
		})
	}
	wg.Wait()
	if n != 80 {
		t.Errorf("%d of 80", n)
	}

	cut := newLocks(t, lock.NewRedisStore(dial(t, one.url()), lock.CallTimeout(200*time.Millisecond)), lock.UnlockTimeout(300*time.Millisecond))
	also := newLocks(t, lock.NewRedisStore(dial(t, one.url()), lock.CallTimeout(200*time.Millisecond)), lock.UnlockTimeout(300*time.Millisecond))
	lease := mustLock(t, t.Context(), lock.All(cut.Mutex("first"), locksOn(t, two.direct).Mutex("second"), also.Mutex("third")))
	one.line.Hole()
	err := lease.Unlock()
	if err == nil || !strings.Contains(err.Error(), "unlock first") || !strings.Contains(err.Error(), "unlock third") || strings.Contains(err.Error(), "unlock second") {
		t.Errorf("the unlock reports: %v", err)
	}
	if two.direct.Exists(t.Context(), "second").Val() != 0 {
		t.Error("the part that could be reached was not unlocked")
	}
	one.line.Heal()
}
