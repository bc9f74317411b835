package repository

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// PurgeIdempotency forgets the Idempotency-Keys that are older than age, and tells how
// many. A call that is repeated later than that is a new one.
func (d *Database) PurgeIdempotency(ctx context.Context, age time.Duration) (int64, error) {
	return d.purge(ctx, "purge idempotency keys", d.dialect.purge("idempotency_keys", "created_at"), age)
}

// PurgeMessages forgets the webhook messages that are older than age, and tells how many.
// One that is repeated later than that changes nothing: its payment is decided.
func (d *Database) PurgeMessages(ctx context.Context, age time.Duration) (int64, error) {
	return d.purge(ctx, "purge webhook messages", d.dialect.purge("webhook_messages", "received_at"), age)
}

// purgeBatch is how many rows go in one transaction: it takes milliseconds, so that
// calls that need the table hardly wait for its locks.
const purgeBatch = 1000

// purge deletes rows that are older than age, on the database's clock. It works in short
// transactions until nothing is left or ctx ends; on an error, too, the number is of what
// is gone. Several instances may purge at once.
func (d *Database) purge(ctx context.Context, action, statement string, age time.Duration) (int64, error) {
	var now time.Time
	err := d.read(ctx, action, func(db *gorm.DB) (err error) {
		now, err = readClock(db, d.dialect)
		return err
	})
	if err != nil {
		return 0, err
	}
	oldest := stored(now.Add(-age))
	for purged := int64(0); ; {
		var batch int64
		err := d.write(ctx, action, func(tx *gorm.DB) error {
			done := tx.Exec(statement, oldest, purgeBatch)
			batch = done.RowsAffected
			return done.Error
		})
		if err != nil {
			return purged, fmt.Errorf("after %d rows: %w", purged, err)
		}
		if purged += batch; batch < purgeBatch {
			return purged, nil
		}
	}
}
