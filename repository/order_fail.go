package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// Fail makes a reservation that cannot be persisted a failed order, which holds
// only what identifies it and the reason, and releases its unit. A row that is
// there already wins and is returned. VALIDATION when not even that can be
// stored.
func (o *Orders) Fail(ctx context.Context, r model.Reservation, reason string) (model.Order, error) {
	action := "fail order " + r.ID
	if err := identified(r); err != nil {
		return model.Order{}, fmt.Errorf("%s: %w", action, err)
	}
	var order model.Order
	err := o.db.WriteRepeatable(ctx, action, func(tx *gorm.DB, _ bool) error {
		var written bool
		var err error
		order, written, err = o.failed(tx, r, reason)
		if err != nil || written {
			return err
		}
		if order.VoucherID != r.VoucherID || order.UserID != r.UserID {
			return model.Conflict("The order's id belongs to another order.")
		}
		return sqldb.ErrNothingToWrite
	})
	if err != nil {
		return model.Order{}, err
	}
	return order, nil
}

// failed writes the failed row of a reservation, or finds the row that is there.
func (o *Orders) failed(tx *gorm.DB, r model.Reservation, reason string) (model.Order, bool, error) {
	_, now, err := lockMode(tx, o.db.Dialect)
	if err != nil {
		return model.Order{}, false, err
	}
	voucher, err := lockVoucher(tx, o.db.Dialect, r.VoucherID)
	if err != nil && !errors.Is(err, gorm.ErrRecordNotFound) {
		return model.Order{}, false, fmt.Errorf("lock voucher %s: %w", r.VoucherID, err)
	}
	found, err := findOrders(tx, []string{r.ID})
	if err != nil {
		return model.Order{}, false, err
	}
	if row, ok := found[r.ID]; ok {
		return row, false, nil
	}
	row := model.Order{
		ID: r.ID, VoucherID: r.VoucherID, UserID: r.UserID, CreatedAt: stored(now.Time),
		Currency: cmp.Or(voucher.Currency, strings.Repeat("X", 3)), // without a voucher, ISO 4217's word for none
	}
	if model.StorableTime(r.CreatedAt) {
		row.CreatedAt = stored(r.CreatedAt)
	}
	fail(&row, reason, now.Time)
	return row, true, insert(tx, o.db, []model.Order{row})
}
