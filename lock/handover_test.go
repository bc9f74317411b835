package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/lock/driver"
)

// handing is a store that keeps a Pass on its way until the waiter it goes to
// has gone, and that answers as told what the waiter asks meanwhile.
type handing struct {
	driver.Store
	passer driver.Passer
	late   bool // the Pass takes effect after the waiter has gone, not before

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
		passed, err = s.passer.Pass(ctx, from, to)
	}
	s.once.Do(func() { close(s.passing) })
	s.mu.Unlock()
	<-s.gone
	if s.late {
		passed, err = s.passer.Pass(ctx, from, to)
	}
	s.passed = passed
	return passed, err
}

// A lock is being handed over to a waiter whose own request fails at that
// moment, or which gives up: its caller gets an error, and the lock is free.
// Guards: undo in Client.leave; gone in Client.settle, for a store in which the
// Pass takes effect although its receiver was undone before.
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
					inner := open()
					passer, _ := inner.(driver.Passer)
					s := &handing{
						Store: inner, passer: passer, late: late, grant: answer.grant, fails: answer.fails,
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
					unlocked := make(chan struct{})
					go func() {
						defer close(unlocked)
						mustUnlock(t, held)
					}()
					check.Receive(t, "the handing over", s.passing)
					if what == "canceled" {
						cancel(gone)
					}
					if a := check.Receive(t, "the end of the waiter", waiter); !errors.Is(a.err, gone) && !errors.Is(a.err, lock.ErrLost) {
						t.Errorf("the waiter: %v", a.err)
					}
					if late {
						check.Eventually(t, "what may come is undone", s.undone.Load)
					}
					if late && kind == "redis" {
						noSubscription(t, b.direct, name)
					}
					let()
					check.Receive(t, "the unlock", unlocked)
					if !late && !s.passed.Held {
						t.Error("the lock was not handed over, so this shows nothing")
					}
					// It belongs to nobody who does not know of it.
					mustUnlock(t, mustLock(t, t.Context(), newLocks(t, open()).Mutex(name)))
				})
			}
		}
	}
}

// The context of a caller ends with a cause that is the failure of another lock,
// as errgroup's does, while its own request is under way: that the other request
// was refused says nothing about this one, which is undone.
// Guard: ErrUnknown in holding.undo.
func TestCauseOfAnotherLockIsNotTheOutcome(t *testing.T) {
	t.Parallel()
	for what, cause := range map[string]error{"refused": lock.ErrRefused, "not sent": lock.ErrNotSent} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			m := locksOn(t, plain(t, b.url())).Mutex(b.name)
			mustUnlock(t, mustLock(t, t.Context(), m)) // connections and scripts are there
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			b.line.SwallowReplies()
			failed := begin(ctx, m)
			check.Eventually(t, "the acquire ran", b.held)
			cancel(fmt.Errorf("another lock: %w", cause))
			check.Is(t, "the caller", check.Receive(t, "the end of the call", failed).err, lock.ErrUnknown)
			b.line.Heal()
			// It belongs to nobody who does not know of it.
			mustUnlock(t, mustLock(t, t.Context(), locksOn(t, b.direct).Mutex(b.name)))
		})
	}
}
