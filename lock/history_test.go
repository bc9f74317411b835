package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"seckill/lock"
)

// A history is what the processes saw of one lock. Each hold is two
// operations: the acquisition, and the end. The end is called at the last
// moment at which the holder looked at its lease and found it good, so that
// an acquisition by another that had returned before then has no place in any
// legal order.
type lockInput struct {
	end    bool
	holder int // unique for each hold
}

type lockState struct {
	holder int
	token  int64
}

func lockModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(state, input, output any) (bool, any) {
			s, _ := state.(lockState)
			in, _ := input.(lockInput)
			token, _ := output.(int64)
			if in.end {
				return s.holder == in.holder, lockState{0, s.token}
			}
			return s.holder == 0 && token > s.token, lockState{in.holder, token}
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

// historian collects the history of one lock.
type historian struct {
	mu     sync.Mutex
	start  time.Time
	ops    []porcupine.Operation
	holder int
}

func (h *historian) now() int64 { return int64(time.Since(h.start)) }

// use takes the lock once, holds it for a while and writes down what it saw. It
// tries until it holds the lock: how many holds a history has does not depend on
// how busy the machine is.
func (h *historian) use(ctx context.Context, client int, l lock.Locker, hold time.Duration, opts ...lock.Option) {
	called := h.now()
	lease, err := l.Lock(ctx, append(opts, lock.Fenced())...)
	for err != nil && ctx.Err() == nil { // it holds nothing, whatever the error
		called = h.now()
		lease, err = l.Lock(ctx, append(opts, lock.Fenced())...)
	}
	if err != nil {
		return
	}
	got := h.now()
	good := got
	work := lease.Context()
	for until := time.Now().Add(hold); ; {
		now := h.now()
		if work.Err() != nil {
			break
		}
		good = now
		if time.Now().After(until) {
			break
		}
		pause := time.NewTimer(time.Millisecond)
		select {
		case <-pause.C:
		case <-work.Done():
		}
		pause.Stop()
	}
	_ = lease.Unlock()
	ended := h.now()

	h.mu.Lock()
	defer h.mu.Unlock()
	h.holder++
	h.ops = append(h.ops,
		porcupine.Operation{ClientId: client, Input: lockInput{false, h.holder}, Call: called, Output: lease.Token(), Return: got},
		porcupine.Operation{ClientId: client, Input: lockInput{true, h.holder}, Call: good, Return: max(ended, good)},
	)
}

func (h *historian) legal() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return porcupine.CheckOperations(lockModel(), h.ops)
}

// histories makes a number of histories of locks that several processes
// compete for, each holding one for less than longest at a time, and returns how many of them are not linearizable and how many
// holds there were.
func histories(t *testing.T, ctx context.Context, name string, count, atOnce int, longest time.Duration, processes []func(name string) lock.Locker, opts ...lock.Option) (illegal, holds int) { //nolint:revive // testing.T comes first in helpers
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	gate := make(chan struct{}, atOnce)
	for i := range count {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			h := &historian{start: time.Now()}
			var users sync.WaitGroup
			for c, process := range processes {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(c)))
				users.Go(func() {
					m := process(fmt.Sprint(name, ":", i))
					for range 3 {
						h.use(ctx, c, m, time.Duration(rng.Int64N(int64(longest))), opts...)
					}
				})
			}
			users.Wait()
			mu.Lock()
			defer mu.Unlock()
			holds += len(h.ops) / 2
			if !h.legal() {
				illegal++
			}
		})
	}
	wg.Wait()
	return illegal, holds
}

// legal wants all of so many histories to be linearizable. A process that stands still for longer than the lease cannot
// end its work in time: there only the token protects.
func legal(t *testing.T, ctx context.Context, name string, count, atOnce int, processes []func(name string) lock.Locker) error { //nolint:revive // likewise
	t.Helper()
	illegal, holds := histories(t, ctx, name, count, atOnce, 8*time.Millisecond, processes, lock.Wait(100*time.Millisecond))
	t.Logf("%d histories, %d holds, %d illegal", count, holds, illegal)
	if illegal > 0 || holds < count || ctx.Err() != nil {
		return fmt.Errorf("%d of %d histories are illegal, with %d holds", illegal, count, holds)
	}
	return nil
}

// disturb makes the lines fail in turn until ctx ends.
func disturb(ctx context.Context, t *testing.T, benches ...bench) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := 0; ctx.Err() == nil; i++ {
		b := benches[rng.IntN(len(benches))]
		switch rng.IntN(6) {
		case 0:
			b.line.CutReplies()
		case 1:
			b.line.Hole()
		case 2:
			b.line.SwallowReplies()
		case 3:
			b.line.Slow(20 * time.Millisecond)
		case 4:
			b.direct.ScriptFlush(ctx)
		case 5:
			b.direct.ClientKillByFilter(ctx, "TYPE", "pubsub")
		}
		sleepFor(ctx, time.Duration(20+rng.IntN(60))*time.Millisecond)
		b.line.Heal()
		sleepFor(ctx, time.Duration(rng.IntN(80))*time.Millisecond)
	}
	_ = t
}

func sleepFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// TestLinearizable: thousands of histories under a failing line, each checked
// for mutual exclusion and for tokens that grow from holder to holder.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	count := 1500
	if long() {
		count = 20_000
	}
	trying, enough := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(enough)
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		const lease = 120 * time.Millisecond
		b := newBench(t)
		ctx, done := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { disturb(ctx, t, b) })
		var processes []func(string) lock.Locker
		for i := range 4 {
			client := dial(t, b.url())
			if i%2 == 1 {
				client = plain(t, b.url())
			}
			store := lock.NewRedisStore(client, lock.CallTimeout(150*time.Millisecond))
			locks := newLocks(t, store, lock.WatchdogLease(lease), lock.UnlockTimeout(200*time.Millisecond))
			processes = append(processes, func(name string) lock.Locker { return locks.Mutex(name) })
		}
		defer func() { done(); wg.Wait() }()
		undisturbed(t, lease, "history", func(name string) error {
			return legal(t, trying, name, count, 100, processes)
		})
	})
	t.Run("majority", func(t *testing.T) {
		t.Parallel()
		const lease = 200 * time.Millisecond
		benches := []bench{newBench(t), newBench(t), newBench(t)}
		ctx, done := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { disturb(ctx, t, benches...) })
		var processes []func(string) lock.Locker
		for range 3 {
			var locks []*lock.Client
			for _, b := range benches {
				store := lock.NewRedisStore(dial(t, b.url()), lock.CallTimeout(150*time.Millisecond))
				locks = append(locks, newLocks(t, store, lock.WatchdogLease(lease), lock.UnlockTimeout(200*time.Millisecond)))
			}
			processes = append(processes, func(name string) lock.Locker {
				return lock.Majority(locks[0].Mutex(name), locks[1].Mutex(name), locks[2].Mutex(name))
			})
		}
		defer func() { done(); wg.Wait() }()
		undisturbed(t, lease, "history", func(name string) error {
			return legal(t, trying, name, count/3, 16, processes)
		})
	})
}

// broken gives locks back without looking whose they are: DEL instead of
// compare-and-delete, the best known mistake.
type broken struct{ lock.Store }

func (b broken) Release(ctx context.Context, r lock.Request) (bool, error) {
	return b.ForceRelease(ctx, r.Name)
}

// TestCheckerCatchesBrokenLock: the check above means something.
func TestCheckerCatchesBrokenLock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var processes []func(string) lock.Locker
	for range 4 {
		locks := newLocks(t, broken{lock.NewRedisStore(b.direct)})
		processes = append(processes, func(name string) lock.Locker { return locks.Mutex(name) })
	}
	// A lease shorter than some of the work, so that it is lost now and then,
	// however fast the machine is.
	illegal, holds := histories(t, t.Context(), "history", 200, 50, 20*time.Millisecond, processes, lock.Wait(200*time.Millisecond), lock.LeaseTime(10*time.Millisecond))
	t.Logf("%d of 200 histories are illegal, with %d holds", illegal, holds)
	if illegal == 0 {
		t.Error("a lock that is given back by anybody passed")
	}
}
