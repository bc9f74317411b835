package repository_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
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
		f := openFixture(t, stores()[0], repository.Options{DSN: server.DSN(testserver.DefaultSchema)})
		must(t, f.db.Migrate(t.Context()))
		must(t, check.ErrorOf(f.vouchers.Create(t.Context(), p.voucher, model.NewVoucher{
			Title: "Tea", Price: 1, Stock: 100_000, BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour),
		}, model.Idempotency{})))
	}
	p.dsn = strings.Replace(p.first.DSN(testserver.DefaultSchema), p.first.Addr(), p.first.Addr()+","+p.second.Addr(), 1)
	return p
}

func (p pair) open(t *testing.T) *fixture {
	t.Helper()
	return openFixture(t, stores()[0], repository.Options{DSN: p.dsn})
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
	must(t, check.ErrorOf(db.ExecContext(t.Context(), statement)))
}

// port is the server that a question goes to.
func (f *fixture) port(ctx context.Context) (port int, err error) {
	err = f.db.SQL().QueryRowContext(ctx, "SELECT @@port").Scan(&port)
	return port, err
}

// fill opens every connection of the pool and lets them stand there.
func (f *fixture) fill(t *testing.T) {
	t.Helper()
	conns := make([]*sql.Conn, f.db.SQL().Stats().MaxOpenConnections)
	for i := range conns {
		conns[i] = check.Value(f.db.SQL().Conn(t.Context()))(t)
	}
	for _, conn := range conns {
		must(t, conn.Close())
	}
}

// TestFirstServerThatTakesWrites is used at the start, and a demoted one is left for one that was promoted: by
// questions too, which it would still answer, and by every connection that stands in the pool.
func TestFirstServerThatTakesWrites(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	setReadOnly(t, p.first, true)
	f := p.open(t)
	check.Equal(t, "the port", check.Value(f.port(t.Context()))(t), p.second.Port())
	f.onSale(t, 1)
	f.fill(t)

	setReadOnly(t, p.first, false)
	setReadOnly(t, p.second, true)
	demoted := time.Now()
	check.Eventually(t, "the promoted one is asked", func() bool { return check.Value(f.port(t.Context()))(t) == p.first.Port() })
	t.Logf("a question went to the promoted server %v after the other was demoted", time.Since(demoted))
	conns := make([]*sql.Conn, f.db.SQL().Stats().MaxOpenConnections)
	for i := range conns {
		conns[i] = check.Value(f.db.SQL().Conn(t.Context()))(t)
		var port int
		must(t, conns[i].QueryRowContext(t.Context(), "SELECT @@port").Scan(&port))
		check.Equal(t, fmt.Sprintf("the port of connection %d", i), port, p.first.Port())
	}
	for _, conn := range conns {
		must(t, conn.Close())
	}
	f.onSale(t, 1)
}

// TestNobodyHearsOfADemotion that a server was promoted before: what the demoted one refuses runs again on the other.
func TestNobodyHearsOfADemotion(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	setReadOnly(t, p.second, true)
	f := p.open(t)
	f.fill(t)
	var made atomic.Int32
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := check.ErrorOf(f.orders.CreateOrders(t.Context(), []model.Order{order(t, p.voucher, newID(t))})); err != nil {
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
	setReadOnly(t, p.second, false)
	setReadOnly(t, p.first, true)
	await(made.Load() + 100)
	close(stop)
	load.Wait()
	check.Equal(t, "the port", check.Value(f.port(t.Context()))(t), p.second.Port())
	var kept int64
	for _, server := range []*testserver.Server{p.first, p.second} {
		one := openFixture(t, stores()[0], repository.Options{DSN: server.DSN(testserver.DefaultSchema)})
		kept += one.number(t, "SELECT COUNT(*) FROM orders")
	}
	check.Equal(t, "orders that are kept", kept, int64(made.Load()))
}

// TestServerThatHangsIsLeft: also by those who wait for its answer.
func TestServerThatHangsIsLeft(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	f := p.open(t)
	f.fill(t)
	waiting := make(chan error, 1)
	conn := check.Value(f.db.SQL().Conn(t.Context()))(t)
	go func() { waiting <- check.ErrorOf(conn.ExecContext(context.Background(), "DO SLEEP(3)")) }()
	p.first.Pause()
	defer p.first.Resume()
	began := time.Now()
	must(t, f.place(t, order(t, p.voucher, "alice")).Err)
	t.Logf("a call took %v", time.Since(began))
	if err := <-waiting; err == nil {
		t.Error("the server that hangs has answered")
	}
	_ = conn.Close() // it is broken
	check.Equal(t, "the port", check.Value(f.port(t.Context()))(t), p.second.Port())
}

// TestServerThatDies is left for the next, at the start too.
func TestServerThatDies(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	log := &check.Log{}
	f := openFixture(t, stores()[0], repository.Options{DSN: p.dsn, Log: log.Logger()})
	f.fill(t)
	check.Equal(t, "the port", check.Value(f.port(t.Context()))(t), p.first.Port())
	p.first.Kill()
	must(t, f.place(t, order(t, p.voucher, "alice")).Err)
	check.Equal(t, "the port", check.Value(f.port(t.Context()))(t), p.second.Port())
	check.Equal(t, "the port of another instance", check.Value(p.open(t).port(t.Context()))(t), p.second.Port())

	// The first one comes back and takes writes. It has missed some, so that it is not gone back to.
	p.first.Start()
	check.Eventually(t, "both take writes, which is noted", func() bool { return log.Has("no members of one Galera cluster") })
	check.Equal(t, "the port", check.Value(f.port(t.Context()))(t), p.second.Port())
}

// TestNobodyTakesWrites: reads go on, writes are UNAVAILABLE at once.
func TestNobodyTakesWrites(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	f := p.open(t)
	v := f.onSale(t, 1)
	setReadOnly(t, p.first, true)
	setReadOnly(t, p.second, true)
	testserver.Within(t, longestAnswer, func(ctx context.Context) {
		wantCode(t, check.ErrorOf(f.orders.CreateOrders(ctx, []model.Order{order(t, v.ID, "alice")})), model.CodeUnavailable)
	})
	must(t, check.ErrorOf(f.vouchers.Get(t.Context(), v.ID)))
	setReadOnly(t, p.first, false)
	must(t, f.place(t, order(t, v.ID, "alice")).Err)
}

// TestAddressThatMoves: behind one address there may be another server once a write was refused. No connection that
// was made before is used when writes are taken again.
func TestAddressThatMoves(t *testing.T) {
	t.Parallel()
	f, server, _ := ownServer(t, repository.StockConditional)
	f.fill(t)
	newest := f.number(t, "SELECT MAX(id) FROM information_schema.processlist")
	setReadOnly(t, server, true)
	wantCode(t, f.accounts.Create(t.Context(), model.Account{ID: "a", Username: "abc", Role: model.RoleUser}), model.CodeUnavailable)
	setReadOnly(t, server, false)
	check.Eventually(t, "the connections are new", func() bool { return f.number(t, "SELECT CONNECTION_ID()") > newest })
	for range f.db.SQL().Stats().MaxOpenConnections {
		conn := check.Value(f.db.SQL().Conn(t.Context()))(t)
		defer func() { must(t, conn.Close()) }()
		var id int64
		must(t, conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
		if id <= newest {
			t.Errorf("connection %d was made before the write was refused", id)
		}
	}
}

// TestClaimMoves: a named lock is a server's. It is taken on the server in use.
func TestClaimMoves(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	setReadOnly(t, p.second, true)
	f := p.open(t)
	claim := f.db.Exclusive("embedded")
	defer func() { must(t, claim.Close()) }()
	holder := func(server *testserver.Server) bool {
		held := check.Value(claim.Held(t.Context()))(t)
		db := check.Value(sql.Open("mysql", server.AdminDSN("")))(t)
		defer db.Close()
		var free bool
		must(t, db.QueryRowContext(t.Context(), "SELECT IS_FREE_LOCK('seckill.seckill.embedded')").Scan(&free))
		return held && !free
	}
	check.Eventually(t, "the claim is held on the first server", func() bool { return holder(p.first) })
	setReadOnly(t, p.second, false)
	setReadOnly(t, p.first, true)
	check.Eventually(t, "the claim is held on the second server", func() bool { return holder(p.second) })
}
