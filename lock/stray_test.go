package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/lock"
)

// delay keeps back one command that its caller can give up, as a network or a
// busy server does: the caller sees no answer, and the command arrives later.
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

// A request is sent again because it was not answered, the second copy is told
// that the lock is held, and its caller goes away. The first copy then arrives
// when the lock is free: it is refused, and the lock stays free. Guards: Stray in
// RedisStore.Acquire, abandon in Client.acquire.
func TestLateCopyOfRefusedRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for what, opts := range map[string][]lock.Option{"once": {lock.Wait(0)}, "waiting": {lock.Wait(50 * time.Millisecond)}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			held := mustLock(t, t.Context(), locksOn(t, b.direct).Mutex(what))
			client := dial(t, b.server.URL())
			d := &delay{}
			client.AddHook(d)
			locks := lock.New(lock.NewRedisStore(client))
			eventually(t, 20*time.Second, "a request is given up and sent again", func() bool {
				d.armed.Store(true)
				if _, err := locks.Mutex(what).Lock(t.Context(), opts...); !errors.Is(err, lock.ErrTimeout) {
					t.Errorf("the lock that is held: %v", err)
				}
				return d.kept.Load() != nil
			})
			closeLocks(t, locks)
			mustUnlock(t, held)
			if v, err := b.direct.Do(t.Context(), *d.kept.Load()...).Result(); err != nil {
				t.Errorf("the first copy: %v, %v", v, err)
			}
			if left := b.direct.HGetAll(t.Context(), what).Val(); len(left) != 0 {
				t.Errorf("the lock is left behind: %v", left)
			}
		})
	}
}

// The request that raises the token of a fenced lock gets no answer and arrives when the
// lock has been given back: it is refused, and the lock stays free. Some of the
// acquisitions are answered swiftly, and leave nothing behind against copies of their own.
// Guard: repeated, after an error, in holding.ask.
func TestLateCopyOfRaisedToken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := lock.NewRedisStore(b.direct)
	var late []lock.Request
	locks := lock.New(&altered{Store: store, acquire: func(ctx context.Context, r lock.Request) (lock.Grant, error) {
		if r.Token != 0 {
			late = append(late, r)
			return lock.Grant{}, fmt.Errorf("%w: no answer", lock.ErrUnknown)
		}
		return store.Acquire(ctx, r)
	}})
	for i := range 20 {
		if _, err := lock.All(locks.Mutex(fmt.Sprint("k", i))).TryLock(t.Context(), lock.Fenced()); !errors.Is(err, lock.ErrUnknown) {
			t.Fatal(err)
		}
	}
	closeLocks(t, locks) // what is kept against copies, and no longer needed, is gone
	other := lock.NewRedisStore(b.direct)
	t.Cleanup(func() { _ = other.Close() })
	for _, r := range late {
		if grant, err := other.Acquire(t.Context(), r); err != nil || grant.State != lock.StateLost {
			t.Errorf("the late copy for %s: %v, %v", r.Name, grant, err)
		}
	}
}
