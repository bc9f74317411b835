package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/config"
	"seckill/internal/ids"
	"seckill/internal/poll"
	"seckill/lock"
	"seckill/lock/driver"
	"seckill/model"
	"seckill/repository/hotcopy"
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
	// listenTimeout bounds how long the start waits for the messages of locks, and
	// listenPoll is between two looks.
	listenTimeout = time.Second
	listenPoll    = 5 * time.Millisecond
)

// openLocks makes the users' locks in the lock mode of the settings, and adds a
// probe of the Redis instances that they need beside SECKILL_REDIS_URL.
func (i *Instance) openLocks(s servers) (model.Locker, error) {
	lease := i.cfg.LockLease
	switch i.cfg.LockMode {
	case config.LockNone:
		return noLocks{}, nil
	case config.LockSetNX:
		return i.locksOf(lock.NewSetNXStore(s.redis, i.redisOptions()...), lease, "setnx:"), nil
	case config.LockMySQL:
		return i.locksOf(lock.NewMySQLStore(s.db.SQL(), lock.StatementTimeout(lockCallTimeout)), lease, ""), nil
	case config.LockMultilock:
		return i.quorum(lock.All, len(i.cfg.LockRedisURLs))
	case config.LockRedlock:
		return i.quorum(lock.Majority, len(i.cfg.LockRedisURLs)/2+1)
	case config.LockRedis:
	}
	return i.redisLocks(s, lease), nil
}

// redisLocks makes locks in the Redis of the settings. No other process reaches
// the Redis inside this one, which runs scripts a hundred times slower than a real
// one: in its place the locks are in memory.
func (i *Instance) redisLocks(s servers, lease time.Duration) userLocks {
	if i.cfg.RedisURL == "" {
		return i.locksOf(lock.NewMemoryStore(), lease, "")
	}
	return i.locksOf(lock.NewRedisStore(s.redis, i.redisOptions()...), lease, "")
}

// redisOptions keep no fencing tokens: the database's constraints are the guard
// behind these locks, and a counter for each user would stay behind. The Redis inside
// this process has no replicas, and does not know the question.
func (i *Instance) redisOptions() []lock.RedisOption {
	options := []lock.RedisOption{lock.WithoutTokens(), lock.CallTimeout(lockCallTimeout)}
	if i.cfg.RedisURL != "" || slices.Contains([]config.LockMode{config.LockMultilock, config.LockRedlock}, i.cfg.LockMode) {
		options = append(options, lock.Synced(i.cfg.LockSynced))
	}
	return options
}

// rehearseLocks tries what locks in Redis need, on a name of its own for each primary.
func (i *Instance) rehearseLocks(ctx context.Context, client redis.UniversalClient) error {
	unique, err := ids.New()
	if err != nil {
		return fmt.Errorf("name a rehearsal: %w", err)
	}
	name := func(n int) string { return fmt.Sprintf("lock:order:seckill-start-check.%s.%d", unique, n) }
	spots, err := hotcopy.Spots(ctx, client, name)
	failed := []error{err}
	for _, n := range spots {
		if i.cfg.LockMode == config.LockSetNX {
			failed = append(failed, rehearseLock(ctx, lock.NewSetNXStore(client, i.redisOptions()...), "setnx:"+name(n)))
		}
		if i.cfg.LockMode == config.LockRedis || i.cfg.Async() { // the reconciler is elected with these
			failed = append(failed, rehearseLock(ctx, lock.NewRedisStore(client, i.redisOptions()...), name(n)))
		}
	}
	return hotcopy.Lacking(errors.Join(failed...))
}

// rehearseLock does with one lock what is ever done with one: it is taken, kept, passed
// on, given back, and forced open.
func rehearseLock(ctx context.Context, store driver.Store, name string) error {
	ctx, cancel := context.WithTimeout(ctx, lockCallTimeout)
	defer cancel()
	watch := store.Watch(name, func() {})
	patient, done := context.WithTimeout(ctx, listenTimeout)
	defer done()
	heard := poll.Until(patient, listenPoll, func() (bool, error) { return watch.Live(), nil })
	first := driver.Request{Name: name, Holder: name + ":1", Holds: 1, Lease: lockCallTimeout}
	second := driver.Request{Name: name, Holder: name + ":2", Holds: 1, Lease: lockCallTimeout}
	_, taken := store.Acquire(ctx, first)
	kept := store.Renew(ctx, []driver.Request{first})
	failed := append([]error{heard, taken}, kept...)
	if passer, ok := store.(driver.Passer); ok {
		_, err := passer.Pass(ctx, first, second)
		failed = append(failed, err)
		first = second
	}
	first.Holds = 0
	_, freed := store.Release(ctx, first)
	_, forced := store.ForceRelease(ctx, name)
	watch.Stop()
	return errors.Join(append(failed, freed, forced, store.Close())...)
}

// locksOf makes the locks of one store. A prefix keeps apart locks that look
// different and would meet under one name.
func (i *Instance) locksOf(store driver.Store, lease time.Duration, prefix string) userLocks {
	locks := i.lockClient(store, lease)
	return func(name string) lock.Locker { return locks.Mutex(prefix + name) }
}

// quorum makes locks that stand on several independent Redis instances. At least
// need of them must be reachable for the instance to be ready.
func (i *Instance) quorum(compose func(parts ...lock.Locker) *lock.Quorum, need int) (model.Locker, error) {
	clients := make([]redis.UniversalClient, len(i.cfg.LockRedisURLs))
	stores := make([]*lock.Client, len(clients))
	for n, url := range i.cfg.LockRedisURLs {
		client, err := hotcopy.NewClient(url, i.cfg.RedisTLS.Client())
		if err != nil {
			return nil, fmt.Errorf("instance %d of SECKILL_LOCK_REDIS_URLS: %w", n+1, err)
		}
		i.parts.OnClose("Redis client of a lock", func(context.Context) error { return client.Close() })
		clients[n], stores[n] = client, i.lockClient(lock.NewRedisStore(client, i.redisOptions()...), i.cfg.LockLease)
	}
	i.probe("locks", func(ctx context.Context) error { return reachable(ctx, clients, need) })
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
func (i *Instance) lockClient(store driver.Store, lease time.Duration) *lock.Client {
	locks := lock.New(store,
		lock.WatchdogLease(lease),
		lock.UnlockTimeout(unlockTimeout),
		lock.Logger(i.log.With(slog.String("part", "lock"))),
	)
	i.parts.OnClose("locks", func(ctx context.Context) error {
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

// Lock implements model.Locker. The request's context may end before the order is
// decided: it ends only the wait for the lock.
func (l userLocks) Lock(ctx context.Context, name string, wait time.Duration) (model.Lease, error) {
	lease, err := l(name).Lock(ctx, lock.Wait(wait))
	if err != nil {
		if errors.Is(err, lock.ErrTimeout) || errors.Is(err, lock.ErrHeld) {
			err = fmt.Errorf("%w: %w", model.ErrLockBusy, err)
		}
		return nil, err
	}
	return lease, nil
}

// noLocks leaves everything to the database's constraints. It is its own lease,
// which is never lost.
type noLocks struct{}

// Lock implements model.Locker.
func (noLocks) Lock(ctx context.Context, _ string, _ time.Duration) (model.Lease, error) {
	return noLocks{}, ctx.Err()
}

// Context implements model.Lease.
func (noLocks) Context() context.Context { return context.Background() }

// Unlock implements model.Lease.
func (noLocks) Unlock() error { return nil }
