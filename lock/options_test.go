package lock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/lock/driver"
)

// No lease of a client is longer than its LongestLease, whatever is asked for. Guards: bound in Mutex.lock and in extend.
func TestNoLeaseIsLongerThanTheLongest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := closing(t, lock.New(lock.NewMemoryStore(), lock.LongestLease(time.Second)))
		lease := mustLock(t, t.Context(), locks.Mutex("k"), lock.LeaseTime(time.Hour))
		check.That(t, time.Until(lease.ValidUntil()) <= time.Second, "it lasts until %s", lease.ValidUntil())
		check.Must(t, lease.Extend(t.Context(), time.Hour))
		check.That(t, time.Until(lease.ValidUntil()) <= time.Second, "extended, it lasts until %s", lease.ValidUntil())
		holder, left, err := locks.Holder(t.Context(), "k")
		check.Must(t, err)
		check.That(t, left <= time.Second, "the store has %s", left)
		check.That(t, strings.Contains(holder, "000003e8:"), "the holder %s does not say that it is a second", holder)
		mustUnlock(t, lease)
	})
}

// A timeout of nothing is the default, rather than one that has always passed. Guard: orDefault.
func TestTimeoutsOfNothing(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	check.Equal(t, "statements", lock.StatementTimeoutOf(lock.NewMySQLStore(nil, lock.StatementTimeout(-time.Second))), lock.DefaultCallTimeout)
	check.Equal(t, "calls", lock.CallTimeoutOf(lock.NewRedisStore(client, lock.CallTimeout(0))), lock.DefaultCallTimeout)
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		store.answers = time.Second
		mustUnlock(t, mustLock(t, t.Context(), store.locks(t, lock.UnlockTimeout(0)).Mutex("k")))
	})
}

// An interval of nothing is the default, rather than a waiter that asks without a pause.
// Guard: orDefault.
func TestIntervalsOfNothing(t *testing.T) {
	t.Parallel()
	for kind, watch := range map[string]func(string, func()) driver.Watch{
		"messages": nil, "no messages": func(string, func()) driver.Watch { return nil },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newFake()
				store.watch = watch
				store.acquire = func(ctx context.Context, r driver.Request) (driver.Grant, error) {
					if store.acquired.Load() > 100 {
						return driver.Grant{}, lock.ErrRefused
					}
					return store.Store.Acquire(ctx, r)
				}
				m := store.locks(t, lock.PollEvery(0), lock.ProbeEvery(-1)).Mutex("k")
				held := mustLock(t, t.Context(), m)
				check.Is(t, "the waiter", check.ErrorOf(m.Lock(t.Context(), lock.Wait(2*time.Second))), lock.ErrTimeout)
				mustUnlock(t, held)
			})
		})
	}
}

// A wait or an extension that makes no sense is the least that does: one attempt, and 10 ms.
func TestLeastWaitAndExtension(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const least = 10 * time.Millisecond
		m := newFake().locks(t).Mutex("k")
		held := mustLock(t, t.Context(), m, lock.LeaseTime(0))
		check.Equal(t, "a lease of nothing is valid for", time.Until(held.ValidUntil()), least-drift(least))
		check.Is(t, "less than no wait", check.ErrorOf(m.Lock(t.Context(), lock.Wait(-time.Second))), lock.ErrTimeout)
		time.Sleep(least / 2)
		check.Must(t, held.Extend(t.Context(), -time.Second))
		check.Equal(t, "extended by less than nothing it is valid for", time.Until(held.ValidUntil()), least-drift(least))
		mustUnlock(t, held)
	})
}

// Logger(nil) is no logger, also when there is something to tell. Guard: cmp.Or in Logger.
func TestNoLogger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wantLost(t, mustLock(t, t.Context(), newFake().locks(t, lock.Logger(nil)).Mutex("k"), lock.LeaseTime(time.Second)))
	})
}
