package repository

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
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
	if err := o.db.WriteRepeatable(ctx, action, c.attempt); err != nil {
		return nil, err
	}
	return c.answers, nil
}

// cancels is what one call of Cancel works on.
type cancels struct {
	orders  *Orders
	asked   []model.Cancellation
	answers []model.Canceled
	// by are the administrators who asked in a buyer's place, by order.
	by map[string]string
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
	var due []statusChange
	c.answers = make([]model.Canceled, len(c.asked))
	changed := map[string]bool{}
	c.by = map[string]string{}
	for i, asked := range c.asked {
		order, ok := found[asked.OrderID]
		answer := &c.answers[i]
		if !ok || order.UserID != asked.UserID {
			answer.Err = model.NotFound("order")
			continue
		}
		move, err := model.Move(order.Status, model.OrderCanceled, model.MoverBuyer)
		switch {
		case err == nil && !changed[order.ID]:
			due = append(due, statusChange{order: order, move: move, actor: cmp.Or(asked.By, order.UserID), cools: asked.By == ""})
			c.by[order.ID] = asked.By
			answer.Changed = true
		case order.Status == model.OrderCanceled:
			answer.Changed = c.doubtful[order.ID] && !changed[order.ID]
		case err != nil:
			answer.Err = err
			continue
		}
		answer.Order = order
		changed[order.ID] = changed[order.ID] || answer.Changed
	}
	if len(due) == 0 {
		return sqldb.ErrNothingToWrite
	}
	return c.write(tx, due)
}

// write cancels orders that were unpaid when they were read. The administrators' log has
// those that one of them canceled.
func (c *cancels) write(tx *gorm.DB, due []statusChange) error {
	orders, err := moveOrders(tx, c.orders.db, due)
	if err != nil {
		return err
	}
	for i, order := range orders {
		if c.by[order.ID] == "" {
			continue
		}
		if err := logChange(c.orders.db, tx, adminChange{
			at: *order.ClosedAt, actor: c.by[order.ID], action: model.ActionOrderCancel, subject: order.ID, before: due[i].order, after: order,
		}); err != nil {
			return err
		}
	}
	moved := make(map[string]model.Canceled, len(orders))
	for i, order := range orders { // nothing but the COMMIT follows
		own := order.Release()
		own.HeirID, own.HeirUserID, own.Direct = due[i].heir.ID, due[i].heir.UserID, true
		canceled := model.Canceled{Order: order}
		if len(due[i].before) <= mostHeirs {
			canceled.Releases = append(slices.Clip(due[i].before), own)
		}
		moved[order.ID] = canceled
		c.doubtful[order.ID] = true
	}
	for i := range c.answers {
		answer := &c.answers[i]
		if now, ok := moved[answer.Order.ID]; ok {
			answer.Order, answer.Releases = now.Order, now.Releases
		}
	}
	return nil
}
