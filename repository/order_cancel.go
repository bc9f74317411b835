package repository

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"seckill/model"
)

// Cancel closes a user's unpaid order and returns its unit, in one transaction;
// in async mode also with the release for the hot copy. Canceled already is
// fine: changed is false then. NOT_FOUND when there is no such order of this
// user; ILLEGAL_STATE, with its status, when it is neither unpaid nor canceled.
func (o *Orders) Cancel(ctx context.Context, userID, orderID string) (order model.Order, changed bool, err error) {
	if !model.ValidID(orderID) { // see possible
		return order, false, fmt.Errorf("cancel order %q: %w", orderID, model.NotFound("order"))
	}
	err = o.db.writeRepeatable(ctx, "cancel order "+orderID, func(tx *gorm.DB, doubtful bool) error {
		changed = doubtful // found canceled, it was this call
		if err := notFound(tx.Where("id = ?", orderID).Take(&order).Error, "order"); err != nil {
			return err
		}
		switch {
		case order.UserID != userID:
			return model.NotFound("order")
		case order.Status == model.OrderCanceled:
			return errNothingToWrite
		case order.Status != model.OrderUnpaid:
			return illegalMove("canceled", order.Status)
		}
		changed = true
		return o.cancel(tx, &order)
	})
	if err != nil {
		return model.Order{}, false, err
	}
	return order, changed, nil
}

// cancel is Cancel for an order that was unpaid when it was read.
func (o *Orders) cancel(tx *gorm.DB, order *model.Order) error {
	mode, _, err := lockMode(tx, o.db.dialect)
	if err != nil {
		return err
	}
	if _, err := lockVoucher(tx, o.db.dialect, order.VoucherID); err != nil {
		return fmt.Errorf("lock voucher %s: %w", order.VoucherID, err)
	}
	// The order before the unit: who was slower finds nothing to cancel.
	if err := matched(tx.Exec(o.db.dialect.sql(orderCancel), order.ID, order.UserID)); err != nil {
		return err
	}
	if err := matched(tx.Exec(o.db.dialect.sql(stockReturn), order.VoucherID)); err != nil {
		return fmt.Errorf("return a unit of voucher %s: %w", order.VoucherID, err)
	}
	if err := tx.Where("id = ?", order.ID).Take(order).Error; err != nil {
		return fmt.Errorf("read it again: %w", err)
	}
	if mode != model.ModeAsync {
		return nil // there is no hot copy to be told
	}
	return insertReleases(tx, []model.Release{releaseOf(*order)})
}

// matched sends the transaction back to its beginning when an UPDATE did not
// find what had been read.
func matched(done *gorm.DB) error {
	if done.Error == nil && done.RowsAffected != 1 {
		return errContended
	}
	return done.Error
}

// illegalMove refuses what an order's status does not allow.
func illegalMove(to string, status model.OrderStatus) *model.Error {
	return &model.Error{
		Code:        model.CodeIllegalState,
		Detail:      fmt.Sprintf("An order that is %s cannot be %s.", status, to),
		OrderStatus: status,
	}
}
