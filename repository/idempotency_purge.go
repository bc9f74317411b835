package repository

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// purgeBatch is how many keys go in one transaction: it takes milliseconds,
// so that calls with a key hardly wait for its locks.
const purgeBatch = 1000

// PurgeIdempotency forgets the Idempotency-Keys that are older than age, on
// the database's clock, and tells how many. A call that is repeated later than
// that is a new one. It works in short transactions until nothing is left or
// ctx ends; on an error, too, the number is of what is gone. Several instances
// may purge at once.
func (d *Database) PurgeIdempotency(ctx context.Context, age time.Duration) (int64, error) {
	const action = "purge idempotency keys"
	var now clock
	err := d.read(ctx, action, func(db *gorm.DB) error {
		return db.Raw("SELECT " + d.dialect.now).Row().Scan(&now)
	})
	if err != nil {
		return 0, err
	}
	oldest := stored(now.Add(-age))
	for purged := int64(0); ; {
		var batch int64
		err := d.write(ctx, action, func(tx *gorm.DB) error {
			done := tx.Exec(d.dialect.purge, oldest, purgeBatch)
			batch = done.RowsAffected
			return done.Error
		})
		if err != nil {
			return purged, fmt.Errorf("after %d keys: %w", purged, err)
		}
		if purged += batch; batch < purgeBatch {
			return purged, nil
		}
	}
}
