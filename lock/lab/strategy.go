package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
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

// pause is called at every point; it returns when the worker may go on.
type pause = func(ctx context.Context, p point)

type setup struct {
	site

	Name    string        // of the lock, the account and the stock: unique
	Lease   time.Duration // of locks that have one
	Fixed   bool          // the lease is not renewed, where it would be
	Reenter bool          // lock once more inside the lock
	Wait    time.Duration // the longest wait for the lock
	Load    *load         // its share of a free run; nil: one unit of work

	at    pause                 // a point
	db    *sqldb.Database       // of the run
	redis redis.UniversalClient // where the account is
	undo  *cleanup              // when the work is over
}

// opener makes the work of one process: each call, also concurrent, does one unit. setup.undo lets go what it holds.
type opener = func(s setup) perform

type perform = func(ctx context.Context) answer

// unit is one unit of work, or what is done before and after it.
type unit struct {
	setup

	ctx  context.Context //nolint:containedctx // of the unit
	held hold
	tx   *sql.Tx // where it works in one
}

func (u unit) stand(p point) bool {
	u.at(u.ctx, p)
	return true
}

// trade reads with the query, thinks and writes until the write is done.
func (u unit) trade(query string, write func(found figures) (sold int64, done bool)) answer {
	for {
		found := u.look(query)
		u.stand(pointRead)
		if sold, done := write(found); done {
			return answer{End: pointDone, Sold: sold}
		}
	}
}

type ledger struct {
	open func(u unit, stock int64)
	read func(u unit) figures
}

type figures struct{ Balance, Remaining, version int64 }

func (f *figures) sell() (sold int64) {
	f.Balance++
	sold = min(f.Remaining, 1)
	f.Remaining -= sold
	return sold
}

type defect string

const (
	defectNone     defect = ""
	defectLost     defect = "lost updates"
	defectDeadlock defect = "deadlock"
	defectOversold defect = "oversold"
)

type strategy struct {
	Name    string
	Why     string // the broken ones: why they break; the real ones: what they promise
	Cure    string // the broken ones: the real row that does it right
	defect  defect // what must show; defectNone for the real ones
	On      string
	attacks []attack
	open    opener
	mend    opener // the broken ones: the same with its defect mended by hand
	ledger  ledger

	replicas bool // it is attacked with servers of the lab's own
	mended   bool // open is mend
}

func (s strategy) broken() bool { return s.defect != defectNone }

const (
	onRedis  = "redis"    // one Redis
	onQuorum = "redis ×3" // three of them
	onMySQL  = "mysql"
)

// errRefused: the lock was lost, and its holder was told before it wrote.
var errRefused = errors.New("the lock was lost before the write")

// work is that of one process, with connections of its own. Who is killed loses these before anything is given back.
func (s strategy) work(ctx context.Context, with setup) (did tally) {
	with.undo = &cleanup{}
	share := load{Workers: 1, Operations: 1, Duration: rowBudget}
	if with.Load != nil {
		share, with.at = *with.Load, with.Load.think
	}
	err := try(func() { did = share.run(ctx, s.open(with)) })
	if ctx.Err() != nil {
		slices.Reverse(*with.undo)
		_ = with.undo.run(ctx)
		stop(err)
	}
	stop(errors.Join(err, with.undo.run(ctx)))
	return did
}

type load struct {
	Workers    int // share the account, half of them in each of two processes
	Operations int
	Duration   time.Duration // after which no worker begins another one
	Think      time.Duration // the longest time between reading and writing, drawn anew each time
}

func (l load) run(ctx context.Context, perform perform) (total tally) {
	var mu sync.Mutex
	ending := time.Now().Add(l.Duration)
	group, ctx := errgroup.WithContext(ctx)
	for range l.Workers {
		group.Go(func() error {
			return try(func() {
				for n := 0; n < l.Operations && (n == 0 || time.Now().Before(ending)); n++ {
					asked := time.Now()
					told := perform(ctx)
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

// think is the pause of the free run: between reading and writing, and nowhere else.
func (l load) think(ctx context.Context, p point) {
	if p == pointRead {
		poll.Pause(ctx, rand.N(l.Think)) //nolint:gosec // nobody is to guess it
		stop(context.Cause(ctx))
	}
}

func catalog() []strategy { return slices.Concat(broken(), onReplicas(), realLocks(), stocks()) }

// wrong is a broken strategy with its account in Redis: its attack, why it breaks, the real row, and a mended twin.
func wrong(name string, shows defect, by attack, why, cure string, open, mend func(setup) locker) strategy {
	return strategy{
		Name: name, Why: why, Cure: cure, defect: shows, On: onRedis, attacks: []attack{by},
		open: under(open, sellInCells), mend: under(mend, sellInCells), ledger: inCells(),
	}
}

// wrongRow is one with its account in a row, which the query reads.
func wrongRow(name string, shows defect, by attack, why, cure, query string, open, mend opener) strategy {
	return strategy{
		Name: name, Why: why, Cure: cure, defect: shows, On: onMySQL, attacks: []attack{by},
		open: open, mend: mend, ledger: inRow(query),
	}
}

func broken() []strategy {
	return []strategy{
		// Where the work allows it, the cheapest cure is a relative update under a constraint.
		wrong("no lock", defectLost, overlap(), "both read before either writes; the second write buries the first",
			"any real lock, or the database constraint", openNone, right),
		wrong("local mutex, 2 processes", defectLost, overlap(),
			"each process has a mutex of its own and lets one worker in",
			"redis hash", openLocal, right),
		wrong("check-then-set", defectLost, overlap(), "two find the lock free before either has set it", "setnx store",
			spinning(func(k *key) bool { return k.get() == "" && k.stand(pointChecked) && k.set() }, freeOwn), right),
		wrong("setnx, no expiry", defectDeadlock, crash(pointRead), "the holder is killed, and its key stays for ever",
			"setnx store", spinning(takeForEver, freeAnybodys), right),
		// The same as no expiry at all, only rarer, and therefore found later.
		wrong("setnx, then expire", defectDeadlock, crash(pointHalf),
			"the holder is killed between SETNX and EXPIRE, and its key stays for ever", "setnx store",
			spinning(func(k *key) bool { return takeForEver(k) && k.stand(pointHalf) && k.expire() }, freeOwn),
			spinning(func(k *key) bool { return takeOwn(k) && k.stand(pointHalf) }, freeOwn)),
		wrong("setnx, no owner check", defectLost, staleUnlock(pointWritten),
			"a slow holder deletes the lock of the one after it, and a third walks in", "setnx store",
			spinning(takeOwn, freeAnybodys), right),
		wrong("setnx, GET then DEL", defectLost, staleUnlock(pointOwner),
			"the lease runs out between GET and DEL, and the DEL hits somebody else's lock", "setnx store",
			spinning(takeOwn, func(k *key) bool {
				return k.get() == k.owner && k.stand(pointOwner) && freeAnybodys(k)
			}),
			spinning(takeOwn, func(k *key) bool { return k.stand(pointOwner) && freeOwn(k) })),
		// The holder does not know that its lease is over: a watchdog renews it, and a context ends with it. Where a
		// holder may be stopped altogether, the cure is a fencing token checked in the transaction it protects.
		wrong("setnx, no watchdog", defectLost, outlive(),
			"the work outlives the lease, and the next one begins before it has written", "redis hash", right,
			watched(renewOwn)),
		wrong("watchdog, no owner check", defectDeadlock, renewedByOther(),
			"who lost the lock renews the key of the one after it, also when that is dead", "redis hash",
			watched(renewAnybodys), watched(renewOwn)),
		// SET NX does not know whose key it meets. The lab's lease exceeds its wait: else the holder outwaits it.
		wrong("setnx, re-entered", defectDeadlock, reenter(), "the holder takes the lock again and waits for itself",
			"redis hash", right, product(onOne(lock.NewRedisStore, 0))),
		// At READ COMMITTED, as in the product. (With innodb_snapshot_isolation the second one gets error 1020.)
		wrongRow("FOR UPDATE after the read", defectLost, overlap(),
			"the row is locked after it was read: both write what they worked out before",
			"stock: pessimistic", selectAccount, alone(sellForUpdate(false)), alone(sellForUpdate(true))),
		// The best-known bug of the tutorial: @Transactional outside, synchronized inside.
		wrongRow("unlock before COMMIT", defectLost, meet("between unlock and COMMIT", calmLease, pointFreed),
			"the transaction around the lock ends after it: the next one reads what was there before",
			"redis hash, around the transaction",
			selectAccount, under(right, sellInTransaction(false)), under(right, sellInTransaction(true))),
		wrongRow("UPDATE without a guard", defectOversold, overlap(),
			"both saw the last unit; remaining = remaining - 1 asks for none in its WHERE, and no constraint does",
			"stock: conditional", selectUnits, alone(sellUnits("")), alone(sellUnits(" AND units > 0"))),
		wrongRow("version never raised", defectLost, overlap(),
			"each write compares the version it read, and none changes it",
			"stock: optimistic", selectAccount, alone(sellByVersion(0)), alone(sellByVersion(1))),
	}
}

// onReplicas are locks whose Redis has a replica that takes its place.
func onReplicas() []strategy {
	all := []strategy{
		wrong("one lock, replica promoted", defectLost, attack{},
			"the replica had not got the lock yet: it gives it to another one", "one lock, synced; multilock; redlock",
			product(onOne(lock.NewRedisStore, 0)), product(onOne(lock.NewRedisStore, 1))),
		realLock("one lock, synced", onRedis, "Synced(1): what the replica has not confirmed is not held",
			onOne(lock.NewRedisStore, 1)),
		realLock("multilock, promoted", onQuorum, "the other instances still know of the holder", onThree(lock.All)),
		realLock("redlock, promoted", onQuorum, "a majority still knows of the holder", onThree(lock.Majority)),
	}
	for i := range all {
		all[i].attacks, all[i].replicas = []attack{promoted(true), promoted(false)}, true
	}
	return all
}

func realLocks() []strategy {
	return []strategy{
		realLock("redis hash", onRedis, "re-entrant, watchdog, unlock messages; Redisson's layout",
			onOne(lock.NewRedisStore, 0)),
		realLock("setnx store", onRedis, "SET NX PX and compare-and-delete, with a watchdog",
			onOne(lock.NewSetNXStore, 0)),
		realLock("mysql table", onMySQL, "a row per lock, expiry by the database's clock", onTable),
		// A lock that one instance forgets is still held on the others.
		realLock("multilock", onQuorum, "every one of three instances", onThree(lock.All)),
		realLock("redlock", onQuorum, "two of three instances", onThree(lock.Majority)),
	}
}

func realLock(name, on, why string, open func(setup) lock.Locker) strategy {
	return strategy{
		Name: name, Why: why, On: on, open: under(product(open), sellInCells), ledger: inCells(),
		attacks: []attack{overlap(), crash(pointRead), staleUnlock(pointWritten), outlive(), reenter()},
	}
}

// stocks are the ways to sell without a lock above the database.
func stocks() []strategy {
	return []strategy{
		stock(model.StockConditional, "the UPDATE states what it relies on"),
		stock(model.StockPessimistic, "SELECT … FOR UPDATE before the read"),
		stock(model.StockOptimistic, "compares a version, begins anew"),
		{
			Name: "database constraint", On: onMySQL, attacks: []attack{overlap()},
			Why:  "relative updates; CHECK (remaining >= 0) refuses the unit too many",
			open: alone(sellUnderConstraint), ledger: inRow(selectAccount),
		},
	}
}
