package repository

import (
	"context"

	"gorm.io/gorm"

	"seckill/model"
)

// Live calls yield for every live order of a voucher, in the order of users; of
// each only the id, voucher and user are given. It reads page by page: an order
// that was live when it was called, and still is, is among them.
func (o *Orders) Live(ctx context.Context, voucherID string, yield func(model.Order) error) error {
	if !model.ValidID(voucherID) {
		return nil // see possible
	}
	for last := ""; ; {
		var orders []model.Order
		err := o.db.read(ctx, "list live orders of voucher "+voucherID, func(db *gorm.DB) error {
			// These columns are all in the index that finds the rows.
			return db.Select("id, voucher_id, user_id").
				Where("voucher_id = ? AND user_id > ? AND slot = 1", voucherID, last).
				Order("user_id").Limit(snapshotRows).Find(&orders).Error
		})
		if err != nil {
			return err
		}
		for _, order := range orders {
			if err := yield(order); err != nil {
				return err
			}
		}
		if len(orders) < snapshotRows {
			return nil
		}
		last = orders[len(orders)-1].UserID
	}
}
