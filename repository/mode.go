package repository

import (
	"cmp"
	"context"
	"fmt"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"seckill/model"
	"seckill/repository/sqldb"
)

// Modes keeps how the database is sold from.
type Modes struct{ db *sqldb.Database }

// NewModes keeps the order mode of a database.
func NewModes(db *sqldb.Database) *Modes { return &Modes{db: db} }

// modeRow is the row of order_mode.
type modeRow struct {
	model.ModeRecord `gorm:"embedded"`
}

// TableName implements gorm's Tabler.
func (modeRow) TableName() string { return "order_mode" }

// Read tells how the database is sold from.
func (m *Modes) Read(ctx context.Context) (model.ModeRecord, error) {
	var row modeRow
	err := m.db.Read(ctx, "read the order mode", func(db *gorm.DB) error {
		return db.Where("id = 1").Take(&row).Error
	})
	return row.ModeRecord, err
}

// Adopt makes the mode that of the database if it has no voucher yet, and tells what it is then.
func (m *Modes) Adopt(ctx context.Context, mode model.OrderMode) (model.ModeRecord, error) {
	// Orders that are being committed hold the row shared, and a process that was
	// stopped meanwhile holds it for seconds: without a change to make it is not locked.
	record, err := m.Read(ctx)
	if err != nil || record.Mode == mode {
		return record, err
	}
	err = m.change(ctx, "adopt", mode, func(tx *gorm.DB) (bool, error) {
		var vouchers []string // a call that makes one holds the row that is locked here
		err := tx.Table("vouchers").Limit(1).Pluck("id", &vouchers).Error
		return len(vouchers) == 0, err
	})
	if err != nil {
		return record, err
	}
	return m.Read(ctx)
}

// Change makes the mode that of the database, and begins another epoch of every hot copy that is open: what the copy says is
// not true once the database was sold from otherwise. It waits for every transaction that takes units. The caller has made
// sure that nobody sells. An instance that goes on all the same is refused: in sync by the mode, in async by its old epoch.
func (m *Modes) Change(ctx context.Context, to model.OrderMode) error {
	return m.change(ctx, "change", to, func(tx *gorm.DB) (bool, error) {
		err := tx.Exec("UPDATE vouchers SET copy_epoch = copy_epoch + 1, copy_barrier = NULL, copy_progress_at = NULL," +
			" revision = revision + 1, version = version + 1 WHERE copy_epoch > 0 AND copy_open_epoch = copy_epoch").Error
		return true, err
	})
}

// change locks the row against every call that takes units or makes vouchers, and
// writes the mode if it is another one and prepare agrees. It may be repeated.
func (m *Modes) change(ctx context.Context, what string, to model.OrderMode, prepare func(tx *gorm.DB) (bool, error)) error {
	action := fmt.Sprintf("%s to order mode %q", what, to)
	if to != model.ModeSync && to != model.ModeAsync {
		return fmt.Errorf("%s: %w", action, model.Invalid("mode", "must be sync or async"))
	}
	return m.db.WriteRepeatable(ctx, action, func(tx *gorm.DB, _ bool) error {
		var row modeRow
		if err := tx.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).Where("id = 1").Take(&row).Error; err != nil {
			return fmt.Errorf("lock the order mode: %w", err)
		}
		if row.Mode == to {
			return sqldb.ErrNothingToWrite
		}
		if agreed, err := prepare(tx); err != nil || !agreed {
			return cmp.Or(err, sqldb.ErrNothingToWrite)
		}
		return tx.Model(&modeRow{}).Where("id = 1").Update("mode", to).Error
	})
}

// lockMode reads how the database is sold from, and its clock. Until the
// transaction ends, the mode does not change.
func lockMode(tx *gorm.DB, d sqldb.Dialect) (model.OrderMode, clock, error) {
	var mode model.OrderMode
	var now clock
	if err := tx.Raw("SELECT "+orderMode(d)+", "+d.Now).Row().Scan(&mode, &now); err != nil {
		return "", now, fmt.Errorf("read the order mode and the database's clock: %w", err)
	}
	return mode, now, nil
}

// otherMode refuses to take units from a database that is sold from otherwise:
// its remaining units may have been promised elsewhere.
func otherMode(mode model.OrderMode) *model.Error {
	return model.Unavailable(fmt.Sprintf("This database is sold from in order mode %q.", mode), nil)
}
