package main

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/repository/sqldb"
)

// point is a place in the work at which an attack can stop a worker, in the words that tell of it.
type point string

const (
	pointChecked point = "has found the lock free"         // the lock was found free, and is not taken yet
	pointHalf    point = "has set the key"                 // the lock is taken, its expiry is not set yet
	pointRead    point = "has read"                        // inside the lock; read, and not written yet
	pointWritten point = "has written"                     // inside the lock; written, and not unlocked yet
	pointFreed   point = "stands before its COMMIT"        // the lock is given back, and the transaction not committed yet
	pointOwner   point = "has found the key to be its own" // the lock was found to be one's own, and is not deleted yet
	pointReady   point = "is ready"                        // before a share of a free run
	pointOver    point = "is over"                         // after it
)

// Points at which no buyer can be stopped: the story only reports them.
const (
	pointBegun     point = "begins"
	pointHeld      point = "has the lock"
	pointLost      point = "hears that the lock is lost"
	pointGiven     point = "unlocks" // in a moment
	pointCommitted point = "has committed"

	pointKilled   point = "is killed" // the last of a worker, as the others below
	pointDone     point = "is done"
	pointSoldOut  point = "is told that nothing is left"
	pointRepeated point = "knows the message already"
	pointRefused  point = "is refused, and has written nothing"
	pointStuck    point = "did not get the lock"
	pointFailed   point = "has failed"
)

// pause is called at every point; it returns when the worker may go on.
type pause = func(ctx context.Context, p point) error

// setup is how one process takes part.
type setup struct {
	terms
	load       *Load // its share of a free run; nil: one unit of work
	pause      pause
	db         *sqldb.Database // of the run; nil in a child process
	redis      *redis.Client   // where the account is
	commands   *atomic.Int64   // that the lock sends, without the account's; nil: not counted
	undo       *cleanup        // when the work is over
	ownProcess bool            // the worker runs in a process of its own
}

// terms is the part of a setup that a child process can be told.
type terms struct {
	Site    site          `json:"site"`
	Name    string        `json:"name"`    // of the lock, the account and the stock: unique in the run
	Lease   time.Duration `json:"lease"`   // of locks that have one
	Fixed   bool          `json:"fixed"`   // the lease is not renewed, where it would be
	Reenter bool          `json:"reenter"` // lock once more inside the lock
	Wait    time.Duration `json:"wait"`    // the longest wait for the lock
}

// perform does one unit of work under one strategy, for one process. It is safe for
// concurrent use.
type perform = func(ctx context.Context) (tally, error)

// opener makes the perform of one process. What that holds, setup.undo lets go.
type opener = func(s setup) (perform, error)

// ledger is what the work left behind.
type ledger interface {
	// open makes an empty account and a stock of units.
	open(ctx context.Context, stock int64) error
	read(ctx context.Context) (figures, error)
}

// figures are an account and a stock as they stand.
type figures struct{ Balance, Remaining int64 }

// sell adds to the account and takes a unit, if there is one. It says how many it took.
func (f *figures) sell() (sold int64) {
	f.Balance++
	sold = min(f.Remaining, 1)
	f.Remaining -= sold
	return sold
}

// defect is what a broken strategy shows.
type defect string

const (
	defectNone     defect = ""
	defectLost     defect = "lost updates"
	defectDeadlock defect = "deadlock"
	defectOversold defect = "oversold"
	defectUnserved defect = "turned away"
)

// strategy is one row of the table.
type strategy struct {
	name    string
	group   string
	defect  defect // what must show; defectNone for the real ones
	why     string // the broken ones: why they break; the real ones: what they promise
	cure    string // the broken ones: the real row that does it right
	on      backing
	attacks []attack

	open   opener
	ledger func(s setup) ledger

	// processes: exclusion ends with the process, so two real ones are needed.
	processes bool
	// real: it is attacked with servers of the lab's own.
	real bool
	// mended: tests have its defect mended.
	mended bool
}

func (s strategy) broken() bool { return s.defect != defectNone }

// backing is what a strategy needs to run.
type backing int

const (
	onRedis  backing = iota // one Redis
	onQuorum                // three of them
	onSQL                   // MySQL, or SQLite when there is none
	onMySQL                 // MySQL alone
)

// errRefused: the lock was lost, and its holder was told before it wrote.
var errRefused = errors.New("the lock was lost before the write")

// The groups of the table.
const (
	groupBroken = "broken"
	groupLock   = "locks"
	groupStock  = "stock"
)

// catalog is every strategy, in the order of the table.
func catalog() []strategy { return catalogOf(false) }

// catalogOf is the catalog, in tests with every defect mended.
func catalogOf(mended bool) []strategy {
	all := slices.Concat(brokenLocks(mended), brokenHolds(mended), brokenInSQL(mended), onReplicas(mended), realLocks(), stocks())
	for i := range all {
		all[i].mended = mended
	}
	return all
}

// strategyNamed returns one of the catalog; one without a name when there is none.
func strategyNamed(name string) strategy { return named(catalog(), name) }

func named(all []strategy, name string) strategy {
	i := slices.IndexFunc(all, func(s strategy) bool { return s.name == name })
	if i < 0 {
		return strategy{}
	}
	return all[i]
}

// here is the work of one worker of an attack, or of one process of a free run, in this
// process.
func (s strategy) here(with setup) work {
	return func(ctx context.Context, stand pause) (total tally, err error) {
		with.pause, with.undo = stand, &cleanup{}
		defer func() {
			if undone := with.undo.run(ctx); err == nil {
				err = undone
			}
		}()
		if with.load != nil {
			return with.load.work(ctx, s, with)
		}
		perform, err := s.open(with)
		if err != nil {
			return tally{}, err
		}
		return perform(ctx)
	}
}
