package repository

import (
	"context"
	"time"

	"seckill/model"
)

// Pending finds the pending entry of an order. ErrCopyClosed says that the copy
// is closed and nothing is known of the order there.
func (h *HotCopies) Pending(ctx context.Context, orderID string) (model.Reservation, bool, error) {
	voucherID, ok := model.VoucherOf(orderID)
	if !ok {
		return model.Reservation{}, false, nil
	}
	_, pending, err := h.find(ctx, voucherID, orderID, "")
	if err != nil || pending == nil {
		return model.Reservation{}, false, err
	}
	return *pending, true, nil
}

// OrderOf finds the order that marks a user as a buyer, reserved or live, and
// its entry while it is pending. An empty id says that there is none;
// ErrCopyClosed as for Pending.
func (h *HotCopies) OrderOf(
	ctx context.Context, voucherID, userID string,
) (orderID string, pending *model.Reservation, err error) {
	if userID == "" {
		return "", nil, nil
	}
	return h.find(ctx, voucherID, "", userID)
}

// OrdersOf is OrderOf of several buyers in one pipeline. What cannot be told, of
// a copy that is closed or does not answer, is empty.
func (h *HotCopies) OrdersOf(ctx context.Context, buyers []model.Buyer) ([]model.BuyersOrder, error) {
	calls := make([]*copyCall, len(buyers))
	for i, b := range buyers {
		calls[i] = &copyCall{script: h.scripts.find, voucher: b.VoucherID, args: []any{"", b.UserID}}
	}
	h.run(ctx, calls...)
	found := make([]model.BuyersOrder, len(buyers))
	for i, c := range calls {
		if buyers[i].UserID == "" {
			continue
		}
		if id, pending, err := c.order(""); err == nil {
			found[i] = model.BuyersOrder{OrderID: id, Pending: pending}
		}
	}
	return found, nil
}

// find finds an order by its id or its user.
func (h *HotCopies) find(
	ctx context.Context, voucherID, orderID, userID string,
) (found string, pending *model.Reservation, err error) {
	c := &copyCall{script: h.scripts.find, voucher: voucherID, args: []any{orderID, userID}}
	h.run(ctx, c)
	return c.order(orderID)
}

// order reads the answer of find.lua to a question by id, or by user.
func (c *copyCall) order(asked string) (found string, pending *model.Reservation, err error) {
	if err := c.fail("find an order"); err != nil {
		return "", nil, err
	}
	if len(c.words) < 2 {
		return "", nil, c.closed("find an order")
	}
	if c.words[1] != "" {
		r := pendingEntry(c.words[0], c.voucher, c.words[1])
		return c.words[0], &r, nil
	}
	if asked != "" || c.words[0] == "" {
		return "", nil, c.closed("find an order")
	}
	return c.words[0], nil, nil
}

// Due lists pending entries of the open copy that were published, or admitted,
// at least so long ago by Redis' clock: the oldest first, at most limit.
func (h *HotCopies) Due(
	ctx context.Context, voucherID string, olderThan time.Duration, limit int,
) ([]model.Reservation, error) {
	c := &copyCall{script: h.scripts.due, voucher: voucherID, args: []any{olderThan.Milliseconds(), min(limit, maxDue)}}
	h.run(ctx, c)
	if err := c.closed("list due orders"); err != nil {
		return nil, err
	}
	due := make([]model.Reservation, 0, len(c.words)/2)
	for i := 0; i+1 < len(c.words); i += 2 {
		if c.words[i+1] != "" {
			due = append(due, pendingEntry(c.words[i], voucherID, c.words[i+1]))
		}
	}
	return due, nil
}

// maxDue bounds one reply, and how long its script holds up everybody else.
const maxDue = 1000
