package repository_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

// longestAnswer is what a call may take when the server is in trouble: the
// budget of 4.5 s, and what a busy machine under the race detector adds.
const longestAnswer = 6 * time.Second

// ownServer is a fixture on a MariaDB of its own, and its administrator.
func ownServer(t *testing.T, strategy repository.StockStrategy, args ...string) (*fixture, *testserver.Server, *sql.DB) {
	t.Helper()
	server := testserver.MariaDB(t, args...)
	admin := check.Value(sql.Open("mysql", server.AdminDSN("")))(t)
	t.Cleanup(func() { must(t, admin.Close()) })
	must(t, check.ErrorOf(admin.ExecContext(t.Context(), "CREATE DATABASE fault")))
	f := openFixture(t, store{dialect: "mysql", strategy: strategy}, repository.Options{DSN: server.DSN("fault")})
	must(t, f.db.Migrate(t.Context()))
	return f, server, admin
}

// unavailable checks that every kind of call says UNAVAILABLE, in time.
func (f *fixture) unavailable(t *testing.T, voucherID string) {
	t.Helper()
	title := "x"
	calls := map[string]func(context.Context) error{
		"create orders": func(ctx context.Context) error {
			_, err := f.orders.CreateOrders(ctx, []model.Order{order(t, voucherID, newID(t))})
			return err
		},
		"get": func(ctx context.Context) error {
			_, err := f.vouchers.Get(ctx, voucherID)
			return err
		},
		"patch": func(ctx context.Context) error {
			_, err := f.vouchers.Patch(ctx, voucherID, model.VoucherPatch{Title: &title})
			return err
		},
		"list": func(ctx context.Context) error {
			_, err := f.orders.List(ctx, model.OrderQuery{VoucherID: voucherID})
			return err
		},
		"account": func(ctx context.Context) error {
			return f.accounts.Create(ctx, model.Account{ID: newID(t), Username: newID(t), Role: model.RoleUser})
		},
		"ping":  f.db.Ping,
		"ready": f.db.Ready,
	}
	names := make([]string, 0, len(calls))
	for name := range calls {
		names = append(names, name)
	}
	check.Volley(len(names), func(i int) {
		testserver.Within(t, longestAnswer, func(ctx context.Context) {
			err := calls[names[i]](ctx)
			if err == nil || model.CodeOf(err) != model.CodeUnavailable {
				t.Errorf("%s: %v, want UNAVAILABLE", names[i], err)
			}
		})
	})
}

// TestServerKilled under load: UNAVAILABLE in bounded time; when it is back,
// what was acknowledged is there, nothing is oversold, and the sale goes on.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	f, server, _ := ownServer(t, repository.StockConditional)
	const units = 400
	v := f.onSale(t, units)
	created := make(chan string, units)
	killed := make(chan struct{})
	kill := make(chan struct{}, 100)
	go func() {
		defer close(killed)
		for range 10 { // ten acknowledged orders, then the end
			<-kill
		}
		server.Kill()
	}()
	check.Volley(8, func(int) {
		for {
			began := time.Now()
			o := order(t, v.ID, newID(t))
			outcomes, err := f.orders.CreateOrders(ctxOf(t, 5*time.Second), []model.Order{o})
			if took := time.Since(began); took > longestAnswer {
				t.Errorf("took %s", took)
			}
			if err != nil {
				if model.CodeOf(err) != model.CodeUnavailable {
					t.Errorf("error %v", err)
				}
				return
			}
			if outcomes[0].Err != nil {
				return
			}
			created <- o.ID
			select {
			case kill <- struct{}{}:
			default:
			}
		}
	})
	<-killed
	close(created)
	f.unavailable(t, v.ID)
	server.Start()
	known := 0
	for id := range created {
		known++
		if _, err := f.orders.Get(t.Context(), id); err != nil {
			t.Errorf("acknowledged order: %v", err)
		}
	}
	live := f.number(t, "SELECT COUNT(*) FROM orders WHERE slot = 1")
	if live < int64(known) || known == 0 {
		t.Errorf("%d live orders, %d acknowledged", live, known)
	}
	f.balanced(t, v.ID, live)
	must(t, f.place(t, order(t, v.ID, newID(t))).Err)
	f.balanced(t, v.ID, live+1)
}

func ctxOf(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestServerFrozen (SIGSTOP): no connection breaks, nothing is answered.
func TestServerFrozen(t *testing.T) {
	t.Parallel()
	f, server, _ := ownServer(t, repository.StockConditional)
	v := f.onSale(t, 10)
	server.Pause()
	check.Eventually(t, "every thread has stopped", func() bool {
		threads := check.Value(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", server.PID())))(t)
		for _, thread := range threads {
			if stat, err := os.ReadFile(thread); err == nil && !strings.Contains(string(stat), ") T ") {
				return false
			}
		}
		return len(threads) > 0
	})
	f.unavailable(t, v.ID)
	server.Resume()
	check.Eventually(t, "the server answers again", func() bool { return f.db.Ping(t.Context()) == nil })
	must(t, f.place(t, order(t, v.ID, "alice")).Err)
	f.balanced(t, v.ID, 1)
}

// TestServerReadOnly: refuses writes, still reads, and sells again afterwards.
func TestServerReadOnly(t *testing.T) {
	t.Parallel()
	f, _, admin := ownServer(t, repository.StockConditional)
	v := f.onSale(t, 10)
	must(t, check.ErrorOf(admin.ExecContext(t.Context(), "SET GLOBAL read_only = ON")))
	testserver.Within(t, longestAnswer, func(ctx context.Context) {
		_, err := f.orders.CreateOrders(ctx, []model.Order{order(t, v.ID, "alice")})
		wantCode(t, err, model.CodeUnavailable)
		if errors.Is(err, model.ErrUnknownOutcome) {
			t.Errorf("%v: it was refused", err)
		}
	})
	wantCode(t, f.accounts.Create(t.Context(), model.Account{ID: "a", Username: "abc", Role: model.RoleUser}), model.CodeUnavailable)
	if _, err := f.vouchers.Get(t.Context(), v.ID); err != nil {
		t.Errorf("reading: %v", err)
	}
	if err := f.db.Ready(t.Context()); model.CodeOf(err) != model.CodeUnavailable || !strings.Contains(err.Error(), "takes no writes") {
		t.Errorf("it is ready: %v", err)
	}
	must(t, check.ErrorOf(admin.ExecContext(t.Context(), "SET GLOBAL read_only = OFF")))
	must(t, f.db.Ready(t.Context()))
	must(t, f.place(t, order(t, v.ID, "alice")).Err)
	f.balanced(t, v.ID, 1)
}

// TestStrategiesDiffer reads from the server's own log what each strategy says.
func TestStrategiesDiffer(t *testing.T) {
	t.Parallel()
	f, _, admin := ownServer(t, repository.StockConditional, "--general-log=1", "--log-output=TABLE")
	for _, strategy := range mysqlStrategies() {
		instance := openFixture(t, store{dialect: "mysql", strategy: strategy}, f.options)
		instance.orders.LookFirst()
		v := f.onSale(t, 3)
		must(t, instance.place(t, order(t, v.ID, "alice")).Err)
		said := statements(t, admin, v.ID)
		if strategy == repository.StockPessimistic {
			said = said[1:] // before it locks, it reads with the order mode which vouchers are divided
		}
		if len(said) != 4 {
			t.Fatalf("%s: %d statements: %q", strategy, len(said), said)
		}
		read, existing, take, insert := said[0], said[1], said[2], said[3]
		forUpdate := strings.Contains(read, "FOR UPDATE")
		if forUpdate != (strategy == repository.StockPessimistic) || !strings.HasPrefix(read, "SELECT") {
			t.Errorf("%s reads: %s", strategy, read)
		}
		if strings.Contains(existing, "FOR UPDATE") || strings.Contains(strings.ToUpper(existing), "LOCK IN SHARE MODE") {
			t.Errorf("%s locks orders: %s", strategy, existing)
		}
		if !strings.Contains(take, "SET remaining = remaining - 1, version = version + 1") {
			t.Errorf("%s takes: %s", strategy, take)
		}
		condition := take[strings.Index(take, "WHERE"):]
		if comparesVersion := strings.Contains(condition, "version ="); comparesVersion != (strategy == repository.StockOptimistic) {
			t.Errorf("%s takes: %s", strategy, take)
		}
		if compares := strings.Contains(condition, "revision ="); compares != (strategy == repository.StockConditional) {
			t.Errorf("%s takes: %s", strategy, take)
		}
		if !strings.Contains(condition, "remaining >= 1") {
			t.Errorf("%s takes without a guard: %s", strategy, take)
		}
		if !strings.HasPrefix(insert, "INSERT INTO orders") || strings.Contains(insert, "DUPLICATE") {
			t.Errorf("%s inserts: %s", strategy, insert)
		}
	}
	for _, forbidden := range []string{"INSERT IGNORE%", "%ON DUPLICATE KEY%", "REPLACE INTO%"} {
		var n int
		must(t, admin.QueryRowContext(t.Context(),
			"SELECT COUNT(*) FROM mysql.general_log WHERE command_type = 'Query' AND argument LIKE ? AND argument NOT LIKE '%general_log%'", forbidden).Scan(&n))
		check.Equal(t, "statements like "+forbidden, n, 0)
	}
}

// statements lists what was said about a voucher since it was made.
func statements(t *testing.T, admin *sql.DB, voucherID string) (said []string) {
	t.Helper()
	rows := check.Value(admin.QueryContext(t.Context(),
		"SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE command_type = 'Query' AND argument LIKE ? ORDER BY event_time", "%"+voucherID+"%"))(t)
	defer rows.Close()
	for rows.Next() {
		var statement string
		must(t, rows.Scan(&statement))
		if !strings.HasPrefix(statement, "INSERT INTO `vouchers`") && !strings.HasPrefix(statement, "INSERT INTO `admin_log`") {
			said = append(said, statement)
		}
	}
	must(t, rows.Err())
	return said
}

// TestNoDeadlocks: mixed batches, stock changes and patches, and in async mode
// everything else, with one order of locks. The server counts its deadlocks.
func TestNoDeadlocks(t *testing.T) {
	t.Parallel()
	f, _, admin := ownServer(t, repository.StockConditional)
	for _, strategy := range mysqlStrategies() {
		mixedVouchers(t, openFixture(t, store{dialect: "mysql", strategy: strategy}, f.options))
	}
	f.switchTo(t, model.ModeAsync)
	for _, strategy := range mysqlStrategies() {
		instance := openFixture(t, store{dialect: "mysql", strategy: strategy}, f.options)
		instance.asIn(t, model.ModeAsync)
		runBedlam(t, instance)
	}
	check.Equal(t, "deadlocks", testserver.Deadlocks(t, admin), 0)
}

// TestRefusedRollback: a cluster's node without quorum refuses the INSERT, and
// the ROLLBACK too. If its connection went on, the next BEGIN on it would commit
// units that were taken for no order.
func TestRefusedRollback(t *testing.T) {
	t.Parallel()
	overMySQL(t, func(t *testing.T, strategy repository.StockStrategy) {
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
		must(t, far.place(t, sold).Err)
		lost.Store(true)
		for i := range 3 {
			refused := []model.Order{order(t, v.ID, user(i)), order(t, v.ID, user(100+i))}
			wantCode(t, check.ErrorOf(far.orders.CreateOrders(t.Context(), refused)), model.CodeUnavailable)
			_, _, err := far.cancel(t.Context(), sold.UserID, sold.ID)
			wantCode(t, err, model.CodeUnavailable)
		}
		lost.Store(false)
		if rollbacks.Load() < 6 {
			t.Fatalf("%d refused ROLLBACKs", rollbacks.Load())
		}
		for i := range 5 {
			must(t, far.place(t, order(t, v.ID, user(200+i))).Err)
		}
		near.balanced(t, v.ID, 6)
	})
}

// TestRefusedCommit: a COMMIT that is refused with 1047 may have happened. The
// same ids decide, as after a COMMIT without an answer.
func TestRefusedCommit(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]verdict{"not applied": refuse, "applied": denied} {
		for _, strategy := range mysqlStrategies() {
			t.Run(name+"/"+string(strategy), func(t *testing.T) {
				t.Parallel()
				var refused atomic.Int32
				near, far := throughWire(t, strategy, func(_ *wire, statement string) verdict {
					if statement == "COMMIT" && refused.Add(1) <= 2 {
						return answer
					}
					return pass
				})
				v := near.onSale(t, 3)
				asked := order(t, v.ID, "alice")
				if outcome := far.place(t, asked); outcome.Err != nil || !outcome.Created || outcome.Order.ID != asked.ID {
					t.Errorf("outcome %+v", outcome)
				}
				near.balanced(t, v.ID, 1)
				refused.Store(0)
				if _, changed, err := far.cancel(t.Context(), asked.UserID, asked.ID); err != nil || !changed {
					t.Errorf("cancel: %v, %v", changed, err)
				}
				near.balanced(t, v.ID, 0)
			})
		}
	}
}

// TestRefusedCommitIsUnknown: what cannot be repeated says that it may have happened.
func TestRefusedCommitIsUnknown(t *testing.T) {
	t.Parallel()
	_, far := throughWire(t, repository.StockConditional, func(_ *wire, statement string) verdict {
		if statement == "COMMIT" {
			return denied
		}
		return pass
	})
	err := far.accounts.Create(context.Background(), model.Account{ID: "a", Username: "abc", Role: model.RoleUser})
	wantCode(t, err, model.CodeUnavailable)
	if !errors.Is(err, model.ErrUnknownOutcome) {
		t.Errorf("%v does not say that the outcome is unknown", err)
	}
}

// TestFailedEndClosesTheConnection: SQLite's connections, too, do not outlive a
// COMMIT or ROLLBACK that failed.
func TestFailedEndClosesTheConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store{dialect: "sqlite", strategy: repository.StockConditional})
	f.db.SQL().SetMaxOpenConns(1)
	for name, end := range map[string]func(*sql.Tx) error{"commit": (*sql.Tx).Commit, "rollback": (*sql.Tx).Rollback} {
		f.exec(t, "PRAGMA cache_size = 77") // marks the connection
		tx := f.begin(t)
		execTx(t, tx, "ROLLBACK") // there is nothing left to end
		if end(tx) == nil {
			t.Fatalf("%s of no transaction", name)
		}
		if size := f.number(t, "PRAGMA cache_size"); size == 77 {
			t.Errorf("%s failed, and its connection goes on", name)
		}
		must(t, f.place(t, order(t, f.onSale(t, 1).ID, "alice")).Err)
	}
}

// TestGrantedAgain: a server looks at an account's rights when a connection is
// opened. One that was opened while they were revoked is not used again.
func TestGrantedAgain(t *testing.T) {
	t.Parallel()
	server := testserver.MariaDB(t)
	admin := check.Value(sql.Open("mysql", server.AdminDSN(testserver.DefaultSchema)))(t)
	defer admin.Close()
	run := func(statement string) {
		must(t, check.ErrorOf(admin.ExecContext(t.Context(), statement)))
	}
	run("CREATE TABLE things (id INT PRIMARY KEY)")
	run("CREATE USER shop@'127.0.0.1'")
	run("GRANT SELECT ON seckill.* TO shop@'127.0.0.1'")
	db := check.Value(repository.Open(t.Context(), repository.Options{DSN: "shop@tcp(" + server.Addr() + ")/seckill"}))(t)
	defer func() { must(t, db.Close()) }()
	if _, err := db.SQL().ExecContext(t.Context(), "INSERT INTO things VALUES (1)"); err == nil {
		t.Fatal("an account may do what it was not granted")
	}
	run("GRANT INSERT ON seckill.* TO shop@'127.0.0.1'")
	must(t, check.ErrorOf(db.SQL().ExecContext(t.Context(), "INSERT INTO things VALUES (1)")))
}
