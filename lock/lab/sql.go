package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/ids"
	"seckill/model"
	"seckill/repository"
)

// accounts is the lab's table: account and stock as a row with the last guard, and as units without.
const accounts = `CREATE TABLE IF NOT EXISTS lab_accounts (
			name VARCHAR(64) NOT NULL PRIMARY KEY,
			balance BIGINT NOT NULL DEFAULT 0,
			remaining BIGINT NOT NULL DEFAULT 0,
			units BIGINT NOT NULL DEFAULT 0,
			version BIGINT NOT NULL DEFAULT 0,
			CONSTRAINT lab_remaining_not_negative CHECK (remaining >= 0)
		)`

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

// sellForUpdate locks the row with SELECT … FOR UPDATE behind its reading; mended, it uses the second SELECT.
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

// sellByVersion writes if the version is the one it read, else begins anew. It raises the version by a step.
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
		if refusedByCheck(err) {
			sold, err = 0, try(func() { u.change(addAndTake, 0) })
		}
		stop(err)
		return sold, true
	})
}

// saleWindow is how long the lab's vouchers are on sale: longer than any run.
const saleWindow = time.Hour

// stock is one of the product's strategies, in its own tables. The account is the number of orders.
func stock(how model.StockStrategy, why string) strategy {
	return strategy{
		Name: "stock: " + string(how), Why: why, On: onMySQL, attacks: []attack{heldRow()},
		ledger: ledger{
			open: func(u unit, stock int64) {
				now := time.Now()
				voucher := model.VoucherFields{Title: "lab", Stock: stock, BeginAt: now.Add(-saleWindow), EndAt: now.Add(saleWindow)}
				_, err := repository.NewVouchers(u.db, "CNY").Create(u.ctx, u.Name, voucher, "", model.Idempotency{})
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

// Numbers of MySQL's and MariaDB's error of a violated CHECK.
const checkMariaDB, checkMySQL = 4025, 3819

// refusedByCheck says that a constraint has refused a statement.
func refusedByCheck(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && (e.Number == checkMariaDB || e.Number == checkMySQL)
}
