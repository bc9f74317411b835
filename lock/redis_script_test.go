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

// gate keeps a script call back until it is opened, and notes how many keys
// each script call names.
type gate struct {
	shut atomic.Bool
	open chan struct{}

	mu   sync.Mutex
	keys []int
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			g.pass(cmd)
		}
		return next(ctx, cmds)
	}
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.pass(cmd)
		return next(ctx, cmd)
	}
}

func (g *gate) pass(cmd redis.Cmder) {
	if cmd.Name() != "evalsha" {
		return
	}
	keys, _ := cmd.Args()[2].(int)
	g.mu.Lock()
	g.keys = append(g.keys, keys)
	g.mu.Unlock()
	if g.shut.CompareAndSwap(true, false) {
		<-g.open
	}
}

// together has calls go to Redis in one pipeline: they gather behind another one
// that is kept back. It returns how many keys each request named.
func (g *gate) together(t *testing.T, store *lock.RedisStore, count int, do func(i int)) []int {
	t.Helper()
	g.mu.Lock()
	g.open, g.keys = make(chan struct{}), nil
	g.mu.Unlock()
	g.shut.Store(true)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = store.ForceRelease(t.Context(), "the one kept back") })
	eventually(t, 5*time.Second, "one is kept back", func() bool { return !g.shut.Load() })
	for i := range count {
		wg.Go(func() { do(i) })
	}
	eventually(t, 5*time.Second, "the others wait", func() bool { return lock.Pending(store) == count })
	close(g.open)
	wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.keys[1:]
}

// The calls of a pipeline for ten locks are one script call, and when Redis
// refuses it for one of them, which is a key of another type, the other nine are
// taken, renewed and freed all the same. Guards: requests; the last case of
// request.again.
func TestSharedScriptCall(t *testing.T) {
	t.Parallel()
	for kind, open := range map[string]func(redis.UniversalClient, ...lock.RedisOption) *lock.RedisStore{
		"tokens": lock.NewRedisStore,
		"without tokens": func(c redis.UniversalClient, o ...lock.RedisOption) *lock.RedisStore {
			return lock.NewRedisStore(c, append(o, lock.WithoutTokens())...)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			client := plain(t, b.server.URL())
			g := &gate{}
			client.AddHook(g)
			store := open(client, lock.Pipelines(1))
			t.Cleanup(func() { _ = store.Close() })
			const count, bad = 10, 3
			request := func(i int) lock.Request {
				return lock.Request{Name: fmt.Sprint("k", i), Holder: fmt.Sprintf("00000000-0000-4000-8000-000000000000:%d", i), Holds: 1, Lease: time.Minute}
			}
			check := func(what string, i int, did bool, err error) {
				if i == bad && !errors.Is(err, lock.ErrRefused) || i != bad && (err != nil || !did) {
					t.Errorf("%s %d: %v, %v", what, i, did, err)
				}
			}
			shared := func(what string, do func(i int)) {
				var keys []int
				for range 20 { // a busy machine may be too slow to gather them
					keys = g.together(t, store, count, do)
					if len(keys) == 1+count && keys[0] == count*keys[1] {
						return
					}
				}
				t.Errorf("%s: the requests named %v keys, want those of %d locks at once, and then each by itself", what, keys, count)
			}
			if err := b.direct.Set(t.Context(), request(bad).Name, "of another type", 0).Err(); err != nil {
				t.Fatal(err)
			}
			shared("acquire", func(i int) {
				grant, err := store.Acquire(t.Context(), request(i))
				check("acquire", i, grant.State == lock.StateHeld, err)
			})
			var all []lock.Request
			for i := range count {
				all = append(all, request(i))
			}
			for i, err := range store.Renew(t.Context(), all) {
				if i == bad && !errors.Is(err, lock.ErrLost) || i != bad && err != nil {
					t.Errorf("renew %d: %v", i, err)
				}
			}
			shared("release", func(i int) {
				r := request(i)
				r.Holds = 0
				was, err := store.Release(t.Context(), r)
				check("release", i, was, err)
			})
			for i := range count {
				if n := b.direct.Exists(t.Context(), request(i).Name).Val(); (n == 1) != (i == bad) {
					t.Errorf("%d keys %s are left", n, request(i).Name)
				}
			}
		})
	}
}

// Redis refuses to renew one lock of many, say because the client may not touch its key
// any more: that one runs out, and the others, which were renewed, do not. Guard: errs, of
// each request, in Renew and in watchdog.renew.
func TestRefusedRenewalIsOneLocksTrouble(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	allow := func(keys string) {
		t.Helper()
		if err := b.direct.Do(t.Context(), "acl", "setuser", "app", "on", "nopass", "+@all", "allchannels", "resetkeys", keys).Err(); err != nil {
			t.Fatal(err)
		}
	}
	client := redis.NewClient(&redis.Options{Addr: b.server.Addr(), Username: "app", Password: "any"})
	t.Cleanup(func() { _ = client.Close() })
	const leaseTime = 500 * time.Millisecond
	locks := newLocks(t, lock.NewRedisStore(client), lock.WatchdogLease(leaseTime))
	undisturbed(t, leaseTime, "k", func(name string) error {
		allow("~*")
		bad, err := take(t.Context(), locks.Mutex(name+":bad"))
		if err != nil {
			return err
		}
		var good []*lock.Lease
		for i := range 5 {
			lease, err := take(t.Context(), locks.Mutex(fmt.Sprint(name, ":good", i)))
			if err != nil {
				return err
			}
			good = append(good, lease)
		}
		allow("~*good*")
		<-bad.Context().Done()
		until := time.Now()
		for _, l := range good {
			eventually(t, 5*time.Second, "it was renewed after the other one had run out", func() bool {
				return l.Context().Err() != nil || l.ValidUntil().After(until.Add(leaseTime))
			})
			if err := context.Cause(l.Context()); err != nil {
				return fmt.Errorf("a lock whose renewals are not refused: %w", err)
			}
		}
		return nil
	})
}
