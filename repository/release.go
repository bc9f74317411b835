package repository

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// Releases is the outbox of units that came back: what was written in the
// transaction that gave a unit back, until its hot copy knows.
type Releases struct{ db *sqldb.Database }

// NewReleases reads the outbox of a database.
func NewReleases(db *sqldb.Database) *Releases { return &Releases{db: db} }

// After reads releases voucher by voucher, those of one oldest first, from behind
// the one given, at most so many.
func (r *Releases) After(ctx context.Context, last model.Release, limit int) ([]model.Release, error) {
	var list []model.Release
	err := r.db.Read(ctx, "read the outbox of releases", func(db *gorm.DB) error {
		return db.Where("voucher_id > ? OR (voucher_id = ? AND id > ?)", last.VoucherID, last.VoucherID, last.ID).
			Order("voucher_id, id").Limit(limit).Find(&list).Error
	})
	return list, err
}

// Done removes releases that were applied. Absent ones are fine.
func (r *Releases) Done(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	return r.db.WriteRepeatable(ctx, fmt.Sprintf("remove %d releases", len(ids)), func(tx *gorm.DB, _ bool) error {
		return deleteReleases(tx, ids)
	})
}

// DoneOrders removes the releases of orders.
func (r *Releases) DoneOrders(ctx context.Context, orderIDs []string) error {
	orderIDs = validIDs(orderIDs)
	if len(orderIDs) == 0 {
		return nil
	}
	return r.db.WriteRepeatable(ctx, fmt.Sprintf("remove the releases of %d orders", len(orderIDs)), func(tx *gorm.DB, _ bool) error {
		// By primary key, as Done does: two transactions that lock the same rows by
		// different indexes wait for each other crosswise.
		var ids []int64
		for some := range slices.Chunk(orderIDs, streamRows) {
			var part []int64
			if err := tx.Model(&model.Release{}).Where("order_id IN ?", some).Pluck("id", &part).Error; err != nil {
				return fmt.Errorf("find them: %w", err)
			}
			ids = append(ids, part...)
		}
		if len(ids) == 0 {
			return sqldb.ErrNothingToWrite
		}
		return deleteReleases(tx, ids)
	})
}

// deleteReleases deletes in the order of ids, as every transaction does.
func deleteReleases(tx *gorm.DB, ids []int64) error {
	ids = slices.Sorted(slices.Values(ids))
	for some := range slices.Chunk(ids, streamRows) {
		if err := tx.Where("id IN ?", some).Delete(&model.Release{}).Error; err != nil {
			return fmt.Errorf("delete releases: %w", err)
		}
	}
	return nil
}

func insertReleases(tx *gorm.DB, list []model.Release) error {
	args := make([]any, 0, len(list)*releaseColumns)
	for _, r := range list {
		args = append(args, r.OrderID, r.VoucherID, r.UserID, r.CooldownUntil, nullable(r.HeirID), nullable(r.HeirUserID))
	}
	if err := insertRows(tx, insertRelease, releaseColumns, args); err != nil {
		return fmt.Errorf("insert %d releases: %w", len(list), err)
	}
	return nil
}

// nullable is NULL for an empty text.
func nullable(text string) sql.NullString { return sql.NullString{String: text, Valid: text != ""} }

const (
	insertRelease  = "INSERT INTO releases (order_id, voucher_id, user_id, cooldown_until, heir_id, heir_user_id) VALUES "
	releaseColumns = 6
)
