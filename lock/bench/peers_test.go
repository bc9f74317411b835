package bench

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"seckill/lock"
)

const (
	ours       = "seckill/lock"
	tokenless  = "without tokens" // ours, as the service's locks are
	redsyncs   = "redsync"
	redislocks = "redislock"
	rueidiss   = "rueidislock"
)

// peers are the contestants, in the order of the tables.
var peers = []string{ours, redsyncs, redislocks, rueidiss}

// lease is how long a lock lasts that is not renewed: long enough that none ends within a workload.
const lease = 30 * time.Second

// locker is a contestant: one client of one Redis, as a process has it.
type locker interface {
	// acquire waits for a lock until ctx ends. The context it returns ends with the lock, for those that have one.
	acquire(ctx context.Context, key string) (held context.Context, release func() error, err error)
	close() error
}

// open makes a contestant's client for so many goroutines.
func open(name, addr string, goroutines int) (locker, error) {
	switch name {
	case ours:
		return openOurs(addr), nil
	case tokenless:
		return openTokenless(addr), nil
	case redsyncs:
		client := pooled(addr, goroutines)
		return redsyncLocker{client, redsync.New(redsyncredis.NewPool(client))}, nil
	case redislocks:
		client := pooled(addr, goroutines)
		return redislockLocker{client, redislock.New(client)}, nil
	case rueidiss:
		return openRueidis(addr, lease)
	}
	return nil, errors.New("no such contestant: " + name)
}

func pooled(addr string, goroutines int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: goroutines, MinIdleConns: goroutines})
}

type ourLocker struct {
	client *redis.Client
	locks  *lock.Client
}

func openOurs(addr string, opts ...lock.ClientOption) *ourLocker {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	return &ourLocker{client, lock.New(lock.NewRedisStore(client), opts...)}
}

func openTokenless(addr string, opts ...lock.RedisOption) *ourLocker {
	client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	return &ourLocker{client, lock.New(lock.NewRedisStore(client, append(opts, lock.WithoutTokens())...))}
}

func (l *ourLocker) acquire(ctx context.Context, key string) (context.Context, func() error, error) {
	held, err := l.locks.Mutex(key).Lock(ctx)
	if err != nil {
		return nil, nil, err
	}
	return held.Context(), held.Unlock, nil
}

func (l *ourLocker) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(l.locks.Close(ctx), l.client.Close())
}

type redsyncLocker struct {
	client *redis.Client
	sync   *redsync.Redsync
}

func (l redsyncLocker) acquire(ctx context.Context, key string) (context.Context, func() error, error) {
	m := l.sync.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt))
	if err := m.LockContext(ctx); err != nil {
		return nil, nil, err
	}
	return ctx, func() error {
		ok, err := m.UnlockContext(ctx)
		if err == nil && !ok {
			err = errors.New("redsync: not held any more")
		}
		return err
	}, nil
}

func (l redsyncLocker) close() error { return l.client.Close() }

type redislockLocker struct {
	client *redis.Client
	locks  *redislock.Client
}

// redislockPause is between its tries: short against the waits of 64 goroutines, and not yet a flood of requests.
const redislockPause = 10 * time.Millisecond

func (l redislockLocker) acquire(ctx context.Context, key string) (context.Context, func() error, error) {
	m, err := l.locks.Obtain(ctx, key, lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockPause)})
	if err != nil {
		return nil, nil, err
	}
	return ctx, func() error { return m.Release(ctx) }, nil
}

func (l redislockLocker) close() error { return l.client.Close() }

// tryNextAfter bounds an attempt of rueidislock. With the default of 20 ms an attempt on a busy machine ends before its
// answer comes, and its caller then waits for a message about the key that it took itself, for ever.
const tryNextAfter = 2 * time.Second

type rueidisLocker struct{ locks rueidislock.Locker }

func openRueidis(addr string, validity time.Duration) (locker, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyValidity:    validity,
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   tryNextAfter,
	})
	if err != nil {
		return nil, err
	}
	return rueidisLocker{locks}, nil
}

func (l rueidisLocker) acquire(ctx context.Context, key string) (context.Context, func() error, error) {
	held, cancel, err := l.locks.WithContext(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	return held, func() error { cancel(); return nil }, nil
}

func (l rueidisLocker) close() error { l.locks.Close(); return nil }
