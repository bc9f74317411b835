package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"seckill/internal/ids"
	"seckill/internal/poll"
	"seckill/model"
	"seckill/repository"
)

// tables are the lab's own: an account and a stock as one row, with the constraint that is the last guard of every
// strategy, and once more as units, without; messages; locks.
func tables() []string {
	return []string{
		`CREATE TABLE lab_accounts (
			name VARCHAR(64) NOT NULL PRIMARY KEY,
			balance BIGINT NOT NULL DEFAULT 0,
			remaining BIGINT NOT NULL DEFAULT 0,
			units BIGINT NOT NULL DEFAULT 0,
			version BIGINT NOT NULL DEFAULT 0,
			CONSTRAINT lab_remaining_not_negative CHECK (remaining >= 0)
		)`,
		"CREATE TABLE lab_messages (name VARCHAR(96) NOT NULL, number VARCHAR(64) NOT NULL, PRIMARY KEY (name, number))",
		"CREATE TABLE lab_locks (name VARCHAR(64) NOT NULL PRIMARY KEY, owner VARCHAR(64) NOT NULL)",
	}
}

const (
	insertAccount = "INSERT INTO lab_accounts (remaining, units, name) VALUES (?, ?, ?)"
	selectAccount = "SELECT balance, remaining, version FROM lab_accounts WHERE name = ?"
	selectUnits   = "SELECT balance, units, version FROM lab_accounts WHERE name = ?"
	updateAccount = "UPDATE lab_accounts SET balance = ?, remaining = ? WHERE name = ?"
	updateVersion = "UPDATE lab_accounts SET balance = ?, remaining = ?, version = ? WHERE version = ? AND name = ?"
	addAndTake    = "UPDATE lab_accounts SET balance = balance + 1, remaining = remaining - ? WHERE name = ?"
	takeUnit      = "UPDATE lab_accounts SET balance = balance + 1, units = units - 1 WHERE name = ?"
)

// inRow is an account and a stock in a row of the run's database.
func inRow(query string) ledger {
	return ledger{
		open: func(u unit, stock int64) { u.change(insertAccount, stock, stock) },
		read: func(u unit) figures { return u.look(query) },
	}
}

func (u unit) look(query string) (f figures) {
	must("read the account", u.by().QueryRowContext(u.ctx, query, u.Name).Scan(&f.Balance, &f.Remaining, &f.version))
	return f
}

// change tells how many rows a statement found. Its last argument is the account's name.
func (u unit) change(statement string, args ...any) int64 {
	result := got(u.by().ExecContext(u.ctx, statement, append(args, u.Name)...))("write the account")
	return got(result.RowsAffected())("count the rows")
}

// by is the transaction of the work, or the database.
func (u unit) by() interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
} {
	if u.tx != nil {
		return u.tx
	}
	return u.db.SQL()
}

// transacted does the work in a transaction, which is committed at the end if the work has not done it.
func transacted(work sale) sale {
	return func(u unit) answer {
		u.tx = got(u.db.SQL().BeginTx(u.ctx, nil))("begin a transaction")
		defer func() { _ = u.tx.Rollback() }() // nothing after the commit
		told := work(u)
		if err := u.tx.Commit(); !errors.Is(err, sql.ErrTxDone) {
			must("commit", err)
		}
		return told
	}
}

// sellForUpdate locks the row with SELECT … FOR UPDATE, but only after it has read what it computes with. Mended, it
// looks at what the second SELECT answers.
func sellForUpdate(mended bool) sale {
	return transacted(func(u unit) answer {
		return u.trade(selectAccount, func(found figures) (sold int64, done bool) {
			if now := u.look(selectAccount + " FOR UPDATE"); mended {
				found = now
			}
			sold = found.sell()
			return sold, u.change(updateAccount, found.Balance, found.Remaining) == 1
		})
	})
}

// sellInTransaction gives the lock back inside the transaction. Mended, it commits before.
func sellInTransaction(mended bool) sale {
	return transacted(func(u unit) answer {
		return u.trade(selectAccount, func(found figures) (sold int64, done bool) {
			sold = found.sell()
			u.change(updateAccount, found.Balance, found.Remaining)
			if mended {
				must("commit", u.tx.Commit())
			}
			u.held.unlock(u.ctx) // the unlock after the work then does nothing
			return sold, u.stand(pointFreed)
		})
	})
}

// sellUnits looks whether there is a unit, and takes one where the guard allows it.
func sellUnits(guard string) sale {
	return func(u unit) answer {
		told := u.trade(selectUnits, func(found figures) (sold int64, done bool) {
			if found.Remaining > 0 {
				sold = u.change(takeUnit + guard)
			}
			return sold, true
		})
		if told.Sold == 0 {
			told.End = pointSoldOut
		}
		return told
	}
}

// sellByVersion writes what it worked out if the version is the one it read, and begins anew otherwise. It raises the
// version by a step.
func sellByVersion(step int64) sale {
	return func(u unit) answer {
		return u.trade(selectAccount, func(found figures) (sold int64, done bool) {
			sold = found.sell()
			return sold, u.change(updateVersion, found.Balance, found.Remaining, found.version+step, found.version) == 1
		})
	}
}

// sellUnderConstraint decides by a stock that may have changed since it was read; the database refuses the sale then.
func sellUnderConstraint(u unit) answer {
	return u.trade(selectAccount, func(found figures) (sold int64, done bool) {
		sold = found.sell()
		err := try(func() { u.change(addAndTake, sold) })
		if isSQL(err, sqlite3.SQLITE_CONSTRAINT_CHECK, checkMariaDB, checkMySQL) {
			sold, err = 0, try(func() { u.change(addAndTake, 0) })
		}
		stop(err)
		return sold, true
	})
}

// save notes a message that asks for one unit and is delivered more than once, and takes the unit. The message and the
// copy's number are a unique key: with the same number for all copies it tells the second delivery from the first.
func save(number func() string) sale {
	return transacted(func(u unit) answer {
		message := u.Name
		if u.Load != nil {
			message += fmt.Sprint(":", rand.IntN(u.Load.Workers*u.Load.Operations)) //nolint:gosec // nobody is to guess it
		}
		_, err := u.tx.ExecContext(u.ctx, "INSERT INTO lab_messages (name, number) VALUES (?, ?)", message, number())
		if alreadyThere(err) {
			must("roll back", u.tx.Rollback())
			return answer{End: pointRepeated}
		}
		must("note the message", err)
		u.change(takeUnit)
		return answer{End: pointDone, Sold: 1}
	})
}

func once() string { return "" }

// insertedBy makes a lock of a row: who inserts it has the lock, and deletes it. With the mistake, the error of an
// INSERT that found a row is ignored.
func insertedBy(ignored bool) func(setup) locker {
	return func(s setup) locker {
		db := s.database().SQL()
		return func(ctx context.Context, wait time.Duration) hold {
			owner := newID()
			within(ctx, wait, func() bool {
				_, err := db.ExecContext(ctx, "INSERT INTO lab_locks (name, owner) VALUES (?, ?)", s.Name, owner)
				return alreadyThere(err) && ignored || !alreadyThere(err) && !deadlocked(err)
			})
			return hold{ctx, func(ctx context.Context) {
				stop(poll.Until(ctx, spinEvery, func() (bool, error) {
					_, err := db.ExecContext(ctx, "DELETE FROM lab_locks WHERE name = ? AND owner = ?", s.Name, owner)
					return !deadlocked(err), nil
				}))
			}}
		}
	}
}

// saleWindow is how long the lab's vouchers are on sale: longer than any run.
const saleWindow = time.Hour

// stock is one of the product's own strategies to sell: orders made by the repository, in the product's own tables. The
// account is the number of orders.
func stock(how repository.StockStrategy, on backing, why string) strategy {
	return strategy{
		Name: "stock: " + string(how), Why: why, group: groupStock, on: on, attacks: []attack{heldRow()},
		ledger: ledger{
			open: func(u unit, stock int64) {
				now := time.Now()
				voucher := model.NewVoucher{Title: "lab", Stock: stock, BeginAt: now.Add(-saleWindow), EndAt: now.Add(saleWindow)}
				_, err := repository.NewVouchers(u.db, "CNY").Create(u.ctx, u.Name, voucher, model.Idempotency{})
				must("make a voucher", err)
			},
			read: func(u unit) figures {
				return u.look("SELECT (SELECT COUNT(*) FROM orders WHERE voucher_id = vouchers.id), remaining, 0 FROM vouchers WHERE id = ?")
			},
		},
		open: func(s setup) perform {
			options := repository.OrderOptions{Strategy: how, PaymentWindow: saleWindow}
			orders := got(repository.NewOrders(s.db, options))("prepare the orders")
			return alone(func(u unit) answer { return u.order(orders) })(s)
		},
	}
}

// order sells one unit to a user of its own.
func (u unit) order(orders *repository.Orders) answer {
	user := got(ids.New())("make an id")
	order := model.Order{ID: model.OrderID(user, u.Name), VoucherID: u.Name, UserID: user}
	outcomes, err := orders.CreateOrders(u.ctx, []model.Order{order})
	if err == nil {
		err = outcomes[0].Err
	}
	if refusal, ok := errors.AsType[*model.Error](err); ok && refusal.Code == model.CodeSoldOut {
		return answer{End: pointSoldOut}
	}
	must("sell a unit", err)
	return answer{End: pointDone, Sold: 1}
}

// Numbers of MySQL's errors: a violated CHECK, a key that is there already, a transaction that was picked to go, and an
// account that may not make a schema.
const (
	checkMariaDB, checkMySQL      = 4025, 3819
	duplicateEntry, deadlockFound = 1062, 1213
	deniedSchema, deniedCommand   = 1044, 1142
)

// isSQL says that a database answered with this error of SQLite, or one of these of MySQL.
func isSQL(err error, ofSQLite int, ofMySQL ...uint16) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return slices.Contains(ofMySQL, e.Number)
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code() == ofSQLite
}

func alreadyThere(err error) bool {
	return isSQL(err, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, duplicateEntry)
}

// deadlocked says that a statement is to be repeated. Any other error ends what is tried.
func deadlocked(err error) bool {
	if isSQL(err, 0, deadlockFound) {
		return true
	}
	must("change the lock's row", err)
	return false
}
