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
	"seckill/service"
)

const (
	// lockCallTimeout bounds one call to a lock's store; the request it is made
	// for has five seconds.
	lockCallTimeout = 4 * time.Second
	// unlockTimeout bounds what giving a lock back may add to an answer; a lock
	// that could not be given back ends with its lease.
	unlockTimeout = 500 * time.Millisecond
)

// openLocks makes the users' locks of the mode that is set. Beside an embedded
// Redis, which nobody else reaches, they are kept in this process's memory: it
// runs scripts a hundred times slower than a real one.
func (i *Instance) openLocks(cfg config.Config, client redis.UniversalClient) service.Locker {
	var store lock.Store = lock.NewMemoryStore()
	if cfg.RedisURL != "" {
		store = lock.NewRedisStore(client, lock.WithoutTokens())
	}
	locks := i.lockClient(cfg, store)
	return userLocks{mutex: func(name string) lock.Locker { return locks.Mutex(name) }}
}

// lockClient makes the locks of one store.
func (i *Instance) lockClient(cfg config.Config, store lock.Store) *lock.Client {
	locks := lock.New(store,
		lock.WatchdogLease(cfg.LockLease),
		lock.CallTimeout(lockCallTimeout),
		lock.UnlockTimeout(unlockTimeout),
		lock.Logger(i.log.With(slog.String("part", "lock"))),
	)
	i.onClose("locks", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		return locks.Close(ctx)
	})
	return locks
}

// userLocks offers the lock package to the service.
type userLocks struct {
	mutex func(name string) lock.Locker
}

// Lock implements service.Locker.
func (l userLocks) Lock(ctx context.Context, name string, wait time.Duration) (service.Lease, error) {
	lease, err := l.mutex(name).Lock(ctx, lock.Wait(wait))
	if errors.Is(err, lock.ErrTimeout) || errors.Is(err, lock.ErrHeld) {
		return nil, fmt.Errorf("%w: %w", service.ErrLockBusy, err)
	}
	if err != nil {
		return nil, err
	}
	return lease, nil
}
