package repository

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// longestRefundError is what the column keeps of an error, in characters.
const longestRefundError = 255

// Refunds keeps what goes back to buyers.
type Refunds struct{ DB *sqldb.Database }

// Request refunds a paid order for an administrator, who is logged, in one transaction: its unit is on sale again, the
// refund pending. So is that of a used order if used is said; its unit leaves the stock. A refund that failed for good is pending again if the order is not paid (any more). NOT_FOUND: no
// such order. ILLEGAL_STATE, with its status: nothing to refund. CONFLICT: no payment of it is known.
func (r *Refunds) Request(
	ctx context.Context, orderID, newID, adminID string, ask model.RefundAsk,
) (model.Refund, model.Order, error) {
	var refund *model.Refund
	var order model.Order
	var revived string // by an attempt of this call whose COMMIT may not have been answered
	err := r.DB.WriteRepeatable(ctx, "refund order "+orderID, func(tx *gorm.DB, doubtful bool) error {
		found, err := take[model.Order](tx, "order", orderID)
		if err != nil {
			return err
		}
		if doubtful {
			refund, err = first[model.Refund](tx.Where("id = ? OR id = ? AND status <> ?", newID, revived,
				model.RefundFailed), "the refund")
			if order = found; err != nil || refund != nil { // it was this call
				return cmp.Or(err, sqldb.ErrNothingToWrite)
			}
		}
		refund, order, err = r.request(tx, found, newID, adminID, model.MoverAdmin, model.RefundByAdmin, ask)
		if model.CodeOf(err) != model.CodeIllegalState {
			return err
		}
		if refund, err = r.revive(tx, found, adminID, err); err == nil {
			revived = refund.ID
		}
		return err
	})
	if err != nil {
		return model.Refund{}, model.Order{}, err
	}
	refund.Outside = refund.Status == model.RefundOutside
	return *refund, order, nil
}

// Withdraw refunds a user's own paid order as Request does, within its voucher's time for that, and reports whether it
// was this call: one that its user gave back before stays as it is. NOT_FOUND: the user has no such order.
// ILLEGAL_STATE, with its status: it is not paid. WITHDRAWAL_OVER. CONFLICT: no payment of it is known.
func (r *Refunds) Withdraw(ctx context.Context, orderID, newID, userID string) (changed bool, err error) {
	err = r.DB.WriteRepeatable(ctx, "withdraw order "+orderID, func(tx *gorm.DB, doubtful bool) error {
		order, err := take[model.Order](tx, "order", orderID)
		if err == nil && order.UserID != userID {
			err = model.NotFound("order")
		}
		if err != nil {
			return err
		}
		_, _, err = r.request(tx, order, newID, userID, model.MoverBuyer, model.RefundWithdrawn, model.RefundAsk{})
		if changed = err == nil; model.CodeOf(err) != model.CodeIllegalState {
			return err
		}
		given, unknown := exists(tx, "SELECT 1 FROM order_history WHERE order_id = ? AND reason = ?", orderID,
			model.RefundWithdrawn)
		if given {
			changed, err = doubtful, sqldb.ErrNothingToWrite
		}
		return cmp.Or(unknown, err)
	})
	return changed && err == nil, err
}

func (r *Refunds) request(
	tx *gorm.DB, order model.Order, newID, actor string, by model.Mover, reason string, ask model.RefundAsk,
) (*model.Refund, model.Order, error) {
	move, err := model.Move(order.Status, model.OrderRefunded, by)
	if err == nil && move.WritesOff() && !ask.Used {
		err = model.IllegalMove(order.Status, model.OrderRefunded)
	}
	if err != nil {
		return nil, order, err
	}
	moved, err := moveOrders(tx, r.DB, []statusChange{{
		order: order, move: move, actor: actor, reason: cmp.Or(ask.Reason, reason),
	}})
	if err != nil {
		return nil, order, err
	}
	payment := &model.Payment{ID: order.ID, OrderID: order.ID, Currency: order.Currency} // of nothing
	if !order.Free() {
		if payment, err = payingOf(tx, order.ID); err != nil { // behind the order's lock: no other one is being settled
			return nil, order, err
		}
	}
	now := *moved[0].ClosedAt
	refund, err := insertRefund(tx, newID, *payment, reason, actor, now)
	if err != nil || by == model.MoverBuyer {
		return refund, moved[0], err
	}
	return refund, moved[0], logChange(r.DB, tx, adminChange{
		at: now, actor: actor, action: model.ActionOrderRefund, subject: order.ID, before: order, after: moved[0],
	})
}

// PaidBack notes that a person has paid back what was paid elsewhere. Again: the same, and nothing has changed.
// NOT_FOUND: no such order. ILLEGAL_STATE, with its status: nothing of it was to be paid back by a person.
func (r *Refunds) PaidBack(ctx context.Context, orderID, adminID string) (refund model.Refund, err error) {
	err = r.DB.WriteRepeatable(ctx, "note what was paid back of order "+orderID, func(tx *gorm.DB, _ bool) error {
		order, err := take[model.Order](locked(tx), "order", orderID)
		if err != nil {
			return err
		}
		found, err := first[model.Refund](tx.Where("order_id = ? AND status IN ? AND payment_id IN (SELECT id FROM payments WHERE order_id = ? AND reference <> '')",
			orderID, []model.RefundStatus{model.RefundOutside, model.RefundDone}, orderID), "what is to be paid back")
		switch {
		case err != nil:
			return err
		case found == nil:
			return &model.Error{
				Code: model.CodeIllegalState, OrderStatus: order.Status, Detail: "Nothing of this order is to be paid back by a person.",
			}
		}
		if refund = *found; refund.Status == model.RefundDone {
			return sqldb.ErrNothingToWrite
		}
		now, err := readClock(tx, r.DB.Dialect)
		if err != nil {
			return err
		}
		refund.Status, refund.ClosedAt = model.RefundDone, &now
		done := tx.Table("refunds").Where("id = ? AND status = ?", refund.ID, model.RefundOutside).
			Updates(map[string]any{"status": refund.Status, "closed_at": now})
		return cmp.Or(matched(done, 1), logChange(r.DB, tx, adminChange{
			at: now, actor: adminID, action: model.ActionOrderRefund, subject: orderID, before: *found, after: refund,
		}))
	})
	return refund, err
}

// revive makes a refund of an order that had failed for good pending again; illegal is the answer when there is none.
func (r *Refunds) revive(tx *gorm.DB, order model.Order, adminID string, illegal error) (*model.Refund, error) {
	failed, err := first[model.Refund](tx.Where("order_id = ? AND status = ?", order.ID,
		model.RefundFailed).Order("created_at, id"), "failed refunds")
	if err != nil || failed == nil {
		return nil, cmp.Or(err, illegal)
	}
	now, err := readClock(tx, r.DB.Dialect)
	if err != nil {
		return nil, err
	}
	revived := *failed
	revived.Status, revived.ClosedAt, revived.NextAt = model.RefundPending, nil, &now
	err = tellingOrder(tx, order.ID, func() error {
		return matched(tx.Table("refunds").Where("id = ? AND status = ?", revived.ID, model.RefundFailed).
			Updates(map[string]any{"status": revived.Status, "closed_at": nil, "next_at": now}), 1)
	})
	if err != nil {
		return nil, fmt.Errorf("try refund %s again: %w", revived.ID, err)
	}
	return &revived, logChange(r.DB, tx, adminChange{
		at: now, actor: adminID, action: model.ActionOrderRefund, subject: order.ID, before: *failed, after: revived,
	})
}

// payingOf reads the payment that paid an order: the one that succeeded and does not go back already.
func payingOf(tx *gorm.DB, orderID string) (*model.Payment, error) {
	payment, err := first[model.Payment](tx.Where("order_id = ? AND status = ?", orderID, model.PaymentSucceeded).
		Where("NOT EXISTS (SELECT 1 FROM refunds WHERE refunds.payment_id = payments.id)"),
		"the payment of order "+orderID)
	if err == nil && payment == nil {
		err = model.Conflict("No payment of this order is known.")
	}
	return payment, err
}

func insertRefund(
	tx *gorm.DB, id string, payment model.Payment, reason, actor string, now time.Time,
) (*model.Refund, error) {
	refund := model.Refund{
		ID: id, OrderID: payment.OrderID, PaymentID: payment.ID, Status: model.RefundPending,
		Amount: payment.Amount - payment.Refunded, Currency: payment.Currency, Reason: reason, Actor: actor,
		CreatedAt: now, NextAt: &now,
	}
	switch {
	case refund.Amount == 0: // nothing has to go back
		refund.Status, refund.NextAt, refund.ClosedAt = model.RefundDone, nil, &now
	case payment.Reference != "":
		refund.Status, refund.NextAt = model.RefundOutside, nil
	}
	if err := tx.Create(&refund).Error; err != nil {
		return nil, fmt.Errorf("insert the refund of payment %s: %w", payment.ID, err)
	}
	return &refund, nil
}

func refundOf(tx *gorm.DB, paymentID string) (*model.Refund, error) {
	return first[model.Refund](tx.Where("payment_id = ?", paymentID), "the refund of payment "+paymentID)
}

// List reads one page of refunds, newest first. VALIDATION: no cursor of ours, or no status of refunds.
func (r *Refunds) List(ctx context.Context, q model.RefundQuery) (page model.RefundPage, err error) {
	if q.Status != "" && !slices.Contains(model.RefundStatuses(), q.Status) {
		return page, model.Invalid("query.status", "is not a status of refunds")
	}
	at := func(r model.Refund) model.Cursor { return model.Cursor{At: r.CreatedAt, ID: r.ID} }
	page.Items, page.NextCursor, err = paged(ctx, r.DB, "list refunds", q.Cursor, q.Limit, at,
		func(db *gorm.DB, after model.Cursor, most int) (*gorm.DB, error) {
			if q.OrderID != "" && !model.ValidID(q.OrderID) { // see take
				return nil, nil //nolint:nilnil // none is found
			}
			return having(having(newestFirst(db, after, most), "order_id = ?", q.OrderID), "status = ?", q.Status), nil
		})
	for i := range page.Items {
		page.Items[i].Outside = page.Items[i].Status == model.RefundOutside
	}
	return page, err
}

// Due reads pending refunds that are to be tried now, those that wait longest first.
func (r *Refunds) Due(ctx context.Context, limit int) ([]model.Refund, error) {
	return due[model.Refund](ctx, r.DB, "read the refunds to be made", limit)
}

// Done notes that the provider has given the money back. Noting it again changes nothing.
func (r *Refunds) Done(ctx context.Context, id string) error {
	return r.attempted(ctx, id, model.RefundDone, "", 0)
}

// Retry has a refund tried again after a pause, and keeps why it failed.
func (r *Refunds) Retry(ctx context.Context, id, reason string, pause time.Duration) error {
	return r.attempted(ctx, id, model.RefundPending, reason, pause)
}

// GiveUp notes that the provider has refused a refund for good. It stays in the list.
func (r *Refunds) GiveUp(ctx context.Context, id, reason string) error {
	return r.attempted(ctx, id, model.RefundFailed, reason, 0)
}

// attempted writes what came of one attempt of a pending refund.
func (r *Refunds) attempted(
	ctx context.Context, id string, status model.RefundStatus, reason string, pause time.Duration,
) error {
	reason = strings.ToValidUTF8(reason, "\uFFFD") // MariaDB takes nothing else, and a provider sends anything
	for utf8.RuneCountInString(reason) > longestRefundError {
		_, size := utf8.DecodeLastRuneInString(reason)
		reason = reason[:len(reason)-size]
	}
	return r.DB.WriteRepeatable(ctx, "note an attempt of refund "+id, func(tx *gorm.DB, doubtful bool) error {
		now, err := readClock(tx, r.DB.Dialect)
		if err != nil {
			return err
		}
		columns := map[string]any{"status": status, "error": reason, "next_at": nil, "closed_at": now}
		if status == model.RefundPending {
			columns["next_at"], columns["closed_at"] = now.Add(pause), nil
		}
		if !doubtful { // an attempt that may be counted already is not counted again
			columns["attempts"] = gorm.Expr("attempts + 1")
		}
		note := func() error {
			return tx.Table("refunds").Where("id = ? AND status = ?", id, model.RefundPending).Updates(columns).Error
		}
		if status != model.RefundFailed {
			return note()
		}
		refund, err := first[model.Refund](tx.Where("id = ?", id), "refund "+id)
		if err != nil || refund == nil {
			return err
		}
		return tellingOrder(tx, refund.OrderID, note)
	})
}

// tellingOrder changes a refund and notes in its order if money is refused. Other reasons precede any payment.
func tellingOrder(tx *gorm.DB, orderID string, change func() error) error {
	_, err := take[model.Order](locked(tx), "order", orderID) // the refunds of one order change one after the other
	if err == nil {
		err = change()
	}
	if err != nil {
		return err
	}
	failed, err := first[model.Refund](locked(tx).Where("order_id = ? AND status = ?", orderID, model.RefundFailed),
		"failed refunds")
	if err != nil {
		return err
	}
	was, is := []string{model.ReasonRefundFailed}, ""
	if failed != nil {
		was, is = []string{"", model.ReasonDisputed, model.ReasonPart}, model.ReasonRefundFailed
	}
	if err := tx.Table("orders").Where("id = ? AND reason IN ?", orderID, was).Update("reason", is).Error; err != nil {
		return fmt.Errorf("keep in order %s whether its money is back: %w", orderID, err)
	}
	return nil
}
