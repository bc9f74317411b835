package lock_test

import (
	"testing"
	"time"

	"seckill/lock"
)

// The sweeper deletes rows that were not used for long, and no others; the next token is
// greater than that of a row that is gone. Guards: WHERE in sweep.sql, the clock in acquire.sql.
func TestSweep(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	store := lock.NewMySQLStore(db)
	if err := store.EnsureTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	locks := newLocks(t, store)
	old := mustLock(t, t.Context(), locks.Mutex("old"))
	mustUnlock(t, old)
	held := mustLock(t, t.Context(), locks.Mutex("held"))
	mustUnlock(t, mustLock(t, t.Context(), locks.Mutex("just now")))
	if _, err := db.ExecContext(t.Context(),
		"UPDATE seckill_locks SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 2 HOUR WHERE name = 'old'"); err != nil {
		t.Fatal(err)
	}
	if n, err := lock.Sweep(t.Context(), store, time.Hour); err != nil || n != 1 {
		t.Errorf("swept %d rows, not one: %v", n, err)
	}
	var left int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM seckill_locks WHERE name <> 'old'").Scan(&left); err != nil || left != 2 {
		t.Errorf("%d of two rows are left: %v", left, err)
	}
	again := mustLock(t, t.Context(), locks.Mutex("old"))
	if again.Token() <= old.Token() {
		t.Errorf("token %d after %d", again.Token(), old.Token())
	}
	mustUnlock(t, again)
	mustUnlock(t, held)
}
