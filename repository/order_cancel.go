package repository

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"gorm.io/gorm"

	"seckill/model"
)

// Cancel closes users' unpaid orders and returns their units, all in one transaction;
// in async mode also with the releases for the hot copies. It says of each what became
// of it, in their order. Of several that ask for one order the first changes it.
//
// The error is for all of them. It wraps model.ErrUnknownOutcome when they may have
// been canceled; otherwise nothing has happened.
func (o *Orders) Cancel(ctx context.Context, asked []model.Cancellation) ([]model.Canceled, error) {
	if len(asked) == 0 {
		return nil, nil
	}
	c := cancels{orders: o, asked: asked, doubtful: map[string]bool{}}
	action := fmt.Sprintf("cancel %d orders, the first %s", len(asked), asked[0].OrderID)
	if err := o.db.writeRepeatable(ctx, action, c.attempt); err != nil {
		return nil, err
	}
	return c.answers, nil
}

// cancels is what one call of Cancel works on.
type cancels struct {
	orders  *Orders
	asked   []model.Cancellation
	answers []model.Canceled
	// doubtful orders went out with a COMMIT that may not have been answered: found
	// canceled, it was this call.
	doubtful map[string]bool
}

// attempt is one transaction.
func (c *cancels) attempt(tx *gorm.DB, doubtful bool) error {
	ids := make([]string, len(c.asked))
	for i, asked := range c.asked {
		ids[i] = asked.OrderID
	}
	found, err := findOrders(tx, ids)
	if err != nil {
		return err
	}
	if !doubtful {
		clear(c.doubtful)
	}
	due := map[string][]string{} // voucher → orders to be canceled
	c.answers = make([]model.Canceled, len(c.asked))
	changed := map[string]bool{}
	for i, asked := range c.asked {
		order, ok := found[asked.OrderID]
		answer := &c.answers[i]
		switch {
		case !ok || order.UserID != asked.UserID:
			answer.Err = model.NotFound("order")
			continue
		case order.Status == model.OrderUnpaid && !changed[order.ID]:
			due[order.VoucherID] = append(due[order.VoucherID], order.ID)
			answer.Changed = true
		case order.Status == model.OrderCanceled:
			answer.Changed = c.doubtful[order.ID] && !changed[order.ID]
		case order.Status != model.OrderUnpaid:
			answer.Err = illegalMove("canceled", order.Status)
			continue
		}
		answer.Order = order
		changed[order.ID] = changed[order.ID] || answer.Changed
	}
	if len(due) == 0 {
		return errNothingToWrite
	}
	return c.write(tx, due)
}

// write cancels orders that were unpaid when they were read.
func (c *cancels) write(tx *gorm.DB, due map[string][]string) error {
	db := c.orders.db
	mode, _, err := lockMode(tx, db.dialect)
	if err != nil {
		return err
	}
	vouchers := slices.Sorted(maps.Keys(due)) // the order in which every transaction locks them
	var ids []string
	for _, id := range vouchers {
		if _, err := lockVoucher(tx, db.dialect, id); err != nil {
			return fmt.Errorf("lock voucher %s: %w", id, err)
		}
		ids = append(ids, due[id]...)
	}
	// The orders before the units: the slower of two calls finds nothing to cancel.
	if err := matched(tx.Exec(db.dialect.sql("order_cancel"), ids), len(ids)); err != nil {
		return err
	}
	for _, id := range vouchers {
		if err := matched(tx.Exec(db.dialect.sql("stock_return"), len(due[id]), id), 1); err != nil {
			return fmt.Errorf("return %d units of voucher %s: %w", len(due[id]), id, err)
		}
	}
	found, err := findOrders(tx, ids)
	if err != nil {
		return fmt.Errorf("read them again: %w", err)
	}
	var back []model.Release
	for _, id := range ids {
		back = append(back, releaseOf(found[id]))
	}
	for i := range c.answers {
		if order, ok := found[c.answers[i].Order.ID]; ok {
			c.answers[i].Order = order
		}
	}
	if mode == model.ModeAsync { // in sync there is no hot copy to be told
		if err := insertReleases(tx, back); err != nil {
			return err
		}
	}
	for _, id := range ids { // nothing but the COMMIT follows
		c.doubtful[id] = true
	}
	return nil
}

// matched sends the transaction back to its beginning when an UPDATE did not
// find what had been read.
func matched(done *gorm.DB, rows int) error {
	if done.Error == nil && done.RowsAffected != int64(rows) {
		return errContended
	}
	return done.Error
}

// illegalMove refuses what an order's status does not allow.
func illegalMove(to string, status model.OrderStatus) *model.Error {
	return &model.Error{
		Code:        model.CodeIllegalState,
		Detail:      fmt.Sprintf("An order that is %s cannot be %s.", status, to),
		OrderStatus: status,
	}
}
