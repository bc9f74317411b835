package repository

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// Modes keeps how the database is sold from.
type Modes struct{ DB *sqldb.Database }

// Read tells how the database is sold from.
func (m *Modes) Read(ctx context.Context) (record model.ModeRecord, err error) {
	err = m.DB.Read(ctx, "read the order mode", func(db *gorm.DB) error {
		return db.Table("order_mode").Where("id = 1").Take(&record).Error
	})
	return record, err
}

// Adopt makes the mode that of the database if it has no voucher yet, and tells what it is then.
func (m *Modes) Adopt(ctx context.Context, mode model.OrderMode) (model.ModeRecord, error) {
	// Orders that commit share the row, stopped ones for seconds: without a change it is not locked.
	record, err := m.Read(ctx)
	if err != nil || record.Mode == mode {
		return record, err
	}
	err = m.change(ctx, "adopt", mode, func(tx *gorm.DB) (bool, error) {
		sold, err := exists(tx, "SELECT 1 FROM vouchers") // a call that makes one holds the row that is locked here
		return !sold, err
	})
	if err != nil {
		return record, err
	}
	return m.Read(ctx)
}

// Change makes the mode that of the database, after every transaction that takes units, and begins another epoch of
// every open hot copy: sales of the other mode make it untrue. The caller has made sure that nobody sells. An instance
// that sells all the same is refused: in sync by the mode, in async by its epoch.
func (m *Modes) Change(ctx context.Context, to model.OrderMode) error {
	return m.change(ctx, "change", to, func(tx *gorm.DB) (bool, error) {
		err := tx.Exec("UPDATE vouchers SET copy_epoch = copy_epoch + 1, copy_barrier = NULL, copy_progress_at = NULL," +
			" revision = revision + 1, version = version + 1 WHERE copy_epoch > 0 AND copy_open_epoch = copy_epoch").Error
		return true, err
	})
}

// change locks the row against takers and makers, and writes another mode if prepare agrees. It may be repeated.
func (m *Modes) change(
	ctx context.Context, what string, to model.OrderMode, prepare func(tx *gorm.DB) (bool, error),
) error {
	action := fmt.Sprintf("%s to order mode %q", what, to)
	if to != model.ModeSync && to != model.ModeAsync {
		return fmt.Errorf("%s: %w", action, model.Invalid("mode", "must be sync or async"))
	}
	return m.DB.WriteRepeatable(ctx, action, func(tx *gorm.DB, _ bool) error {
		var record model.ModeRecord
		if err := locked(tx).Table("order_mode").Where("id = 1").Take(&record).Error; err != nil {
			return fmt.Errorf("lock the order mode: %w", err)
		}
		if record.Mode == to {
			return sqldb.ErrNothingToWrite
		}
		if agreed, err := prepare(tx); err != nil || !agreed {
			return cmp.Or(err, sqldb.ErrNothingToWrite)
		}
		return tx.Exec("UPDATE order_mode SET mode = ? WHERE id = 1", to).Error
	})
}

// lockMode reads how the database is sold from, and its clock. Until the transaction ends, the mode does not change.
func lockMode(tx *gorm.DB, d sqldb.Dialect) (model.OrderMode, clock, error) {
	var mode model.OrderMode
	var now clock
	if err := tx.Raw("SELECT "+orderMode(d)+", "+d.Now).Row().Scan(&mode, &now); err != nil {
		return "", now, fmt.Errorf("read the order mode and the database's clock: %w", err)
	}
	return mode, now, nil
}

// otherMode refuses to sell from a database of another mode: its units may have been promised elsewhere.
func otherMode(mode model.OrderMode) *model.Error {
	return model.Unavailable(fmt.Sprintf("This database is sold from in order mode %q.", mode), nil)
}

// Limits keeps the rate limits that an administrator has set.
type Limits struct{ DB *sqldb.Database }

// Read tells which limits are set.
func (l *Limits) Read(ctx context.Context) (model.LimitRecord, error) {
	return got(ctx, l.DB.Read, "read the rate limits", readLimits)
}

type loggedLimits struct {
	User string `json:"user,omitempty"`
	Addr string `json:"addr,omitempty"`
}

func loggedLimitsOf(set model.LimitsPatch) loggedLimits {
	return loggedLimits{User: rateText(set.User), Addr: rateText(set.Addr)}
}

// Change sets the patch's limits, and returns those then set. The administrators' log has real changes only.
func (l *Limits) Change(ctx context.Context, patch model.LimitsPatch) (record model.LimitRecord, err error) {
	err = l.DB.WriteRepeatable(ctx, "change the rate limits", func(tx *gorm.DB, _ bool) error {
		var id int // locked first, so that each of two changes logs what it has found
		err := locked(tx).Table("rate_limits").Select("id").Take(&id).Error
		if err != nil {
			return fmt.Errorf("lock the rate limits: %w", err)
		}
		if record, err = readLimits(tx); err != nil {
			return err
		}
		before := loggedLimitsOf(record.Set)
		record.Set.User, record.Set.Addr = cmp.Or(patch.User, record.Set.User), cmp.Or(patch.Addr, record.Set.Addr)
		after := loggedLimitsOf(record.Set)
		if after == before {
			return sqldb.ErrNothingToWrite
		}
		err = tx.Exec("UPDATE rate_limits SET user_rate = ?, addr_rate = ? WHERE id = 1", nullable(after.User),
			nullable(after.Addr)).Error
		if err != nil {
			return err
		}
		return logChange(l.DB, tx, adminChange{
			actor: patch.By, action: model.ActionLimitsChange, subject: model.SubjectLimits, before: before, after: after,
		})
	})
	return record, err
}

func readLimits(db *gorm.DB) (record model.LimitRecord, err error) {
	var row struct {
		UserRate, AddrRate *string
		Deployment         string
	}
	if err := db.Raw("SELECT user_rate, addr_rate, deployment FROM rate_limits, order_mode").Take(&row).Error; err != nil {
		return record, fmt.Errorf("read the row of rate limits: %w", err)
	}
	record.Deployment = row.Deployment
	if record.Set.User, err = rateOf(row.UserRate); err == nil {
		record.Set.Addr, err = rateOf(row.AddrRate)
	}
	return record, err
}

func rateText(rate *model.Rate) string {
	if rate == nil {
		return ""
	}
	return rate.String()
}

func rateOf(text *string) (*model.Rate, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // none is set
	}
	rate, err := model.ParseRate(*text)
	return &rate, err
}

// RedisClaims keeps which Redis a database's instances use: two different ones would oversell.
type RedisClaims struct{ DB *sqldb.Database }

// Read reads the claim, and how long ago it was renewed by the database's clock.
func (c *RedisClaims) Read(ctx context.Context) (claim model.RedisClaim, age time.Duration, err error) {
	var row struct {
		model.RedisClaim `gorm:"embedded"`

		Now clock `gorm:"column:read_at"`
	}
	err = c.DB.Read(ctx, "read which Redis is used", func(db *gorm.DB) error {
		return db.Raw("SELECT identity, renewed_at, " + c.DB.Dialect.Now +
			" AS read_at FROM redis_claim WHERE id = 1").Scan(&row).Error
	})
	return row.RedisClaim, row.Now.Sub(row.RenewedAt), err
}

// Take makes an identity the one that is used, or renews it; false when another claim came in between.
func (c *RedisClaims) Take(ctx context.Context, identity string, from model.RedisClaim) (bool, error) {
	var taken bool
	err := c.DB.WriteRepeatable(ctx, fmt.Sprintf("claim the database for the Redis %s", identity),
		func(tx *gorm.DB, _ bool) error {
			done := tx.Exec("UPDATE redis_claim SET identity = ?, renewed_at = "+c.DB.Dialect.Now+
				" WHERE id = 1 AND identity = ? AND renewed_at = ?", identity, from.Identity, from.RenewedAt)
			taken = done.RowsAffected == 1
			return done.Error
		})
	return taken, err
}
