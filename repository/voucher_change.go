package repository

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"seckill/model"
)

// Patch changes what is set. The resulting window must not be empty
// (VALIDATION); NOT_FOUND when there is no such voucher.
func (v *Vouchers) Patch(ctx context.Context, id string, patch model.VoucherPatch) (model.Voucher, error) {
	if err := possible(id); err != nil {
		return model.Voucher{}, err
	}
	var patched voucherRow
	err := v.db.write(ctx, "patch voucher "+id, func(tx *gorm.DB) error {
		row, err := lockVoucher(tx, v.db.dialect, id)
		if err != nil {
			return notFound(err, "voucher")
		}
		apply(&row.Voucher, patch)
		if !row.BeginAt.Before(row.EndAt) {
			return windowError()
		}
		patched = row
		return update(tx, &patched.Voucher)
	})
	if err != nil {
		return model.Voucher{}, err
	}
	return patched.view(), nil
}

func apply(v *model.Voucher, patch model.VoucherPatch) {
	set(&v.Title, patch.Title)
	set(&v.Description, patch.Description)
	set(&v.Price, patch.Price)
	set(&v.FaceValue, patch.FaceValue)
	set(&v.BeginAt, patch.BeginAt)
	set(&v.EndAt, patch.EndAt)
	set(&v.State, patch.State)
	v.BeginAt, v.EndAt = stored(v.BeginAt), stored(v.EndAt)
}

func set[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}

// update writes a locked row back, with the next version and revision.
func update(tx *gorm.DB, v *model.Voucher) error {
	v.Version++
	v.Revision++
	done := tx.Model(&model.Voucher{}).Where("id = ?", v.ID).
		Select("Title", "Description", "Price", "FaceValue", "Stock", "Remaining", "BeginAt", "EndAt", "State", "Version", "Revision").
		Updates(v)
	if done.Error == nil && done.RowsAffected != 1 {
		return fmt.Errorf("the locked row matched %d times", done.RowsAffected)
	}
	return done.Error
}

// ChangeStock changes how many units were ever offered, and with it what
// remains. Less than was sold is a CONFLICT that changes nothing; more than
// model.MaxAmount is VALIDATION. With an idempotency key it happens once. In
// async mode a stock shrinks only as IntendStock has announced; UNAVAILABLE
// otherwise.
func (v *Vouchers) ChangeStock(ctx context.Context, id string, change model.StockChange, once model.Idempotency) (model.Voucher, error) {
	if err := checkChange(id, change); err != nil {
		return model.Voucher{}, err
	}
	return v.once(ctx, "change stock of voucher "+id, once, func(tx *gorm.DB, first func() (*answer, error)) (answer, error) {
		mode, _, err := lockMode(tx, v.db.dialect)
		if err != nil {
			return answer{}, err
		}
		row, err := lockVoucher(tx, v.db.dialect, id)
		if err != nil {
			return answer{}, notFound(err, "voucher")
		}
		// After the lock: a call with the same key that held it has left its answer.
		if given, err := first(); err != nil || given != nil {
			return deref(given), err
		}
		stock, err := newStock(row.Stock, change)
		if err != nil {
			return answer{}, err
		}
		sold := row.Stock - row.Remaining
		if stock < sold {
			return answer{
				Conflict: fmt.Sprintf("%d units are sold already; the stock cannot be %d.", sold, stock),
				Voucher:  row.view(),
			}, nil
		}
		if err := spendIntent(tx, mode, row, stock); err != nil {
			return answer{}, err
		}
		row.Stock, row.Remaining = stock, stock-sold
		if err := update(tx, &row.Voucher); err != nil {
			return answer{}, err
		}
		return answerOf(row.view()), nil
	})
}

func checkChange(id string, change model.StockChange) error {
	if (change.Delta == nil) == (change.Stock == nil) {
		return model.Invalid("body", "exactly one of delta and stock is expected")
	}
	return possible(id)
}

// newStock applies a change, within what amounts may be. A negative result is
// left to the comparison with what is sold.
func newStock(stock int64, change model.StockChange) (int64, error) {
	location := "body.stock"
	if change.Delta != nil {
		location = "body.delta"
		if *change.Delta < -model.MaxAmount || *change.Delta > model.MaxAmount {
			return 0, model.Invalid(location, "must be between -%d and %d", int64(model.MaxAmount), int64(model.MaxAmount))
		}
		stock += *change.Delta
	} else {
		stock = *change.Stock
		if stock < 0 {
			return 0, model.Invalid(location, "must not be negative")
		}
	}
	if stock > model.MaxAmount {
		return 0, model.Invalid(location, "the stock would be above %d", int64(model.MaxAmount))
	}
	return stock, nil
}
