package main

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"seckill/internal/poll"
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
)

// Points at which no worker can be stopped: the story only reports them.
const (
	pointBegun point = "begins"
	pointHeld  point = "has the lock"
	pointLost  point = "hears that the lock is lost"
	pointGiven point = "unlocks" // in a moment

	pointKilled  point = "is killed" // the last of a worker, as the others below
	pointDone    point = "is done"
	pointSoldOut point = "is told that nothing is left"
	pointRefused point = "is refused, and has written nothing"
	pointStuck   point = "did not get the lock"
	pointFailed  point = "has failed"
)

// passes says that a worker only tells of a point, and does not stand there.
func (p point) passes() bool {
	return p == pointHeld || p == pointLost || p == pointGiven
}

// pause is called at every point; it returns when the worker may go on.
type pause = func(ctx context.Context, p point)

// setup is how one process takes part.
type setup struct {
	terms
	at         pause           // a point
	db         *sqldb.Database // of the run; nil in a child process
	redis      *redis.Client   // where the account is
	undo       *cleanup        // when the work is over
	ownProcess bool            // the worker runs in a process of its own
}

// terms is the part of a setup that a child process can be told.
type terms struct {
	Strategy string        `json:"strategy"`
	Mended   bool          `json:"mended"`
	Site     site          `json:"site"`
	Name     string        `json:"name"`    // of the lock, the account and the stock: unique in the run
	Lease    time.Duration `json:"lease"`   // of locks that have one
	Fixed    bool          `json:"fixed"`   // the lease is not renewed, where it would be
	Reenter  bool          `json:"reenter"` // lock once more inside the lock
	Wait     time.Duration `json:"wait"`    // the longest wait for the lock
	Load     *load         `json:"load"`    // its share of a free run; nil: one unit of work
}

// opener makes the work of one process. What that holds, setup.undo lets go.
type opener = func(s setup) perform

// perform does one unit of work. It is safe for concurrent use.
type perform = func(ctx context.Context) answer

// unit is one unit of work, or what is done before and after it.
type unit struct {
	setup

	ctx  context.Context //nolint:containedctx // of the unit
	held hold
	tx   *sql.Tx // where it works in one
}

// stand is at a point, as a part of a step.
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

// ledger is an account and a stock.
type ledger struct {
	open func(u unit, stock int64)
	read func(u unit) figures
}

// figures are an account and a stock as they stand.
type figures struct{ Balance, Remaining, version int64 }

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
)

// strategy is one row of the table.
type strategy struct {
	Name    string
	Why     string // the broken ones: why they break; the real ones: what they promise
	Cure    string // the broken ones: the real row that does it right
	group   string
	defect  defect // what must show; defectNone for the real ones
	on      backing
	attacks []attack
	open    opener
	mend    opener // the broken ones: the same with its defect mended by hand
	ledger  ledger

	processes bool // exclusion ends with the process, so two real ones are needed
	replicas  bool // it is attacked with servers of the lab's own
	mended    bool // open is mend
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

// work is that of a worker, which calls stand at every point.
type work = func(ctx context.Context, stand pause) tally

// here is the work of one worker of an attack, or of one process of a free run, in this process.
func (s strategy) here(with setup) work {
	return func(ctx context.Context, stand pause) (did tally) {
		with.at, with.undo = stand, &cleanup{}
		share := load{Workers: 1, Operations: 1, Duration: rowBudget}
		if with.Load != nil {
			share, with.at = *with.Load, with.Load.think
		}
		err := try(func() { did = share.run(ctx, s.open(with)) })
		stop(errors.Join(err, with.undo.run(ctx)))
		return did
	}
}

// load is how hard the workers of a free run work.
type load struct {
	Workers    int           `json:"workers"` // share the account, half of them in each of two processes
	Operations int           `json:"operations"`
	Duration   time.Duration `json:"duration"` // after which no worker begins another one
	Think      time.Duration `json:"think"`    // the longest time between reading and writing, drawn anew each time
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
					told.Asked, told.Answered = asked, time.Now()
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
