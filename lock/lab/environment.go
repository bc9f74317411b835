package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"seckill/internal/poll"
	"seckill/internal/redisdb"
	"seckill/internal/workshop/testserver"
	"seckill/repository/sqldb"
)

// site is where a run takes place.
type site struct {
	Prefix string   // of every key; unique to the run
	Redis  string   // the single instance
	Quorum []string // three independent ones: the smallest number that survives the loss of one
	DSN    string   // of an empty schema in MySQL or MariaDB
}

// open starts the servers that it was not given, and makes the tables of the product, that of its MySQL locks among
// them, and the lab's own. The last of three Redis is also the single one.
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

// key names a key of the lock or the account.
func (s setup) key(name string) string { return s.Prefix + s.Name + ":" + name }

// connect opens a client of a lock's own.
func (s setup) connect(url string) redis.UniversalClient {
	client := newClient(url)
	s.undo.closes(client)
	return client
}

func newClient(url string) redis.UniversalClient {
	return got(redisdb.NewClient(url, nil))("open a Redis")
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
			if a.strategy.On == onQuorum {
				// A majority has it with one of them, and the promoted instance and the other would be a majority too: what
				// RedLock survives is a promotion of one of more than it needs.
				for _, url := range others {
					a.awaits("each instance has the lock", url, func(ctx context.Context, client redis.UniversalClient) (bool, error) {
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

// replicaOf starts a server that has another one's data.
func (a *arena) replicaOf(servers host, primary *testserver.Server) *testserver.Server {
	replica := testserver.Redis(servers, "--replicaof", "127.0.0.1", strconv.Itoa(primary.Port()), "--repl-diskless-sync-delay", "0")
	a.awaits("the replica follows", replica.URL(), func(ctx context.Context, client redis.UniversalClient) (bool, error) {
		info, err := client.Info(ctx, "replication").Result()
		return strings.Contains(info, "master_link_status:up"), err
	})
	return replica
}

// awaits looks at a server until something is so.
func (a *arena) awaits(what, url string, is func(context.Context, redis.UniversalClient) (bool, error)) {
	const every = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(a.ctx, certain)
	defer cancel()
	client := newClient(url)
	defer client.Close()
	must("wait until "+what, poll.Until(ctx, every, func() (bool, error) { return is(ctx, client) }))
}
