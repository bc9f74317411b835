package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/lock"
	"seckill/lock/driver"
	"seckill/repository/sqldb"
)

// unlockBudget bounds one unlock.
const unlockBudget = 5 * time.Second

// product is a lock of the product's own package.
func product(open func(setup) lock.Locker) func(setup) locker {
	return func(s setup) locker {
		l := open(s)
		return func(ctx context.Context, wait time.Duration) hold {
			options := []lock.Option{lock.Wait(wait)}
			if s.Fixed {
				options = append(options, lock.LeaseTime(s.Lease))
			}
			lease, err := l.Lock(ctx, options...)
			if errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrUnsynced) {
				err = errors.Join(errRefused, err)
			}
			stop(err)
			return hold{lease.Context(), func(ctx context.Context) {
				ctx, cancel := context.WithTimeout(ctx, unlockBudget)
				defer cancel()
				stop(lease.UnlockContext(ctx))
			}}
		}
	}
}

// mutex is a lock in a store, of a client of the setup's own.
func (s setup) mutex(store driver.Store) lock.Locker {
	client := lock.New(store, lock.WatchdogLease(s.Lease))
	s.undo.add(func(ctx context.Context) {
		if err := client.Close(ctx); !errors.Is(err, lock.ErrUnknown) { // its server may have been killed
			must("close the locks", err)
		}
	})
	return client.Mutex(s.key("lock"))
}

// hashStore lets a call take as long as one to the account, because the embedded servers of a busy machine are slow.
func hashStore(_ setup, c *redis.Client) driver.Store {
	return lock.NewRedisStore(c, lock.CallTimeout(ioTimeout))
}

func setNXStore(_ setup, c *redis.Client) driver.Store {
	return lock.NewSetNXStore(c, lock.CallTimeout(ioTimeout))
}

// syncedStore waits for a replica under attack; the servers of the free run have none.
func syncedStore(s setup, c *redis.Client) driver.Store {
	n := 1
	if s.Load != nil {
		n = 0
	}
	return lock.NewRedisStore(c, lock.CallTimeout(ioTimeout), lock.Synced(n))
}

func onOne(store func(setup, *redis.Client) driver.Store) func(setup) lock.Locker {
	return func(s setup) lock.Locker { return s.mutex(store(s, s.connect(s.Site.Redis))) }
}

func onThree(compose func(...lock.Locker) *lock.Quorum) func(setup) lock.Locker {
	return func(s setup) lock.Locker {
		var parts []lock.Locker
		for _, url := range s.Site.Quorum {
			parts = append(parts, s.mutex(hashStore(s, s.connect(url))))
		}
		return compose(parts...)
	}
}

// onTable is the lock table that the product's migrations make, over connections of its own, as another process would
// have. The account is in Redis all the same.
func onTable(s setup) lock.Locker { return s.mutex(lock.NewMySQLStore(s.database().SQL())) }

// database opens connections of the work's own to the run's database.
func (s setup) database() *sqldb.Database {
	db := got(sqldb.Open(context.Background(), sqldb.Options{DSN: s.Site.DSN}))("open the database")
	s.undo.closes(db)
	return db
}
