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
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"seckill/internal/poll"
	"seckill/internal/redisdb"
	"seckill/internal/redisurl"
	"seckill/internal/workshop/testserver"
	"seckill/repository/sqldb"
)

type options struct {
	load
	site     site      // tests: servers that run already
	log      io.Writer // is told how far the run is
	rows     []strategy
	wait     time.Duration // tests: how long the last worker waits for a lock that is gone, or its own
	patience time.Duration // tests: how long to wait at least for what must not happen
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
	db     *sqldb.Database
	single redis.UniversalClient // of the single instance
	undo   cleanup
}

// experiment runs the laboratory and removes what it made. An error means no report; a failed row is part of a report.
func experiment(ctx context.Context, o options) (r report, err error) {
	began, l := time.Now(), &lab{options: o}
	err = try(func() {
		l.open(ctx)
		r = report{load: o.load, Rows: l.run(ctx)}
	})
	r.Took = time.Since(began)
	return r, errors.Join(err, l.undo.run(ctx))
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
				for n := range watchedLeases {
					found, told := l.stage(ctx, r, a, fmt.Sprintf("a%d.%d", i, n), watchedLease<<n)
					r.Attacks[i] = found
					wrong := r.broken() && !r.mended
					if wrong && found.shows(r.defect) || !wrong && (told.count(pointRefused) == 0 || a.lapses) {
						break
					}
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
	run := attack{name: "free run", stock: int64(l.Workers) * int64(l.Operations) / 2, run: func(a *arena) {
		first, second := l.load, l.load
		second.Workers /= 2
		first.Workers -= second.Workers
		a.worker("one", func(s *setup) { s.Load = &first })
		a.worker("two", func(s *setup) { s.Load = &second })
		a.finish(a.workers...)
		took = time.Since(a.began)
	}}
	ran, told := l.stage(ctx, r, run, "free", 0)
	r.Free = ran.Finding
	r.merge(r.Free)
	r.Throughput = float64(told.count(pointDone, pointSoldOut)) / took.Seconds()
	r.Median, r.P99, r.Longest = told.quantile(0.5), told.quantile(0.99), told.quantile(1)
}

// stage has an attack, or the free run, on an account and a stock made for it, and judges it.
func (l *lab) stage(
	ctx context.Context, r *Row, a attack, part string, watched time.Duration,
) (found Attack, told tally) {
	with := setup{
		site: l.site, Name: newID() + "-" + part, Lease: calmLease, Wait: certain, db: l.db, redis: l.single,
	}
	on := &arena{ctx: ctx, strategy: r.strategy, watched: watched, wait: l.wait, patience: l.patience, setup: with}
	defer on.clear()
	var left figures
	must(a.name, try(func() {
		r.ledger.open(unit{setup: with, ctx: ctx}, a.stock)
		on.began = time.Now()
		a.run(on)
		left = r.ledger.read(unit{setup: with, ctx: ctx})
	}))
	found = Attack{Name: a.name, Finding: on.tally.judge(a.stock, left, a.lapses)}
	for _, w := range on.workers {
		found.Holds = append(found.Holds, w.hold())
	}
	return found, on.tally
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

var errUsage = errors.New("see -help")

// command runs the program and returns its exit code: 1 for a wrong verdict, 2 for wrong usage.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := try(func() { execute(ctx, args, stdout, stderr) })
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(stderr, "lab:", err)
	return map[bool]int{true: 2, false: 1}[errors.Is(err, errUsage)]
}

func execute(ctx context.Context, args []string, stdout, stderr io.Writer) {
	o := options{log: stderr, load: load{Operations: 50, Duration: 2 * time.Second, Think: 200 * time.Microsecond}}
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	flags.SetOutput(stderr)
	replicas := flags.Bool("real", false, "also locks whose replica is promoted, and a split brain")
	page := flags.String("html", "", "also write the table and the time lines to this `file`")
	flags.IntVar(&o.Workers, "workers", 8,
		"how many work on one account, half of them in each of two processes (2 to 512)")
	if err := flags.Parse(args); err != nil {
		stop(errors.Join(err, errUsage))
	}
	if flags.NArg() > 0 || o.Workers < 2 || o.Workers > 512 {
		stop(fmt.Errorf("%w: there are no arguments but flags, and 2 to 512 workers", errUsage))
	}
	o.rows = slices.DeleteFunc(catalog(), func(s strategy) bool { return s.replicas && !*replicas }) //nolint:contextcheck // nothing is opened yet
	// What matters in the client's log comes back as errors too.
	redisdb.Log(slog.New(slog.DiscardHandler))
	r, err := experiment(ctx, o)
	stop(err)
	r.write(stdout)
	if *page != "" {
		r.writePage(*page)
	}
	stop(r.verdict())
}

type site struct {
	Prefix string   // of every key; unique to the run
	Redis  string   // the single instance
	Quorum []string // three independent ones: the smallest number that survives the loss of one
	DSN    string   // of an empty schema in MySQL or MariaDB
}

// open starts the servers it was not given and makes the tables. The last of three Redis is also the single one.
func (l *lab) open(ctx context.Context) {
	servers := host{ctx: ctx, undo: &l.undo}
	l.site.Prefix = "seckill:lab:" + newID() + ":"
	for len(l.site.Quorum) < 3 {
		l.site.Quorum = append(l.site.Quorum, testserver.Redis(servers).URL()) //nolint:contextcheck // it ends with the run
	}
	l.site.Redis = l.site.Quorum[2]
	l.single = newClient(l.site.Redis)
	l.undo.closes(l.single)
	if l.site.DSN == "" {
		l.site.DSN = testserver.MariaDB(servers).AdminDSN(testserver.DefaultSchema) //nolint:contextcheck // it ends with the run
	}
	l.db = got(sqldb.Open(ctx, sqldb.Options{DSN: l.site.DSN}))("open the database")
	l.undo.closes(l.db)
	must("make the product's tables", l.db.Migrate(ctx))
	_, err := l.db.SQL().ExecContext(ctx, accounts)
	must("make the lab's table", err)
}

func (s setup) key(name string) string { return s.Prefix + s.Name + ":" + name }

func (s setup) connect(url string) redis.UniversalClient {
	client := newClient(url)
	s.undo.closes(client)
	return client
}

func newClient(url string) redis.UniversalClient {
	return got(redisdb.NewClient(url, nil, redisurl.Limits{Timeout: certain}))("open a Redis")
}

type cleanup []func(context.Context)

func (c *cleanup) add(undo func(context.Context)) { *c = append(*c, undo) }

func (c *cleanup) closes(what io.Closer) { c.add(func(context.Context) { stop(what.Close()) }) }

// cleanUpBudget bounds the removal of what was made, also of a run that was interrupted.
const cleanUpBudget = 20 * time.Second

func (c *cleanup) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBudget)
	defer cancel()
	var errs []error
	for _, undo := range slices.Backward(*c) {
		errs = append(errs, try(func() { undo(ctx) }))
	}
	return errors.Join(errs...)
}

// host is the lab as the servers of tests know a test: what it opens is undone with the run.
type host struct {
	testing.TB

	ctx  context.Context //nolint:containedctx // of the run
	undo *cleanup
}

func (host) Helper()                           {}
func (host) Failed() bool                      { return false }
func (h host) Context() context.Context        { return h.ctx }
func (h host) Cleanup(undo func())             { h.undo.add(func(context.Context) { undo() }) }
func (host) Fatalf(format string, args ...any) { stop(fmt.Errorf(format, args...)) }
func (host) Errorf(format string, args ...any) { stop(fmt.Errorf(format, args...)) }
func (host) Error(args ...any)                 { stop(errors.New(fmt.Sprint(args...))) }
func (host) Fatal(args ...any)                 { stop(errors.New(fmt.Sprint(args...))) }

// promoted: A locks on a primary cut off from its replica. B asks the replica, now promoted; the old may live on.
func promoted(gone bool) attack {
	name := "split brain"
	if gone {
		name = "replica promoted"
	}
	return attack{name: name, stock: 1, lapses: true, run: func(a *arena) {
		var undo cleanup
		err := try(func() {
			servers := host{ctx: a.ctx, undo: &undo}
			old := testserver.Redis(servers, "--repl-diskless-sync-delay", "0")
			replica := a.replicaOf(servers, old)
			a.replicaOf(servers, replica) // stands behind the new primary
			told := newClient(replica.URL())
			undo.closes(told)
			must("cut the line to the replica", told.ReplicaOf(a.ctx, "127.0.0.1", "1").Err()) // nobody is there
			others := a.setup.Quorum[1:]
			at := func(r *testserver.Server) func(*setup) {
				return func(s *setup) {
					s.Redis = r.URL()
					s.Quorum = append([]string{s.Redis}, others...)
				}
			}
			first := a.stands("A", []point{pointRead}, at(old))
			if a.strategy.On == onQuorum {
				// RedLock survives a promotion of one of more instances than it needs: each must have the lock first.
				for _, url := range others {
					a.awaits("each instance has the lock", url,
						func(ctx context.Context, client redis.UniversalClient) (bool, error) {
							n, err := client.Exists(ctx, a.setup.key("lock")).Result()
							return n == 1, err
						})
				}
			}
			if gone {
				old.Kill()
			}
			must("promote the replica", told.ReplicaOf(a.ctx, "NO", "ONE").Err())
			second := a.worker("B", at(replica))
			second.to(a.forbidden(), pointRead)
			a.finish(first, second)
		})
		stop(errors.Join(err, undo.run(a.ctx)))
	}}
}

func (a *arena) replicaOf(servers host, primary *testserver.Server) *testserver.Server {
	replica := testserver.Redis(servers, "--replicaof", "127.0.0.1", strconv.Itoa(primary.Port()),
		"--repl-diskless-sync-delay", "0")
	a.awaits("the replica follows", replica.URL(),
		func(ctx context.Context, client redis.UniversalClient) (bool, error) {
			info, err := client.Info(ctx, "replication").Result()
			return strings.Contains(info, "master_link_status:up"), err
		})
	return replica
}

func (a *arena) awaits(what, url string, is func(context.Context, redis.UniversalClient) (bool, error)) {
	const every = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(a.ctx, certain)
	defer cancel()
	client := newClient(url)
	defer client.Close()
	must("wait until "+what, poll.Until(ctx, every, func() (bool, error) { return is(ctx, client) }))
}
