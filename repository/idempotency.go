package repository

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

type idempotencyKey struct {
	Scope          []byte
	IdempotencyKey []byte
	Fingerprint    string
	Answer         answer    `gorm:"serializer:json"`
	CreatedAt      time.Time `gorm:"autoCreateTime:false"`
}

// answer is what a call was answered: a voucher, or a CONFLICT.
type answer struct {
	Voucher   model.Voucher `json:"voucher"`
	Version   int64         `json:"version"` // of the voucher; its JSON leaves these out
	Revision  int64         `json:"revision"`
	CreatedAt time.Time     `json:"created_at"`
	Conflict  string        `json:"conflict,omitempty"`
}

func answerOf(v model.Voucher) *answer {
	return &answer{Voucher: v, Version: v.Version, Revision: v.Revision, CreatedAt: v.CreatedAt}
}

func (a answer) result() (model.Voucher, error) {
	if a.Conflict != "" {
		return model.Voucher{}, model.Conflict(a.Conflict)
	}
	a.Voucher.Version, a.Voucher.Revision, a.Voucher.CreatedAt = a.Version, a.Revision, a.CreatedAt
	return a.Voucher, nil
}

// once runs work in a transaction. Work locks what it must, then asks first for an answer given already under this key
// and repeats that; otherwise its own is stored beside its change. Errors are not stored: they changed nothing.
func (v *Vouchers) once(ctx context.Context, action string, key model.Idempotency,
	work func(tx *gorm.DB, first func() (*answer, error)) (*answer, error),
) (model.Voucher, error) {
	var given *answer
	err := v.db.Write(ctx, action, func(tx *gorm.DB) error {
		repeated := false
		first := func() (*answer, error) {
			earlier, err := firstAnswer(tx, key)
			repeated = earlier != nil
			return earlier, err
		}
		var err error
		if given, err = work(tx, first); err != nil {
			return err
		}
		if repeated || key.Key == "" {
			return nil
		}
		return v.keepAnswer(tx, key, *given)
	})
	if err != nil {
		return model.Voucher{}, err
	}
	voucher, err := given.result()
	return voucher, sqldb.Named(action, err)
}

// firstAnswer is nil when the key was never used. Used for something else it is a CONFLICT.
func firstAnswer(tx *gorm.DB, key model.Idempotency) (*answer, error) {
	if key.Key == "" {
		return nil, nil //nolint:nilnil // no key, no answer: both are fine
	}
	used := tx.Where("scope = ? AND idempotency_key = ?", []byte(key.Scope), []byte(key.Key))
	row, err := first[idempotencyKey](used, "the idempotency key")
	if err != nil || row == nil {
		return nil, err
	}
	if row.Fingerprint != key.Fingerprint {
		return nil, model.Conflict("The Idempotency-Key was used for another request.")
	}
	return &row.Answer, nil
}

// keepAnswer stores an answer. A call that loses the race for the key begins anew, and then finds the winner's answer.
func (v *Vouchers) keepAnswer(tx *gorm.DB, key model.Idempotency, given answer) error {
	err := tx.Create(&idempotencyKey{
		Scope: []byte(key.Scope), IdempotencyKey: []byte(key.Key), Fingerprint: key.Fingerprint,
		Answer: given, CreatedAt: stored(given.Voucher.ServerTime),
	}).Error
	if sqldb.Duplicate(err) {
		return fmt.Errorf("keep idempotency key: %w", sqldb.ErrContended)
	}
	return err
}

// Purges forgets what nobody asks for any more.
type Purges struct{ DB *sqldb.Database }

// PurgeIdempotency forgets Idempotency-Keys older than age, and counts them. A later repetition is a new call.
func (p *Purges) PurgeIdempotency(ctx context.Context, age time.Duration) (int64, error) {
	return p.purge(ctx, "purge idempotency keys", p.DB.Dialect.Purge("idempotency_keys", "created_at"), age)
}

// PurgeMessages forgets webhook messages older than age, and counts them. Their payments are decided.
func (p *Purges) PurgeMessages(ctx context.Context, age time.Duration) (int64, error) {
	return p.purge(ctx, "purge webhook messages", p.DB.Dialect.Purge("webhook_messages", "received_at"), age)
}

// PurgeAccounts forgets accounts that were erased longer than age ago, when their tokens have expired, and counts them.
func (p *Purges) PurgeAccounts(ctx context.Context, age time.Duration) (int64, error) {
	statement := strings.Replace(p.DB.Dialect.Purge("accounts", "changed_at"), "WHERE changed_at", "WHERE password_hash = '' AND disabled AND changed_at", 1)
	return p.purge(ctx, "purge erased accounts", statement, age)
}

// purgeBatch rows go in one transaction: milliseconds, so that others hardly wait for its locks.
const purgeBatch = 1000

// purge deletes rows that are older than age, on the database's clock. It works in short transactions until nothing is
// left or ctx ends; on an error, too, the number is of what is gone. Several instances may purge at once.
func (p *Purges) purge(ctx context.Context, action, statement string, age time.Duration) (int64, error) {
	now, err := got(ctx, p.DB.Read, action, func(db *gorm.DB) (time.Time, error) { return readClock(db, p.DB.Dialect) })
	if err != nil {
		return 0, err
	}
	oldest := stored(now.Add(-age))
	for purged := int64(0); ; {
		var batch int64
		err := p.DB.Write(ctx, action, func(tx *gorm.DB) error {
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
