package repository

import (
	"context"

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
