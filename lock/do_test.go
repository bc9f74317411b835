package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/lock"
)

// TestDo: the work has a context that ends with the caller's, or with the lock; the lock is free afterwards.
func TestDo(t *testing.T) {
	t.Parallel()
	failed, gone := errors.New("the work failed"), errors.New("the client hung up")
	for what, c := range map[string]struct {
		work func(ctx context.Context, s *fake, hangUp func()) error
		want []error
	}{
		"done":   {func(context.Context, *fake, func()) error { return nil }, []error{nil}},
		"failed": {func(context.Context, *fake, func()) error { return failed }, []error{failed}},
		"lost":   {func(ctx context.Context, s *fake, _ func()) error { s.empty(); <-ctx.Done(); return failed }, []error{failed, lock.ErrLost}},
		"hung up": {func(ctx context.Context, _ *fake, hangUp func()) error {
			hangUp()
			<-ctx.Done()
			return context.Cause(ctx)
		}, []error{gone}},
		"a long time":  {func(ctx context.Context, _ *fake, _ func()) error { time.Sleep(10 * term); return context.Cause(ctx) }, []error{nil}},
		"hung up long": {func(_ context.Context, s *fake, hangUp func()) error { hangUp(); time.Sleep(10 * term); return held(s) }, []error{lock.ErrHeld}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newFake()
				ctx, hangUp := context.WithCancelCause(t.Context())
				defer hangUp(nil)
				err := store.locks(t, lock.WatchdogLease(term)).Do(ctx, "k", func(ctx context.Context) error {
					return c.work(ctx, store, func() { hangUp(gone) })
				})
				for _, want := range c.want {
					check.Is(t, what, err, want)
				}
				check.Equal(t, "it is free afterwards", store.free(t, "k"), true)
			})
		})
	}
	t.Run("a panic", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store := newFake()
			func() {
				defer func() { check.Equal(t, "what was recovered", recover(), any("work")) }()
				_ = store.locks(t).Do(t.Context(), "k", func(context.Context) error { panic("work") })
			}()
			check.Equal(t, "it is free afterwards", store.free(t, "k"), true)
		})
	})
}

// held asks for the lock as another process would.
func held(s *fake) error {
	_, err := lock.New(s.Store).Mutex("k").TryLock(context.Background())
	return err
}

// TestCampaign: one of two leads; when its lock is lost the other does, and it campaigns again.
func TestCampaign(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		leads := make(chan string)
		done := errors.New("done")
		ctx, stop := context.WithCancelCause(t.Context())
		ended := map[string]chan error{"one": make(chan error, 1), "two": make(chan error, 1)}
		for name, end := range ended {
			locks := closing(t, lock.New(store, lock.WatchdogLease(term)))
			go func() {
				end <- locks.Campaign(ctx, "leader", func(ctx context.Context) error {
					leads <- name
					<-ctx.Done()
					return context.Cause(ctx)
				})
			}()
		}
		first := <-leads
		synctest.Wait()
		holder, left, err := store.others(t).Holder(t.Context(), "leader")
		check.Must(t, err)
		check.Equal(t, "the leader is known", strings.Contains(holder, ":") && left > 0, true)
		store.empty()
		second := <-leads
		stop(done)
		for name, end := range ended {
			check.Is(t, name+" ends", <-end, done)
		}
		t.Logf("%s led, then %s", first, second)
	})
}

// TestLossNamesItsCause: the lease ran out because renewals failed, and the error says why.
func TestLossNamesItsCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, refused := newCut(), errors.New("connection refused")
		store.says = func(context.Context) error { return refused }
		lease := mustLock(t, t.Context(), closing(t, lock.New(store, lock.WatchdogLease(term))).Mutex("k"))
		store.gone.Store(true)
		<-lease.Context().Done()
		store.gone.Store(false)
		for what, err := range map[string]error{"context": context.Cause(lease.Context()), "unlock": lease.Unlock()} {
			check.Is(t, what, err, lock.ErrLost)
			check.Is(t, what, err, refused)
		}
	})
}
