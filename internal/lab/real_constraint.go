package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// databaseConstraint has no lock at all: relative updates, and a CHECK that no
// stock falls below zero. It decides by what it read before, which is as wrong
// as it is without a lock; the database refuses what must not be.
func databaseConstraint() strategy {
	return strategy{
		name: "database constraint", group: groupStock, on: onSQL,
		why:     "relative updates; CHECK (remaining >= 0) refuses the unit too many",
		attacks: []attack{overlap()},
		open:    openConstraint, ledger: openRow,
	}
}

type constrained struct {
	row
	setup setup
}

func openConstraint(_ context.Context, s setup) (performer, error) {
	return constrained{newRow(s), s}, nil
}

func (w constrained) perform(ctx context.Context) (outcome, error) {
	began := time.Now()
	found, err := w.read(ctx)
	if err != nil {
		return outcome{}, err
	}
	if err := w.setup.pause(ctx, pointRead); err != nil {
		return outcome{}, err
	}
	sold := found.Remaining > 0
	if sold {
		err = w.update(ctx, "UPDATE lab_accounts SET balance = balance + 1, remaining = remaining - 1 WHERE name = ?")
		if refusedByCheck(err) {
			sold, err = false, nil
		}
	}
	if err == nil && !sold {
		err = w.update(ctx, "UPDATE lab_accounts SET balance = balance + 1 WHERE name = ?")
	}
	if err != nil {
		return outcome{}, err
	}
	return outcome{Result: resultDone, Sold: sold, Waited: time.Since(began)}, nil
}

func (w constrained) update(ctx context.Context, statement string) error {
	if _, err := w.db.ExecContext(ctx, statement, w.name); err != nil {
		return fmt.Errorf("write the account %s: %w", w.name, err)
	}
	return nil
}

// The numbers of a violated CHECK.
const (
	checkMariaDB = 4025
	checkMySQL   = 3819
)

func refusedByCheck(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number == checkMariaDB || e.Number == checkMySQL
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code() == sqlite3.SQLITE_CONSTRAINT_CHECK
}
