package repository

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"seckill/model"
)

// count is a row of voucher_count.sql.
type count struct {
	Stock     int64
	Remaining int64
	Status    *model.OrderStatus
	Orders    int64
	Live      int64
	Mode      model.OrderMode
}

func (v *Vouchers) count(ctx context.Context, action, id string) ([]count, error) {
	if err := possible(id); err != nil {
		return nil, err
	}
	var counts []count
	err := v.db.read(ctx, action+" voucher "+id, func(db *gorm.DB) error {
		err := db.Raw(v.db.dialect.sql(voucherCount), id).Scan(&counts).Error
		if err == nil && len(counts) == 0 {
			return model.NotFound("voucher")
		}
		return err
	})
	return counts, err
}

// Stats counts one voucher's units and orders at one instant. Every status is
// among them, also when no order has it.
func (v *Vouchers) Stats(ctx context.Context, id string) (model.Stats, error) {
	counts, err := v.count(ctx, "count", id)
	if err != nil {
		return model.Stats{}, err
	}
	stats := model.Stats{OrdersByStatus: make(map[model.OrderStatus]int64)}
	for _, status := range model.OrderStatuses() {
		stats.OrdersByStatus[status] = 0
	}
	for _, c := range counts {
		stats.Stock, stats.Remaining = c.Stock, c.Remaining
		stats.Sold += c.Live
		if c.Status != nil {
			stats.OrdersByStatus[*c.Status] = c.Orders
		}
	}
	return stats, nil
}

// Audit checks the database's side of the conservation of one voucher: every
// unit of the stock remains or is held by a live order.
func (v *Vouchers) Audit(ctx context.Context, id string) (model.Audit, error) {
	counts, err := v.count(ctx, "audit", id)
	if err != nil {
		return model.Audit{}, err
	}
	audit := model.Audit{VoucherID: id, Drift: []model.DriftedOrder{}}
	for _, c := range counts {
		audit.Mode = c.Mode
		audit.Database.Stock, audit.Database.Remaining = c.Stock, c.Remaining
		audit.Database.LiveOrders += c.Live
	}
	audit.Balanced = audit.Database.Stock == audit.Database.Remaining+audit.Database.LiveOrders
	return audit, nil
}

// RepairStock sets what remains of a voucher to its stock less its live orders,
// which are the truth, where the database itself does not add up. Of an oversold
// voucher nothing remains. It tells what it found when it changed something. The
// hot copy does not learn of it: it has to be rebuilt.
func (v *Vouchers) RepairStock(ctx context.Context, id string) (found *model.AuditDatabase, err error) {
	if err := possible(id); err != nil {
		return nil, err
	}
	err = v.db.writeRepeatable(ctx, "repair the stock of voucher "+id, func(tx *gorm.DB, _ bool) error {
		if _, _, err := lockMode(tx, v.db.dialect); err != nil { // before the voucher, as everybody does
			return err
		}
		row, err := lockVoucher(tx, v.db.dialect, id)
		if err != nil {
			return notFound(err, "voucher")
		}
		var live int64 // nobody makes or closes an order without the voucher's lock
		if err := tx.Table("orders").Where("voucher_id = ?", id).Select("COUNT(slot)").Scan(&live).Error; err != nil {
			return fmt.Errorf("count live orders: %w", err)
		}
		remaining := max(row.Stock-live, 0)
		if row.Remaining == remaining {
			return errNothingToWrite
		}
		found = &model.AuditDatabase{Stock: row.Stock, Remaining: row.Remaining, LiveOrders: live}
		row.Remaining = remaining
		return update(tx, &row.Voucher)
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
