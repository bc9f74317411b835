// Package userlock makes the locks of users and elections from package lock.
package userlock

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/ids"
	"seckill/internal/parts"
	"seckill/internal/poll"
	"seckill/internal/redisdb"
	"seckill/lock"
	"seckill/model"
)

// setNXPrefix begins the names of locks that would meet those of Redisson's layout, and look different.
const setNXPrefix = "setnx:"

// Options say how the locks of an instance are made.
type Options struct {
	Mode     model.LockMode
	Lease    time.Duration         // which a watchdog renews
	Synced   int                   // replicas must have an acquisition in Redis; negative: those that are connected
	Redis    redis.UniversalClient // the one of the hot copies
	Embedded bool                  // Redis is inside this process: it has no replicas
	// Instances are the URLs of multilock and redlock, TLS how they are spoken to.
	Instances []string
	TLS       *tls.Config
	Database  *sql.DB
	Parts     *parts.Parts // where the locks and their clients are closed
	Log       *slog.Logger
}

// Open makes the users' locks. Ready (may be nil) is UNAVAILABLE while too few of their Redis are reached.
func Open(o Options) (locks model.Locker, ready func(context.Context) error, err error) {
	switch o.Mode {
	case model.LockNone:
		return noLocks{}, nil, nil
	case model.LockSetNX:
		return o.of(lock.NewSetNXStore(o.Redis, o.redisOptions()...), o.Lease, setNXPrefix), nil, nil
	case model.LockMySQL:
		return o.of(lock.NewMySQLStore(o.Database, lock.StatementTimeout(budget.Work)), o.Lease, ""), nil, nil
	case model.LockMultilock:
		return o.quorum(lock.All, len(o.Instances))
	case model.LockRedlock:
		return o.quorum(lock.Majority, len(o.Instances)/2+1)
	case model.LockRedis:
	}
	one := o.InRedis(o.Lease)
	if redisdb.IsCluster(o.Redis) { // a node that hangs must not hold up the others' locks
		return one.userLocks, nil, nil
	}
	return one, nil, nil
}

// Seats are locks whose holders can be seen and replaced: those of elections.
type Seats struct {
	userLocks
	*lock.Client
}

// TryAll implements model.GroupLocker.
func (s Seats) TryAll(ctx context.Context, names []string) (errs []error, unlock func() error) {
	errs, unlock = s.Client.TryAll(ctx, names...)
	for i := range errs {
		errs[i] = busy(errs[i])
	}
	return errs, unlock
}

// InRedis makes the locks of elections, beside the hot copies. No other process reaches an embedded Redis, whose
// scripts are a hundred times slower: the locks are in memory instead.
func (o Options) InRedis(lease time.Duration) Seats {
	store := lock.NewMemoryStore()
	if !o.Embedded {
		store = lock.NewRedisStore(o.Redis, o.redisOptions()...)
	}
	client := o.client(store, lease)
	return Seats{func(name string) lock.Locker { return client.Mutex(name) }, client}
}

// InScripts reports whether hot copies see the users' locks: in mode redis on one Redis, no Cluster, not embedded.
func (o Options) InScripts() bool {
	return o.Mode == model.LockRedis && !o.Embedded && !redisdb.IsCluster(o.Redis)
}

// redisOptions keep no fencing tokens, as the database's constraints guard, nor ask an embedded Redis for replicas.
func (o Options) redisOptions() []lock.RedisOption {
	options := []lock.RedisOption{lock.WithoutTokens(), lock.CallTimeout(budget.Work)}
	if !o.Embedded || o.Mode == model.LockMultilock || o.Mode == model.LockRedlock {
		options = append(options, lock.Synced(o.Synced))
	}
	return options
}

// of makes the locks of one store, whose names begin with a prefix.
func (o Options) of(store lock.Store, lease time.Duration, prefix string) userLocks {
	locks := o.client(store, lease)
	return func(name string) lock.Locker { return locks.Mutex(prefix + name) }
}

// quorum makes locks that stand on several independent Redis instances, of which need must be reachable.
func (o Options) quorum(
	compose func(parts ...lock.Locker) *lock.Quorum, need int,
) (model.Locker, func(context.Context) error, error) {
	clients := make([]redis.UniversalClient, len(o.Instances))
	stores := make([]*lock.Client, len(clients))
	for n, url := range o.Instances {
		client, err := redisdb.NewClient(url, o.TLS)
		if err != nil {
			return nil, nil, fmt.Errorf("instance %d of SECKILL_LOCK_REDIS_URLS: %w", n+1, err)
		}
		o.Parts.OnClose("Redis client of a lock", func(context.Context) error { return client.Close() })
		clients[n], stores[n] = client, o.client(lock.NewRedisStore(client, o.redisOptions()...), o.Lease)
	}
	locks := userLocks(func(name string) lock.Locker {
		parts := make([]lock.Locker, len(stores))
		for n, store := range stores {
			parts[n] = store.Mutex(name)
		}
		return compose(parts...)
	})
	return locks, func(ctx context.Context) error { return reachable(ctx, clients, need) }, nil
}

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

func (o Options) client(store lock.Store, lease time.Duration) *lock.Client {
	locks := lock.New(store,
		lock.WatchdogLease(lease),
		lock.LongestLease(lease), // so that a clock which was ahead keeps nobody out for longer
		lock.UnlockTimeout(budget.Brief),
		lock.Logger(o.Log.With(slog.String("part", "lock"))),
	)
	o.Parts.OnClose("locks", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, budget.Look)
		defer cancel()
		err := locks.Close(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			o.Log.WarnContext(ctx, "locks that could not be given back end with their leases", slog.Any("error", err))
			err = nil
		}
		return err
	})
	return locks
}

type userLocks func(name string) lock.Locker

// Lock implements model.Locker. The end of the request's context ends only the wait for the lock, not the lock.
func (l userLocks) Lock(ctx context.Context, name string, wait time.Duration) (model.Lease, error) {
	lease, err := l(name).Lock(ctx, lock.Wait(wait))
	if err != nil {
		return nil, busy(err)
	}
	return lease, nil
}

func busy(err error) error {
	if errors.Is(err, lock.ErrTimeout) || errors.Is(err, lock.ErrHeld) {
		return fmt.Errorf("%w: %w", model.ErrLockBusy, err)
	}
	return err
}

// noLocks leaves everything to the database's constraints. It is its own lease, which is never lost.
type noLocks struct{}

func (noLocks) Lock(ctx context.Context, _ string, _ time.Duration) (model.Lease, error) {
	return noLocks{}, ctx.Err()
}

func (noLocks) Context() context.Context { return context.Background() }

func (noLocks) Unlock() error { return nil }

const (
	// listenTimeout bounds how long the start waits for the messages of locks, and listenPoll is between two looks.
	listenTimeout = budget.Look
	listenPoll    = listenTimeout / 200
)

// Rehearse tries what locks in Redis need, on a name for each primary. A missing right is redisdb.ErrRights.
func (o Options) Rehearse(ctx context.Context, elections bool) error {
	unique, err := ids.New()
	if err != nil {
		return fmt.Errorf("name a rehearsal: %w", err)
	}
	name := func(n int) string { return fmt.Sprintf("lock:order:seckill-start-check.%s.%d", unique, n) }
	spots, err := redisdb.Spots(ctx, o.Redis, name)
	failed := []error{err}
	for _, n := range spots {
		if o.Mode == model.LockSetNX {
			failed = append(failed, rehearse(ctx, lock.NewSetNXStore(o.Redis, o.redisOptions()...),
				setNXPrefix+name(n)))
		}
		if o.Mode == model.LockRedis || elections {
			failed = append(failed, rehearse(ctx, lock.NewRedisStore(o.Redis, o.redisOptions()...), name(n)))
		}
	}
	return redisdb.Lacking(errors.Join(failed...))
}

// rehearse does with one lock what is ever done with one: it is taken, kept, passed on, given back, and forced open.
func rehearse(ctx context.Context, store lock.Store, name string) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Work)
	defer cancel()
	watch := store.Watch(ctx, name, func() {})
	patient, done := context.WithTimeout(ctx, listenTimeout)
	defer done()
	heard := poll.Until(patient, listenPoll, func() (bool, error) { return watch.Live(), nil })
	first := lock.Request{Name: name, Holder: name + ":1", Holds: 1, Lease: budget.Work}
	second := lock.Request{Name: name, Holder: name + ":2", Holds: 1, Lease: budget.Work}
	_, taken := store.Acquire(ctx, first)
	kept := store.Renew(ctx, []lock.Request{first})
	failed := append([]error{heard, taken}, kept...)
	if passer, ok := store.(lock.Passer); ok {
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
