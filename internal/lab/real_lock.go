package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/lock"
)

// realLock is a lock of the product's own lock package, as one process uses it.
type realLock struct {
	locker  lock.Locker
	options []lock.Option
	clients []*lock.Client
	closers []func() error // of what the stores stand on
}

// redisHash is the product's default: re-entrant, in Redisson's layout.
func redisHash() strategy {
	return lockStrategy("redis hash", onRedis, "re-entrant, watchdog, unlock messages; Redisson's layout",
		func(s setup) (locker, error) { return openOnRedis(s, hashStore) })
}

// setNXStore is SET NX PX and compare-and-delete, with a watchdog and re-entry
// above it.
func setNXStore() strategy {
	return lockStrategy("setnx store", onRedis, "SET NX PX and compare-and-delete, with a watchdog",
		func(s setup) (locker, error) {
			return openOnRedis(s, func(c *redis.Client) lock.Store { return lock.NewSetNXStore(c, patient()) })
		})
}

func lockStrategy(name string, on backing, why string, open func(setup) (locker, error)) strategy {
	return strategy{
		name: name, group: groupLock, on: on, why: why, attacks: lockAttacks(),
		open: openLocked(open), ledger: openCells,
	}
}

func hashStore(c *redis.Client) lock.Store { return lock.NewRedisStore(c, patient()) }

// patient lets a call take as long as one to the account: the embedded servers
// of a busy machine are slow, which is not what is looked for here.
func patient() lock.RedisOption { return lock.CallTimeout(ioTimeout) }

// lockName is the same on every instance.
func lockName(s setup) string { return s.Site.key(s.Name + ":lock") }

func newRealLock(s setup) *realLock {
	l := &realLock{}
	if s.Fixed {
		l.options = append(l.options, lock.LeaseTime(s.Lease))
	}
	return l
}

// add makes a client of a store that stands on something to be closed after it.
func (l *realLock) add(s setup, store lock.Store, under func() error) *lock.Mutex {
	client := lock.New(store, lock.WatchdogLease(s.Lease))
	l.clients = append(l.clients, client)
	l.closers = append(l.closers, under)
	return client.Mutex(lockName(s))
}

func openOnRedis(s setup, store func(*redis.Client) lock.Store) (locker, error) {
	client, err := newClient(s.Site.Redis, s.commands)
	if err != nil {
		return nil, err
	}
	l := newRealLock(s)
	l.locker = l.add(s, store(client), client.Close)
	return l, nil
}

func (l *realLock) lock(ctx context.Context, wait time.Duration) (hold, error) {
	lease, err := l.locker.Lock(ctx, append([]lock.Option{lock.Wait(wait)}, l.options...)...)
	switch {
	case errors.Is(err, lock.ErrTimeout):
		return nil, errors.Join(errStuck, err)
	case errors.Is(err, lock.ErrLost):
		return nil, errors.Join(errRefused, err)
	case err != nil:
		return nil, err
	}
	return realHold{lease}, nil
}

// closeBudget bounds the end of a lock client: it waits for what is being given back.
const closeBudget = 5 * time.Second

func (l *realLock) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeBudget)
	defer cancel()
	var errs []error
	for i, client := range l.clients {
		errs = append(errs, client.Close(ctx), l.closers[i]())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the locks: %w", err)
	}
	return nil
}

type realHold struct{ lease *lock.Lease }

func (h realHold) context() context.Context { return h.lease.Context() }

func (h realHold) unlock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeBudget)
	defer cancel()
	return h.lease.UnlockContext(ctx)
}
