package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/poll"
	"seckill/lock"
	"seckill/repository/sqldb"
)

// locker takes a lock under test, as one process sees it. It ends with lock.ErrTimeout when it is not free within wait.
type locker = func(ctx context.Context, wait time.Duration) hold

// hold is a lock that is held.
type hold struct {
	ctx    context.Context //nolint:containedctx // for the work; it ends when the holder knows the lock is lost
	unlock func(ctx context.Context)
}

// sale is one unit of work, under a lock or alone.
type sale = func(u unit) answer

// alone does the work without a lock.
func alone(work sale) opener {
	return func(s setup) perform {
		return func(ctx context.Context) answer { return work(unit{setup: s, ctx: ctx}) }
	}
}

// under does the work under the lock that open makes. That the lock is not to be had, or was lost, is an answer.
func under(open func(setup) locker, work sale) opener {
	return func(s setup) perform {
		take := open(s)
		return func(ctx context.Context) (told answer) {
			asked := time.Now()
			err := try(func() {
				held := s.told(ctx, take(ctx, s.Wait))
				waited := time.Since(asked)
				err := try(func() {
					if s.Reenter {
						inner := take(held.ctx, s.Wait) //nolint:contextcheck // the owner travels in the context of what is held
						defer inner.unlock(context.WithoutCancel(ctx))
					}
					told = work(unit{setup: s, ctx: ctx, held: held})
				})
				told.Waited = waited
				if ctx.Err() != nil {
					stop(err) // who is killed unlocks nothing
				}
				// The error of an unlock counts only beside that of the work: the figures tell whether it went well.
				if unlocked := try(func() { held.unlock(context.WithoutCancel(ctx)) }); err != nil {
					stop(errors.Join(err, unlocked))
				}
			})
			switch {
			case errors.Is(err, lock.ErrTimeout):
				told.End = pointStuck
			case errors.Is(err, errRefused):
				told.End = pointRefused
			default:
				stop(err)
			}
			return told
		}
	}
}

// told tells that a lock is held, that its holder hears of its loss, and that it unlocks.
func (s setup) told(ctx context.Context, held hold) hold {
	tell := func(p point) { _ = try(func() { s.at(ctx, p) }) }
	tell(pointHeld)
	deaf := context.AfterFunc(held.ctx, func() { //nolint:contextcheck // that of what is held
		if ctx.Err() == nil {
			tell(pointLost)
		}
	})
	once := sync.OnceFunc(func() { tell(pointGiven) })
	return hold{held.ctx, func(ctx context.Context) {
		deaf() // an end that comes with the unlock is no loss
		once() // before it: the next one may have the lock before this one has heard so
		held.unlock(ctx)
	}}
}

// inCells is an account and a stock kept as two plain Redis keys. Nothing but the lock under test protects them.
func inCells() ledger {
	return ledger{open: func(u unit, stock int64) { u.write(figures{Remaining: stock}) }, read: unit.read}
}

func (u unit) read() (f figures) {
	values := got(u.redis.MGet(u.ctx, u.key("balance"), u.key("remaining")).Result())("read the account")
	_, err := fmt.Sscan(fmt.Sprintln(values...), &f.Balance, &f.Remaining)
	must("read the account", err)
	return f
}

func (u unit) write(f figures) {
	must("write the account", u.redis.MSet(u.ctx, u.key("balance"), f.Balance, u.key("remaining"), f.Remaining).Err())
}

// sellInCells reads, thinks and writes, unless the holder was told that its lock is lost.
func sellInCells(u unit) answer {
	found := u.read()
	u.stand(pointRead)
	if u.held.ctx.Err() != nil && u.ctx.Err() == nil {
		stop(errRefused)
	}
	sold := found.sell()
	u.write(found)
	u.stand(pointWritten)
	return answer{End: pointDone, Sold: sold}
}

// openNone is always free.
func openNone(setup) locker {
	return func(ctx context.Context, _ time.Duration) hold { return hold{ctx, func(context.Context) {}} }
}

// openLocal is a sync.Mutex, or Java's synchronized, that can be waited for with a bound.
func openLocal(setup) locker {
	var mutex sync.Mutex
	return func(ctx context.Context, wait time.Duration) hold {
		within(ctx, wait, mutex.TryLock)
		return hold{ctx, func(context.Context) { mutex.Unlock() }}
	}
}

// spinEvery is the pause between two tries, as the tutorials have it: a few milliseconds.
const spinEvery = 2 * time.Millisecond

// within tries until it works, or ends with lock.ErrTimeout.
func within(ctx context.Context, wait time.Duration, works func() bool) {
	budget, cancel := context.WithTimeoutCause(ctx, wait, lock.ErrTimeout)
	defer cancel()
	if poll.Until(budget, spinEvery, func() (bool, error) { return works(), nil }) != nil {
		stop(context.Cause(budget))
	}
}

// key is the lock of the tutorials, for one owner: try, pause, again. Who comes next is luck.
type key struct {
	unit

	client      redis.UniversalClient
	name, owner string
	end         context.CancelFunc // of its watchdog
}

// step takes or frees a key, and says whether that worked.
type step = func(k *key) bool

// right is a SETNX lock without the mistakes of the others, but for the missing watchdog.
func right(s setup) locker { return spinning(takeOwn, freeOwn)(s) }

// spinning makes a lock whose holds have the caller's context: these locks do not know when they are lost.
func spinning(take, free step) func(setup) locker {
	return func(s setup) locker {
		client := s.connect(s.Redis)
		return func(ctx context.Context, wait time.Duration) hold {
			k := &key{unit{setup: s, ctx: ctx}, client, s.key("lock"), newID(), nil}
			within(ctx, wait, func() bool { return take(k) })
			return hold{ctx, func(ctx context.Context) {
				k.ctx = ctx
				free(k)
			}}
		}
	}
}

// do makes a command about the key, and says whether it did anything.
func (k *key) do(command string, args ...any) bool {
	answer, err := k.client.Do(k.ctx, append([]any{command, k.name}, args...)...).Result()
	if !errors.Is(err, redis.Nil) {
		must(command, err)
	}
	return answer != nil && answer != int64(0)
}

func (k *key) set() bool    { return k.do("set", k.owner, "px", k.Lease.Milliseconds()) }
func (k *key) expire() bool { return k.do("pexpire", k.Lease.Milliseconds()) }

// get is "" where there is no key.
func (k *key) get() string {
	found, err := k.client.Get(k.ctx, k.name).Result()
	if !errors.Is(err, redis.Nil) {
		must("get the key", err)
	}
	return found
}

// script runs one with KEYS[1], the lock, ARGV[1], the owner, and ARGV[2], the lease in ms.
func (k *key) script(text string) bool {
	script := redis.NewScript(text).Run(k.ctx, k.client, []string{k.name}, k.owner, k.Lease.Milliseconds())
	return got(script.Bool())("run a script")
}

// takeOwn is the one correct way to begin: value and expiry in one command.
func takeOwn(k *key) bool { return k.do("set", k.owner, "nx", "px", k.Lease.Milliseconds()) }

func takeForEver(k *key) bool { return k.do("set", k.owner, "nx") }

// freeOwn is the correct end of a SETNX lock: it deletes the key if it is still the owner's, in one step.
func freeOwn(k *key) bool {
	return k.script(`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)
}

// freeAnybodys deletes the key, whichever actor holds it by now.
func freeAnybodys(k *key) bool { return k.do("del") }

const (
	renewAnybodys = `return redis.call('pexpire', KEYS[1], ARGV[2])`
	renewOwn      = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`

	renewals = 3 // in a lease: one may fail
)

// watched is a SETNX lock with a watchdog. A worker stands between taking the lock and starting that.
func watched(renew string) func(setup) locker {
	return spinning(func(k *key) bool {
		if !takeOwn(k) || !k.stand(pointHalf) {
			return false
		}
		own := *k
		own.ctx, k.end = context.WithCancel(k.ctx)
		go poll.Every(own.ctx, k.Lease/renewals, func() { _ = try(func() { own.script(renew) }) })
		return true
	}, func(k *key) bool {
		k.end()
		return freeOwn(k)
	})
}

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
			return hold{lease.Context(), func(ctx context.Context) { stop(lease.UnlockContext(ctx)) }}
		}
	}
}

// mutex is a lock in a store, of a client of the setup's own.
func (s setup) mutex(store lock.Store) lock.Locker {
	client := lock.New(store, lock.WatchdogLease(s.Lease))
	s.undo.add(func(ctx context.Context) {
		if err := client.Close(ctx); !errors.Is(err, lock.ErrUnknown) { // its server may have been killed
			must("close the locks", err)
		}
	})
	return client.Mutex(s.key("lock"))
}

// onOne is a lock on one Redis. Under attack so many replicas confirm it; the servers of the free run have none.
func onOne(store func(redis.UniversalClient, ...lock.RedisOption) lock.Store, synced int) func(setup) lock.Locker {
	return func(s setup) lock.Locker {
		if s.Load != nil {
			return s.mutex(store(s.connect(s.Redis)))
		}
		return s.mutex(store(s.connect(s.Redis), lock.Synced(synced)))
	}
}

func onThree(compose func(...lock.Locker) *lock.Quorum) func(setup) lock.Locker {
	return func(s setup) lock.Locker {
		var parts []lock.Locker
		for _, url := range s.Quorum {
			parts = append(parts, s.mutex(lock.NewRedisStore(s.connect(url))))
		}
		return compose(parts...)
	}
}

// onTable is the lock table of the product's migrations, over connections of its own. The account is in Redis.
func onTable(s setup) lock.Locker {
	db := got(sqldb.Open(context.Background(), sqldb.Options{DSN: s.DSN}))("open the database")
	s.undo.closes(db)
	return s.mutex(lock.NewMySQLStore(db.SQL()))
}
