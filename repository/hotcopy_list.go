package repository

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

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
	page := model.OrderPage{Items: []model.Order{}}
	limit := pageSize(q.Limit)
	err = h.EachProcessing(ctx, q.VoucherID, func(order model.Order) error {
		if len(page.Items) == limit {
			last := page.Items[limit-1]
			page.NextCursor = cursor{last.CreatedAt, last.ID}.String()
			return errPageFull
		}
		if follows(order, after) {
			page.Items = append(page.Items, order)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errPageFull) {
		return model.OrderPage{}, err
	}
	return page, nil
}

// errPageFull ends a reading.
var errPageFull = errors.New("the page is full")

// EachProcessing calls yield with every order of Processing, in its order, from
// one scan.
func (h *HotCopies) EachProcessing(ctx context.Context, voucherID string, yield func(model.Order) error) error {
	c := &copyCall{script: h.scripts.confirm, voucher: voucherID}
	h.run(ctx, c)
	if err := c.closed("list the pending orders"); err != nil {
		return err
	}
	// All are in memory for the sake of their order: as they are in Redis, which is
	// a third of what orders take.
	type waiting struct {
		at        time.Time
		id, entry string
	}
	var all []waiting
	err := h.pendings(ctx, voucherID, c.head, true, func(orderID, entry string) error {
		all = append(all, waiting{pendingEntry(orderID, voucherID, entry).CreatedAt, orderID, entry})
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b waiting) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(b.id, a.id)) })
	// A scan may meet an entry twice.
	all = slices.CompactFunc(all, func(a, b waiting) bool { return a.id == b.id })
	for _, w := range all {
		if err := yield(pendingEntry(w.id, voucherID, w.entry).Order); err != nil {
			return err
		}
	}
	return nil
}

// follows is newestFirst for one order.
func follows(order model.Order, after cursor) bool {
	at := order.CreatedAt.Compare(after.at)
	return after.id == "" || at < 0 || (at == 0 && order.ID < after.id)
}
