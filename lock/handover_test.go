package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/lock"
)

// handing is a store that keeps a Pass on its way until the waiter it goes to
// has gone, and that answers as told what the waiter asks meanwhile.
type handing struct {
	lock.Store
	passer lock.Passer
	late   bool // the Pass takes effect after the waiter has gone, not before

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

func (s *handing) Watch(name string, wake func()) lock.Watch {
	w := s.Store.Watch(name, wake)
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
			memory := lock.NewMemoryStore()
			for kind, open := range map[string]func() lock.Store{
				"redis":  func() lock.Store { return lock.NewRedisStore(b.direct) },
				"memory": func() lock.Store { return memory },
			} {
				t.Run(fmt.Sprintf("%s/%s/late=%t", kind, what, late), func(t *testing.T) {
					t.Parallel()
					name := t.Name()
					inner := open()
					passer, _ := inner.(lock.Passer)
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
					waiter := make(chan struct{})
					go func() {
						defer close(waiter)
						if _, err := locks.Mutex(name).Lock(ctx); !errors.Is(err, gone) && !errors.Is(err, lock.ErrLost) {
							t.Errorf("the waiter: %v", err)
						}
					}()
					eventually(t, 5*time.Second, "the waiter hears of messages", s.live)
					unlocked := make(chan struct{})
					go func() {
						defer close(unlocked)
						mustUnlock(t, held)
					}()
					<-s.passing
					if what == "canceled" {
						cancel(gone)
					}
					<-waiter
					if late {
						eventually(t, 5*time.Second, "what may come is undone", s.undone.Load)
					}
					if late && kind == "redis" {
						eventually(t, 5*time.Second, "no subscription", func() bool { return subscribed(t, b.direct, name) == 0 })
					}
					let()
					<-unlocked
					if !late && !s.passed.Held {
						t.Error("the lock was not handed over, so this shows nothing")
					}
					next, err := newLocks(t, open()).Mutex(name).Lock(t.Context(), lock.Wait(5*time.Second))
					if err != nil {
						t.Fatalf("the lock belongs to nobody who knows: %v", err)
					}
					mustUnlock(t, next)
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
			m := locksOn(t, plain(t, b.url())).Mutex("k")
			mustUnlock(t, mustLock(t, t.Context(), m)) // connections and scripts are there
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			b.line.SwallowReplies()
			failed := make(chan error, 1)
			go func() {
				_, err := m.Lock(ctx)
				failed <- err
			}()
			eventually(t, 5*time.Second, "the acquire ran", func() bool { return b.direct.Exists(t.Context(), "k").Val() == 1 })
			cancel(fmt.Errorf("another lock: %w", cause))
			if err := <-failed; !errors.Is(err, lock.ErrUnknown) {
				t.Errorf("the caller: %v", err)
			}
			b.line.Heal()
			next, err := locksOn(t, b.direct).Mutex("k").Lock(t.Context(), lock.Wait(10*time.Second))
			if err != nil {
				t.Fatalf("the lock belongs to nobody who knows: %v", err)
			}
			mustUnlock(t, next)
		})
	}
}

// A Pass is repeated after a lost reply, some time later: the receiver counts its lease from
// the repetition, and so must Redis. Guard: pexpire for a repetition in pass.lua.
func TestRepeatedPassRenewsTheLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := lock.NewRedisStore(b.direct)
	t.Cleanup(func() { _ = store.Close() })
	from := lock.Request{Name: "k", Holder: "00000000-0000-4000-8000-000000000000:1", Holds: 1, Lease: time.Minute}
	to := from
	to.Holder = "00000000-0000-4000-8000-000000000000:2"
	watch := store.Watch("k", func() {})
	defer watch.Stop()
	eventually(t, 5*time.Second, "the watch is live", watch.Live)
	if grant, err := store.Acquire(t.Context(), from); err != nil || grant.State != lock.StateHeld {
		t.Fatalf("%v, %v", grant, err)
	}
	first, err := store.Pass(t.Context(), from, to)
	if err != nil || !first.Held {
		t.Fatalf("%v, %v", first, err)
	}
	if err := b.direct.PExpire(t.Context(), "k", 20*time.Second).Err(); err != nil { // as if 40 s had passed
		t.Fatal(err)
	}
	again, err := store.Pass(t.Context(), from, to)
	if err != nil || !again.Was || !again.Held || again.Token != first.Token {
		t.Errorf("%v and then %v, %v", first, again, err)
	}
	if left := b.direct.PTTL(t.Context(), "k").Val(); left < 40*time.Second {
		t.Errorf("others may have the lock in %s, the receiver relies on a minute", left)
	}
}

// Redis refuses to hand the lock over, and would not refuse to free it: Unlock frees it
// for the one who waits. Guard: Release in Client.free.
func TestUnlockWhereHandingOverIsRefused(t *testing.T) {
	t.Parallel()
	for what, refuse := range map[string][]any{
		"out of memory":            {"config", "set", "maxmemory", "1"},
		"no permission for PUBSUB": {"acl", "setuser", "app", "-pubsub"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			order := func(args ...any) {
				t.Helper()
				if err := b.direct.Do(t.Context(), args...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			order("acl", "setuser", "app", "on", "nopass", "~*", "&*", "+@all")
			client := redis.NewClient(&redis.Options{Addr: b.server.Addr(), Username: "app", Password: "any", ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = client.Close() })
			locks := locksOn(t, client)
			held := mustLock(t, t.Context(), locks.Mutex("k"))
			waiter := make(chan error, 1)
			go func() {
				lease, err := locks.Mutex("k").Lock(t.Context(), lock.Wait(20*time.Second))
				if err == nil {
					err = lease.Unlock()
				}
				waiter <- err
			}()
			eventually(t, 5*time.Second, "it waits", func() bool { return lock.Waiting(locks, "k") == 1 })
			eventually(t, 5*time.Second, "it listens", func() bool { return subscribed(t, b.direct, "k") == 1 })
			order(refuse...)
			mustUnlock(t, held)
			if what == "out of memory" { // who waits is refused too, by an answer that ends its Lock
				if err := <-waiter; err == nil {
					t.Error("the lock was taken without memory, so this shows nothing")
				}
				return
			}
			if err := <-waiter; err != nil {
				t.Errorf("the waiter: %v", err)
			}
		})
	}
}
