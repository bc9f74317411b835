package repository

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"seckill/internal/budget"
	"seckill/model"
	"seckill/repository/sqldb"
)

// Payments keeps payments, and what the provider says of them.
type Payments struct{ DB *sqldb.Database }

// Start stores a payment of a user's unpaid order, about to be started, with a new id, or returns an earlier one whose
// end is unknown: to start it again is safe. NOT_FOUND: no such order. ILLEGAL_STATE, with its status: not payable.
func (p *Payments) Start(ctx context.Context, orderID, userID, newID string) (model.Payment, model.Order, error) {
	var payment model.Payment
	var order model.Order
	err := p.DB.WriteRepeatable(ctx, "start a payment of order "+orderID, func(tx *gorm.DB, _ bool) error {
		for _, rows := range []*gorm.DB{tx, locked(tx)} { // only a new payment is worth the row
			var err error
			if order, err = take[model.Order](rows, "order", orderID); err != nil {
				return err
			}
			if order.UserID != userID {
				return model.NotFound("order")
			}
			if _, err := model.Move(order.Status, model.OrderPaid, model.MoverProvider); err != nil {
				return err
			}
			started, err := first[model.Payment](tx.Where("order_id = ? AND status = ?", orderID,
				model.PaymentStarted).Order("created_at, id"), "its payments")
			if err != nil {
				return err
			}
			if started != nil {
				payment = *started
				return sqldb.ErrNothingToWrite
			}
		}
		now, err := readClock(tx, p.DB.Dialect)
		if err != nil {
			return err
		}
		payment = model.Payment{
			ID: newID, OrderID: orderID, Status: model.PaymentStarted, Amount: order.Price, Currency: order.Currency,
			CreatedAt: now, NextAt: new(now.Add(budget.Survey)),
		}
		return tx.Create(&payment).Error
	})
	return payment, order, err
}

// Elsewhere pays an unpaid order with what no provider knows, as a new payment, for an administrator, who is logged. The
// same reference again answers the same, whatever became of the order. NOT_FOUND: no such order. ALREADY_PAID, with the
// first reference. ILLEGAL_STATE, with its status: it is not unpaid.
func (p *Payments) Elsewhere(
	ctx context.Context, orderID, newID, adminID string, paid model.Elsewhere, code model.SealedCode,
) (order model.Order, err error) {
	err = p.DB.WriteRepeatable(ctx, "pay elsewhere for order "+orderID, func(tx *gorm.DB, _ bool) error {
		before, err := take[model.Order](locked(tx), "order", orderID)
		if order = before; err != nil {
			return err
		}
		switch before.PaidReference {
		case "":
		case paid.Reference:
			return sqldb.ErrNothingToWrite
		default:
			return &model.Error{
				Code: model.CodeAlreadyPaid, Reference: before.PaidReference,
				Detail: "The order was paid elsewhere with another reference.",
			}
		}
		if before.Status != model.OrderUnpaid { // a used one becomes paid otherwise: see Unredeem
			return model.IllegalMove(before.Status, model.OrderPaid)
		}
		move, err := model.Move(before.Status, model.OrderPaid, model.MoverAdmin)
		if err != nil {
			return err
		}
		now, err := readClock(tx, p.DB.Dialect)
		if err != nil {
			return err
		}
		err = tx.Create(&model.Payment{
			ID: newID, OrderID: orderID, Status: model.PaymentSucceeded, Amount: before.Price, Currency: before.Currency,
			CreatedAt: now, DecidedAt: &now, Reference: paid.Reference, Method: paid.Method,
		}).Error
		if err := cmp.Or(err, keepCode(tx, orderID, code)); err != nil {
			return err
		}
		order.PaidReference, order.SealedCode = paid.Reference, string(code.Sealed)
		moved, err := moveOrders(tx, p.DB, []statusChange{{
			order: order, move: move, actor: adminID,
			set: map[string]any{"sealed_code": code.Sealed, "paid_reference": paid.Reference},
		}})
		if err != nil {
			return err
		}
		order = moved[0]
		return logChange(p.DB, tx, adminChange{
			at: *order.PaidAt, actor: adminID, action: model.ActionOrderPaid, subject: orderID, before: before, after: order,
		})
	})
	return order, err
}

// SetURL keeps where the buyer pays.
func (p *Payments) SetURL(ctx context.Context, id, url string) error {
	return p.DB.WriteRepeatable(ctx, "keep the page of payment "+id, func(tx *gorm.DB, _ bool) error {
		return tx.Table("payments").Where("id = ?", id).Update("url", url).Error
	})
}

// Get reads one payment; NOT_FOUND when there is none.
func (p *Payments) Get(ctx context.Context, id string) (model.Payment, error) {
	return byID[model.Payment](ctx, p.DB, "payment", id)
}

// maxPaymentsShown bounds what is shown of one order, which is paid with one payment and may have had many that failed.
const maxPaymentsShown = 50

// OfOrder reads the latest payments of an order, newest first.
func (p *Payments) OfOrder(ctx context.Context, orderID string) ([]model.Payment, error) {
	if !model.ValidID(orderID) { // see possible
		return nil, nil
	}
	return list[model.Payment](ctx, p.DB.Browse, "read the payments of order "+orderID, func(db *gorm.DB) *gorm.DB {
		return newestFirst(db, model.Cursor{}, maxPaymentsShown).Where("order_id = ?", orderID)
	})
}

// Started reads the payments of orders whose end is not known.
func (p *Payments) Started(ctx context.Context, orderIDs []string) ([]model.Payment, error) {
	var payments []model.Payment
	orderIDs = validIDs(orderIDs)
	if len(orderIDs) == 0 {
		return nil, nil
	}
	err := p.DB.Read(ctx, fmt.Sprintf("read the started payments of %d orders", len(orderIDs)),
		func(db *gorm.DB) error {
			return parted(orderIDs, func(some []string) error {
				var part []model.Payment
				err := db.Where("order_id IN ? AND status = ?", some,
					model.PaymentStarted).Order("order_id, created_at").Find(&part).Error
				payments = append(payments, part...)
				return err
			})
		})
	return payments, err
}

// Due reads payments that the provider is to be asked for now, those that wait longest first.
func (p *Payments) Due(ctx context.Context, limit int) ([]model.Payment, error) {
	return due[model.Payment](ctx, p.DB, "read the payments to ask for", limit)
}

// Postpone has a payment of which something may still come asked for again after a pause; zero: never.
func (p *Payments) Postpone(ctx context.Context, id string, pause time.Duration) error {
	return p.DB.WriteRepeatable(ctx, "ask later for payment "+id, func(tx *gorm.DB, _ bool) error {
		now, err := readClock(tx, p.DB.Dialect)
		if err != nil {
			return err
		}
		next := new(now.Add(pause))
		if pause == 0 {
			next = nil
		}
		return tx.Table("payments").Where("id = ? AND next_at IS NOT NULL", id).Update("next_at", next).Error
	})
}

// Settle applies what the provider says of a payment, in one transaction with the message that says it. Money in time
// pays the order, which gets its code. Money for a closed order makes that refunded; money for one that another payment
// has paid goes back: both with a pending refund. A failed payment changes no order. Nothing is applied twice.
//
// A notice of moved money is of a payment that succeeded. If all went back, the order it paid is refunded and its unit
// on sale again, unless it is used. While the buyer disputes it, the order's code rests (see Redeem).
//
// VALIDATION: the notice is of no payment of ours or of another amount (the message is kept, and may come corrected
// under its id), or its id is that of another message, which was applied.
func (p *Payments) Settle(ctx context.Context, notice model.PaymentNotice) (model.Receipt, error) {
	s := settlement{db: p.DB, notice: notice}
	if err := p.DB.WriteRepeatable(ctx, "settle payment "+notice.PaymentID, s.attempt); err != nil {
		return model.Receipt{}, err
	}
	if s.refused != "" {
		return model.Receipt{}, sqldb.Named("settle payment "+notice.PaymentID,
			model.Invalid("body.data", "%s", s.refused))
	}
	return s.receipt, nil
}

type settlement struct {
	db      *sqldb.Database
	notice  model.PaymentNotice
	receipt model.Receipt
	refused string // why the notice is not applied
	again   bool   // its message was refused before

	// sent is what went out with a COMMIT that may not have been answered, and sentAt the clock of that attempt.
	sent   model.Receipt
	sentAt time.Time
}

type webhookMessage struct {
	ID         []byte
	Digest     []byte
	Refusal    string
	ReceivedAt time.Time
}

// attempt is one transaction. It locks the order first, so that its notices take turns, and adds the message last.
func (s *settlement) attempt(tx *gorm.DB, doubtful bool) error {
	s.receipt, s.refused, s.again = model.Receipt{}, "", false
	rows := locked(tx)
	if s.notice.Moved && s.notice.Refunded >= s.notice.Amount {
		rows = tx // the unit may come back: then moveOrders locks the voucher first
	}
	order, err := take[model.Order](rows, "order", s.notice.OrderID)
	if err != nil && model.CodeOf(err) != model.CodeNotFound {
		return err
	}
	known := err == nil
	received, err := s.received(tx)
	if err != nil {
		return err
	}
	payment, err := take[model.Payment](tx, "payment", s.notice.PaymentID)
	if err != nil && model.CodeOf(err) != model.CodeNotFound {
		return fmt.Errorf("read the payment: %w", err)
	}
	fits := known && err == nil && payment.Reference == "" && payment.OrderID == order.ID && payment.Amount == s.notice.Amount &&
		payment.Currency == s.notice.Currency
	now, err := readClock(tx, s.db.Dialect)
	if err != nil {
		return err
	}
	s.receipt = model.Receipt{Order: order, Payment: payment}
	switch {
	case doubtful && !s.sentAt.IsZero() && s.stored(payment):
		s.receipt = s.sent // it was this call
		return sqldb.ErrNothingToWrite
	case received:
		s.receipt.Refund, err = refundOf(tx, payment.ID)
		return cmp.Or(err, sqldb.ErrNothingToWrite)
	case !fits:
		s.refused = "This is no payment of ours, or of another order, amount or currency."
		return s.keepMessage(tx, now)
	}
	apply := s.apply
	if s.notice.Moved {
		apply = s.follow
	}
	if err := apply(tx, now); err != nil {
		return err
	}
	if err := s.keepMessage(tx, now); err != nil {
		return err
	}
	s.sent, s.sentAt = s.receipt, now
	return nil
}

func (s *settlement) stored(payment model.Payment) bool {
	if s.notice.Moved {
		return payment.Refunded == s.sent.Payment.Refunded && payment.Disputed == s.sent.Payment.Disputed
	}
	return payment.DecidedAt != nil && payment.DecidedAt.Equal(s.sentAt)
}

// received reports whether the message was applied before. The same id with another body is refused and not kept.
func (s *settlement) received(tx *gorm.DB) (bool, error) {
	if s.notice.Message == nil {
		return false, nil
	}
	row, err := first[webhookMessage](tx.Where("id = ?", []byte(s.notice.Message.ID)), "the message")
	switch {
	case err != nil || row == nil:
		return false, err
	case row.Refusal != "":
		s.again = true
		return false, nil
	case !bytes.Equal(row.Digest, s.notice.Message.Digest):
		return false, model.Invalid("header.webhook-id", "was used for another message")
	}
	return true, nil
}

// keepMessage takes the place of one with the same id that was refused.
func (s *settlement) keepMessage(tx *gorm.DB, now time.Time) error {
	message := s.notice.Message
	if message == nil {
		return nil
	}
	if s.again {
		if err := tx.Where("id = ? AND refusal <> ''", []byte(message.ID)).Delete(&webhookMessage{}).Error; err != nil {
			return fmt.Errorf("take the place of a refused message: %w", err)
		}
	}
	return tx.Create(&webhookMessage{
		ID: []byte(message.ID), Digest: message.Digest, Refusal: s.refused, ReceivedAt: now,
	}).Error
}

func (s *settlement) apply(tx *gorm.DB, now time.Time) error {
	payment := &s.receipt.Payment
	status, next := model.PaymentFailed, (*time.Time)(nil)
	if s.notice.Succeeded {
		status, next = model.PaymentSucceeded, new(now.Add(budget.Hour))
	}
	if payment.Status == model.PaymentSucceeded || payment.Status == status {
		refund, err := refundOf(tx, payment.ID)
		s.receipt.Refund = refund
		return err
	}
	payment.Status, payment.DecidedAt, payment.NextAt = status, &now, next
	done := tx.Table("payments").Where("id = ?", payment.ID).
		Updates(map[string]any{"status": status, "decided_at": now, "next_at": payment.NextAt})
	if err := matched(done, 1); err != nil {
		return fmt.Errorf("decide the payment: %w", err)
	}
	if !s.notice.Succeeded {
		return nil
	}
	return s.receive(tx, now)
}

// receive is the one place where it is decided what money does to an order.
func (s *settlement) receive(tx *gorm.DB, now time.Time) error {
	order := s.receipt.Order
	if move, err := model.Move(order.Status, model.OrderPaid, model.MoverProvider); err == nil {
		if err := keepCode(tx, order.ID, s.notice.Code); err != nil {
			return err
		}
		err := s.move(tx, statusChange{
			order: order, move: move, actor: model.ByProvider, set: map[string]any{"sealed_code": s.notice.Code.Sealed},
		})
		s.receipt.Order.SealedCode = string(s.notice.Code.Sealed)
		return err
	}
	reason := model.RefundDuplicate
	if move, err := model.Move(order.Status, model.OrderRefunded, model.MoverService); err == nil {
		reason = model.RefundLate
		if err := s.move(tx, statusChange{
			order: order, move: move, actor: model.BySystem, reason: reason,
		}); err != nil {
			return err
		}
	}
	refund, err := insertRefund(tx, s.notice.RefundID, s.receipt.Payment, reason, model.BySystem, now)
	s.receipt.Refund = refund
	return err
}

func (s *settlement) follow(tx *gorm.DB, now time.Time) error {
	payment, was := &s.receipt.Payment, s.receipt.Payment
	payment.Refunded = s.notice.Refunded
	if s.notice.Message != nil { // messages overtake one another
		payment.Refunded = max(payment.Refunded, was.Refunded)
	}
	if s.notice.Disputed != nil {
		payment.Disputed = *s.notice.Disputed
	}
	refund, err := refundOf(tx, payment.ID)
	s.receipt.Refund = refund
	if err != nil || payment.Refunded == was.Refunded && payment.Disputed == was.Disputed {
		return err
	}
	all := payment.Refunded > 0 && payment.Refunded >= payment.Amount
	if payment.NextAt = nil; !all { // the provider is asked how it stands behind all messages
		payment.NextAt = new(now.Add(budget.Survey))
	}
	done := tx.Table("payments").Where("id = ? AND refunded = ? AND disputed = ?", was.ID, was.Refunded, was.Disputed).
		Updates(map[string]any{"refunded": payment.Refunded, "disputed": payment.Disputed, "next_at": payment.NextAt})
	if err := matched(done, 1); err != nil {
		return fmt.Errorf("note what moved: %w", err)
	}
	order := s.receipt.Order
	if refund != nil || order.Status != model.OrderPaid && order.Status != model.OrderRedeemed {
		return nil
	}
	if all {
		return s.goneBack(tx, now)
	}
	s.receipt.UsedUnpaid = order.Status == model.OrderRedeemed && payment.Disputed && !was.Disputed
	reason := ""
	switch {
	case payment.Disputed:
		reason = model.ReasonDisputed
	case payment.Refunded > 0:
		reason = model.ReasonPart
	}
	return s.explain(tx, reason)
}

// goneBack ends an order whose money is back, unless it is used.
func (s *settlement) goneBack(tx *gorm.DB, now time.Time) error {
	order, reason := s.receipt.Order, model.RefundElsewhere
	change, err := givenBack(order)
	if err == nil {
		err = s.move(tx, change)
		s.receipt.Order.Reason = ""
	} else {
		reason, s.receipt.UsedUnpaid = model.RefundOfUsed, true
		err = s.explain(tx, reason)
	}
	if err != nil {
		return err
	}
	payment := s.receipt.Payment
	s.receipt.Refund = &model.Refund{
		ID: s.notice.RefundID, OrderID: order.ID, PaymentID: payment.ID, Status: model.RefundDone,
		Amount:   payment.Amount,
		Currency: payment.Currency, Reason: reason, Actor: model.ByProvider, CreatedAt: now, ClosedAt: &now,
	}
	return tx.Create(s.receipt.Refund).Error
}

// givenBack ends an order all of whose money went back at the provider. ILLEGAL_STATE: it is not paid, or its code is used.
func givenBack(order model.Order) (statusChange, error) {
	move, err := model.Move(order.Status, model.OrderRefunded, model.MoverProvider)
	return statusChange{
		order: order, move: move, actor: model.ByProvider, reason: model.RefundElsewhere,
		set: map[string]any{"reason": ""},
	}, err
}

// explain keeps in a paid or used order how its money stands, unless other money of it is owed to its buyer.
func (s *settlement) explain(tx *gorm.DB, reason string) error {
	order := &s.receipt.Order
	if order.Reason == model.ReasonRefundFailed || order.Reason == reason {
		return nil
	}
	done := tx.Table("orders").Where("id = ? AND status = ? AND reason = ?", order.ID, order.Status,
		order.Reason).Update("reason", reason)
	order.Reason = reason
	return matched(done, 1)
}

func (s *settlement) move(tx *gorm.DB, change statusChange) error {
	moved, err := moveOrders(tx, s.db, []statusChange{change})
	if err != nil {
		return err
	}
	s.receipt.Order, s.receipt.Changed = moved[0], true
	return nil
}
