// Package main is the lock laboratory: the same work under every strategy, broken ones of tutorials and real ones:
//
//	go run ./lock/lab -html lab.html
//
// N workers add to one account and take units of one stock, each by reading, thinking and writing back. Every strategy
// does it twice. First under attack: workers are stopped at chosen points, which forces an interleaving that breaks the
// broken strategies every time; the real ones must survive it. Then freely, as fast as it goes, for throughput and
// waiting. It starts servers of its own: redis-server and mariadbd have to be installed.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"seckill/internal/redisdb"
	"seckill/internal/redisurl"
	"seckill/internal/workshop/testserver"
	"seckill/repository/sqldb"
)

type options struct {
	load
	site site      // tests: servers that run already
	log  io.Writer // is told how far the run is
	rows []strategy
}

// failure ends what is tried: most steps can fail and none goes on, so stop, must and got panic with it to try.
type failure struct{ error }

func stop(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must(what string, err error) {
	if err != nil {
		stop(fmt.Errorf("%s: %w", what, err))
	}
}

func got[T any](value T, err error) func(what string) T {
	return func(what string) T {
		must(what, err)
		return value
	}
}

func try(f func()) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failure:
			err = ended.error
		default:
			panic(ended)
		}
	}()
	f()
	return nil
}

func newID() string { return strings.ToLower(rand.Text()) }

type lab struct {
	options
	db   *sqldb.Database
	host host
}

// experiment runs the laboratory and removes what it made. An error means no report; a failed row is part of a report.
func experiment(ctx context.Context, o options) (r report, err error) {
	began, l := time.Now(), &lab{options: o, host: host{ctx: ctx}}
	err = try(func() {
		l.open(ctx)
		r = report{load: o.load, Rows: l.run(ctx)}
	})
	r.Took = time.Since(began)
	return r, errors.Join(err, l.host.end())
}

const (
	// attackedAtOnce is how many strategies are attacked at a time. Attacks mostly wait for leases.
	attackedAtOnce = 4
	// rowBudget bounds each half of a row, so that a bug is a failed row and not a lab that hangs.
	rowBudget = time.Minute
)

// run attacks every strategy, then lets each run freely, alone, because it is timed.
func (l *lab) run(ctx context.Context) []Row {
	rows := make([]Row, len(l.rows))
	var attacks errgroup.Group
	attacks.SetLimit(attackedAtOnce)
	for i, s := range l.rows {
		rows[i].strategy = s
		attacks.Go(func() error {
			rows[i].try(ctx, l.attack)
			return nil // a row that failed is part of the report
		})
	}
	_ = attacks.Wait()
	for i := range rows {
		must("the laboratory was interrupted", context.Cause(ctx))
		rows[i].try(ctx, l.free)
		rows[i].judge()
		fmt.Fprintf(l.log, "%2d/%d %s: %s\n", i+1, len(rows), rows[i].Name, rows[i].Verdict)
	}
	must("the laboratory was interrupted", context.Cause(ctx))
	return rows
}

func (r *Row) try(ctx context.Context, half func(context.Context, *Row)) {
	ctx, cancel := context.WithTimeout(ctx, rowBudget)
	defer cancel()
	if r.Err == nil {
		r.Err = try(func() { half(ctx, r) })
	}
}

// attack forces all interleavings at once. One with a refused actor, or no defect, is repeated with longer leases.
func (l *lab) attack(ctx context.Context, r *Row) {
	r.Attacks = make([]Attack, len(r.attacks))
	group, ctx := errgroup.WithContext(ctx)
	for i, a := range r.attacks {
		group.Go(func() error {
			return try(func() {
				for n, settled := 0, false; n < watchedLeases && !settled; n++ {
					found, told := l.stage(ctx, r, a, fmt.Sprintf("a%d.%d", i, n), watchedLease<<n)
					r.Attacks[i] = found
					settled = found.shows(r.defect) || !r.broken() && (told.count(pointRefused) == 0 || a.lapses)
				}
			})
		})
	}
	err := group.Wait()
	for _, a := range r.Attacks {
		r.merge(a.Finding)
	}
	stop(err)
}

func (l *lab) free(ctx context.Context, r *Row) {
	// Half as many units as buyers, so that the stock runs out under way.
	var took time.Duration
	run := attack{name: "free run", stock: int64(l.Workers) * int64(l.Operations) / 2, run: func(a *arena) { //nolint:contextcheck // the arena has it
		for n, name := range []string{"one", "two"} {
			a.worker(name, func(s *setup) { s.load, s.Free = load{(l.Workers + 1 - n) / 2, l.Operations}, true })
		}
		a.finish(a.workers...)
		took = time.Since(a.began)
	}}
	var told tally
	r.Free, told = l.stage(ctx, r, run, "free", 0)
	r.merge(r.Free.Finding)
	r.Throughput = float64(told.count(pointDone, pointSoldOut)) / took.Seconds()
	r.Median, r.P99, r.Longest = told.quantile(0.5), told.quantile(0.99), told.quantile(1)
}

// stage has an attack, or the free run, on an account and a stock made for it, and judges it.
func (l *lab) stage(
	ctx context.Context, r *Row, a attack, part string, watched time.Duration,
) (found Attack, told tally) {
	on := &arena{strategy: r.strategy, watched: watched, unit: unit{ctx: ctx, setup: setup{
		site: l.site, load: load{1, 1}, Name: newID() + "-" + part, Lease: calmLease, Wait: certain, db: l.db,
	}}}
	defer func() {
		for _, w := range on.workers { // those that an error left behind hold and write keys that the lab removes
			w.kill()
		}
	}()
	var left figures
	must(a.name, try(func() {
		r.fill(on.unit, a.stock)
		on.began = time.Now()
		a.run(on)
		left = on.look(r.left)
	}))
	on.mu.Lock()
	defer on.mu.Unlock()
	return Attack{a.name, on.tally.judge(a.stock, left, a.lapses), slices.Clone(on.story)}, on.tally
}

func main() {
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer end()
	leave := testserver.Adopt()
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err := leave(); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
	}
	os.Exit(code)
}

// command runs the program and returns its exit code: 1 for a wrong verdict, 2 for wrong usage.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o := options{log: stderr, load: load{Operations: 50}}
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	flags.SetOutput(stderr)
	page := flags.String("html", "", "also write the table, and what each worker did, to this `file`")
	flags.IntVar(&o.Workers, "workers", 8,
		"how many work on one account, half of them in each of two processes (2 to 512)")
	err, code := flags.Parse(args), 2
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
	case flags.NArg() > 0 || o.Workers < 2 || o.Workers > 512:
		err = errors.New("see -help: there are no arguments but flags, and 2 to 512 workers")
	default:
		o.rows = catalog() //nolint:contextcheck // nothing is opened yet
		err, code = try(func() { o.report(ctx, stdout, *page) }), 1
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "lab:", err)
	return code
}

func (o options) report(ctx context.Context, stdout io.Writer, page string) {
	// What matters in the client's log comes back as errors too.
	redisdb.Log(slog.New(slog.DiscardHandler))
	r, err := experiment(ctx, o)
	stop(err)
	r.write(stdout)
	if page != "" {
		r.writePage(page)
	}
	stop(r.verdict())
}

type site struct {
	Quorum []string // three independent Redis, the fewest that survive the loss of one; the first is the single one
	DSN    string   // of an empty schema in MySQL or MariaDB
}

// open starts the servers it was not given and makes the tables.
func (l *lab) open(ctx context.Context) {
	for len(l.site.Quorum) < 3 {
		l.site.Quorum = append(l.site.Quorum, testserver.Redis(&l.host).URL()) //nolint:contextcheck // it ends with the run
	}
	if l.site.DSN == "" {
		server := testserver.MariaDB(&l.host) //nolint:contextcheck // it ends with the run
		l.site.DSN = server.AdminDSN(testserver.DefaultSchema)
	}
	l.db = l.host.database(ctx, l.site.DSN)
	must("make the product's tables", l.db.Migrate(ctx))
	_, err := l.db.SQL().ExecContext(ctx, accounts)
	must("make the lab's table", err)
}

// host is the lab, or a worker, as the servers of tests know a test: what it opens is undone with it.
type host struct {
	testing.TB

	ctx  context.Context //nolint:containedctx // of the run
	undo []func()
}

func (*host) Helper()                           {}
func (*host) Failed() bool                      { return false }
func (h *host) Context() context.Context        { return h.ctx }
func (h *host) Cleanup(undo func())             { h.undo = append(h.undo, undo) }
func (*host) Fatalf(format string, args ...any) { stop(fmt.Errorf(format, args...)) }
func (*host) Errorf(format string, args ...any) { stop(fmt.Errorf(format, args...)) }
func (*host) Error(args ...any)                 { stop(errors.New(fmt.Sprint(args...))) }
func (*host) Fatal(args ...any)                 { stop(errors.New(fmt.Sprint(args...))) }

func (h *host) redis(url string) redis.UniversalClient {
	client := got(redisdb.NewClient(url, nil, redisurl.Limits{Timeout: certain}))("open a Redis")
	h.Cleanup(func() { stop(client.Close()) })
	return client
}

func (h *host) database(ctx context.Context, dsn string) *sqldb.Database {
	db := got(sqldb.Open(ctx, sqldb.Options{DSN: dsn}))("open the database")
	h.Cleanup(func() { stop(db.Close()) })
	return db
}

func (h *host) end() error {
	var errs []error
	for _, undo := range slices.Backward(h.undo) {
		errs = append(errs, try(undo))
	}
	return errors.Join(errs...)
}
