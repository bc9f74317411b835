package lock_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/lock/driver"
)

// fake stands before a store, mostly one in memory. It counts the calls, lets them take their time, or answers in the
// store's place. (It does not hand locks over.)
type fake struct {
	driver.Store
	takes   time.Duration // before a call is carried out
	answers time.Duration // after that

	acquire func(context.Context, driver.Request) (driver.Grant, error)
	renew   func(context.Context, []driver.Request) []error
	release func(context.Context, driver.Request) (bool, error)
	watch   func(name string, wake func()) driver.Watch
	close   func() error

	acquired, renewed, released atomic.Int64
}

func newFake() *fake { return &fake{Store: lock.NewMemoryStore()} }

// empty makes it forget every lock, while nobody calls it. Each call touches its counter first, and so sees the new store.
func (s *fake) empty() {
	s.Store = lock.NewMemoryStore()
	for _, counter := range []*atomic.Int64{&s.acquired, &s.renewed, &s.released} {
		counter.Add(0)
	}
}

func (s *fake) Acquire(ctx context.Context, r driver.Request) (grant driver.Grant, err error) {
	s.acquired.Add(1)
	if err := pass(ctx, s.takes); err != nil {
		return driver.Grant{}, err
	}
	if s.acquire != nil {
		grant, err = s.acquire(ctx, r)
	} else {
		grant, err = s.Store.Acquire(ctx, r)
	}
	if late := pass(ctx, s.answers); late != nil {
		return driver.Grant{}, late
	}
	return grant, err
}

func (s *fake) Renew(ctx context.Context, rs []driver.Request) []error {
	s.renewed.Add(1)
	if s.renew != nil {
		return s.renew(ctx, rs)
	}
	return s.Store.Renew(ctx, rs)
}

func (s *fake) Release(ctx context.Context, r driver.Request) (was bool, err error) {
	s.released.Add(1)
	if err := pass(ctx, s.takes); err != nil {
		return false, err
	}
	if s.release != nil {
		was, err = s.release(ctx, r)
	} else {
		was, err = s.Store.Release(ctx, r)
	}
	if late := pass(ctx, s.answers); late != nil {
		return false, late
	}
	return was, err
}

func (s *fake) Watch(name string, wake func()) driver.Watch {
	if s.watch != nil {
		return s.watch(name, wake)
	}
	return s.Store.Watch(name, wake)
}

func (s *fake) Close() error {
	if s.close != nil {
		return s.close()
	}
	return s.Store.Close()
}

// calls is how often the store was asked, but for renewals.
func (s *fake) calls() int { return int(s.acquired.Load() + s.released.Load()) }

// free tells whether nobody has the lock.
func (s *fake) free(t testing.TB, name string) bool {
	t.Helper()
	r := driver.Request{Name: name, Holder: "a look", Holds: 1, Lease: time.Minute}
	grant := check.Value(s.Store.Acquire(context.Background(), r))(t)
	if grant.State != driver.StateHeld {
		return false
	}
	check.Must(t, check.ErrorOf(s.Store.Release(context.Background(), driver.Request{Name: name, Holder: r.Holder})))
	return true
}

// silent is what a store says that was reached and does not answer: nothing, until the caller goes away.
func silent(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", lock.ErrUnknown, context.Cause(ctx))
}

// pass lets time pass, that of a bubble, or the length of a fault. It is cut short by the context, and says so.
func pass(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", lock.ErrUnknown, context.Cause(ctx))
	}
}

// cut is a store that can be cut off: it carries nothing out then, and says nothing or as it is told.
type cut struct {
	*fake
	gone atomic.Bool
	says func(context.Context) error
}

func newCut() *cut {
	c := &cut{fake: newFake(), says: silent}
	c.acquire = func(ctx context.Context, r driver.Request) (driver.Grant, error) {
		if c.gone.Load() {
			return driver.Grant{}, c.says(ctx)
		}
		return c.Store.Acquire(ctx, r)
	}
	c.renew = func(ctx context.Context, rs []driver.Request) []error {
		if c.gone.Load() {
			return slices.Repeat([]error{c.says(ctx)}, len(rs))
		}
		return c.Store.Renew(ctx, rs)
	}
	c.release = func(ctx context.Context, r driver.Request) (bool, error) {
		if c.gone.Load() {
			return false, c.says(ctx)
		}
		return c.Store.Release(ctx, r)
	}
	return c
}

// locks makes a client with settings as they are by default, for a bubble.
func (s *fake) locks(t testing.TB, opts ...lock.ClientOption) *lock.Client {
	t.Helper()
	return closing(t, lock.New(s, opts...))
}

// others is a client of the same locks that reaches the store whatever the fake does.
func (s *fake) others(t testing.TB) *lock.Client {
	t.Helper()
	return closing(t, lock.New(s.Store))
}

func closing(t testing.TB, locks *lock.Client) *lock.Client {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), check.Deadline)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Logf("close the locks: %v", err) // as it must, where a store is gone
		}
	})
	return locks
}

// attempt is what became of a Lock.
type attempt struct {
	lease *lock.Lease
	err   error
}

// begin takes a lock in the background.
func begin(ctx context.Context, l lock.Locker, opts ...lock.Option) <-chan attempt {
	done := make(chan attempt, 1)
	go func() {
		lease, err := take(ctx, l, opts...)
		done <- attempt{lease, err}
	}()
	return done
}

// got is the lease of a Lock that was begun.
func got(t testing.TB, what string, from <-chan attempt) *lock.Lease {
	t.Helper()
	a := check.Receive(t, what, from)
	if a.err != nil {
		t.Fatalf("%s: %v", what, a.err)
	}
	return a.lease
}

// take waits for a lock for as long as tests do.
func take(ctx context.Context, l lock.Locker, opts ...lock.Option) (*lock.Lease, error) {
	return l.Lock(ctx, append([]lock.Option{lock.Fenced(), lock.Wait(check.Deadline)}, opts...)...)
}

func mustLock(t testing.TB, ctx context.Context, l lock.Locker, opts ...lock.Option) *lock.Lease { //nolint:revive // testing.TB comes first in helpers
	t.Helper()
	lease, err := take(ctx, l, opts...)
	if err != nil {
		t.Fatalf("lock %s: %v", l.Name(), err)
	}
	return lease
}

func mustUnlock(t testing.TB, lease *lock.Lease) {
	t.Helper()
	if err := lease.Unlock(); err != nil {
		t.Errorf("unlock %s: %v", lease.Name(), err)
	}
}

// wantLost waits until the context of a lease has ended, which has to be for its loss, and has Unlock say so.
func wantLost(t testing.TB, lease *lock.Lease) {
	t.Helper()
	check.Receive(t, "the end of "+lease.Name(), lease.Context().Done())
	check.Is(t, "the cause", context.Cause(lease.Context()), lock.ErrLost)
	check.Is(t, "the unlock of what was lost", lease.Unlock(), lock.ErrLost)
}
