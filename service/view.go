package service

import (
	"context"
	"slices"

	"seckill/model"
)

// statsTries is how often counts that do not add up are taken again: orders
// are canceled between the two looks, which is over in milliseconds.
const statsTries = 3

// shownAs is a voucher as it is sold from an open hot copy: what is left, and
// the clock. The two halves of what is left (stock = remaining + reserved +
// live) must come from one place. A copy that is not open changes nothing.
func shownAs(v model.Voucher, hot model.HotCopy) model.Voucher {
	if hot.State != model.CopyOpen {
		return v
	}
	v.Stock, v.Remaining = hot.Voucher.Stock, hot.Voucher.Remaining
	return v.At(hot.Voucher.ServerTime)
}

// hot reports whether vouchers are sold from hot copies.
func (c *VoucherCache) hot() bool {
	_, ok := c.source.(*hotSource)
	return ok
}

// asSold shows vouchers as they are sold. When a phase was asked for, those that
// turn out to be in another one are left out.
func (c *VoucherCache) asSold(ctx context.Context, vouchers []model.Voucher, phase model.Phase) []model.Voucher {
	source, ok := c.source.(*hotSource)
	if !ok || len(vouchers) == 0 {
		return vouchers
	}
	ids := make([]string, len(vouchers))
	for i, v := range vouchers {
		ids[i] = v.ID
	}
	hot, _ := source.read(ctx, ids) // without them the database's numbers must do
	for i, v := range vouchers {
		vouchers[i] = shownAs(v, hot[v.ID])
	}
	return slices.DeleteFunc(vouchers, func(v model.Voucher) bool { return phase != "" && v.Phase != phase })
}

// shown is one voucher as it is sold.
func (c *VoucherCache) shown(ctx context.Context, v model.Voucher) model.Voucher {
	return c.asSold(ctx, []model.Voucher{v}, "")[0]
}

// stats counts a voucher's units and orders. Those that are reserved have no
// rows yet: they are what neither remains nor is sold. Rows are counted first,
// because then an order that is persisted in between is counted as reserved,
// not twice.
func (c *VoucherCache) stats(
	ctx context.Context, id string, count func(ctx context.Context, id string) (model.Stats, error),
) (model.Stats, error) {
	source, async := c.source.(*hotSource)
	var stats model.Stats
	for range statsTries {
		var err error
		if stats, err = count(ctx, id); err != nil || !async {
			return stats, err
		}
		hot, _ := source.read(ctx, []string{id})
		if hot[id].State != model.CopyOpen {
			return stats, nil // the database's numbers must do
		}
		v := hot[id].Voucher
		stats.Stock, stats.Remaining = v.Stock, v.Remaining
		if stats.Reserved = v.Stock - v.Remaining - stats.Sold; stats.Reserved >= 0 {
			break
		}
	}
	stats.Reserved = max(stats.Reserved, 0)
	stats.OrdersByStatus[model.OrderProcessing] = stats.Reserved
	return stats, nil
}
