package repository

import (
	"cmp"
	"context"
	"slices"

	"seckill/model"
)

// Processing reads one page of the orders in the open copy of a voucher that
// are not known to be persisted, newest first, of all users. It reads all of
// them for each page: there are as many as the queue is long. A cursor that is
// none of ours is VALIDATION.
func (h *HotCopies) Processing(ctx context.Context, q model.OrderQuery) (model.OrderPage, error) {
	after, err := parseCursor(q.Cursor)
	if err != nil {
		return model.OrderPage{}, err
	}
	c := &copyCall{script: h.scripts.confirm, voucher: q.VoucherID}
	h.run(ctx, c)
	if err := c.closed("list the pending orders"); err != nil {
		return model.OrderPage{}, err
	}
	orders := []model.Order{}
	err = h.Pendings(ctx, q.VoucherID, c.head, func(r model.Reservation) error {
		r.Status = model.OrderProcessing
		if follows(r.Order, after) {
			orders = append(orders, r.Order)
		}
		return nil
	})
	if err != nil {
		return model.OrderPage{}, err
	}
	slices.SortFunc(orders, func(a, b model.Order) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	// A scan may meet an entry twice.
	orders = slices.CompactFunc(orders, func(a, b model.Order) bool { return a.ID == b.ID })
	limit := pageSize(q.Limit)
	if len(orders) <= limit {
		return model.OrderPage{Items: orders}, nil
	}
	last := orders[limit-1]
	return model.OrderPage{Items: orders[:limit], NextCursor: cursor{last.CreatedAt, last.ID}.String()}, nil
}

// follows is newestFirst for one order.
func follows(order model.Order, after cursor) bool {
	at := order.CreatedAt.Compare(after.at)
	return after.id == "" || at < 0 || (at == 0 && order.ID < after.id)
}
