// Package main is the lock laboratory: the same work under every lock and stock strategy, the
// broken ones of the tutorials and the real ones of this project:
//
//	go run ./lock/lab -html lab.html
//
// In the work, N workers add to one account and take units of one stock, each by
// reading, thinking and writing back. Every strategy does it twice. First under
// attack: workers are stopped at chosen points, which forces an interleaving that
// breaks the broken strategies every time and not by luck. The real ones must survive
// the same interleavings. Then freely, as fast as it goes, for throughput and waiting.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
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
	// OwnDatabase: without a DSN, start a MariaDB where one is installed.
	OwnDatabase bool
	// Real: also the rows whose Redis has replicas, with servers of the lab's own.
	Real bool
	// Load is that of the free runs.
	Load
	// Spawn prepares child processes.
	Spawn Spawn
	// Progress is told how far the run is; nil: nobody is.
	Progress Progress

	only func(strategy) bool // tests: these rows alone
	rows []strategy          // tests: instead of the catalog
	wait time.Duration       // tests: how long the last worker waits for a lock that is gone, or its own

	patience time.Duration // tests: how long to wait at least for what must not happen
}

// Progress is told how far a run is: after the forced interleavings of each row (free: false), before
// its free run (free: true), and when it is done (with its verdict).
type Progress func(done, rows int, r Row, free bool)

func (o *Options) setDefaults() {
	o.Workers = cmp.Or(o.Workers, 8)
	o.Operations = cmp.Or(o.Operations, 50)
	o.Duration = cmp.Or(o.Duration, 2*time.Second)
	o.Think = cmp.Or(o.Think, 200*time.Microsecond)
	o.Seed = cmp.Or(o.Seed, 1)
	if o.Progress == nil {
		o.Progress = func(int, int, Row, bool) {}
	}
	if o.rows == nil {
		o.rows = slices.DeleteFunc(catalog(), func(s strategy) bool { return s.real && !o.Real })
	}
}

// Check refuses options that make no sense, with every problem in one error. Run
// does so too.
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

// Run runs the laboratory. It has removed everything that it made when it returns,
// also when ctx ended. An error means that there is no report; a row that could not
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
	defer func() { err = errors.Join(err, e.undo.run(ctx)) }()
	o.rows = slices.DeleteFunc(o.rows, func(s strategy) bool { return o.only != nil && !o.only(s) })
	report = Report{Workers: o.Workers, Operations: o.Operations, Seed: o.Seed}
	if report.Rows, err = runRows(ctx, e, o); err != nil {
		return Report{}, err
	}
	report.Took = time.Since(began)
	return report, nil
}

// attackedAtOnce is how many strategies are under attack at the same time. Attacks
// mostly wait for leases, and hardly disturb each other.
const attackedAtOnce = 4

// runRows attacks every strategy, then lets each run freely, alone, because it is timed.
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
			o.Progress(0, len(o.rows), r.row(), false)
			return nil // a row that failed is part of the report
		})
	}
	_ = attacks.Wait()
	for i, r := range runners {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the laboratory was interrupted: %w", context.Cause(ctx))
		}
		o.Progress(i, len(o.rows), r.row(), true)
		r.bounded(ctx, &rows[i], r.free)
		rows[i].judge(r.strategy)
		o.Progress(i+1, len(o.rows), rows[i], true)
	}
	return rows, nil
}

// newID returns a random id of lower case letters and digits.
func newID() string { return strings.ToLower(rand.Text()) }

// runner runs one row.
type runner struct {
	Options
	env      *environment
	strategy strategy
	number   int
}

// rowBudget bounds each half of a row, so that a bug is a failed row and not a lab that hangs.
const rowBudget = time.Minute

func (r runner) row() Row {
	s := r.strategy
	out := Row{Name: s.name, Group: s.group, Broken: s.broken(), Why: s.why, Cure: s.cure, On: r.env.places[s.on]}
	if s.on == onMySQL && r.env.site.DSN == "" {
		out.Verdict = VerdictNeedsMySQL
	}
	return out
}

// bounded does one part of a row that can run and has not failed.
func (r runner) bounded(ctx context.Context, out *Row, part func(context.Context, *Row) error) {
	if out.Verdict != "" || out.Err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, rowBudget)
	defer cancel()
	out.Err = part(ctx, out)
}

// attack forces every interleaving upon the strategy, all at the same time. An attack in
// which an actor was refused for want of time, or a defect did not show, is repeated with longer leases.
func (r runner) attack(ctx context.Context, out *Row) error {
	out.Attacks = make([]Attack, len(r.strategy.attacks))
	group, ctx := errgroup.WithContext(ctx)
	for i, a := range r.strategy.attacks {
		group.Go(func() error {
			for n := range watchedLeases {
				found, refused, err := r.stage(ctx, a, fmt.Sprintf("a%d.%d", i, n), watchedLease<<n)
				if err != nil {
					return fmt.Errorf("attack %q: %w", a.name, err)
				}
				out.Attacks[i] = found
				wrong := r.strategy.broken() && !r.strategy.mended
				if wrong && out.Attacks[i].shows(r.strategy.defect) || !wrong && (refused == 0 || a.lapses) {
					break
				}
			}
			return nil
		})
	}
	err := group.Wait()
	for _, a := range out.Attacks {
		out.merge(a.Finding)
	}
	return err
}

// free lets two processes work as fast as they can.
func (r runner) free(ctx context.Context, out *Row) error {
	ran, _, err := r.stage(ctx, r.freeRun(out), "free", 0)
	out.Free = ran.Finding
	out.merge(out.Free)
	return err
}

// stage has an attack, or the free run, on an account and a stock made for it, and
// judges it.
func (r runner) stage(ctx context.Context, a attack, part string, watched time.Duration) (_ Attack, refused int64, err error) {
	on := &arena{strategy: r.strategy, spawn: r.Spawn, watched: watched, wait: r.wait, patience: r.patience, setup: setup{
		terms: terms{Site: r.env.site, Name: fmt.Sprintf("%d-%s", r.number, part), Lease: calmLease, Wait: certain},
		db:    r.env.db, redis: r.env.redis, ownProcess: r.strategy.processes,
	}}
	defer on.clear()
	book := r.strategy.ledger(on.setup)
	err = book.open(ctx, a.stock)
	if err == nil {
		on.began = time.Now()
		err = a.run(ctx, on)
	}
	if err != nil {
		return Attack{}, 0, err
	}
	left, err := book.read(ctx)
	return Attack{a.name, on.tally.judge(a.stock, left, a.lapses), on.holds()}, on.tally.Refused, err
}
