package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/lock/driver"
)

// gate notes how many keys each script call names. It can keep one script call back until it is opened.
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

// count is how many script calls there were.
func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.keys)
}

// together has calls go to Redis in one pipeline: they gather behind another one
// that is kept back. It returns how many keys each request named.
func (g *gate) together(t *testing.T, store driver.Store, count int, do func(i int)) []int {
	t.Helper()
	g.mu.Lock()
	g.open, g.keys = make(chan struct{}), nil
	g.mu.Unlock()
	g.shut.Store(true)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = store.ForceRelease(t.Context(), nameOf(t)) })
	check.Eventually(t, "one is kept back", func() bool { return !g.shut.Load() })
	for i := range count {
		wg.Go(func() { do(i) })
	}
	// Unless the one that is kept back has been so for too long, and no longer holds the others up.
	check.Eventually(t, "the others wait, or went", func() bool { return lock.Pending(store) == count || g.count() > 1 })
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
	for kind, opts := range map[string][]lock.RedisOption{"tokens": nil, "without tokens": {lock.WithoutTokens()}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			client := plain(t, "redis://"+b.direct.Options().Addr)
			g := &gate{}
			client.AddHook(g)
			store := redisStore(client, append(opts, lock.Pipelines(1))...)
			t.Cleanup(func() { _ = store.Close() })
			const count, bad = 10, 3
			var all []driver.Request
			for i := range count {
				all = append(all, request(fmt.Sprint(b.name, i), i))
			}
			want := func(what string, i int, did bool, err error) {
				if i == bad && !errors.Is(err, lock.ErrRefused) || i != bad && (err != nil || !did) {
					t.Errorf("%s %d: %v, %v", what, i, did, err)
				}
			}
			// A machine may be too slow to gather them. They may be repeated.
			shared := func(what string, do func(i int)) {
				check.Eventually(t, what+" in one request, and then, as one was refused, each by itself", func() bool {
					keys := g.together(t, store, count, do)
					return len(keys) == 1+count && keys[0] == count*keys[1]
				})
			}
			check.Must(t, b.direct.Set(t.Context(), all[bad].Name, "of another type", calm).Err())
			shared("acquired", func(i int) {
				grant, err := store.Acquire(t.Context(), all[i])
				want("acquire", i, grant.State == driver.StateHeld, err)
				check.Equal(t, "it has a token", grant.Token != 0, i != bad && len(opts) == 0)
			})
			for i, err := range store.Renew(t.Context(), all) {
				if i == bad && !errors.Is(err, lock.ErrLost) || i != bad && err != nil {
					t.Errorf("renew %d: %v", i, err)
				}
			}
			shared("released", func(i int) {
				r := all[i]
				r.Holds = 0
				was, err := store.Release(t.Context(), r)
				want("release", i, was, err)
			})
			for i, r := range all {
				check.Equal(t, "keys that are left", b.direct.Exists(t.Context(), r.Name).Val() == 1, i == bad)
			}
		})
	}
}
