package lock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"seckill/internal/testserver"
	"seckill/lock"
)

var errTwoHolders = errors.New("two holders")

// TestConformance is what every lock must do, whatever it is made of.
func TestConformance(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, s subject, name string){
		"exclusion and tokens": conformExclusion,
		"re-entry":             conformReentry,
		"try and wait":         conformTry,
		"deadline and cancel":  conformContext,
		"watchdog":             conformWatchdog,
		"fixed lease":          conformLease,
		"extend":               conformExtend,
		"loss":                 conformLoss,
		"close":                conformClose,
	}
	for _, s := range subjects(t) {
		for what, run := range cases {
			t.Run(s.name+"/"+what, func(t *testing.T) {
				t.Parallel()
				run(t, s, fmt.Sprintf("%s:%s", s.name, what))
			})
		}
	}
}

// take waits for a lock.
func take(ctx context.Context, l lock.Locker, opts ...lock.Option) (*lock.Lease, error) {
	lease, err := l.Lock(ctx, append([]lock.Option{lock.Fenced(), lock.Wait(20 * time.Second)}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", l.Name(), err)
	}
	return lease, nil
}

func mustLock(t testing.TB, ctx context.Context, l lock.Locker, opts ...lock.Option) *lock.Lease { //nolint:revive // testing.TB comes first in helpers
	t.Helper()
	lease, err := take(ctx, l, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// undisturbed makes attempts of what a short lease must outlive, each under a name of its own. A watchdog renews after each
// third of the lease; another third is what a machine may stand still for.
func undisturbed(t testing.TB, lease time.Duration, name string, attempt func(name string) error) {
	t.Helper()
	n := 0
	testserver.Undisturbed(t, lease/3, func() error {
		n++
		return attempt(fmt.Sprint(name, ":", n))
	})
}

func mustUnlock(t testing.TB, lease *lock.Lease) {
	t.Helper()
	if err := lease.Unlock(); err != nil {
		t.Errorf("unlock %s: %v", lease.Name(), err)
	}
}

func conformExclusion(t *testing.T, s subject, name string) {
	one, two := s.process(t), s.process(t)
	var wg sync.WaitGroup
	n, last := 0, int64(0) // the race detector watches: only the lock guards them
	var inside atomic.Int32
	for i := range 8 {
		l := one(name)
		if i%2 == 1 {
			l = two(name)
		}
		wg.Go(func() {
			for range 5 {
				lease, err := l.Lock(t.Context(), lock.Wait(30*time.Second), lock.Fenced())
				if err != nil {
					t.Errorf("lock: %v", err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two holders")
				}
				n++
				if lease.Token() <= last {
					t.Errorf("token %d after %d", lease.Token(), last)
				}
				last = lease.Token()
				inside.Add(-1)
				mustUnlock(t, lease)
			}
		})
	}
	wg.Wait()
	if n != 40 {
		t.Errorf("%d of 40", n)
	}
}

func conformReentry(t *testing.T, s subject, name string) {
	l := s.process(t)(name)
	outer := mustLock(t, t.Context(), l)
	inner := mustLock(t, outer.Context(), l)
	if inner.Token() != outer.Token() {
		t.Errorf("tokens %d and %d", outer.Token(), inner.Token())
	}
	// A sibling that was handed the context is the same owner; one that was
	// handed a detached one is not.
	sibling := make(chan error, 1)
	go func() {
		lease, err := l.TryLock(outer.Context())
		if err == nil {
			err = lease.Unlock()
		}
		sibling <- err
	}()
	if err := <-sibling; err != nil {
		t.Errorf("sibling: %v", err)
	}
	if _, err := l.TryLock(lock.Detach(inner.Context())); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("detached: %v", err)
	}
	mustUnlock(t, inner)
	if inner.Context().Err() == nil || outer.Context().Err() != nil {
		t.Error("the inner lease's context must end, the outer one's not")
	}
	if _, err := l.TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("after the inner unlock: %v", err)
	}
	mustUnlock(t, outer)
	mustUnlock(t, mustLock(t, t.Context(), l))
	if err := outer.Unlock(); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("a second unlock: %v", err)
	}
}

func conformTry(t *testing.T, s subject, name string) {
	one, two := s.process(t)(name), s.process(t)(name)
	lease := mustLock(t, t.Context(), one)
	for _, l := range []lock.Locker{one, two} {
		if _, err := l.TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("try: %v", err)
		}
		if _, err := l.Lock(t.Context(), lock.Wait(0)); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("wait 0: %v", err)
		}
		testserver.Undisturbed(t, time.Second, func() error {
			start := time.Now()
			if _, err := l.Lock(t.Context(), lock.Wait(80*time.Millisecond)); !errors.Is(err, lock.ErrTimeout) {
				t.Errorf("wait 80 ms: %v", err)
			}
			if d := time.Since(start); d < 80*time.Millisecond || d > 2*time.Second {
				return fmt.Errorf("waited %s of 80 ms", d)
			}
			return nil
		})
	}
	got := make(chan error, 1)
	go func() {
		l, err := two.Lock(t.Context(), lock.Wait(20*time.Second))
		if err == nil {
			err = l.Unlock()
		}
		got <- err
	}()
	mustUnlock(t, lease)
	if err := <-got; err != nil {
		t.Errorf("the waiter: %v", err)
	}
}

func conformContext(t *testing.T, s subject, name string) {
	one, two := s.process(t)(name), s.process(t)(name)
	lease := mustLock(t, t.Context(), one)
	for _, l := range []lock.Locker{one, two} {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		if _, err := l.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("deadline: %v", err)
		}
		cancel()
		gone := errors.New("the client hung up")
		ctx2, hangUp := context.WithCancelCause(t.Context())
		time.AfterFunc(30*time.Millisecond, func() { hangUp(gone) })
		if _, err := l.Lock(ctx2); !errors.Is(err, gone) {
			t.Errorf("cancel: %v", err)
		}
		if _, err := l.Lock(ctx2); !errors.Is(err, gone) {
			t.Errorf("canceled before: %v", err)
		}
	}
	mustUnlock(t, lease)
	// Nothing of the failed attempts is in the way.
	mustUnlock(t, mustLock(t, t.Context(), two))
}

func conformWatchdog(t *testing.T, s subject, name string) {
	const leaseTime = 400 * time.Millisecond
	one, two := s.process(t, lock.WatchdogLease(leaseTime)), s.process(t)
	undisturbed(t, leaseTime, name, func(name string) error {
		lease, err := take(t.Context(), one(name))
		if err != nil {
			return err
		}
		// Four times the lease: somebody tries all along.
		if _, err := two(name).Lock(t.Context(), lock.Wait(4*leaseTime)); !errors.Is(err, lock.ErrTimeout) {
			return fmt.Errorf("while it is renewed: %w", cmp.Or(err, errTwoHolders))
		}
		if err := context.Cause(lease.Context()); err != nil {
			return fmt.Errorf("the lease ended: %w", err)
		}
		if err := lease.Unlock(); err != nil {
			return fmt.Errorf("unlock: %w", err)
		}
		if !errors.Is(context.Cause(lease.Context()), lock.ErrUnlocked) {
			t.Errorf("cause %v", context.Cause(lease.Context()))
		}
		return nil
	})
}

func conformLease(t *testing.T, s subject, name string) {
	const leaseTime = 300 * time.Millisecond
	one, two := s.process(t), s.process(t)
	var lease *lock.Lease
	undisturbed(t, leaseTime, name, func(attempt string) (err error) {
		name = attempt
		lease, err = take(t.Context(), one(name), lock.LeaseTime(leaseTime))
		return err
	})
	ctx := lease.Context()
	next := mustLock(t, t.Context(), two(name))
	if !errors.Is(context.Cause(ctx), lock.ErrLost) {
		t.Errorf("there is another holder and the first one's context says %v", context.Cause(ctx))
	}
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	if err := lease.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("unlock of a lost lock: %v", err)
	}
	if _, err := one(name).TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("the unlock of the first took the lock of the second: %v", err)
	}
	mustUnlock(t, next)
}

func conformExtend(t *testing.T, s subject, name string) {
	const leaseTime = 300 * time.Millisecond
	one, two := s.process(t), s.process(t)
	var lease *lock.Lease
	undisturbed(t, leaseTime, name, func(attempt string) (err error) {
		name = attempt
		if lease, err = take(t.Context(), one(name), lock.LeaseTime(leaseTime)); err != nil {
			return err
		}
		return lease.Extend(t.Context(), time.Minute)
	})
	if err := lease.Extend(t.Context(), 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(lease.ValidUntil()); left < 30*time.Second {
		t.Errorf("a shorter extension shortened the lease to %s", left)
	}
	if _, err := two(name).Lock(t.Context(), lock.Wait(2*leaseTime)); !errors.Is(err, lock.ErrTimeout) {
		t.Errorf("after the first lease: %v", err)
	}
	mustUnlock(t, lease)
	if err := lease.Extend(t.Context(), time.Second); !errors.Is(err, lock.ErrNotHeld) {
		t.Errorf("extend after unlock: %v", err)
	}
}

func conformLoss(t *testing.T, s subject, name string) {
	// Long enough for the lock to be there when it is taken away, also where the machine stands still.
	l := s.process(t, lock.WatchdogLease(3*time.Second))(name)
	lease := mustLock(t, t.Context(), l)
	ctx := lease.Context()
	s.remove(t, name)
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("the loss was not noticed")
	}
	if !errors.Is(context.Cause(ctx), lock.ErrLost) {
		t.Errorf("cause %v", context.Cause(ctx))
	}
	if err := lease.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
	again := mustLock(t, t.Context(), l)
	s.remove(t, name)
	if err := again.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("unlock of a lock that was taken away: %v", err)
	}
	outer := mustLock(t, t.Context(), l)
	s.remove(t, name)
	if _, err := l.Lock(outer.Context(), lock.Wait(0)); err == nil {
		t.Error("a re-entry took a lock that had been lost in between")
	}
	_ = outer.Unlock()
}

func conformClose(t *testing.T, s subject, name string) {
	waiting := s.process(t)(name)
	var lease *lock.Lease
	t.Run("holder", func(t *testing.T) {
		lease = mustLock(t, t.Context(), s.process(t)(name))
		_ = lease.Context()
	}) // its clients are closed here
	if !errors.Is(context.Cause(lease.Context()), lock.ErrClosed) && lease.Context().Err() == nil {
		t.Errorf("cause %v", context.Cause(lease.Context()))
	}
	mustUnlock(t, mustLock(t, t.Context(), waiting))
}
