package repository

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"seckill/model"
)

// intentAge is how old an intent must be for another one to take its place: its
// process had longer than any call may take.
const intentAge = 10 * time.Second

// intentTable holds the intents.
const intentTable = "stock_intents"

// IntendStock prepares a change of stock in async mode, where a stock shrinks in
// the hot copy first: what it has promised must never be undercut. The road is
//
//	intent, needed := IntendStock(change, once)
//	if needed: lower the hot copy to intent.Stock; if it refuses: DropIntent, answer CONFLICT
//	ChangeStock(change, once)
//	if that fails, for whatever reason: DropIntent
//
// Nothing has to be lowered (needed is false, and nothing is stored) when the
// stock does not shrink, when the call was answered before under its key, when
// ChangeStock is going to refuse it, or when the database is sold from in sync
// mode: ChangeStock alone gives the answer then.
//
// There is one intent per voucher: UNAVAILABLE while somebody else's is younger
// than 10 s; an older one is replaced.
func (v *Vouchers) IntendStock(ctx context.Context, id string, change model.StockChange, once model.Idempotency) (intent model.StockIntent, needed bool, err error) {
	if err := checkChange(id, change); err != nil {
		return intent, false, err
	}
	err = v.db.writeRepeatable(ctx, "intend another stock of voucher "+id, func(tx *gorm.DB, doubtful bool) error {
		intent, needed = model.StockIntent{}, false
		mode, now, err := lockMode(tx, v.db.dialect)
		if err != nil {
			return err
		}
		row, err := lockVoucher(tx, v.db.dialect, id)
		if err != nil {
			return notFound(err, "voucher")
		}
		earlier, err := firstAnswer(tx, once)
		if err != nil {
			return err
		}
		stock, err := newStock(row.Stock, change)
		if err != nil {
			return err
		}
		if earlier != nil || mode != model.ModeAsync || stock >= row.Stock || stock < row.Stock-row.Remaining {
			return errNothingToWrite
		}
		intent = model.StockIntent{VoucherID: id, Stock: stock, Revision: row.Revision, CreatedAt: stored(now.Time)}
		needed = true
		return replaceIntent(tx, &intent, doubtful)
	})
	if err != nil {
		return model.StockIntent{}, false, err
	}
	return intent, needed, nil
}

// replaceIntent stores an intent, or finds it stored if it may have been; the
// voucher's row is locked.
func replaceIntent(tx *gorm.DB, intent *model.StockIntent, doubtful bool) error {
	other, found, err := intentOf(tx, intent.VoucherID)
	if err != nil {
		return err
	}
	if found && doubtful && other.Stock == intent.Stock && other.Revision == intent.Revision {
		*intent = other
		return errNothingToWrite
	}
	if found {
		if intent.CreatedAt.Sub(other.CreatedAt) < intentAge {
			return model.Unavailable("Another change of this voucher's stock is under way.", nil)
		}
		if err := deleteIntent(tx, intent.VoucherID); err != nil {
			return err
		}
	}
	if err := tx.Table(intentTable).Create(intent).Error; err != nil {
		return fmt.Errorf("store the intent: %w", err)
	}
	return nil
}

func intentOf(tx *gorm.DB, voucherID string) (intent model.StockIntent, found bool, err error) {
	err = tx.Table(intentTable).Where("voucher_id = ?", voucherID).Take(&intent).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return intent, false, nil
	}
	if err != nil {
		return intent, false, fmt.Errorf("read the intent of voucher %s: %w", voucherID, err)
	}
	return intent, true, nil
}

func deleteIntent(tx *gorm.DB, voucherID string) error {
	if err := tx.Exec("DELETE FROM "+intentTable+" WHERE voucher_id = ?", voucherID).Error; err != nil {
		return fmt.Errorf("delete the intent of voucher %s: %w", voucherID, err)
	}
	return nil
}

// spendIntent lets a stock shrink in async mode only as it was intended and
// lowered in the hot copy, and only while nothing has changed since.
func spendIntent(tx *gorm.DB, mode model.OrderMode, row voucherRow, stock int64) error {
	if mode != model.ModeAsync || stock >= row.Stock {
		return nil
	}
	intent, found, err := intentOf(tx, row.ID)
	if err != nil {
		return err
	}
	if !found || intent.Stock != stock || intent.Revision != row.Revision {
		return model.Unavailable("The voucher was changed meanwhile.", nil)
	}
	return deleteIntent(tx, row.ID)
}

// DropIntent gives an intent up, whatever became of its call: one that was
// carried out is gone already. The voucher's revision grows, so that its stock
// overwrites what the hot copy may have been lowered to.
func (v *Vouchers) DropIntent(ctx context.Context, intent model.StockIntent) error {
	if err := possible(intent.VoucherID); err != nil {
		return err
	}
	return v.db.writeRepeatable(ctx, "drop the intended stock of voucher "+intent.VoucherID, func(tx *gorm.DB, _ bool) error {
		row, err := lockVoucher(tx, v.db.dialect, intent.VoucherID)
		if err != nil {
			return notFound(err, "voucher")
		}
		found, exists, err := intentOf(tx, intent.VoucherID)
		if err != nil {
			return err
		}
		if !exists || found.Stock != intent.Stock || found.Revision != intent.Revision || !found.CreatedAt.Equal(intent.CreatedAt) {
			return errNothingToWrite
		}
		if err := deleteIntent(tx, intent.VoucherID); err != nil {
			return err
		}
		return update(tx, &row.Voucher)
	})
}

// Intents lists the intents that are older than that: their processes are dead.
func (v *Vouchers) Intents(ctx context.Context, olderThan time.Duration) ([]model.StockIntent, error) {
	var list []model.StockIntent
	err := v.db.read(ctx, "list intended stocks", func(db *gorm.DB) error {
		var now clock
		if err := db.Raw("SELECT " + v.db.dialect.now).Row().Scan(&now); err != nil {
			return fmt.Errorf("read the database's clock: %w", err)
		}
		return db.Table(intentTable).Where("created_at <= ?", stored(now.Add(-olderThan))).Order("voucher_id").Find(&list).Error
	})
	return list, err
}
