package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options says what a run works with. Zero values stand for the defaults.
type Options struct {
	// Redis are one or three URLs; none: embedded instances. With one the
	// quorum rows run on three embedded ones.
	Redis []string
	// DSN is a go-sql-driver DSN of an account that may make a schema; empty:
	// SQLite, and the rows that need MySQL say so.
	DSN string
	// Workers share the account (default 8), half of them in each of two processes.
	Workers int
	// Operations of each worker in the free run (default 50).
	Operations int
	// Duration is after which no worker of a free run begins another operation
	// (default 2 s).
	Duration time.Duration
	// Think is the longest time between reading and writing; it is drawn anew
	// each time (default 200 µs). Negative: none.
	Think time.Duration
	// Seed of the think times (default 1).
	Seed uint64
	// Spawn prepares child processes.
	Spawn Spawn
	// Progress hears of each row; nil: none is told.
	Progress Progress

	only func(strategy) bool // tests: these rows alone
	rows []strategy          // tests: instead of the catalog
	wait time.Duration       // tests: the longest wait for a lock
}

// Progress hears how far a run is.
type Progress interface {
	// Begin is told how many rows there are.
	Begin(rows int)
	// Attacked is called when the forced interleavings of one more row are over.
	// Several rows are attacked at the same time, before any of them starts.
	Attacked()
	// Start is told the name of the row that runs freely now.
	Start(name string)
	// Done is told what became of it.
	Done(r Row)
	// End is called last, also when the run was interrupted.
	End()
}

func (o *Options) setDefaults() {
	if o.Workers == 0 {
		o.Workers = 8
	}
	if o.Operations == 0 {
		o.Operations = 50
	}
	if o.Duration == 0 {
		o.Duration = 2 * time.Second
	}
	if o.Think == 0 {
		o.Think = 200 * time.Microsecond
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.Progress == nil {
		o.Progress = silent{}
	}
	if o.wait == 0 {
		o.wait = certain
	}
	if o.rows == nil {
		o.rows = catalog()
	}
}

// Check refuses what cannot be meant, every problem in one error. Run does so too.
func (o Options) Check() error {
	o.setDefaults()
	var errs []error
	refuse := func(wrong bool, why string) {
		if wrong {
			errs = append(errs, errors.New(why))
		}
	}
	refuse(o.Workers < 2 || o.Workers > 512, "there must be 2 to 512 workers")
	refuse(o.Operations < 1 || o.Operations > 100_000, "there must be 1 to 100000 operations a worker")
	refuse(o.Duration < 0 || o.Duration > time.Hour, "the duration must be between 0 and 1h")
	refuse(o.Think > time.Second, "the think time must not exceed 1s")
	refuse(len(o.Redis) > 1 && len(o.Redis) != quorumSize, fmt.Sprintf("there must be one Redis URL or %d", quorumSize))
	refuse(o.Spawn == nil, "the lab needs to start child processes")
	return errors.Join(errs...)
}

// Run runs the laboratory. What it made anywhere is gone when it returns, also
// when ctx ended. An error means that there is no report; a row that could not
// run is part of the report.
func Run(ctx context.Context, o Options) (report Report, err error) {
	if err := o.Check(); err != nil {
		return Report{}, fmt.Errorf("open the laboratory: %w", err)
	}
	o.setDefaults()
	began := time.Now()
	e, err := openEnvironment(ctx, o)
	if err != nil {
		return Report{}, fmt.Errorf("open the laboratory: %w", err)
	}
	defer func() { err = errors.Join(err, e.close(ctx)) }()

	if o.only != nil {
		var some []strategy
		for _, s := range o.rows {
			if o.only(s) {
				some = append(some, s)
			}
		}
		o.rows = some
	}
	o.Progress.Begin(len(o.rows))
	defer o.Progress.End()
	report = Report{Workers: o.Workers, Operations: o.Operations, Seed: o.Seed}
	if report.Rows, err = runRows(ctx, e, o); err != nil {
		return Report{}, err
	}
	report.Took = time.Since(began)
	return report, nil
}

// attackedAtOnce is how many strategies are under attack at the same time:
// attacks mostly wait for leases, and hardly disturb each other.
const attackedAtOnce = 4

// runRows attacks every strategy, then lets each run freely, alone, because it
// is timed.
func runRows(ctx context.Context, e *environment, o Options) ([]Row, error) {
	runners := make([]runner, len(o.rows))
	rows := make([]Row, len(o.rows))
	var attacks errgroup.Group
	attacks.SetLimit(attackedAtOnce)
	for i, s := range o.rows {
		r := runner{Options: o, env: e, strategy: s, number: i}
		runners[i], rows[i] = r, r.row()
		attacks.Go(func() error {
			r.bounded(ctx, &rows[i], r.attack)
			o.Progress.Attacked()
			return nil // a row that failed is part of the report
		})
	}
	_ = attacks.Wait()
	for i, r := range runners {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the laboratory was interrupted: %w", context.Cause(ctx))
		}
		o.Progress.Start(r.strategy.name)
		r.bounded(ctx, &rows[i], r.free)
		rows[i].judge(r.strategy)
		o.Progress.Done(rows[i])
	}
	return rows, nil
}

// newID returns an id that nobody else has, of lower case letters and digits.
func newID() string { return strings.ToLower(rand.Text()) }
