package repository_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"seckill/internal/testserver"
	"seckill/model"
	"seckill/repository"
)

// TestRefusedRollback: a cluster's node without quorum refuses the INSERT, and
// the ROLLBACK too. If its connection went on, the next BEGIN on it would commit
// units that were taken for no order.
func TestRefusedRollback(t *testing.T) {
	t.Parallel()
	for _, strategy := range mysqlStrategies() {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			var rollbacks atomic.Int32
			var lost atomic.Bool // the quorum
			near, far := throughWire(t, strategy, func(*fixture) func(*wire, string) verdict {
				return func(_ *wire, statement string) verdict {
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
				}
			})
			v := near.onSale(t, 20)
			sold := order(t, v.ID, "alice")
			must(t, far.place(t, sold).Err)
			lost.Store(true)
			for i := range 3 {
				_, err := far.orders.CreateOrders(t.Context(), []model.Order{order(t, v.ID, user(i)), order(t, v.ID, user(100+i))})
				wantCode(t, err, model.CodeUnavailable)
				_, _, err = far.orders.Cancel(t.Context(), sold.UserID, sold.ID)
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
				near, far := throughWire(t, strategy, func(*fixture) func(*wire, string) verdict {
					return func(_ *wire, statement string) verdict {
						if statement == "COMMIT" && refused.Add(1) <= 2 {
							return answer
						}
						return pass
					}
				})
				v := near.onSale(t, 3)
				asked := order(t, v.ID, "alice")
				if outcome := far.place(t, asked); outcome.Err != nil || !outcome.Created || outcome.Order.ID != asked.ID {
					t.Errorf("outcome %+v", outcome)
				}
				near.balanced(t, v.ID, 1)
				refused.Store(0)
				if _, changed, err := far.orders.Cancel(t.Context(), asked.UserID, asked.ID); err != nil || !changed {
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
	_, far := throughWire(t, repository.StockConditional, func(*fixture) func(*wire, string) verdict {
		return func(_ *wire, statement string) verdict {
			if statement == "COMMIT" {
				return denied
			}
			return pass
		}
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
	f := newFixture(t, store{"sqlite", repository.StockConditional})
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
	admin, err := sql.Open("mysql", server.AdminDSN(testserver.DefaultSchema))
	must(t, err)
	defer admin.Close()
	run := func(statement string) {
		_, err := admin.ExecContext(t.Context(), statement)
		must(t, err)
	}
	run("CREATE TABLE things (id INT PRIMARY KEY)")
	run("CREATE USER shop@'127.0.0.1'")
	run("GRANT SELECT ON seckill.* TO shop@'127.0.0.1'")
	db, err := repository.Open(t.Context(), repository.Options{DSN: "shop@tcp(" + server.Addr() + ")/seckill"})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	if _, err := db.SQL().ExecContext(t.Context(), "INSERT INTO things VALUES (1)"); err == nil {
		t.Fatal("an account may do what it was not granted")
	}
	run("GRANT INSERT ON seckill.* TO shop@'127.0.0.1'")
	_, err = db.SQL().ExecContext(t.Context(), "INSERT INTO things VALUES (1)")
	must(t, err)
}
