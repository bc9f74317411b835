package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/lock/driver"
)

// handing is a store that keeps a Pass on its way until the waiter it goes to has gone, and that answers as told what
// the waiter asks meanwhile.
type handing struct {
	driver.Store
	late bool // the Pass takes effect after the waiter has gone, not before

	grant driver.Grant
	fails error

	watch   atomic.Pointer[driver.Watch]
	undone  atomic.Bool
	mu      sync.Mutex    // no request of the waiter's own meets the Pass in the store
	once    sync.Once     // Unlock repeats a Pass that fails
	passing chan struct{} // closed when the Pass is on its way
	gone    chan struct{} // closed by the test when the waiter is
	passed  driver.Passed
}

func (s *handing) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.passing:
		return s.grant, s.fails
	default:
		return s.Store.Acquire(ctx, r)
	}
}

func (s *handing) Release(ctx context.Context, r driver.Request) (bool, error) {
	was, err := s.Store.Release(ctx, r)
	if r.Abandon && err == nil {
		s.undone.Store(true)
	}
	return was, err
}

func (s *handing) Watch(name string, wake func()) driver.Watch {
	w := s.Store.Watch(name, wake)
	s.watch.Store(&w)
	return w
}

func (s *handing) live() bool {
	w := s.watch.Load()
	return w != nil && (*w).Live()
}

func (s *handing) Pass(ctx context.Context, from, to driver.Request) (passed driver.Passed, err error) {
	s.mu.Lock()
	if !s.late {
		passed, err = s.Store.(driver.Passer).Pass(ctx, from, to)
	}
	s.once.Do(func() { close(s.passing) })
	s.mu.Unlock()
	<-s.gone
	if s.late {
		passed, err = s.Store.(driver.Passer).Pass(ctx, from, to)
	}
	s.passed = passed
	return passed, err
}

// A lock is being handed over to a waiter whose own request fails at that moment, or which gives up: its caller gets an
// error, and the lock is free. Guards: undo in Client.leave; gone in Client.settle, for a store in which the Pass takes
// effect although its receiver was undone before.
func TestHandoverToWaiterThatLeft(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	gone := errors.New("the caller hung up")
	memory := lock.NewMemoryStore()
	for what, answer := range map[string]struct {
		grant driver.Grant
		fails error
	}{
		"not sent": {fails: fmt.Errorf("%w: %w", lock.ErrNotSent, gone)},
		"refused":  {fails: fmt.Errorf("%w: %w", lock.ErrRefused, gone)},
		"lost":     {grant: driver.Grant{State: driver.StateLost}},
		"unknown":  {fails: fmt.Errorf("%w: %w", lock.ErrUnknown, gone)},
		"canceled": {grant: driver.Grant{State: driver.StateBusy, Remaining: time.Minute}},
	} {
		for _, late := range []bool{false, true} {
			for kind, open := range map[string]func() driver.Store{
				"redis":  func() driver.Store { return redisStore(b.direct) },
				"memory": func() driver.Store { return memory },
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
					// It belongs to nobody who does not know of it.
					cycle(t, newLocks(t, open()).Mutex(name))
				})
			}
		}
	}
}

// The context of a caller ends with a cause that is the failure of another lock, as errgroup's does, while its own
// request is under way: that the other request was refused says nothing about this one, which is undone. Guard:
// ErrUnknown in holding.undo.
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
			// It belongs to nobody who does not know of it.
			cycle(t, locksOn(t, b.direct).Mutex(b.name))
		})
	}
}

// The last watch of a lock stops and a new one comes at once, as when a waiter gives up and the next one arrives:
// messages reach the new one, and the lock is handed over to it rather than freed. Guard: differ compares channels, not
// names.
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
	watch := s.Watch(b.name, wake)
	for range 20 {
		check.Eventually(t, "the watch is live", watch.Live)
		for len(wakes) > 0 {
			<-wakes
		}
		watch.Stop()
		watch = s.Watch(b.name, wake)
		check.Receive(t, "the news that the watch is live", wakes) // what came between the two is not missed
	}
	check.Eventually(t, "the watch is live", watch.Live)
	s.acquire("taken", request(b.name, 1), driver.StateHeld)
	check.Equal(t, "handed over", s.pass(request(b.name, 1), request(b.name, 2)).Held, true)
	watch.Stop()
	noSubscription(t, b.direct, b.name)
	s.release("released", request(b.name, 2), true)
}

// A Pass is repeated after a lost reply, some time later: the receiver counts its lease from the repetition, and so
// must Redis. With a subscription of somebody else's the lock is freed, and not handed on to a waiter of the same
// process. Guards: pexpire for a repetition, listeners in pass.lua.
func TestPass(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := newAsked(t, redisStore(b.direct))
	from, to, third := request(b.name, 1), request(b.name, 2), request(b.name, 3)
	listen := func(s *asked) {
		watch := s.Watch(b.name, func() {})
		t.Cleanup(watch.Stop)
		check.Eventually(t, "the watch is live", watch.Live)
	}
	listen(s)
	s.acquire("taken", from, driver.StateHeld)
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
	check.Equal(t, "it was the second one's, and is handed over", [2]bool{passed.Was, passed.Held}, [2]bool{true, false})
	s.acquire("taken by the other process", request(b.name, 4), driver.StateHeld)
	s.release("released", request(b.name, 4), true)
}

// delay keeps back one command that its caller can give up, as a network or a busy server does: the caller sees no
// answer, and the command arrives later.
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

// A request is sent again because it was not answered, the second copy is told that the lock is held, and its caller
// goes away. The first copy then arrives when the lock is free: it is refused, and the lock stays free. Guards: Stray
// in RedisStore.Acquire, abandon in Client.acquire.
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
				check.Is(t, "the lock that is held", check.ErrorOf(locks.Mutex(b.name).Lock(t.Context(), opts...)), lock.ErrTimeout)
				return d.kept.Load() != nil
			})
			closeLocks(t, locks)
			mustUnlock(t, held)
			check.Must(t, b.direct.Do(t.Context(), *d.kept.Load()...).Err()) // the first copy
			check.Equal(t, "held by nobody who knows", b.held(), false)
		})
	}
}

// The request that raises the token of a fenced lock gets no answer and arrives when the lock has been given back: it
// is refused, and the lock stays free. Some of the acquisitions are answered swiftly, and leave nothing behind against
// copies of their own. Guard: repeated, after an error, in holding.ask.
func TestLateCopyOfRaisedToken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := redisStore(b.direct)
	var late []driver.Request
	locks := newLocks(t, &fake{Store: store, acquire: func(ctx context.Context, r driver.Request) (driver.Grant, error) {
		if r.Token != 0 {
			late = append(late, r)
			return driver.Grant{}, fmt.Errorf("%w: no answer", lock.ErrUnknown)
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
		other.acquire("the late copy for "+r.Name, r, driver.StateLost)
	}
}
