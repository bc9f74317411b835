package repository

import (
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

func knownMode(mode model.OrderMode) bool { return mode == model.ModeSync || mode == model.ModeAsync }

// Read tells how the database is sold from.
func (m *Modes) Read(ctx context.Context) (model.ModeRecord, error) {
	var row modeRow
	err := m.db.Read(ctx, "read the order mode", func(db *gorm.DB) error {
		return db.Where("id = 1").Take(&row).Error
	})
	return row.ModeRecord, err
}

// Adopt makes the mode that of the database if it has no voucher yet and no
// switch is under way, and tells what it is then.
func (m *Modes) Adopt(ctx context.Context, mode model.OrderMode) (model.ModeRecord, error) {
	// Orders that are being committed hold the row shared, and a process that was
	// stopped meanwhile holds it for seconds: without a change to make it is not locked.
	record, err := m.Read(ctx)
	if err != nil || record.Mode == mode || record.SwitchingTo != "" {
		return record, err
	}
	err = m.change(ctx, "adopt", mode, func(tx *gorm.DB, found model.ModeRecord) (model.ModeRecord, error) {
		record = found
		if found.SwitchingTo != "" || found.Mode == mode {
			return found, nil
		}
		var vouchers []string // a call that makes one holds the row that is locked here
		if err := tx.Table("vouchers").Limit(1).Pluck("id", &vouchers).Error; err != nil {
			return found, fmt.Errorf("look for vouchers: %w", err)
		}
		if len(vouchers) == 0 {
			record.Mode = mode
		}
		return record, nil
	})
	return record, err
}

// BeginSwitch announces that the database is to be sold from in another mode:
// no hot copy opens any more. Announced already is fine, and so is the mode that
// it has; CONFLICT while a switch to another mode is under way.
func (m *Modes) BeginSwitch(ctx context.Context, to model.OrderMode) error {
	return m.change(ctx, "begin the switch", to, func(_ *gorm.DB, found model.ModeRecord) (model.ModeRecord, error) {
		switch {
		case found.SwitchingTo == to, found.SwitchingTo == "" && found.Mode == to:
		case found.SwitchingTo != "":
			return found, otherSwitch(found)
		default:
			found.SwitchingTo = to
		}
		return found, nil
	})
}

// FinishSwitch makes the announced mode that of the database. It waits for every
// transaction that takes units in the old one. Finished already is fine; CONFLICT
// when nothing or something else was announced.
func (m *Modes) FinishSwitch(ctx context.Context, to model.OrderMode) error {
	return m.change(ctx, "finish the switch", to, func(_ *gorm.DB, found model.ModeRecord) (model.ModeRecord, error) {
		switch {
		case found.SwitchingTo == "" && found.Mode == to:
		case found.SwitchingTo != to:
			return found, otherSwitch(found)
		default:
			found.Mode, found.SwitchingTo = to, ""
		}
		return found, nil
	})
}

// change locks the row against every call that takes units or makes vouchers, and
// writes what decide makes of it.
func (m *Modes) change(ctx context.Context, what string, to model.OrderMode,
	decide func(tx *gorm.DB, found model.ModeRecord) (model.ModeRecord, error),
) error {
	action := fmt.Sprintf("%s to order mode %q", what, to)
	if !knownMode(to) {
		return fmt.Errorf("%s: %w", action, model.Invalid("mode", "must be sync or async"))
	}
	return m.db.WriteRepeatable(ctx, action, func(tx *gorm.DB, _ bool) error {
		var row modeRow
		if err := tx.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).Where("id = 1").Take(&row).Error; err != nil {
			return fmt.Errorf("lock the order mode: %w", err)
		}
		wanted, err := decide(tx, row.ModeRecord)
		if err != nil {
			return err
		}
		if wanted == row.ModeRecord {
			return sqldb.ErrNothingToWrite
		}
		return tx.Model(&modeRow{}).Where("id = 1").Select("Mode", "SwitchingTo").Updates(&modeRow{wanted}).Error
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

// notServing refuses to open a hot copy.
func notServing(found model.ModeRecord) *model.Error {
	if found.SwitchingTo != "" {
		return model.Unavailable(fmt.Sprintf("This database's order mode is being switched to %q.", found.SwitchingTo), nil)
	}
	return otherMode(found.Mode)
}

func otherSwitch(found model.ModeRecord) *model.Error {
	if found.SwitchingTo == "" {
		return model.Conflict(fmt.Sprintf("The order mode is %q and no switch was begun.", found.Mode))
	}
	return model.Conflict(fmt.Sprintf("A switch from order mode %q to %q is under way.", found.Mode, found.SwitchingTo))
}
