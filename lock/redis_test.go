package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
	"seckill/lock/driver"
)

func TestRedisLayout(t *testing.T) {
	t.Parallel()
	for kind, client := range map[string]*redis.Client{
		"redis":     dial(t, testserver.SharedRedis(t)),
		"miniredis": dial(t, "redis://"+miniredis.RunT(t).Addr()),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx, name := t.Context(), nameOf(t)
			locks := locksOn(t, client, onlyMessages()...)
			lease := mustLock(t, ctx, locks.Mutex(name))
			inner := mustLock(t, lease.Context(), locks.Mutex(name))
			check.Equal(t, "it has a token", lease.Token() != 0, true)
			check.Equal(t, "the token of a re-entry", inner.Token(), lease.Token())
			hash := client.HGetAll(ctx, name).Val()
			check.Equal(t, "fields", len(hash), 1)
			for k, v := range hash {
				if v != "2" || len(k) < 38 {
					t.Errorf("field %s = %s", k, v)
				}
			}
			mustUnlock(t, inner)
			if ttl := client.PTTL(ctx, name).Val(); ttl < calm/2 || ttl > calm {
				t.Errorf("ttl %s of a lease of %s", ttl, calm)
			}

			waiter := begin(ctx, locks.Mutex(name))
			check.Eventually(t, "a subscription of Redisson's channel", func() bool { return subscribed(t, client, name) == 1 })
			mustUnlock(t, lease)
			next := got(t, "the waiter", waiter)
			if next.Token() <= lease.Token() {
				t.Errorf("token %d after %d", next.Token(), lease.Token())
			}
			mustUnlock(t, next)
			noSubscription(t, client, name)
			onlyPassing(t, client, name)
		})
	}
}

// Redis refuses the login of new connections: no call gets a lock, each hears why,
// also those that share a pipeline.
func TestARefusedLoginHoldsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	locks := lock.New(redisStore(dial(t, "redis://nobody:wrong@"+b.direct.Options().Addr+"/0")))
	defer func() {
		ended, end := context.WithCancel(t.Context())
		end()
		_ = locks.Close(ended) // what it undoes is refused too
	}()
	var callers sync.WaitGroup
	for i := range 20 {
		callers.Go(func() {
			lease, err := locks.Mutex(fmt.Sprint(b.name, i)).TryLock(t.Context())
			if lease != nil || !strings.Contains(fmt.Sprint(err), "WRONGPASS") {
				t.Errorf("lease %v, error %v", lease, err)
			}
		})
	}
	callers.Wait()
	check.Equal(t, "keys", len(b.direct.Keys(t.Context(), "*"+b.name+"*").Val()), 0)
}

// TestRefusals: Redis refuses this or that to a user of its own.
//
//nolint:tparallel // one server, one user after the other
func TestRefusals(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, "--appendonly", "no")
	direct := dial(t, server.URL())
	order := func(t *testing.T, args ...any) {
		t.Helper()
		check.Must(t, direct.Do(t.Context(), args...).Err())
	}
	user := func(t *testing.T, name string, may ...any) *redis.Client {
		t.Helper()
		order(t, append([]any{"acl", "setuser", name, "on", "nopass", "&*"}, may...)...)
		opt := patient(t, server.URL())
		opt.Username, opt.Password, opt.ContextTimeoutEnabled = name, "any", true
		return connect(t, opt)
	}

	// It may not touch the key of one lock of many any more: the others are renewed. Guard: errs, of each request, in
	// Renew. (What the client makes of it: TestTime.)
	t.Run("one renewal", func(t *testing.T) {
		s := &asked{t, redisStore(user(t, "renewing", "~good*", "+@all"))}
		t.Cleanup(func() { _ = s.Close() })
		all := []driver.Request{request("bad", 1)}
		for i := range 5 {
			all = append(all, request(fmt.Sprint("good", i), 1))
		}
		admin := &asked{t, redisStore(direct)}
		t.Cleanup(func() { _ = admin.Close() })
		for _, r := range all {
			admin.acquire("taken", r, driver.StateHeld)
		}
		for i, err := range s.Renew(t.Context(), all) {
			if i == 0 && !errors.Is(err, lock.ErrRefused) || i > 0 && err != nil {
				t.Errorf("%s: %v", all[i].Name, err)
			}
		}
	})
	// It may not subscribe: a waiter asks at intervals.
	t.Run("to subscribe", func(t *testing.T) {
		locks := locksOn(t, user(t, "deaf", "~*", "+@all", "-subscribe"), lock.ProbeEvery(calm))
		held := mustLock(t, t.Context(), locksOn(t, direct).Mutex("k"))
		waiter := begin(t.Context(), locks.Mutex("k"))
		check.Eventually(t, "it waits", func() bool { return lock.Waiting(locks, "k") == 1 })
		mustUnlock(t, held)
		mustUnlock(t, got(t, "the waiter", waiter))
	})
	// It is refused to hand the lock over, and would not be refused to free it: Unlock frees it for the one who waits.
	// Guard: Release in Client.free.
	handsOver := func(t *testing.T, refuse ...any) (waiter <-chan attempt) {
		t.Helper()
		name := nameOf(t)
		locks := locksOn(t, user(t, "app", "~*", "+@all"))
		held := mustLock(t, t.Context(), locks.Mutex(name))
		waiter = begin(t.Context(), locks.Mutex(name))
		check.Eventually(t, "it waits", func() bool { return lock.Waiting(locks, name) == 1 })
		check.Eventually(t, "it listens", func() bool { return subscribed(t, direct, name) == 1 })
		order(t, refuse...)
		mustUnlock(t, held)
		return waiter
	}
	t.Run("PUBSUB", func(t *testing.T) {
		mustUnlock(t, got(t, "the waiter", handsOver(t, "acl", "setuser", "app", "-pubsub")))
	})
	t.Run("memory", func(t *testing.T) {
		// Who waits is refused too, by an answer that ends its Lock.
		if a := check.Receive(t, "the waiter", handsOver(t, "config", "set", "maxmemory", "1")); a.err == nil {
			t.Error("the lock was taken without memory, so this shows nothing")
		}
	})
}

// Unlock takes no longer than UnlockTimeout, though the store bounds its calls much later and
// the lock is given back only then. Guard: WithTimeout in holding.unlock.
func TestUnlockIsBoundedWhileTheStoreIsSilent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	locks := locksOn(t, dial(t, b.url()), lock.UnlockTimeout(check.Soon))
	lease := mustLock(t, t.Context(), locks.Mutex(b.name))
	b.line.Hole()
	if err := lease.Unlock(); !errors.Is(err, lock.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("unlock: %v", err)
	}
	check.Equal(t, "held behind the silent line", b.held(), true)
	b.line.Heal()
	b.noOrphan(t) // it goes on in the background
}
