package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/config"
	"seckill/lock"
	"seckill/model"
	"seckill/repository"
	"seckill/service"
)

const (
	// lockCallTimeout bounds one call to a lock's store; the request it is made
	// for has five seconds.
	lockCallTimeout = 4 * time.Second
	// locksPatience bounds what giving back the last locks may add to a stop.
	locksPatience = time.Second
	// unlockTimeout bounds what giving a lock back may add to an answer; a lock
	// that could not be given back ends with its lease.
	unlockTimeout = 500 * time.Millisecond
)

// openLocks makes the users' locks of the mode that is set, and adds probes of
// what they need beside the database and Redis.
func (i *Instance) openLocks(
	cfg config.Config, client redis.UniversalClient, db *repository.Database,
) (service.Locker, error) {
	switch cfg.LockMode {
	case "none":
		return noLocks{}, nil
	case "setnx":
		return i.locksOf(cfg, lock.NewSetNXStore(client, redisLocks()...), "setnx:"), nil
	case "mysql":
		return i.locksOf(cfg, lock.NewMySQLStore(db.SQL(), lock.StatementTimeout(lockCallTimeout)), ""), nil
	case "multilock":
		return i.quorum(cfg, func(parts ...lock.Locker) lock.Locker { return lock.All(parts...) }, len(cfg.LockRedisURLs))
	case "redlock":
		return i.quorum(cfg, func(parts ...lock.Locker) lock.Locker { return lock.Majority(parts...) }, len(cfg.LockRedisURLs)/2+1)
	}
	if cfg.RedisURL == "" {
		// No other process reaches the Redis inside this one, which runs scripts
		// a hundred times slower than a real one.
		return i.locksOf(cfg, lock.NewMemoryStore(), ""), nil
	}
	return i.locksOf(cfg, lock.NewRedisStore(client, redisLocks()...), ""), nil
}

// redisLocks keeps no fencing tokens: the database's constraints are the guard
// behind these locks, and a counter for each user would stay behind.
func redisLocks() []lock.RedisOption {
	return []lock.RedisOption{lock.WithoutTokens(), lock.CallTimeout(lockCallTimeout)}
}

// locksOf makes the locks of one store. A prefix keeps apart locks that look
// different and would meet under one name.
func (i *Instance) locksOf(cfg config.Config, store lock.Store, prefix string) userLocks {
	locks := i.lockClient(cfg, store)
	return func(name string) lock.Locker { return locks.Mutex(prefix + name) }
}

// quorum makes locks that stand on several independent Redis instances, of
// which so many are needed.
func (i *Instance) quorum(
	cfg config.Config, compose func(parts ...lock.Locker) lock.Locker, need int,
) (service.Locker, error) {
	clients := make([]redis.UniversalClient, len(cfg.LockRedisURLs))
	stores := make([]*lock.Client, len(cfg.LockRedisURLs))
	for n, url := range cfg.LockRedisURLs {
		client, err := repository.OpenRedis(url)
		if err != nil {
			return nil, fmt.Errorf("instance %d of SECKILL_LOCK_REDIS_URLS: %w", n+1, err)
		}
		i.onClose("Redis client of a lock", func(context.Context) error { return client.Close() })
		clients[n], stores[n] = client, i.lockClient(cfg, lock.NewRedisStore(client, redisLocks()...))
	}
	i.probes = append(i.probes, service.Probe{
		Name: "locks", Ask: func(ctx context.Context) error { return reachable(ctx, clients, need) },
	})
	return userLocks(func(name string) lock.Locker {
		parts := make([]lock.Locker, len(stores))
		for n, store := range stores {
			parts[n] = store.Mutex(name)
		}
		return compose(parts...)
	}), nil
}

// reachable fails when fewer instances answer than are needed.
func reachable(ctx context.Context, clients []redis.UniversalClient, need int) error {
	answers := make(chan error, len(clients))
	for _, client := range clients {
		go func() { answers <- client.Ping(ctx).Err() }()
	}
	var failed []error
	for range clients {
		if err := <-answers; err != nil {
			failed = append(failed, err)
		}
	}
	if there := len(clients) - len(failed); there < need {
		detail := fmt.Sprintf("%d of %d lock instances can be reached, %d are needed", there, len(clients), need)
		return model.Unavailable(detail, errors.Join(failed...))
	}
	return nil
}

// lockClient makes the locks of one store.
func (i *Instance) lockClient(cfg config.Config, store lock.Store) *lock.Client {
	locks := lock.New(store,
		lock.WatchdogLease(cfg.LockLease),
		lock.UnlockTimeout(unlockTimeout),
		lock.Logger(i.log.With(slog.String("part", "lock"))),
	)
	i.onClose("locks", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, locksPatience)
		defer cancel()
		err := locks.Close(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			i.log.WarnContext(ctx, "locks that could not be given back end with their leases", slog.Any("error", err))
			err = nil
		}
		return err
	})
	return locks
}

// userLocks offers the lock package to the service, by name.
type userLocks func(name string) lock.Locker

// Lock implements service.Locker. The package renews a lock as long as the
// context it was taken with lives; the request's may end before the order is
// decided, so it only ends the wait.
func (l userLocks) Lock(ctx context.Context, name string, wait time.Duration) (service.Lease, error) {
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	waiting := context.AfterFunc(ctx, release)
	lease, err := l(name).Lock(holding, lock.Wait(wait))
	if err != nil {
		release()
		if errors.Is(err, lock.ErrTimeout) || errors.Is(err, lock.ErrHeld) {
			err = fmt.Errorf("%w: %w", service.ErrLockBusy, err)
		}
		return nil, err
	}
	held := heldLock{Lease: lease, release: release}
	if !waiting() { // ctx ended at the last moment, and the renewals with it
		return nil, errors.Join(context.Cause(ctx), held.Unlock()) //nolint:contextcheck // an unlock bounds itself
	}
	return held, nil
}

// heldLock is a lock that lasts until Unlock.
type heldLock struct {
	*lock.Lease
	release context.CancelFunc
}

// Unlock implements service.Lease.
func (l heldLock) Unlock() error {
	defer l.release()
	return l.Lease.Unlock()
}

// noLocks leaves everything to the database's constraints.
type noLocks struct{}

// Lock implements service.Locker.
func (noLocks) Lock(ctx context.Context, _ string, _ time.Duration) (service.Lease, error) {
	return noLease{}, ctx.Err()
}

// noLease is never lost.
type noLease struct{}

// Context implements service.Lease.
func (noLease) Context() context.Context { return context.Background() }

// Unlock implements service.Lease.
func (noLease) Unlock() error { return nil }
