package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"seckill/repository"
)

// point is a place in the work at which an attack can stop a worker.
type point string

const (
	// pointChecked: the lock was found free, and is not taken yet.
	pointChecked point = "checked"
	// pointHalf: the lock is taken, its expiry is not set yet.
	pointHalf point = "half"
	// pointRead: inside the lock; read, and not written yet.
	pointRead point = "read"
	// pointWritten: inside the lock; written, and not unlocked yet.
	pointWritten point = "written"
	// pointOwner: the lock was found to be one's own, and is not deleted yet.
	pointOwner point = "owner"
)

// pause is called at every point; it returns when the worker may go on.
type pause func(ctx context.Context, p point) error

// setup is how one process takes part: a performer is opened with it.
type setup struct {
	terms
	pause    pause
	db       *repository.Database // of the run; nil in a child process
	commands *commandCount        // of the strategy itself, without the account's and the stock's; nil: not counted
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

// performer does the work, one unit at a time, under one strategy, for one
// process. It is safe for concurrent use.
type performer interface {
	perform(ctx context.Context) (outcome, error)
	close() error
}

// opener makes the performer of one process.
type opener = func(ctx context.Context, s setup) (performer, error)

// ledger is what the work left behind.
type ledger interface {
	// open makes an empty account and a stock of units.
	open(ctx context.Context, stock int64) error
	read(ctx context.Context) (figures, error)
	close() error
}

// figures are an account and a stock as they stand.
type figures struct{ Balance, Remaining int64 }

// result is what one unit of work came to.
type result string

const (
	// resultDone: added to the account and, if anything was left, sold.
	resultDone result = "done"
	// resultSoldOut: a sale without an account found nothing left.
	resultSoldOut result = "sold out"
	// resultRefused: the lock was lost before the write. The worker was told, and
	// wrote nothing.
	resultRefused result = "refused"
	// resultStuck: the lock was not to be had within the longest wait.
	resultStuck result = "stuck"
)

// outcome is one unit of work.
type outcome struct {
	Result result        `json:"result"`
	Sold   bool          `json:"sold"`
	Waited time.Duration `json:"waited"` // until the lock was there, or until the answer where there is none
}

// defect is what a broken strategy shows.
type defect string

const (
	defectNone     defect = ""
	defectLost     defect = "lost updates"
	defectDeadlock defect = "deadlock"
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
	ledger func(ctx context.Context, s setup) (ledger, error)

	// processes: exclusion ends with the process, so two real ones are needed.
	processes bool
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

// errStuck: the lock was not free within the longest wait.
var errStuck = errors.New("the lock was not free within the wait")

// errRefused: the lock was lost, and its holder was told before it wrote.
var errRefused = errors.New("the lock was lost before the write")

// The groups of the table.
const (
	groupBroken = "broken"
	groupLock   = "locks"
	groupStock  = "stock"
)

// catalog is every strategy, in the order of the table.
func catalog() []strategy {
	return []strategy{
		noLock(), localMutex(), checkThenSet(), setNXForever(), setNXThenExpire(),
		noOwnerCheck(), getThenDelete(), noWatchdog(), noReentry(), forUpdateLate(),

		redisHash(), setNXStore(), mysqlTable(), multiLock(), redLock(),

		stock(repository.StockConditional, onSQL, "the UPDATE states what it relies on"),
		stock(repository.StockPessimistic, onMySQL, "SELECT … FOR UPDATE before the read"),
		stock(repository.StockOptimistic, onSQL, "compares a version, begins anew"),
		databaseConstraint(),
	}
}

func strategyNamed(name string) (strategy, error) {
	for _, s := range catalog() {
		if s.name == name {
			return s, nil
		}
	}
	return strategy{}, fmt.Errorf("the lab has no strategy %q", name)
}
