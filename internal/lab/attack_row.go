package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// heldRow is "two at once" for strategies that live inside the database: a
// third transaction holds the row, or in SQLite the database, until A and B
// have both read what they may and stand before the same last unit.
func heldRow() attack {
	return attack{name: "two at once", stock: 1, run: func(ctx context.Context, a *arena) (err error) {
		tx, err := a.setup.db.SQL().BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("hold the row: %w", err)
		}
		defer func() {
			if rolled := tx.Rollback(); !errors.Is(rolled, sql.ErrTxDone) {
				err = errors.Join(err, rolled)
			}
		}()
		mysql := isMySQL(a.setup.db)
		if mysql {
			var id string
			if err := tx.QueryRowContext(ctx, "SELECT id FROM vouchers WHERE id = ? FOR UPDATE", a.setup.Name).Scan(&id); err != nil {
				return fmt.Errorf("hold the row: %w", err)
			}
		}
		first, second := a.worker(ctx, "A", nil), a.worker(ctx, "B", nil)
		if err := bothWait(ctx, a.setup.db.SQL(), mysql); err != nil {
			return err
		}
		if err := tx.Rollback(); err != nil {
			return fmt.Errorf("let go of the row: %w", err)
		}
		return a.finish(ctx, first, second)
	}}
}

// bothWait waits until two statements of this schema are stuck, or, where the
// database does not tell, for the time in which they surely are.
func bothWait(ctx context.Context, db *sql.DB, tells bool) error {
	ctx, cancel := context.WithTimeout(ctx, absence)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !tells {
			continue
		}
		var running int
		err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.processlist"+
			" WHERE db = DATABASE() AND command = 'Query' AND id <> CONNECTION_ID()").Scan(&running)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("ask who waits: %w", err)
		}
		if running >= 2 {
			return nil
		}
	}
}
