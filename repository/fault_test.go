//part:stores

package repository_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

// inDoubt is how long a call goes on whose COMMIT cannot be decided while its server is away. It is meant to run out.
const inDoubt = time.Second

func ownServer(t *testing.T, args ...string) (*fixture, *testserver.Server, *sql.DB) {
	t.Helper()
	server := testserver.MariaDB(t, args...)
	admin := check.Value(sql.Open("mysql", server.AdminDSN("")))(t)
	t.Cleanup(func() { check.Must(t, admin.Close()) })
	f := openFixture(t, stores()[0], sqldb.Options{DSN: server.DSN(testserver.DefaultSchema), Slack: check.Deadline})
	check.Must(t, f.db.Migrate(t.Context()))
	return f, server, admin
}

func (f *fixture) unavailable(t *testing.T, voucherID string) {
	t.Helper()
	calls := map[string]func(context.Context) error{
		"create orders": func(ctx context.Context) error {
			return check.ErrorOf(f.orders.CreateOrders(ctx, []model.Order{order(t, voucherID, newID(t))}))
		},
		"get": func(ctx context.Context) error { return check.ErrorOf(f.vouchers.Get(ctx, voucherID)) },
		"patch": func(ctx context.Context) error {
			return check.ErrorOf(f.vouchers.Patch(ctx, voucherID, model.VoucherPatch{Title: new("x")}))
		},
		"list": func(ctx context.Context) error {
			return check.ErrorOf(f.orders.List(ctx, model.OrderQuery{VoucherID: voucherID}))
		},
		"account": func(ctx context.Context) error {
			return f.accounts.Create(ctx, model.Account{ID: newID(t), Username: newID(t), Role: model.RoleUser})
		},
		"ping":  f.db.Ping,
		"ready": f.db.Ready,
	}
	names := slices.Collect(maps.Keys(calls))
	check.Volley(len(names), func(i int) { wantCode(t, calls[names[i]](t.Context()), model.CodeUnavailable) })
}

func (f *fixture) fill(t *testing.T) {
	t.Helper()
	conns := make([]*sql.Conn, f.db.SQL().Stats().MaxOpenConnections)
	for i := range conns {
		conns[i] = check.Value(f.db.SQL().Conn(t.Context()))(t)
	}
	for _, conn := range conns {
		check.Must(t, conn.Close())
	}
}

// The server refuses writes and still reads. Later calls use new connections: its address may lead to another server.
func TestServerReadOnly(t *testing.T) {
	t.Parallel()
	f, _, admin := ownServer(t)
	readOnly := func(mode string) {
		check.Must(t, check.ErrorOf(admin.ExecContext(t.Context(), "SET GLOBAL read_only = "+mode)))
	}
	v := f.onSale(t, 10)
	f.fill(t)
	newest := f.number(t, "SELECT MAX(id) FROM information_schema.processlist")
	readOnly("ON")
	err := check.ErrorOf(f.orders.CreateOrders(t.Context(), []model.Order{order(t, v.ID, "alice")}))
	wantCode(t, err, model.CodeUnavailable)
	check.That(t, !errors.Is(err, model.ErrUnknownOutcome), "%v: it was refused", err)
	wantCode(t, f.accounts.Create(t.Context(), model.Account{ID: "a", Username: "abc", Role: model.RoleUser}),
		model.CodeUnavailable)
	check.Is(t, "reading", check.ErrorOf(f.vouchers.Get(t.Context(), v.ID)), nil)
	if err := f.db.Ready(t.Context()); model.CodeOf(err) != model.CodeUnavailable ||
		!strings.Contains(err.Error(), "takes no writes") {
		t.Errorf("it is ready: %v", err)
	}
	readOnly("OFF")
	check.Must(t, f.db.Ready(t.Context()))
	check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
	f.balanced(t, v.ID, 1)

	check.Eventually(t, "the connections are new",
		func() bool { return f.number(t, "SELECT CONNECTION_ID()") > newest })
	for range f.db.SQL().Stats().MaxOpenConnections {
		conn := check.Value(f.db.SQL().Conn(t.Context()))(t)
		defer func() { check.Must(t, conn.Close()) }()
		var id int64
		check.Must(t, conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
		check.That(t, id > newest, "connection %d was made before the write was refused", id)
	}
}

func TestStrategiesDiffer(t *testing.T) {
	t.Parallel()
	overMySQL(t, func(t *testing.T, strategy model.StockStrategy) {
		var mu sync.Mutex
		var all []string
		near, far := throughWire(t, strategy, func(_ *wire, statement string) verdict {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, statement)
			return pass
		})
		far.orders.LookFirst()
		v := near.onSale(t, 3)
		check.Must(t, far.place(t, order(t, v.ID, "alice")).Err)
		said := slices.DeleteFunc(slices.Clone(all),
			func(statement string) bool { return !strings.Contains(statement, v.ID) })
		check.Need(t, len(said) == 4, "%d statements: %q", len(said), said)
		read, existing, take, insert := said[0], said[1], said[2], said[3]
		for what, found := range map[string]bool{
			"it reads the voucher":              strings.HasPrefix(read, "SELECT"),
			"the pessimistic one locks its row": strings.Contains(read, "FOR UPDATE") == (strategy == model.StockPessimistic),
			"orders are not locked":             !strings.Contains(existing, "FOR UPDATE") && !strings.Contains(strings.ToUpper(existing), "LOCK IN SHARE MODE"),
			"it takes a unit":                   strings.Contains(take, "SET remaining = remaining - 1, version = version + 1"),
			"it takes with a guard":             strings.Contains(take, "remaining >= 1"),
			"it inserts":                        strings.HasPrefix(insert, "INSERT INTO orders"),
		} {
			check.That(t, found, "not true: %s: %q", what, said)
		}
		_, condition, _ := strings.Cut(take, "WHERE")
		check.Equal(t, "it compares the version", strings.Contains(condition, "version ="),
			strategy == model.StockOptimistic)
		check.Equal(t, "it compares the revision", strings.Contains(condition, "revision ="),
			strategy == model.StockConditional)
		for _, statement := range all {
			if strings.HasPrefix(statement, "INSERT IGNORE") || strings.Contains(statement, "ON DUPLICATE KEY") ||
				strings.HasPrefix(statement, "REPLACE INTO") {
				t.Errorf("it says: %s", statement)
			}
		}
	})
}

// Mixed batches, stock changes and patches have one order of locks: the server ends no transaction for another's sake.
func TestNoDeadlocks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		open func(testing.TB, store) *fixture
		run  func(*testing.T, *fixture)
	}{"mixed": {newFixture, mixedVouchers}, "bedlam": {newAsync, runBedlam}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			over(t, stores(), test.open, func(t *testing.T, f *fixture) {
				deadlocks := new(atomic.Int32)
				if f.store.dialect == "mysql" {
					f, deadlocks = f.watched(t, f.store.strategy)
				}
				test.run(t, f)
				check.Equal(t, "deadlocks", deadlocks.Load(), 0)
			})
		})
	}
}

// A node without quorum refuses the ROLLBACK too: a next BEGIN on that connection would commit units of no order.
func TestRefusedRollback(t *testing.T) {
	t.Parallel()
	overMySQL(t, func(t *testing.T, strategy model.StockStrategy) {
		var rollbacks atomic.Int32
		var lost atomic.Bool // the quorum
		near, far := throughWire(t, strategy, func(_ *wire, statement string) verdict {
			switch {
			case !lost.Load():
				return pass
			case statement == "ROLLBACK":
				rollbacks.Add(1)
				return refuse
			case strings.HasPrefix(statement, "INSERT"), strings.HasPrefix(statement, "UPDATE orders"):
				return refuse
			}
			return pass
		})
		v := near.onSale(t, 20)
		sold := order(t, v.ID, "alice")
		check.Must(t, far.place(t, sold).Err)
		lost.Store(true)
		for i := range 3 {
			refused := []model.Order{order(t, v.ID, user(i)), order(t, v.ID, user(100+i))}
			wantCode(t, check.ErrorOf(far.orders.CreateOrders(t.Context(), refused)), model.CodeUnavailable)
			_, _, err := far.cancel(t.Context(), sold.UserID, sold.ID)
			wantCode(t, err, model.CodeUnavailable)
		}
		lost.Store(false)
		check.Need(t, rollbacks.Load() >= 6, "%d refused ROLLBACKs", rollbacks.Load())
		for i := range 5 {
			check.Must(t, far.place(t, order(t, v.ID, user(200+i))).Err)
		}
		near.balanced(t, v.ID, 6)
	})
}

// TestRefusedCommitIsUnknown: what cannot be repeated says that it may have happened.
func TestRefusedCommitIsUnknown(t *testing.T) {
	t.Parallel()
	_, far := throughWire(t, model.StockConditional, func(_ *wire, statement string) verdict {
		if statement == "COMMIT" {
			return denied
		}
		return pass
	})
	err := far.accounts.Create(context.Background(), model.Account{ID: "a", Username: "abc", Role: model.RoleUser})
	wantUnknown(t, err)
}

// TestFailedEndClosesTheConnection: SQLite's connections, too, do not outlive a COMMIT or ROLLBACK that failed.
func TestFailedEndClosesTheConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store{dialect: "sqlite", strategy: model.StockConditional})
	f.db.SQL().SetMaxOpenConns(1)
	for name, end := range map[string]func(*sql.Tx) error{"commit": (*sql.Tx).Commit, "rollback": (*sql.Tx).Rollback} {
		f.exec(t, "PRAGMA cache_size = 77") // marks the connection
		tx := f.begin(t)
		execTx(t, tx, "ROLLBACK") // there is nothing left to end
		check.Need(t, end(tx) != nil, "%s of no transaction", name)
		size := f.number(t, "PRAGMA cache_size")
		check.That(t, size != 77, "%s failed, and its connection goes on", name)
		check.Must(t, f.place(t, order(t, f.onSale(t, 1).ID, "alice")).Err)
	}
}

// A server looks at an account's rights when a connection opens: one opened while they were revoked is not used again.
func TestGrantedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, stores()[0])
	cfg := check.Value(mysql.ParseDSN(f.options.DSN))(t)
	cfg.User = "root"
	admin := check.Value(sql.Open("mysql", cfg.FormatDSN()))(t)
	defer admin.Close()
	run := func(statement string) { check.Must(t, check.ErrorOf(admin.ExecContext(t.Context(), statement))) }
	cfg.User = "shop_" + cfg.DBName // the server is shared
	account := cfg.User + "@'127.0.0.1'"
	run("CREATE USER " + account)
	defer run("DROP USER " + account)
	run("GRANT SELECT ON " + cfg.DBName + ".* TO " + account)
	db := check.Value(sqldb.Open(t.Context(), sqldb.Options{DSN: cfg.FormatDSN(), Slack: check.Deadline}))(t)
	defer func() { check.Must(t, db.Close()) }()
	const insert = "INSERT INTO releases (order_id, voucher_id, user_id) VALUES ('o', 'v', 'u')"
	if _, err := db.SQL().ExecContext(t.Context(), insert); err == nil {
		t.Fatal("an account may do what it was not granted")
	}
	run("GRANT INSERT ON " + cfg.DBName + ".* TO " + account)
	check.Must(t, check.ErrorOf(db.SQL().ExecContext(t.Context(), insert)))
}

// Much that is done at once is split on a server of small packets; one that takes no voucher is refused at the start.
func TestStatementsAreAsLargeAsTheServerTakes(t *testing.T) {
	t.Parallel()
	f, server, admin := ownServer(t, "--max-allowed-packet=64K")
	f.db.Events = true
	const many = 1000
	long := func(i int) string { return fmt.Sprintf("%064d", i) }
	v := f.coolingDown(t, many, time.Hour)
	orders := make([]model.Order, many)
	cancellations := make([]model.Cancellation, many)
	ids := make([]string, many)
	for i := range orders {
		id := long(i)[len(v.ID)+1:] // as long as an id may be, with the voucher's
		orders[i] = model.Order{ID: model.OrderID(id, v.ID), VoucherID: v.ID, UserID: long(i)}
		cancellations[i], ids[i] = model.Cancellation{OrderID: orders[i].ID, UserID: orders[i].UserID}, orders[i].ID
	}
	for range 2 { // the second finds them
		for _, outcome := range f.create(t, orders...) {
			check.Must(t, outcome.Err)
		}
	}
	f.balanced(t, v.ID, many)
	check.Equal(t, "orders that are known", len(check.Value(f.orders.Find(t.Context(), ids))(t)), many)
	check.Must(t, check.ErrorOf((&repository.Payments{DB: f.db}).Started(t.Context(), ids)))
	for _, answer := range check.Value(f.orders.Cancel(t.Context(), cancellations))(t) {
		check.That(t, answer.Changed && answer.Err == nil, "canceled: %v", answer.Err)
	}
	f.balanced(t, v.ID, 0)

	l := lotteryOf(lifeOf(f))
	drawn := l.toDraw(t, many/2)
	entering := make([]model.Entering, many)
	for i := range entering {
		entering[i] = model.Entering{VoucherID: drawn.ID, UserID: long(i)}
	}
	for _, answer := range check.Value(l.draws.Enter(t.Context(), entering))(t) {
		check.Must(t, answer.Err)
	}
	l.over(t, drawn.ID)
	check.Equal(t, "users who are served", len(l.drawn(t, drawn.ID, many, 1)), many)
	f.balanced(t, drawn.ID, many/2)

	check.Must(t, check.ErrorOf(admin.ExecContext(t.Context(), "SET GLOBAL max_allowed_packet = 16384")))
	_, err := sqldb.Open(t.Context(), sqldb.Options{DSN: server.DSN(testserver.DefaultSchema), Slack: check.Deadline})
	check.That(t, err != nil && strings.Contains(err.Error(), "max_allowed_packet"), "the start: %v", err)
}
