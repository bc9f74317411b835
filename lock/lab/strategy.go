package main

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"seckill/internal/poll"
	"seckill/lock"
	"seckill/model"
	"seckill/repository/sqldb"
)

// point is a place in the work at which an attack can stop a worker, in the words that tell of it.
type point string

const (
	pointChecked point = "has found the lock free" // the lock was found free, and is not taken yet
	pointHalf    point = "has set the key"         // the lock is taken, its expiry is not set yet
	pointRead    point = "has read"                // inside the lock; read, and not written yet
	pointWritten point = "has written"             // inside the lock; written, and not unlocked yet
	// The lock is given back, and the transaction is not committed yet.
	pointFreed point = "stands before its COMMIT"
	pointOwner point = "has found the key to be its own" // the lock was found to be one's own, and is not deleted yet
)

// Points at which no worker can be stopped: the story only reports them.
const (
	pointBegun   point = "begins"
	pointHeld    point = "has the lock"
	pointLost    point = "hears that the lock is lost"
	pointGiven   point = "unlocks"   // in a moment
	pointKilled  point = "is killed" // the last of a worker, as the others below
	pointDone    point = "is done"
	pointSoldOut point = "is told that nothing is left"
	pointRefused point = "is refused, and has written nothing"
	pointStuck   point = "did not get the lock"
	pointFailed  point = "has failed"
)

type setup struct {
	site
	load // the share of the worker

	Name    string        // of the lock, the account and the stock: unique
	Lease   time.Duration // of locks that have one
	Fixed   bool          // the lease is not renewed, where it would be
	Reenter bool          // lock once more inside the lock
	Wait    time.Duration // the longest wait for the lock
	Free    bool          // it is a free run

	at   func(ctx context.Context, p point) // is called at every point; it returns when the worker may go on
	db   *sqldb.Database                    // of the run: the account is there
	undo *host                              // when the work is over
}

func (s setup) key() string { return "seckill:lab:" + s.Name }

type defect string

const (
	defectNone     defect = ""
	defectLost     defect = "lost updates"
	defectDeadlock defect = "deadlock"
	defectOversold defect = "oversold"
)

// way is how one unit of work is done.
type way struct {
	lock       func(setup) locker // as one process sees it; nil: without one
	sell       sale
	transacted bool                // in a transaction, which begins inside the lock
	voucher    model.StockStrategy // instead of all that: the product sells a voucher, its account
}

type strategy struct {
	way

	Name    string
	On      string // where the lock is
	defect  defect // what must show; defectNone for the real ones
	attacks []attack
	Why     string // the broken ones: why they break; the real ones: what they promise
	Cure    string // the broken ones: the real row that does it right
	left    string // the query of what is left in the account
}

func (s strategy) broken() bool { return s.defect != defectNone }

const (
	onRedis  = "redis"    // one Redis
	onQuorum = "redis ×3" // three of them
	onMySQL  = "mysql"
)

// errRefused: the lock was lost, and its holder was told before it wrote.
var errRefused = errors.New("the lock was lost before the write")

// freeRun is how long a free run takes: no worker begins another operation after it.
const freeRun = 2 * time.Second

type load struct {
	Workers    int // share the account, half of them in each of two processes
	Operations int
}

// work is that of one process, with connections of its own. Who is killed loses these before anything is given back.
func (s strategy) work(ctx context.Context, with setup) (did tally) {
	with.undo = &host{ctx: ctx}
	if with.Free {
		with.at = think
	}
	err := try(func() { did = s.share(ctx, with) })
	if ctx.Err() != nil {
		slices.Reverse(with.undo.undo)
		_ = with.undo.end()
		stop(err)
	}
	stop(errors.Join(err, with.undo.end()))
	return did
}

func (s strategy) share(ctx context.Context, with setup) (total tally) {
	var take locker
	if s.lock != nil {
		take = s.lock(with)
	}
	var mu sync.Mutex
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range with.Workers {
		group.Go(func() error {
			return try(func() {
				for n := 0; n < with.Operations && (n == 0 || time.Since(began) < freeRun); n++ {
					asked := time.Now()
					told := s.once(unit{setup: with, ctx: ctx, held: hold{ctx: ctx}}, take)
					told.Waited = cmp.Or(told.Waited, time.Since(asked))
					mu.Lock()
					total = append(total, told)
					mu.Unlock()
				}
			})
		})
	}
	stop(group.Wait())
	return total
}

// think is the pause of the free run, of any length: between reading and writing, and nowhere else.
func think(ctx context.Context, p point) {
	if p == pointRead {
		poll.Pause(ctx, rand.N(200*time.Microsecond)) //nolint:gosec // nobody is to guess it
		stop(context.Cause(ctx))
	}
}

func catalog() []strategy {
	all := slices.Concat(broken(), realLocks(), stocks())
	for i := range all {
		all[i].left = cmp.Or(all[i].left, selectAccount)
	}
	return all
}

// wrong is a broken strategy: its attack, why it breaks, and the real row that does it right.
func wrong(name, on string, shows defect, by attack, why, cure string, does way) strategy {
	return strategy{Name: name, Why: why, Cure: cure, defect: shows, On: on, attacks: []attack{by}, way: does}
}

func broken() []strategy {
	safe := spinning(takeOwn, freeOwn) // without the mistakes of the others, but for the missing watchdog
	return []strategy{
		// Where the work allows it, the cheapest cure is a relative update under a constraint.
		wrong("no lock", onRedis, defectLost, overlap(),
			"both read before either writes; the second write buries the first",
			"any real lock, or the database constraint", way{sell: sell}),
		wrong("local mutex, 2 processes", onRedis, defectLost, overlap(),
			"each process has a mutex of its own and lets one worker in", "redis hash", way{lock: openLocal, sell: sell}),
		wrong("check-then-set", onRedis, defectLost, overlap(),
			"two find the lock free before either has set it", "setnx store", spinning(func(k *key) bool {
				return k.do("get") == nil && k.stand(pointChecked) && k.set("px", k.Lease.Milliseconds())
			}, freeOwn)),
		wrong("setnx, no expiry", onRedis, defectDeadlock, crash(pointRead),
			"the holder is killed, and its key stays for ever", "setnx store", spinning(takeForEver, freeAnybodys)),
		// The same as no expiry at all, only rarer, and therefore found later.
		wrong("setnx, then expire", onRedis, defectDeadlock, crash(pointHalf),
			"the holder is killed between SETNX and EXPIRE, and its key stays for ever", "setnx store",
			spinning(func(k *key) bool {
				return takeForEver(k) && k.stand(pointHalf) && k.do("pexpire", k.Lease.Milliseconds()) == int64(1)
			}, freeOwn)),
		wrong("setnx, no owner check", onRedis, defectLost, staleUnlock(pointWritten),
			"a slow holder deletes the lock of the one after it, and a third walks in", "setnx store",
			spinning(takeOwn, freeAnybodys)),
		wrong("setnx, GET then DEL", onRedis, defectLost, staleUnlock(pointOwner),
			"the lease runs out between GET and DEL, and the DEL hits somebody else's lock", "setnx store",
			spinning(takeOwn, func(k *key) bool {
				return k.do("get") == k.owner && k.stand(pointOwner) && freeAnybodys(k)
			})),
		// The holder does not know that its lease is over: a watchdog renews it, and a context ends with it. Where a
		// holder may be stopped altogether, the cure is a fencing token checked in the transaction it protects.
		wrong("setnx, no watchdog", onRedis, defectLost, outlive(),
			"the work outlives the lease, and the next one begins before it has written", "redis hash", safe),
		wrong("watchdog, no owner check", onRedis, defectDeadlock, renewedByOther(),
			"who lost the lock renews the key of the one after it, also when that is dead", "redis hash",
			spinning(takeWatched, freeWatched)),
		// SET NX does not know whose key it meets. The lab's lease exceeds its wait: else the holder outwaits it.
		wrong("setnx, re-entered", onRedis, defectDeadlock, reenter(),
			"the holder takes the lock again and waits for itself", "redis hash", safe),
		// At READ COMMITTED, as in the product. (With innodb_snapshot_isolation the second one gets error 1020.)
		wrong("FOR UPDATE after the read", onMySQL, defectLost, overlap(),
			"the row is locked after it was read: both write what they worked out before", "stock: pessimistic",
			way{sell: sellAfterLock, transacted: true}),
		// The best-known bug of the tutorial: @Transactional outside, synchronized inside.
		wrong("unlock before COMMIT", onMySQL, defectLost, meet("between unlock and COMMIT", calmLease, pointFreed),
			"the transaction around the lock ends after it: the next one reads what was there before",
			"redis hash, around the transaction", way{lock: safe.lock, sell: sellInTransaction, transacted: true}),
		wrong("UPDATE without a guard", onMySQL, defectOversold, overlap(),
			"both saw the last unit; remaining = remaining - 1 asks for none in its WHERE, and no constraint does",
			"stock: conditional", way{sell: sellUnguarded}),
		wrong("version never raised", onMySQL, defectLost, overlap(),
			"each write compares the version it read, and none changes it", "stock: optimistic",
			way{sell: sellBySameVersion}),
	}
}

func realLocks() []strategy {
	return []strategy{
		realLock("redis hash", onRedis, "re-entrant, watchdog, unlock messages; Redisson's layout",
			onOne(lock.NewRedisStore)),
		realLock("setnx store", onRedis, "SET NX PX and compare-and-delete, with a watchdog",
			onOne(lock.NewSetNXStore)),
		realLock("mysql table", onMySQL, "a row per lock, expiry by the database's clock", onTable),
		// A lock that one instance forgets is still held on the others.
		realLock("multilock", onQuorum, "every one of three instances", onThree(lock.All)),
		realLock("redlock", onQuorum, "two of three instances", onThree(lock.Majority)),
	}
}

func realLock(name, on, why string, open func(setup) lock.Locker) strategy {
	return strategy{
		Name: name, Why: why, On: on, way: product(open),
		attacks: []attack{overlap(), crash(pointRead), staleUnlock(pointWritten), outlive(), reenter()},
	}
}

// stocks are the ways to sell without a lock above the database. The first three are the product's.
func stocks() []strategy {
	stock := func(how model.StockStrategy, why string) strategy {
		return strategy{
			Name: "stock: " + string(how), Why: why, On: onMySQL, attacks: []attack{heldRow()},
			way: way{voucher: how}, left: selectVoucher,
		}
	}
	return []strategy{
		stock(model.StockConditional, "the UPDATE states what it relies on"),
		stock(model.StockPessimistic, "SELECT … FOR UPDATE before the read"),
		stock(model.StockOptimistic, "compares a version, begins anew"),
		{
			Name: "database constraint", On: onMySQL, attacks: []attack{overlap()},
			Why: "relative updates; CHECK (remaining >= 0) refuses the unit too many", way: way{sell: sellUnderConstraint},
		},
	}
}
