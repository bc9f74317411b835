package repository

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"seckill/repository/sqldb"
)

// Purges forgets what nobody asks for any more.
type Purges struct{ db *sqldb.Database }

// NewPurges works on a database.
func NewPurges(db *sqldb.Database) *Purges { return &Purges{db: db} }

// PurgeIdempotency forgets the Idempotency-Keys that are older than age, and tells how
// many. A call that is repeated later than that is a new one.
func (p *Purges) PurgeIdempotency(ctx context.Context, age time.Duration) (int64, error) {
	return p.purge(ctx, "purge idempotency keys", p.db.Dialect.Purge("idempotency_keys", "created_at"), age)
}

// PurgeMessages forgets the webhook messages that are older than age, and tells how many.
// One that is repeated later than that changes nothing: its payment is decided.
func (p *Purges) PurgeMessages(ctx context.Context, age time.Duration) (int64, error) {
	return p.purge(ctx, "purge webhook messages", p.db.Dialect.Purge("webhook_messages", "received_at"), age)
}

// purgeBatch is how many rows go in one transaction: it takes milliseconds, so that
// calls that need the table hardly wait for its locks.
const purgeBatch = 1000

// purge deletes rows that are older than age, on the database's clock. It works in short
// transactions until nothing is left or ctx ends; on an error, too, the number is of what
// is gone. Several instances may purge at once.
func (p *Purges) purge(ctx context.Context, action, statement string, age time.Duration) (int64, error) {
	var now time.Time
	err := p.db.Read(ctx, action, func(db *gorm.DB) (err error) {
		now, err = readClock(db, p.db.Dialect)
		return err
	})
	if err != nil {
		return 0, err
	}
	oldest := stored(now.Add(-age))
	for purged := int64(0); ; {
		var batch int64
		err := p.db.Write(ctx, action, func(tx *gorm.DB) error {
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
