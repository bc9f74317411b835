package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/lock/driver"
)

// The sweeper deletes rows that were not used for long, and no others; the next token is
// greater than that of a row that is gone. Guards: WHERE in sweep.sql, the clock in acquire.sql.
func TestSweep(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	store := table(t, db)
	locks := newLocks(t, store)
	old := mustLock(t, t.Context(), locks.Mutex("old"))
	mustUnlock(t, old)
	held := mustLock(t, t.Context(), locks.Mutex("held"))
	mustUnlock(t, mustLock(t, t.Context(), locks.Mutex("just now")))
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(),
		"UPDATE seckill_locks SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 2 HOUR WHERE name = 'old'")))
	check.Equal(t, "rows swept", check.Value(lock.Sweep(t.Context(), store, time.Hour))(t), 1)
	var left int
	check.Must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM seckill_locks WHERE name <> 'old'").Scan(&left))
	check.Equal(t, "rows that are left of two", left, 2)
	again := mustLock(t, t.Context(), locks.Mutex("old"))
	if again.Token() <= old.Token() {
		t.Errorf("token %d after %d", again.Token(), old.Token())
	}
	mustUnlock(t, again)
	mustUnlock(t, held)
}

// keepRow has a transaction lock the row of a lock, so that each statement about it waits.
func keepRow(t *testing.T, db *sql.DB, name string) *sql.Tx {
	t.Helper()
	tx := check.Value(db.BeginTx(t.Context(), nil))(t)
	t.Cleanup(func() { _ = tx.Rollback() })
	check.Must(t, check.ErrorOf(tx.ExecContext(t.Context(), "SELECT 1 FROM seckill_locks WHERE name = ? FOR UPDATE", name)))
	return tx
}

// A transaction keeps the row of one lock: its renewal fails, and those of the others, whose rows are free, do not,
// nor do they wait for it. Guard: errs, of each request, in MySQLStore.Renew. (What the client makes of it: TestTime.)
func TestLockedRowIsOneLocksTrouble(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	s := &asked{t, table(t, db)}
	t.Cleanup(func() { _ = s.Close() })
	var all []driver.Request
	for i := range 5 {
		r := request(fmt.Sprint("k", i), i)
		s.acquire("taken", r, driver.StateHeld)
		r.Lease = 3 * calm
		all = append(all, r)
	}
	tx := keepRow(t, db, all[0].Name)
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	done := make(chan []error, 1)
	go func() { done <- s.Renew(ctx, all) }()
	check.Eventually(t, "the others are renewed", func() bool {
		var n int
		err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM seckill_locks WHERE expires_at > UTC_TIMESTAMP(6) + INTERVAL 2 HOUR").Scan(&n)
		return err == nil && n == len(all)-1
	})
	enough()
	for i, err := range check.Receive(t, "the answers", done) {
		switch {
		case i == 0 && (err == nil || errors.Is(err, lock.ErrLost)):
			t.Errorf("the lock whose row is kept: %v", err)
		case i > 0 && err != nil && !errors.Is(err, context.Canceled): // its answer may still be on its way
			t.Errorf("a lock whose row is free: %v", err)
		}
	}
	check.Must(t, tx.Rollback())
}

// A Lock whose statement is cut by its context answers that context's cause,
// whatever the driver says. A transaction of the database's keeps the statement
// waiting. Guard: cutBy in Client.try.
func TestCauseOfCutStatement(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	locks := newLocks(t, table(t, db))
	gone := errors.New("the client hung up")
	for what, want := range map[string]error{"cancel": gone, "deadline": context.DeadlineExceeded, "deadline with a cause": gone} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			m := locks.Mutex(what)
			mustUnlock(t, mustLock(t, t.Context(), m)) // the row is there
			tx := keepRow(t, db, what)

			ctx, hangUp := context.WithCancelCause(t.Context())
			defer hangUp(nil)
			switch what {
			case "deadline":
				ctx = check.Expiring(t)
			case "deadline with a cause":
				var stop context.CancelFunc
				ctx, stop = context.WithTimeoutCause(ctx, check.Soon, gone)
				defer stop()
			}
			failed := begin(ctx, m)
			if what == "cancel" {
				check.Eventually(t, "the statement waits for the row", func() bool {
					var n int
					err := db.QueryRowContext(t.Context(),
						"SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'INSERT%'").Scan(&n)
					return err == nil && n > 0
				})
				hangUp(gone)
			}
			check.Is(t, "the statement was cut", check.Receive(t, "the end of the call", failed).err, want)
			check.Must(t, tx.Rollback())
			mustUnlock(t, mustLock(t, t.Context(), m)) // nothing is in the way
		})
	}
}
