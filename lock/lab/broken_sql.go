package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"seckill/internal/poll"
	"seckill/lock"
)

// brokenInSQL are the mistakes around a transaction, a row and a count.
func brokenInSQL(mended bool) []strategy {
	return []strategy{
		// The best-known bug of the tutorial: @Transactional outside, synchronized inside.
		{
			name: "unlock before COMMIT", group: groupBroken, defect: defectLost, on: onMySQL,
			why:     "the transaction around the lock ends after it: the next one reads what was there before",
			cure:    "redis hash, around the transaction",
			attacks: []attack{beforeCommit()}, open: openInTransaction(mended), ledger: openRow,
		},
		{
			name: "lock row, no expiry", group: groupBroken, defect: defectDeadlock, on: onMySQL,
			why:     "the holder is killed, and its row stays for ever",
			cure:    "mysql table",
			attacks: []attack{crash(pointRead)}, open: openLockRow(false, mended), ledger: openCells,
		},
		{
			name: "lock row, error ignored", group: groupBroken, defect: defectLost, on: onMySQL,
			why:     "the INSERT that found a row fails, and the code goes on as if it had the lock",
			cure:    "mysql table",
			attacks: []attack{overlap()}, open: openLockRow(!mended, false), ledger: openCells,
		},
		{
			name: "UPDATE without a guard", group: groupBroken, defect: defectOversold, on: onSQL,
			why:     "both saw the last unit; remaining = remaining - 1 asks for none in its WHERE, and no constraint does",
			cure:    "stock: conditional",
			attacks: []attack{overlap()}, open: openOnRow(sellUnits(mended)), ledger: openUnits,
		},
		{
			name: "version never raised", group: groupBroken, defect: defectLost, on: onSQL,
			why:     "each write compares the version it read, and none changes it",
			cure:    "stock: optimistic",
			attacks: []attack{overlap()}, open: openOnRow(sellByVersion(mended)), ledger: openRow,
		},
		{
			name: "double save, under a lock", group: groupBroken, defect: defectOversold, on: onSQL,
			why:     "the lock makes the two deliveries wait for each other, and then both save",
			cure:    "double save, unique key",
			attacks: []attack{twice()}, open: openMessages(mended), ledger: openUnits,
		},
	}
}

// beforeCommit: A gives the lock back, and stands before its COMMIT. B takes it and reads.
func beforeCommit() attack {
	return attack{name: "between unlock and COMMIT", stock: 1, run: func(ctx context.Context, a *arena) error {
		first := a.worker(ctx, "A")
		first.to(ctx, certain, pointFreed)
		second := a.worker(ctx, "B")
		second.to(ctx, a.forbidden(absence), pointRead)
		return a.finish(ctx, first, second)
	}}
}

// twice: one message for one unit is delivered to A and to B.
func twice() attack {
	return attack{name: "delivered twice", stock: 1, run: func(ctx context.Context, a *arena) error {
		return a.finish(ctx, a.worker(ctx, "A"), a.worker(ctx, "B"))
	}}
}

const setAccount = "UPDATE lab_accounts SET balance = ?, remaining = ? WHERE name = ?"

// openInTransaction begins a transaction, and takes and gives back a right lock inside it.
func openInTransaction(committed bool) opener {
	return openUnder(func(ctx context.Context, s setup, unlock func() error) (tally, error) {
		r := row{s.db.SQL(), s.Name}
		tx, err := r.db.BeginTx(ctx, nil)
		if err != nil {
			return tally{}, fmt.Errorf("begin a transaction: %w", err)
		}
		defer func() { _ = tx.Rollback() }() // nothing after the commit
		found, err := r.readBy(ctx, tx, selectAccount)
		if err == nil {
			err = s.pause(ctx, pointRead)
		}
		sold := found.sell()
		if err == nil {
			err = r.write(ctx, tx, setAccount, found.Balance, found.Remaining)
		}
		commit := func() error { return errors.Join(tx.Commit(), s.pause(ctx, pointCommitted)) }
		if err == nil && committed {
			err = commit()
		}
		if err == nil {
			err = unlock()
		}
		if err == nil {
			err = s.pause(ctx, pointFreed)
		}
		if err == nil && !committed { // the mistake
			err = commit()
		}
		return tally{Done: 1, Sold: sold}, err
	})
}

// openUnder makes the opener of work under a right lock that is no part of the ledger. What
// the work answers is completed.
func openUnder(work func(ctx context.Context, s setup, unlock func() error) (tally, error)) opener {
	return func(s setup) (perform, error) {
		client, err := s.connect(s.Site.Redis)
		key := spin{s, client, s.key("lock"), tryExpiring, freeOwn}
		return func(ctx context.Context) (tally, error) {
			asked := time.Now()
			held, err := key.lock(ctx, s.Wait)
			told := answered(asked)
			if errors.Is(err, lock.ErrTimeout) {
				told.Stuck = 1
				return told, nil
			}
			if err != nil {
				return tally{}, err
			}
			held = s.told(ctx, held)
			unlock := func() error { return held.unlock(context.WithoutCancel(ctx)) } // a second one does nothing
			did, err := work(ctx, s, unlock)
			if err = errors.Join(err, unlock()); err != nil {
				return tally{}, err
			}
			did.Requested, did.Waits = told.Requested, told.Waits
			return did, nil
		}, err
	}
}

// openLockRow makes a lock of a row, of one that expires where the mistake is mended.
func openLockRow(ignored, expiring bool) opener {
	switch {
	case expiring:
		return realLock("", onMySQL, "", onTable).open
	case ignored:
		return openLocked(lockRowIgnoring)
	}
	return openLocked(lockRow)
}

// lockRow is a lock of a row: who inserts it has the lock, and deletes it.
func lockRow(s setup) (locker, error) { return insertedBy(s, false) }

// lockRowIgnoring goes on after an INSERT that found a row.
func lockRowIgnoring(s setup) (locker, error) { return insertedBy(s, true) }

func insertedBy(s setup, ignored bool) (locker, error) {
	db, err := s.database()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, wait time.Duration) (hold, error) {
		owner := newID()
		budget, cancel := context.WithTimeoutCause(ctx, wait, lock.ErrTimeout)
		defer cancel()
		err := poll.Until(budget, spinEvery, func() (bool, error) {
			_, err := db.SQL().ExecContext(budget, "INSERT INTO lab_locks (name, owner) VALUES (?, ?)", s.Name, owner)
			switch {
			case alreadyThere(err):
				return ignored, nil
			case deadlocked(err): // among those that insert and delete the same row
				return false, nil
			}
			return true, err
		})
		if err != nil && budget.Err() != nil {
			err = context.Cause(budget)
		}
		return hold{ctx, func(ctx context.Context) error {
			return poll.Until(ctx, spinEvery, func() (bool, error) {
				_, err := db.SQL().ExecContext(ctx, "DELETE FROM lab_locks WHERE name = ? AND owner = ?", s.Name, owner)
				if deadlocked(err) {
					return false, nil
				}
				return true, err
			})
		}}, err
	}, nil
}

// units is the account whose stock no constraint guards.
type units struct{ row }

func openUnits(s setup) ledger { return units{row{s.db.SQL(), s.Name}} }

func (u units) open(ctx context.Context, stock int64) error {
	if err := u.row.open(ctx, 0); err != nil {
		return err
	}
	return u.write(ctx, u.db, "UPDATE lab_accounts SET units = ? WHERE name = ?", stock)
}

func (u units) read(ctx context.Context) (figures, error) { return u.readBy(ctx, u.db, selectUnits) }

const selectUnits = "SELECT balance, units FROM lab_accounts WHERE name = ?"

// sellUnits looks whether there is a unit, and takes one.
func sellUnits(guarded bool) func(ctx context.Context, r row, stand pause) (tally, error) {
	return func(ctx context.Context, r row, stand pause) (tally, error) {
		began := time.Now()
		found, err := r.readBy(ctx, r.db, selectUnits)
		if err == nil {
			err = stand(ctx, pointRead)
		}
		if err != nil {
			return tally{}, err
		}
		statement := "UPDATE lab_accounts SET balance = balance + 1, units = units - 1 WHERE name = ?"
		if guarded {
			statement += " AND units > 0"
		}
		took := int64(0)
		if found.Remaining > 0 {
			took, err = r.change(ctx, statement, r.name)
		}
		told := answered(began)
		told.Done, told.Sold, told.SoldOut = took, took, 1-took
		return told, err
	}
}

// sellByVersion writes what it worked out if the version is the one it read, and begins anew otherwise.
func sellByVersion(raised bool) func(ctx context.Context, r row, stand pause) (tally, error) {
	return func(ctx context.Context, r row, stand pause) (tally, error) {
		began := time.Now()
		for {
			var version int64
			var found figures
			err := r.db.QueryRowContext(ctx, "SELECT balance, remaining, version FROM lab_accounts WHERE name = ?", r.name).
				Scan(&found.Balance, &found.Remaining, &version)
			if err == nil {
				err = stand(ctx, pointRead)
			}
			if err != nil {
				return tally{}, fmt.Errorf("read the account %s: %w", r.name, err)
			}
			sold, next := found.sell(), version
			if raised {
				next++
			}
			n, err := r.change(ctx, "UPDATE lab_accounts SET balance = ?, remaining = ?, version = ? WHERE name = ? AND version = ?",
				found.Balance, found.Remaining, next, r.name, version)
			if err != nil || n == 1 {
				return done(began, sold), err
			}
		}
	}
}

// change tells how many rows a statement found.
func (r row) change(ctx context.Context, statement string, args ...any) (int64, error) {
	result, err := r.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, fmt.Errorf("write the account %s: %w", r.name, err)
	}
	return result.RowsAffected()
}

// openMessages makes a consumer of messages, each of which is delivered twice and asks for one
// unit. A unique key tells the second delivery from the first.
func openMessages(unique bool) opener {
	if unique {
		return func(s setup) (perform, error) {
			next := s.messages()
			return func(ctx context.Context) (tally, error) {
				began := time.Now()
				told, err := s.save(ctx, next(), "")
				told.Requested, told.Waits = 1, answered(began).Waits
				return told, err
			}, nil
		}
	}
	return func(s setup) (perform, error) {
		next := s.messages()
		return openUnder(func(ctx context.Context, s setup, _ func() error) (tally, error) {
			return s.save(ctx, next(), newID())
		})(s)
	}
}

// messages names half as many as there are calls, or always the same under attack.
func (s setup) messages() func() string {
	var calls atomic.Int64
	return func() string {
		if s.load == nil || s.load.Workers*s.load.Operations < 2 {
			return s.Name
		}
		each := int64(s.load.Workers*s.load.Operations) / 2
		return fmt.Sprintf("%s:%d:%d", s.Name, s.load.Process, calls.Add(1)%each)
	}
}

// save notes a message, under a key that is unique together with a copy's number, and takes its unit.
func (s setup) save(ctx context.Context, message, number string) (tally, error) {
	r := row{s.db.SQL(), s.Name}
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return tally{}, fmt.Errorf("begin a transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing after the commit
	_, err = tx.ExecContext(ctx, "INSERT INTO lab_messages (name, number) VALUES (?, ?)", message, number)
	if alreadyThere(err) {
		return tally{Repeated: 1}, nil
	}
	if err == nil {
		err = r.write(ctx, tx, "UPDATE lab_accounts SET balance = balance + 1, units = units - 1 WHERE name = ?")
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return tally{}, fmt.Errorf("save the message %s: %w", message, err)
	}
	return tally{Done: 1, Sold: 1}, nil
}

// duplicateEntry and deadlockFound are MySQL's numbers of a key that is there already, and of a
// transaction that was picked to go.
const duplicateEntry, deadlockFound = 1062, 1213

func deadlocked(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && e.Number == deadlockFound
}

func alreadyThere(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number == duplicateEntry
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY || e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE)
}
