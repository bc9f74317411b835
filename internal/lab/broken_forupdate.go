package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// forUpdateLate locks the row with SELECT … FOR UPDATE, but only after it has
// read what it computes with.
//
// Why it breaks: the lock is real, and too late. Two transactions read the same
// balance without a lock; then they take turns at the row, and each writes the
// sum it had worked out before its turn. (Under REPEATABLE READ of a database
// with innodb_snapshot_isolation, the default of MariaDB 11.6, the second one
// gets error 1020 instead; at READ COMMITTED, as here and as in the product, it
// does not.)
// Cured by reading with FOR UPDATE in the first place, the stock strategy
// `pessimistic`; by comparing a version, `optimistic`; or by a relative UPDATE
// that states what it relies on, `conditional`.
func forUpdateLate() strategy {
	return strategy{
		name: "FOR UPDATE after the read", group: groupBroken, defect: defectLost, on: onMySQL,
		why:     "the row is locked after it was read: both write what they worked out before",
		cure:    "stock: pessimistic",
		attacks: []attack{overlap()},
		open:    openForUpdateLate, ledger: openRow,
	}
}

type lateForUpdate struct {
	row
	setup setup
}

func openForUpdateLate(_ context.Context, s setup) (performer, error) {
	return lateForUpdate{newRow(s), s}, nil
}

func (w lateForUpdate) perform(ctx context.Context) (_ outcome, err error) {
	began := time.Now()
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return outcome{}, fmt.Errorf("begin a transaction: %w", err)
	}
	defer func() {
		if rolled := tx.Rollback(); !errors.Is(rolled, sql.ErrTxDone) {
			err = errors.Join(err, rolled)
		}
	}()
	found, err := w.readBy(ctx, tx, "SELECT balance, remaining FROM lab_accounts WHERE name = ?")
	if err != nil {
		return outcome{}, err
	}
	if err := w.setup.pause(ctx, pointRead); err != nil {
		return outcome{}, err
	}
	// The mistake: what it answers now is not looked at.
	if _, err := w.readBy(ctx, tx, "SELECT balance, remaining FROM lab_accounts WHERE name = ? FOR UPDATE"); err != nil {
		return outcome{}, err
	}
	sold := found.Remaining > 0
	if sold {
		found.Remaining--
	}
	_, err = tx.ExecContext(ctx, "UPDATE lab_accounts SET balance = ?, remaining = ? WHERE name = ?",
		found.Balance+1, found.Remaining, w.name)
	if err != nil {
		return outcome{}, fmt.Errorf("write the account %s: %w", w.name, err)
	}
	if err := tx.Commit(); err != nil {
		return outcome{}, fmt.Errorf("commit: %w", err)
	}
	return outcome{Result: resultDone, Sold: sold, Waited: time.Since(began)}, nil
}
