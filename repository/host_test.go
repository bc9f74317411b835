package repository_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/sqldb"
)

// pair are two servers of one DSN, each with the tables of a migrated schema. They are no cluster and do not
// replicate: which of them is asked is told by its port.
type pair struct {
	first, second *testserver.Server
	dsn           string
	voucher       string // on sale at both
}

func newPair(t *testing.T) pair {
	t.Helper()
	p := pair{first: testserver.MariaDB(t), second: testserver.MariaDB(t), voucher: newID(t)}
	for _, server := range []*testserver.Server{p.first, p.second} {
		f := openFixture(t, stores()[0], sqldb.Options{DSN: server.DSN(testserver.DefaultSchema), Slack: check.Deadline})
		check.Must(t, f.db.Migrate(t.Context()))
		check.Must(t, check.ErrorOf(f.vouchers.Create(t.Context(), p.voucher, model.NewVoucher{
			Title: "Tea", Price: 1, Stock: 100_000, BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour),
		}, model.Idempotency{})))
	}
	p.dsn = strings.Replace(p.first.DSN(testserver.DefaultSchema), p.first.Addr(), p.first.Addr()+","+p.second.Addr(), 1)
	return p
}

func (p pair) open(t *testing.T) *fixture {
	t.Helper()
	return openFixture(t, stores()[0], sqldb.Options{DSN: p.dsn, Slack: check.Deadline})
}

// setReadOnly demotes or promotes a server.
func setReadOnly(t *testing.T, server *testserver.Server, demoted bool) {
	t.Helper()
	administer(t, server, fmt.Sprintf("SET GLOBAL read_only = %t", demoted))
}

func administer(t *testing.T, server *testserver.Server, statement string) {
	t.Helper()
	db := check.Value(sql.Open("mysql", server.AdminDSN("")))(t)
	defer db.Close()
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), statement)))
}

// port is the server that a question goes to.
func (f *fixture) port(ctx context.Context) (port int, err error) {
	err = f.db.SQL().QueryRowContext(ctx, "SELECT @@port").Scan(&port)
	return port, err
}

// fill opens every connection of the pool, tells each the statements, and lets them stand there.
func (f *fixture) fill(t *testing.T, statements ...string) {
	t.Helper()
	conns := make([]*sql.Conn, f.db.SQL().Stats().MaxOpenConnections)
	for i := range conns {
		conns[i] = check.Value(f.db.SQL().Conn(t.Context()))(t)
		for _, statement := range statements {
			check.Must(t, check.ErrorOf(conns[i].ExecContext(t.Context(), statement)))
		}
	}
	for _, conn := range conns {
		check.Must(t, conn.Close())
	}
}

// TestFirstServerThatTakesWrites is used at the start, and a demoted one is left for one that was promoted: by questions too,
// which it would still answer, and by every connection that stands in the pool. A dead one is left for the next.
func TestFirstServerThatTakesWrites(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	setReadOnly(t, p.first, true)
	log := &check.Log{}
	f := openFixture(t, stores()[0], sqldb.Options{DSN: p.dsn, Log: log.Logger(), Slack: check.Deadline})
	p.isAt(t, f, p.second)
	f.onSale(t, 1)
	f.fill(t)

	setReadOnly(t, p.second, true)
	wantCode(t, check.ErrorOf(f.orders.CreateOrders(t.Context(), []model.Order{order(t, p.voucher, "alice")})), model.CodeUnavailable)
	check.Must(t, check.ErrorOf(f.vouchers.Get(t.Context(), p.voucher))) // reads go on

	setReadOnly(t, p.first, false)
	check.Eventually(t, "the promoted one is asked", func() bool { return check.Value(f.port(t.Context()))(t) == p.first.Port() })
	conns := make([]*sql.Conn, f.db.SQL().Stats().MaxOpenConnections)
	for i := range conns {
		conns[i] = check.Value(f.db.SQL().Conn(t.Context()))(t)
		var port int
		check.Must(t, conns[i].QueryRowContext(t.Context(), "SELECT @@port").Scan(&port))
		check.Equal(t, fmt.Sprintf("the port of connection %d", i), port, p.first.Port())
	}
	for _, conn := range conns {
		check.Must(t, conn.Close())
	}

	setReadOnly(t, p.second, false)
	p.first.Kill()
	check.Must(t, f.place(t, order(t, p.voucher, "alice")).Err)
	p.isAt(t, f, p.second)
	p.isAt(t, p.open(t), p.second) // at the start too
	// The first one comes back and takes writes. It has missed some, so that it is not gone back to.
	p.first.Start()
	check.Eventually(t, "both take writes, which is noted", func() bool { return log.Has("no members of one Galera cluster") })
	p.isAt(t, f, p.second)
	p.nobodyHearsOfADemotion(t, f)
}

// isAt checks which server an instance uses.
func (p pair) isAt(t *testing.T, f *fixture, server *testserver.Server) {
	t.Helper()
	check.Equal(t, "the port", check.Value(f.port(t.Context()))(t), server.Port())
}

// nobodyHearsOfADemotion that a server was promoted before: what the demoted one refuses runs again on the other.
func (p pair) nobodyHearsOfADemotion(t *testing.T, f *fixture) {
	t.Helper()
	kept := func() (sum int64) {
		for _, server := range []*testserver.Server{p.first, p.second} {
			one := openFixture(t, stores()[0], sqldb.Options{DSN: server.DSN(testserver.DefaultSchema), Slack: check.Deadline})
			sum += one.number(t, "SELECT COUNT(*) FROM orders")
		}
		return sum
	}
	before := kept()
	setReadOnly(t, p.first, true)
	f.fill(t, "SET SESSION innodb_lock_wait_timeout = 1") // as in production: the demotion waits for a transaction that waits for a row
	var made atomic.Int32
	var load sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				err := check.ErrorOf(f.orders.CreateOrders(t.Context(), []model.Order{order(t, p.voucher, newID(t))}))
				if _, held := errors.AsType[*model.HeldError](err); held {
					continue
				}
				if err != nil {
					t.Errorf("an order: %v", err)
					return
				}
				made.Add(1)
			}
		})
	}
	await := func(n int32) {
		check.Eventually(t, "orders are made", func() bool { return made.Load() >= n || t.Failed() })
	}
	await(20)
	setReadOnly(t, p.first, false)
	setReadOnly(t, p.second, true)
	await(made.Load() + 100)
	stop()
	load.Wait()
	p.isAt(t, f, p.first)
	check.Equal(t, "orders that are kept", kept()-before, int64(made.Load()))
}
