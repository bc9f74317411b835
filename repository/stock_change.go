package repository

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"seckill/internal/budget"
	"seckill/model"
	"seckill/repository/sqldb"
)

const intentTable = "stock_intents"

// ChangeStock changes how many units were ever offered, and so what remains. CONFLICT: less than was sold. VALIDATION:
// more than model.MaxAmount. PRECONDITION_FAILED: none of the tags asked for. With an idempotency key it happens once.
// In async a stock shrinks only as IntendStock has announced; else UNAVAILABLE with model.ErrSuperseded.
func (v *Vouchers) ChangeStock(
	ctx context.Context, id string, change model.StockChange, once model.Idempotency,
) (model.Voucher, error) {
	if err := change.Check(); err != nil {
		return model.Voucher{}, err
	}
	return v.once(ctx, "change stock of voucher "+id, once,
		func(tx *gorm.DB, first func() (*answer, error)) (*answer, error) {
			mode, row, err := lockSale(tx, v.db.Dialect, id)
			if err != nil {
				return nil, err
			}
			// After the lock: a call with the same key that held it has left its answer.
			if given, err := first(); err != nil || given != nil {
				return given, err
			}
			if err := change.IfMatch.Check(row.Voucher); err != nil {
				return nil, err
			}
			stock, err := newStock(row.Stock, change)
			if err != nil {
				return nil, err
			}
			sold := row.Stock - row.Remaining
			if stock < sold {
				return &answer{
					Conflict: fmt.Sprintf("%d units are sold already; the stock cannot be %d.", sold, stock),
					Voucher:  row.view(),
				}, nil
			}
			if err := spendIntent(tx, mode, row, stock); err != nil {
				return nil, err
			}
			before := row.Decided()
			if row, err = v.restock(tx, mode, row, stock); err != nil {
				return nil, err
			}
			return answerOf(row.view()), logChange(v.db, tx, adminChange{
				at: stored(row.Now.Time), actor: change.By, action: model.ActionStockChange, subject: id,
				before: before, after: row.Decided(),
			})
		})
}

// restock writes a locked row with another stock. While users wait it only grows: they get what is added first.
func (v *Vouchers) restock(tx *gorm.DB, mode model.OrderMode, row voucherRow, stock int64) (voucherRow, error) {
	added := stock - row.Stock
	if row.Waiting > 0 && min(added, row.Waiting) > servedAtOnce {
		return row, model.Conflict(fmt.Sprintf("Users wait: add at most %d units at once.", servedAtOnce))
	}
	row.Stock = stock
	if row.Waiting == 0 {
		row.Remaining += added
	}
	if err := update(tx, &row.Voucher); err != nil || row.Waiting == 0 || added == 0 {
		return row, err
	}
	if err := handOver(tx, v.db, mode, row.ID, int(added), nil); err != nil {
		return row, err
	}
	return lockVoucher(tx, v.db.Dialect, row.ID)
}

// newStock applies a checked change. A negative result is left to the comparison with what is sold.
func newStock(stock int64, change model.StockChange) (int64, error) {
	if change.Stock != nil {
		return *change.Stock, nil
	}
	if stock += *change.Delta; stock > model.MaxAmount {
		return 0, model.Invalid("body.delta", "the stock would be above %d", int64(model.MaxAmount))
	}
	return stock, nil
}

// IntendStock prepares a change of stock in async mode, where a stock shrinks in the hot copy first: what it has
// promised must never be undercut.
//
//	intent, needed := IntendStock(change, once)
//	if needed: lower the hot copy to intent.Stock; if it refuses: DropIntent, answer CONFLICT
//	ChangeStock(change, once)
//	if that fails, for whatever reason: DropIntent
//
// Needed is false, and nothing stored, in sync mode, or when the stock does not shrink, the key has its answer, or
// ChangeStock is going to refuse: it alone answers then. A voucher has one intent: UNAVAILABLE with model.ErrSuperseded
// while that of another call is younger than 10 s; an older one is replaced.
func (v *Vouchers) IntendStock(
	ctx context.Context, id string, change model.StockChange, once model.Idempotency,
) (intent model.StockIntent, needed bool, err error) {
	if err := change.Check(); err != nil {
		return intent, false, err
	}
	err = v.db.WriteRepeatable(ctx, "intend another stock of voucher "+id, func(tx *gorm.DB, doubtful bool) error {
		intent, needed = model.StockIntent{}, false
		mode, row, err := lockSale(tx, v.db.Dialect, id)
		if err != nil {
			return err
		}
		earlier, err := firstAnswer(tx, once)
		if err != nil {
			return err
		}
		stock, err := newStock(row.Stock, change)
		if err != nil {
			return err
		}
		if earlier != nil || change.IfMatch.Check(row.Voucher) != nil || !copied(mode, row) || stock >= row.Stock ||
			stock < row.Stock-row.Remaining {
			return sqldb.ErrNothingToWrite
		}
		intent = model.StockIntent{VoucherID: id, Stock: stock, Revision: row.Revision, CreatedAt: stored(row.Now.Time)}
		needed = true
		return replaceIntent(tx, &intent, doubtful)
	})
	return intent, needed && err == nil, err
}

// replaceIntent stores an intent, or finds it stored if it may have been; the voucher's row is locked.
func replaceIntent(tx *gorm.DB, intent *model.StockIntent, doubtful bool) error {
	other, err := intentOf(tx, intent.VoucherID)
	if err != nil {
		return err
	}
	if other != nil {
		if doubtful && other.Stock == intent.Stock && other.Revision == intent.Revision {
			*intent = *other
			return sqldb.ErrNothingToWrite
		}
		if intent.CreatedAt.Sub(other.CreatedAt) < budget.Step {
			return model.Unavailable("Another change of this voucher's stock is under way.", model.ErrSuperseded)
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

func intentOf(tx *gorm.DB, voucherID string) (*model.StockIntent, error) {
	return first[model.StockIntent](tx.Table(intentTable).Where("voucher_id = ?", voucherID),
		"the intent of voucher "+voucherID)
}

func deleteIntent(tx *gorm.DB, voucherID string) error {
	if err := tx.Exec("DELETE FROM "+intentTable+" WHERE voucher_id = ?", voucherID).Error; err != nil {
		return fmt.Errorf("delete the intent of voucher %s: %w", voucherID, err)
	}
	return nil
}

func copied(mode model.OrderMode, row voucherRow) bool {
	return mode == model.ModeAsync && row.Allocation != model.ByDraw
}

// spendIntent lets a stock shrink in async only as intended and lowered in the hot copy, if nothing changed since.
func spendIntent(tx *gorm.DB, mode model.OrderMode, row voucherRow, stock int64) error {
	if !copied(mode, row) || stock >= row.Stock {
		return nil
	}
	intent, err := intentOf(tx, row.ID)
	if err != nil {
		return err
	}
	if intent == nil || intent.Stock != stock || intent.Revision != row.Revision {
		return model.Unavailable("The voucher was changed meanwhile.", model.ErrSuperseded)
	}
	return deleteIntent(tx, row.ID)
}

// DropIntent gives an intent up if it still is one. The revision grows: the stock overwrites a lowered hot copy.
func (v *Vouchers) DropIntent(ctx context.Context, intent model.StockIntent) error {
	return v.db.WriteRepeatable(ctx, "drop the intended stock of voucher "+intent.VoucherID,
		func(tx *gorm.DB, _ bool) error {
			row, err := lockVoucher(tx, v.db.Dialect, intent.VoucherID)
			if err != nil {
				return err
			}
			found, err := intentOf(tx, intent.VoucherID)
			if err != nil {
				return err
			}
			if found == nil || found.Stock != intent.Stock || found.Revision != intent.Revision ||
				!found.CreatedAt.Equal(intent.CreatedAt) {
				return sqldb.ErrNothingToWrite
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
	err := v.db.Read(ctx, "list intended stocks", func(db *gorm.DB) error {
		now, err := readClock(db, v.db.Dialect)
		if err != nil {
			return err
		}
		return db.Table(intentTable).Where("created_at <= ?", now.Add(-olderThan)).Order("voucher_id").Find(&list).Error
	})
	return list, err
}

// RepairStock sets what remains of a voucher to its stock less its live orders, the truth, where the database does not
// add up: nothing of an oversold one; what remains while users wait is handed over, at most some thousand units a call.
// It returns the audit if it changed anything, else nil. The hot copy must be rebuilt then.
func (v *Vouchers) RepairStock(ctx context.Context, id string) (found *model.AuditDatabase, err error) {
	err = v.db.WriteRepeatable(ctx, "repair the stock of voucher "+id, func(tx *gorm.DB, _ bool) error {
		mode, row, err := lockSale(tx, v.db.Dialect, id)
		if err != nil {
			return err
		}
		live, waiting, err := standingOf(tx, row)
		if err != nil {
			return err
		}
		free := max(row.Stock-live, 0)
		if row.Remaining == free && row.Waiting == waiting {
			return sqldb.ErrNothingToWrite
		}
		found = &model.AuditDatabase{Stock: row.Stock, Remaining: row.Remaining, LiveOrders: live, Waiting: row.Waiting}
		row.Waiting = waiting
		if row.Remaining = free; waiting > 0 {
			row.Remaining = 0
		}
		if err := noteWaiting(tx, row); err != nil {
			return err
		}
		if err := update(tx, &row.Voucher); err != nil || waiting == 0 || free == 0 {
			return err
		}
		return handOver(tx, v.db, mode, id, int(free), nil)
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// standingOf counts a locked voucher's live orders, and who waits. None changes without the voucher's lock.
func standingOf(tx *gorm.DB, v voucherRow) (live, waiting int64, err error) {
	if err := tx.Table("orders").Where("voucher_id = ?", v.ID).Select("COUNT(slot)").Scan(&live).Error; err != nil {
		return 0, 0, fmt.Errorf("count live orders: %w", err)
	}
	if err := tx.Model(&waitlistRow{}).Where("voucher_id = ? AND place > ?", v.ID,
		v.PlacesServed).Count(&waiting).Error; err != nil {
		return 0, 0, fmt.Errorf("count who waits: %w", err)
	}
	return live, waiting, nil
}
