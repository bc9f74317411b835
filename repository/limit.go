package repository

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"seckill/model"
)

// Limits keeps the rate limits that an administrator has set.
type Limits struct{ db *Database }

// NewLimits keeps limits in a database.
func NewLimits(db *Database) *Limits { return &Limits{db: db} }

// limitRow is the row of rate_limits, and the name of the database.
type limitRow struct {
	UserRate, AddrRate *string
	Deployment         string
}

// Read tells which limits are set.
func (l *Limits) Read(ctx context.Context) (model.LimitRecord, error) {
	var record model.LimitRecord
	err := l.db.read(ctx, "read the rate limits", func(db *gorm.DB) (err error) {
		record, err = readLimits(db)
		return err
	})
	return record, err
}

// Change sets the limits that the patch has, and tells which are set then.
func (l *Limits) Change(ctx context.Context, patch model.LimitsPatch) (record model.LimitRecord, err error) {
	err = l.db.writeRepeatable(ctx, "change the rate limits", func(tx *gorm.DB, _ bool) (err error) {
		done := tx.Exec("UPDATE rate_limits SET user_rate = COALESCE(?, user_rate), addr_rate = COALESCE(?, addr_rate) WHERE id = 1",
			rateText(patch.User), rateText(patch.Addr))
		if done.Error != nil {
			return done.Error
		}
		record, err = readLimits(tx)
		return err
	})
	return record, err
}

func readLimits(db *gorm.DB) (record model.LimitRecord, err error) {
	var row limitRow
	if err := db.Raw("SELECT user_rate, addr_rate, deployment FROM rate_limits, order_mode").Take(&row).Error; err != nil {
		return record, fmt.Errorf("read the row of rate limits: %w", err)
	}
	record.Deployment = row.Deployment
	if record.Set.User, err = rateOf(row.UserRate); err == nil {
		record.Set.Addr, err = rateOf(row.AddrRate)
	}
	return record, err
}

func rateText(rate *model.Rate) *string {
	if rate == nil {
		return nil
	}
	return new(rate.String())
}

func rateOf(text *string) (*model.Rate, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // none is set
	}
	rate, err := model.ParseRate(*text)
	return &rate, err
}
