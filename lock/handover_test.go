//part:locks

package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// A store that keeps a Pass on its way until its waiter has gone, and gives that waiter prepared answers.
type handing struct {
	lock.Store
	late bool // the Pass takes effect after the waiter has gone, not before

	grant lock.Grant
	fails error

	watch   atomic.Pointer[lock.Watch]
	undone  atomic.Bool
	mu      sync.Mutex    // no request of the waiter's own meets the Pass in the store
	once    sync.Once     // Unlock repeats a Pass that fails
	passing chan struct{} // closed when the Pass is on its way
	gone    chan struct{} // closed by the test when the waiter is
	passed  lock.Passed
}

func (s *handing) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.passing:
		return s.grant, s.fails
	default:
		return s.Store.Acquire(ctx, r)
	}
}

func (s *handing) Release(ctx context.Context, r lock.Request) (bool, error) {
	was, err := s.Store.Release(ctx, r)
	if r.Abandon && err == nil {
		s.undone.Store(true)
	}
	return was, err
}

func (s *handing) Watch(ctx context.Context, name string, wake func()) lock.Watch {
	w := s.Store.Watch(ctx, name, wake)
	s.watch.Store(&w)
	return w
}

func (s *handing) live() bool {
	w := s.watch.Load()
	return w != nil && (*w).Live()
}

func (s *handing) Pass(ctx context.Context, from, to lock.Request) (passed lock.Passed, err error) {
	s.mu.Lock()
	if !s.late {
		passed, err = s.Store.(lock.Passer).Pass(ctx, from, to)
	}
	s.once.Do(func() { close(s.passing) })
	s.mu.Unlock()
	<-s.gone
	if s.late {
		passed, err = s.Store.(lock.Passer).Pass(ctx, from, to)
	}
	s.passed = passed
	return passed, err
}

// A waiter's request fails, or it gives up, during a handover: its caller gets an error, and the lock is free. Guards:
// undo in Client.leave; gone in Client.settle, for a store in which the Pass takes effect after its undo.
func TestHandoverToWaiterThatLeft(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	gone := errors.New("the caller hung up")
	memory := lock.NewMemoryStore()
	for what, answer := range map[string]struct {
		grant lock.Grant
		fails error
	}{
		"not sent": {fails: fmt.Errorf("%w: %w", lock.ErrNotSent, gone)},
		"refused":  {fails: fmt.Errorf("%w: %w", lock.ErrRefused, gone)},
		"lost":     {grant: lock.Grant{State: lock.StateLost}},
		"unknown":  {fails: fmt.Errorf("%w: %w", lock.ErrUnknown, gone)},
		"canceled": {grant: lock.Grant{State: lock.StateBusy, Remaining: time.Minute}},
	} {
		for _, late := range []bool{false, true} {
			for kind, open := range map[string]func() lock.Store{
				"redis":  func() lock.Store { return redisStore(b.direct) },
				"memory": func() lock.Store { return memory },
			} {
				t.Run(fmt.Sprintf("%s/%s/late=%t", kind, what, late), func(t *testing.T) {
					t.Parallel()
					name := nameOf(t)
					s := &handing{
						Store: open(), late: late, grant: answer.grant, fails: answer.fails,
						passing: make(chan struct{}), gone: make(chan struct{}),
					}
					locks := newLocks(t, s, lock.PollEvery(2*time.Millisecond), lock.ProbeEvery(2*time.Millisecond))
					held := mustLock(t, t.Context(), locks.Mutex(name))
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					let := sync.OnceFunc(func() { close(s.gone) })
					defer let()
					waiter := begin(ctx, locks.Mutex(name))
					check.Eventually(t, "the waiter hears of messages", s.live)
					unlocked := make(chan error, 1)
					go func() { unlocked <- held.Unlock() }()
					check.Receive(t, "the handing over", s.passing)
					if what == "canceled" {
						cancel(gone)
					}
					err := check.Receive(t, "the end of the waiter", waiter).err
					check.That(t, errors.Is(err, gone) || errors.Is(err, lock.ErrLost), "the waiter: %v", err)
					if late {
						check.Eventually(t, "what may come is undone", s.undone.Load)
					}
					if late && kind == "redis" {
						noSubscription(t, b.direct, name)
					}
					let()
					check.Must(t, check.Receive(t, "the unlock", unlocked))
					check.That(t, late || s.passed.Held, "the lock was not handed over, so this shows nothing")
					cycle(t, newLocks(t, open()).Mutex(name))
				})
			}
		}
	}
}

// A caller's context ends with another lock's failure as its cause, as errgroup's does: that says nothing of this
// request, which is undone. Guard: ErrUnknown in holding.undo.
func TestCauseOfAnotherLockIsNotTheOutcome(t *testing.T) {
	t.Parallel()
	for what, cause := range map[string]error{"refused": lock.ErrRefused, "not sent": lock.ErrNotSent} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			m := locksOn(t, plain(t, b.url())).Mutex(b.name)
			cycle(t, m) // connections and scripts are there
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			b.line.SwallowReplies()
			failed := begin(ctx, m)
			check.Eventually(t, "the acquire ran", b.held)
			cancel(fmt.Errorf("another lock: %w", cause))
			check.Is(t, "the caller", check.Receive(t, "the end of the call", failed).err, lock.ErrUnknown)
			b.line.Heal()
			cycle(t, locksOn(t, b.direct).Mutex(b.name))
		})
	}
}

// A new waiter follows at once: messages and the lock reach it. Guard: differ compares channels, not names.
func TestWatchAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newAsked(t, redisStore(b.direct))
	wakes := make(chan struct{}, 1)
	wake := func() {
		select {
		case wakes <- struct{}{}:
		default:
		}
	}
	watch := s.Watch(t.Context(), b.name, wake)
	for range 20 {
		check.Eventually(t, "the watch is live", watch.Live)
		for len(wakes) > 0 {
			<-wakes
		}
		watch.Stop()
		watch = s.Watch(t.Context(), b.name, wake)
		check.Receive(t, "the news that the watch is live", wakes) // what came between the two is not missed
	}
	check.Eventually(t, "the watch is live", watch.Live)
	s.acquire("taken", request(b.name, 1), lock.StateHeld)
	check.Equal(t, "handed over", s.pass(request(b.name, 1), request(b.name, 2)).Held, true)
	watch.Stop()
	noSubscription(t, b.direct, b.name)
	s.release("released", request(b.name, 2), true)
}

// A repeated Pass starts the lease anew, in Redis too. With a foreign subscription the lock is freed, not handed on
// inside the process. Guards: pexpire for a repetition, listeners in pass.lua.
func TestPass(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newAsked(t, redisStore(b.direct))
	from, to, third := request(b.name, 1), request(b.name, 2), request(b.name, 3)
	listen := func(s *asked) {
		watch := s.Watch(t.Context(), b.name, func() {})
		t.Cleanup(watch.Stop)
		check.Eventually(t, "the watch is live", watch.Live)
	}
	listen(s)
	s.acquire("taken", from, lock.StateHeld)
	first := s.pass(from, to)
	check.Equal(t, "handed over", first.Held, true)
	check.Equal(t, "most of the lease is over", b.direct.PExpire(t.Context(), b.name, time.Minute).Val(), true)
	again := s.pass(from, to)
	again.Once = first.Once
	check.Equal(t, "the answer to the repetition", again, first)
	left := b.direct.PTTL(t.Context(), b.name).Val()
	check.That(t, left >= calm/2, "others may have the lock in %s, the receiver relies on %s", left, calm)

	listen(newAsked(t, redisStore(b.direct)))
	passed := s.pass(to, third)
	check.Equal(t, "it was the second one's, and is handed over", [2]bool{passed.Was, passed.Held},
		[2]bool{true, false})
	s.acquire("taken by the other process", request(b.name, 4), lock.StateHeld)
	s.release("released", request(b.name, 4), true)
}

// delay keeps back one command, as a slow network does: its caller may give up, and it arrives later.
type delay struct {
	armed atomic.Bool
	kept  atomic.Pointer[[]any]
}

func (d *delay) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *delay) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (d *delay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if _, bounded := ctx.Deadline(); !bounded || cmd.Name() != "evalsha" || !d.armed.CompareAndSwap(true, false) {
			return next(ctx, cmd)
		}
		args := slices.Clone(cmd.Args())
		d.kept.Store(&args)
		<-ctx.Done()
		cmd.SetErr(ctx.Err())
		return ctx.Err()
	}
}

// A request was repeated and refused, and its first copy arrives when the lock is free: it is refused too. Guards:
// Stray in RedisStore.Acquire, abandon in Client.acquire.
func TestLateCopyOfRefusedRequest(t *testing.T) {
	t.Parallel()
	for what, opts := range map[string][]lock.Option{"once": {lock.Wait(0)}, "waiting": {lock.Wait(check.Soon)}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			held := mustLock(t, t.Context(), locksOn(t, b.direct).Mutex(b.name))
			client := dial(t, b.url())
			d := &delay{}
			client.AddHook(d)
			locks := newLocks(t, redisStore(client))
			check.Eventually(t, "a request is given up and sent again", func() bool {
				d.armed.Store(true)
				check.Is(t, "the lock that is held", check.ErrorOf(locks.Mutex(b.name).Lock(t.Context(), opts...)),
					lock.ErrTimeout)
				return d.kept.Load() != nil
			})
			closeLocks(t, locks)
			mustUnlock(t, held)
			check.Must(t, b.direct.Do(t.Context(), *d.kept.Load()...).Err()) // the first copy
			check.Equal(t, "held by nobody who knows", b.held(), false)
		})
	}
}

// A late copy that raises the token of a lock that was given back is refused. Acquisitions with swift answers leave
// nothing behind against copies. Guard: repeated, after an error, in holding.ask.
func TestLateCopyOfRaisedToken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := redisStore(b.direct)
	var late []lock.Request
	locks := newLocks(t, &fake{Store: store, acquire: func(ctx context.Context, r lock.Request) (lock.Grant, error) {
		if r.Token != 0 {
			late = append(late, r)
			return lock.Grant{}, fmt.Errorf("%w: no answer", lock.ErrUnknown)
		}
		return store.Acquire(ctx, r)
	}})
	for i := range 20 {
		_, err := lock.All(locks.Mutex(fmt.Sprint(b.name, i))).TryLock(t.Context(), lock.Fenced())
		check.Is(t, "a fenced lock whose token is not raised", err, lock.ErrUnknown)
	}
	closeLocks(t, locks) // what is kept against copies, and no longer needed, is gone
	other := newAsked(t, redisStore(b.direct))
	for _, r := range late {
		other.acquire("the late copy for "+r.Name, r, lock.StateLost)
	}
}

// Each hold in a history is two operations: the acquisition, and the end. The end is called when the holder last found
// its lease good, so an acquisition by another that returned before has no place in any legal order.
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

type historian struct {
	mu     sync.Mutex
	start  time.Time
	ops    []porcupine.Operation
	holder int
}

func (h *historian) now() int64 { return int64(time.Since(h.start)) }

// use takes the lock, looks at it a number of times, a millisecond apart, and notes what it saw. A busy machine changes
// nothing: it tries until it holds the lock, and judges a lease by ValidUntil, not by a timer.
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
		porcupine.Operation{
			ClientId: client, Input: lockInput{false, h.holder}, Call: called, Output: lease.Token(),
			Return: got,
		},
		porcupine.Operation{ClientId: client, Input: lockInput{true, h.holder}, Call: good, Return: max(ended, good)},
	)
}

type process = func(name string) lock.Locker

// histories returns how many histories of a contested lock are not linearizable. Each process holds it three times.
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

func hasty() []lock.ClientOption {
	return []lock.ClientOption{lock.WatchdogLease(shortLease), lock.UnlockTimeout(2 * shortWait)}
}

// In a bubble, under a failing network: mutual exclusion, and tokens that grow from holder to holder.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	for what, parts := range map[string]int{"single": 1, "majority": 3} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			count := check.Count(t, "HISTORIES", 90/parts, 3000/parts)
			synctest.Test(t, func(t *testing.T) {
				chance := check.Seeded(t)
				var stores []lock.Store
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

func shaky(store lock.Store, seed uint64) *fake {
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
		acquire: func(ctx context.Context, r lock.Request) (lock.Grant, error) {
			return between(ctx, fails, func() (lock.Grant, error) { return store.Acquire(ctx, r) })
		},
		renew: func(ctx context.Context, rs []lock.Request) []error {
			errs, err := between(ctx, fails, func() ([]error, error) { return store.Renew(ctx, rs), nil })
			if err != nil {
				return slices.Repeat([]error{err}, len(rs))
			}
			return errs
		},
		release: func(ctx context.Context, r lock.Request) (bool, error) {
			return between(ctx, fails, func() (bool, error) { return store.Release(ctx, r) })
		},
	}
}

func between[A any](
	ctx context.Context, fails func(context.Context) error, call func() (A, error),
) (none A, err error) {
	if err := fails(ctx); err != nil {
		return none, err
	}
	answer, err := call()
	if lost := fails(ctx); lost != nil {
		return none, lost
	}
	return answer, err
}

// The same with the scripts of Redis, and go-redis, which repeats requests, over lines that fail.
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

// The check above finds the best known mistake: DEL instead of compare-and-delete.
func TestCheckerCatchesBrokenLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		store.release = func(ctx context.Context, r lock.Request) (bool, error) {
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
