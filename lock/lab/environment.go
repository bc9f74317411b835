package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"seckill/internal/embedded"
	"seckill/internal/poll"
	"seckill/internal/workshop/testserver"
	"seckill/repository/sqldb"
)

// quorumSize is the number of instances of the quorum rows: the smallest that survives the loss of one.
const quorumSize = 3

// site is where a run takes place.
type site struct {
	Prefix string   // of every key; unique to the run
	Redis  string   // the single instance
	Quorum []string // three independent ones
	DSN    string   // empty without MySQL
}

func (l *lab) open(ctx context.Context) {
	l.site.Prefix = "seckill:lab:" + newID() + ":"
	l.places = map[backing]string{
		onRedis: "redis", onQuorum: fmt.Sprintf("redis ×%d", quorumSize), onSQL: "mysql", onMySQL: "mysql",
	}
	l.openRedis(ctx)
	l.openDatabase(ctx)
}

// openRedis starts three instances, embedded ones where none is installed. The last one is also the single one.
func (l *lab) openRedis(ctx context.Context) {
	real := l.own && installed("redis-server")
	for range quorumSize {
		var url string
		if real {
			url = testserver.Redis(host{ctx: ctx, undo: &l.undo}).URL() //nolint:contextcheck // it ends with the run
		} else {
			server := got(embedded.StartRedis())("start a Redis")
			l.undo.add(func(context.Context) { server.Close() })
			url = server.URL()
		}
		l.site.Quorum = append(l.site.Quorum, url)
		l.site.Redis = url
	}
	if !real {
		l.places[onRedis], l.places[onQuorum] = "embedded", fmt.Sprintf("embedded ×%d", quorumSize)
	}
	l.single = newClient(l.site.Redis)
	l.undo.closes(l.single)
}

// openDatabase makes the tables of the product, that of its MySQL locks among them, and the lab's own.
func (l *lab) openDatabase(ctx context.Context) {
	options := sqldb.Options{DSN: l.dsn}
	if l.own {
		options.DSN = l.ownDatabase(ctx)
	}
	if options.DSN == "" {
		l.places[onSQL] = "sqlite"
		options.SQLiteFile = filepath.Join(l.undo.dir(), "lab.db")
	}
	l.site.DSN = options.DSN
	l.db = got(sqldb.Open(ctx, options))("open the database")
	l.undo.closes(l.db)
	must("make the product's tables", l.db.Migrate(ctx))
	_, err := l.db.SQL().ExecContext(ctx, accounts)
	must("make the lab's table", err)
}

// ownDatabase starts a MariaDB for the run. It returns "" where none is installed.
func (l *lab) ownDatabase(ctx context.Context) (dsn string) {
	if !installed("mariadbd") {
		return ""
	}
	server := testserver.MariaDB(host{ctx: ctx, undo: &l.undo}) //nolint:contextcheck // it ends with the run
	db := got(sql.Open("mysql", server.AdminDSN("")))("open the database")
	defer db.Close()
	_, err := db.ExecContext(ctx, "CREATE DATABASE lab")
	must("make a schema", err)
	return server.AdminDSN("lab")
}

// key names a key of the lock or the account.
func (s setup) key(name string) string { return s.Prefix + s.Name + ":" + name }

// connect opens a client of a lock's own.
func (s setup) connect(url string) *redis.Client {
	client := newClient(url)
	s.undo.closes(client)
	return client
}

// ioTimeout bounds one answer of Redis: far longer than a healthy one takes, far shorter than the run.
const ioTimeout = 10 * time.Second

func newClient(url string) *redis.Client {
	options := got(redis.ParseURL(url))("read the URL of a Redis")
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = ioTimeout, ioTimeout, ioTimeout
	options.ContextTimeoutEnabled = true
	options.DisableIdentity = true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(options)
}

// cleanup is what has to be undone, the last first.
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

// dir makes a directory.
func (c *cleanup) dir() string {
	dir := got(os.MkdirTemp("", "lab-"))("make a directory")
	c.add(func(context.Context) { stop(os.RemoveAll(dir)) })
	return dir
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

// installed reports whether there is a program, also where only root looks.
func installed(name string) bool {
	_, err := exec.LookPath(name)
	_, other := exec.LookPath(filepath.Join("/usr/sbin", name))
	return err == nil || other == nil
}

// promoted: the line between a primary and its replica fails, A locks, and the replica is made the primary, which B
// asks. The old one is gone, or, in a split brain, lives and takes writes.
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
			if a.strategy.on == onQuorum {
				a.joined(others)
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

// replicaOf starts a server that has another one's data.
func (a *arena) replicaOf(servers host, primary *testserver.Server) *testserver.Server {
	replica := testserver.Redis(servers, "--replicaof", "127.0.0.1", strconv.Itoa(primary.Port()), "--repl-diskless-sync-delay", "0")
	client := newClient(replica.URL())
	defer client.Close()
	ctx, cancel := context.WithTimeout(a.ctx, certain)
	defer cancel()
	must("wait for the replica", poll.Until(ctx, startPoll, func() (bool, error) {
		info, err := client.Info(ctx, "replication").Result()
		return strings.Contains(info, "master_link_status:up"), err
	}))
	return replica
}

// startPoll is between two looks at what is about to be.
const startPoll = 20 * time.Millisecond

// joined waits until all of those instances have the lock. A majority has it with one of them, and the promoted
// instance and the other would be a majority too: what RedLock survives is a promotion of one of more than it needs.
func (a *arena) joined(urls []string) {
	ctx, cancel := context.WithTimeout(a.ctx, certain)
	defer cancel()
	for _, url := range urls {
		client := newClient(url)
		defer client.Close()
		must("wait until each instance has the lock", poll.Until(ctx, startPoll, func() (bool, error) {
			n, err := client.Exists(ctx, a.setup.key("lock")).Result()
			return n == 1, err
		}))
	}
}
