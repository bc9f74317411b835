package bench

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"seckill/internal/workshop/check"
	"seckill/lock"
)

const (
	// lease is how long a lock lasts that is not renewed: long enough that none ends within a workload.
	lease = 30 * time.Second
	// pause is between redislock's tries: short against the waits of 64 goroutines, and not yet a flood of requests.
	pause = 10 * time.Millisecond
	// tryNextAfter bounds an attempt of rueidislock. With the default of 20 ms an attempt on a busy machine ends before
	// its answer comes, and its caller then waits for a message about the key that it took itself, for ever.
	tryNextAfter = 2 * time.Second
)

// acquire waits for a lock until ctx ends.
type acquire func(ctx context.Context, key string) (release func() error, err error)

// peer is a contestant: open makes one client of one Redis, as a process has it, for so many goroutines.
type peer struct {
	name string
	open func(b *testing.B, addr string, goroutines int) acquire
}

// ours is the lock of this repository, with options of its store.
func ours(name string, opts ...lock.RedisOption) peer {
	return peer{name, func(b *testing.B, addr string, _ int) acquire {
		b.Helper()
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		locks := lock.New(lock.NewRedisStore(client, opts...))
		b.Cleanup(func() { check.Must(b, errors.Join(locks.Close(context.Background()), client.Close())) })
		return func(ctx context.Context, key string) (func() error, error) {
			held, err := locks.Mutex(key).Lock(ctx)
			if err != nil {
				return nil, err
			}
			return held.Unlock, nil
		}
	}}
}

// peers are the contestants. The first is what the service uses.
func peers() []peer {
	return []peer{
		ours("tokenless", lock.WithoutTokens()),
		ours("tokens"),
		{"redsync", func(b *testing.B, addr string, goroutines int) acquire {
			b.Helper()
			locks := redsync.New(redsyncredis.NewPool(pooled(b, addr, goroutines)))
			return func(ctx context.Context, key string) (func() error, error) {
				m := locks.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt))
				return func() error { return check.ErrorOf(m.UnlockContext(context.WithoutCancel(ctx))) }, m.LockContext(ctx)
			}
		}},
		{"redislock", func(b *testing.B, addr string, goroutines int) acquire {
			b.Helper()
			locks := redislock.New(pooled(b, addr, goroutines))
			return func(ctx context.Context, key string) (func() error, error) {
				m, err := locks.Obtain(ctx, key, lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(pause)})
				return func() error { return m.Release(context.WithoutCancel(ctx)) }, err
			}
		}},
		{"rueidislock", func(b *testing.B, addr string, _ int) acquire {
			b.Helper()
			locks := check.Value(rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
				KeyValidity:  lease, KeyMajority: 1, NoLoopTracking: true, TryNextAfter: tryNextAfter,
			}))(b)
			b.Cleanup(locks.Close)
			return func(ctx context.Context, key string) (func() error, error) {
				_, cancel, err := locks.WithContext(ctx, key)
				return func() error { cancel(); return nil }, err
			}
		}},
		// What a round trip costs: SET NX PX and DEL are no lock, because anybody's DEL frees it.
		{"none", func(b *testing.B, addr string, goroutines int) acquire {
			b.Helper()
			client := pooled(b, addr, goroutines)
			return func(ctx context.Context, key string) (func() error, error) {
				err := client.SetArgs(ctx, key, "x", redis.SetArgs{Mode: "NX", TTL: lease}).Err()
				return func() error { return client.Del(ctx, key).Err() }, err
			}
		}},
	}
}

// pooled is for those who take a connection for each call.
func pooled(b *testing.B, addr string, goroutines int) *redis.Client {
	b.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: goroutines, MinIdleConns: goroutines})
	b.Cleanup(func() { _ = client.Close() })
	return client
}
