package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"seckill/lock"
)

// A Lock whose statement is cut by its context answers that context's cause,
// whatever the driver says. A transaction of the database's keeps the statement
// waiting. Guard: cutBy in Client.try.
func TestCauseOfCutStatement(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	store := lock.NewMySQLStore(db)
	if err := store.EnsureTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	locks := newLocks(t, store)
	gone := errors.New("the client hung up")
	for what, want := range map[string]error{"cancel": gone, "deadline": context.DeadlineExceeded, "deadline with a cause": gone} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			m := locks.Mutex(what)
			mustUnlock(t, mustLock(t, t.Context(), m)) // the row is there
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM seckill_locks WHERE name = ? FOR UPDATE", what); err != nil {
				t.Fatal(err)
			}

			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			deadline := time.Now().Add(200 * time.Millisecond)
			switch what {
			case "deadline":
				var stop context.CancelFunc
				ctx, stop = context.WithDeadline(ctx, deadline)
				defer stop()
			case "deadline with a cause":
				var stop context.CancelFunc
				ctx, stop = context.WithDeadlineCause(ctx, deadline, gone)
				defer stop()
			}
			failed := make(chan error, 1)
			go func() {
				_, err := m.Lock(ctx)
				failed <- err
			}()
			if what == "cancel" {
				eventually(t, 5*time.Second, "the statement waits for the row", func() bool {
					var n int
					err := db.QueryRowContext(t.Context(),
						"SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'INSERT%'").Scan(&n)
					return err == nil && n > 0
				})
				cancel(gone)
			}
			if err := <-failed; !errors.Is(err, want) {
				t.Errorf("the statement was cut: %v", err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, mustLock(t, t.Context(), m)) // nothing is in the way
		})
	}
}

// The context given to Extend is that of another lock's lease, which was lost: its cause
// is no answer about this lock. Guard: ErrUnknown in isGone.
func TestCauseOfAnotherLockIsNoLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := lock.NewMemoryStore()
		locks := newLocks(t, &altered{Store: memory, renew: func(ctx context.Context, rs []lock.Request) []error {
			if cause := context.Cause(ctx); cause != nil { // as a store over a network says it
				return []error{fmt.Errorf("%w: %w", lock.ErrUnknown, cause)}
			}
			return memory.Renew(ctx, rs)
		}})
		lease := mustLock(t, t.Context(), locks.Mutex("k"))
		ctx, lose := context.WithCancelCause(t.Context())
		lose(lock.ErrLost)
		if err := lease.Extend(ctx, time.Minute); !errors.Is(err, lock.ErrUnknown) {
			t.Errorf("extend: %v", err)
		}
		if err := context.Cause(lease.Context()); err != nil {
			t.Errorf("the lease ended: %v", err)
		}
		mustUnlock(t, lease)
	})
}
