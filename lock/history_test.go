//part:locks

package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
	"seckill/lock/driver"
)

// A history is what the processes saw of one lock. Each hold is two operations: the acquisition, and the end. The end
// is called at the last moment at which the holder looked at its lease and found it good, so that an acquisition by
// another that had returned before then has no place in any legal order.
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

// use takes the lock once, looks at it so many times, a millisecond apart, and writes down what it saw. It tries until
// it holds the lock: how many holds a history has does not depend on how busy the machine is. Nor does what it saw: a
// lease is good before its ValidUntil, also where the timer that is to end its context is late.
func (h *historian) use(t *testing.T, client int, l lock.Locker, looks int, opts ...lock.Option) {
	var lease *lock.Lease
	var called int64
	for err := lock.ErrTimeout; err != nil; { // it holds nothing, whatever the error
		if t.Context().Err() != nil {
			return
		}
		called = h.now()
		lease, err = l.Lock(t.Context(), append(opts, lock.Fenced())...)
	}
	got := h.now()
	good := called
	for work := lease.Context(); looks > 0; looks-- {
		now := time.Now()
		if work.Err() != nil || !now.Before(lease.ValidUntil()) {
			break
		}
		good = int64(now.Sub(h.start))
		_ = pass(work, time.Millisecond)
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

// process is a client for the locks of many histories.
type process = func(name string) lock.Locker

// histories makes a number of histories of locks that several processes compete for, and returns how many of them are
// not linearizable. Each process holds each lock three times, for up to so many looks.
func histories(t *testing.T, count, atOnce, looks int, processes []process, opts ...lock.Option) (illegal int) {
	t.Helper()
	chance := check.Seeded(t)
	var mu sync.Mutex
	var wg sync.WaitGroup
	gate := make(chan struct{}, atOnce)
	name := nameOf(t)
	for i := range count {
		gate <- struct{}{}
		seed := chance.Uint64()
		wg.Go(func() {
			defer func() { <-gate }()
			h := &historian{start: time.Now()}
			var users sync.WaitGroup
			for c, process := range processes {
				chance := rand.New(rand.NewPCG(seed, uint64(c)))
				users.Go(func() {
					m := process(fmt.Sprint(name, i))
					for range 3 {
						h.use(t, c, m, 1+chance.IntN(looks), opts...)
					}
				})
			}
			users.Wait()
			mu.Lock()
			defer mu.Unlock()
			check.Equal(t, "holds", len(h.ops), 2*3*len(processes))
			if !porcupine.CheckOperations(lockModel(), h.ops) {
				illegal++
			}
		})
	}
	wg.Wait()
	return illegal
}

const (
	shortLease = 120 * time.Millisecond // so short that some are lost
	shortWait  = 100 * time.Millisecond
)

// hasty are the settings of a client whose locks are lost now and then.
func hasty() []lock.ClientOption {
	return []lock.ClientOption{lock.WatchdogLease(shortLease), lock.UnlockTimeout(2 * shortWait)}
}

// TestLinearizable: many histories under a network that fails, in a bubble, each checked for mutual exclusion and for
// tokens that grow from holder to holder.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	for what, parts := range map[string]int{"single": 1, "majority": 3} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			count := check.Count(t, "HISTORIES", 90/parts, 3000/parts)
			synctest.Test(t, func(t *testing.T) {
				chance := check.Seeded(t)
				var stores []driver.Store
				for range parts {
					stores = append(stores, lock.NewMemoryStore())
				}
				var processes []process
				for range 4 {
					var clients []*lock.Client
					for _, s := range stores {
						clients = append(clients, shaky(s, chance.Uint64()).locks(t, hasty()...))
					}
					processes = append(processes, func(name string) lock.Locker {
						var all []lock.Locker
						for _, c := range clients {
							all = append(all, c.Mutex(name))
						}
						if parts == 1 {
							return all[0]
						}
						return lock.Majority(all...)
					})
				}
				check.Equal(t, "illegal histories", histories(t, count, 50, 40, processes, lock.Wait(shortWait)), 0)
			})
		})
	}
}

// shaky is a store over a network that delays requests and answers, and loses some.
func shaky(store driver.Store, seed uint64) *fake {
	var mu sync.Mutex
	chance := rand.New(rand.NewPCG(seed, 0))
	fails := func(ctx context.Context) error {
		mu.Lock()
		d, lost := time.Duration(chance.IntN(4))*time.Millisecond, chance.IntN(12) == 0
		mu.Unlock()
		if lost {
			_ = pass(ctx, 2*shortWait)
			return fmt.Errorf("%w: lost", lock.ErrUnknown)
		}
		return pass(ctx, d)
	}
	return &fake{
		Store: store,
		acquire: func(ctx context.Context, r driver.Request) (driver.Grant, error) {
			return between(ctx, fails, func() (driver.Grant, error) { return store.Acquire(ctx, r) })
		},
		renew: func(ctx context.Context, rs []driver.Request) []error {
			errs, err := between(ctx, fails, func() ([]error, error) { return store.Renew(ctx, rs), nil })
			if err != nil {
				return slices.Repeat([]error{err}, len(rs))
			}
			return errs
		},
		release: func(ctx context.Context, r driver.Request) (bool, error) {
			return between(ctx, fails, func() (bool, error) { return store.Release(ctx, r) })
		},
	}
}

// between makes a call whose request, or answer, may be lost.
func between[A any](ctx context.Context, fails func(context.Context) error, call func() (A, error)) (none A, err error) {
	if err := fails(ctx); err != nil {
		return none, err
	}
	answer, err := call()
	if lost := fails(ctx); lost != nil {
		return none, lost
	}
	return answer, err
}

// TestLinearizableOnRedis is the same with the scripts of Redis and with go-redis, which sends requests again, over
// lines that fail.
func TestLinearizableOnRedis(t *testing.T) {
	t.Parallel()
	servers := map[string]int{"redis": 1}
	if check.Faults {
		servers["majority"] = 3
	}
	for what, parts := range servers {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var benches []bench
			for range parts {
				s := testserver.Redis(t, "--appendonly", "no") // its scripts are flushed
				benches = append(benches, bench{line: testserver.NewLine(t, s.Addr()), direct: dial(t, s.URL())})
			}
			var processes []process
			for i := range 4 {
				var clients []*lock.Client
				for _, b := range benches {
					client := dial(t, b.url())
					if i%2 == 1 {
						client = connect(t, patient(t, b.url()))
					}
					clients = append(clients, closing(t, lock.New(redisStore(client), hasty()...)))
				}
				processes = append(processes, func(name string) lock.Locker {
					if parts == 1 {
						return clients[0].Mutex(name)
					}
					return lock.Majority(clients[0].Mutex(name), clients[1].Mutex(name), clients[2].Mutex(name))
				})
			}
			ctx, done := context.WithCancel(t.Context())
			var disturbing sync.WaitGroup
			disturbing.Go(func() { disturb(ctx, check.Seeded(t), benches) })
			illegal := histories(t, check.Count(t, "HISTORIES", 16, 300/parts), 8, 8, processes, lock.Wait(shortWait))
			done()
			disturbing.Wait()
			check.Equal(t, "illegal histories", illegal, 0)
		})
	}
}

// disturb makes the lines fail in turn until ctx ends.
func disturb(ctx context.Context, chance *rand.Rand, benches []bench) {
	for ctx.Err() == nil {
		b := benches[chance.IntN(len(benches))]
		switch chance.IntN(6) {
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
		_ = pass(ctx, time.Duration(20+chance.IntN(60))*time.Millisecond)
		b.line.Heal()
		_ = pass(ctx, time.Duration(chance.IntN(80))*time.Millisecond)
	}
}

// TestCheckerCatchesBrokenLock: the check above means something. A lock that is given back without a look at whose it
// is (DEL instead of compare-and-delete, the best known mistake) is found out.
func TestCheckerCatchesBrokenLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		store.release = func(ctx context.Context, r driver.Request) (bool, error) {
			_ = pass(ctx, 4*time.Millisecond) // it comes when the lease is over
			return store.ForceRelease(ctx, r.Name)
		}
		var processes []process
		for range 4 {
			locks := store.locks(t)
			processes = append(processes, func(name string) lock.Locker { return locks.Mutex(name) })
		}
		// The lease is shorter than some of the work, so that it is lost now and then.
		if histories(t, 50, 50, 20, processes, lock.Wait(shortWait), lock.LeaseTime(10*time.Millisecond)) == 0 {
			t.Error("a lock that is given back by anybody passed")
		}
	})
}
