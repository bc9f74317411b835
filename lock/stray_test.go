package lock_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/lock/driver"
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

// The request that raises the token of a fenced lock gets no answer and arrives when the
// lock has been given back: it is refused, and the lock stays free. Some of the
// acquisitions are answered swiftly, and leave nothing behind against copies of their own.
// Guard: repeated, after an error, in holding.ask.
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
	other := &asked{t, redisStore(b.direct)}
	t.Cleanup(func() { _ = other.Close() })
	for _, r := range late {
		other.acquire("the late copy for "+r.Name, r, driver.StateLost)
	}
}
