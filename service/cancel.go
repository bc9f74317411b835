package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"seckill/internal/failpoint"
	"seckill/model"
)

// Cancel cancels a user's own unpaid order. Its unit is on sale again before
// this answers, or a moment later when a hot copy cannot be told now. An order
// that is canceled already comes back as it is.
func (s *Orders) Cancel(ctx context.Context, userID, orderID string) (model.Order, error) {
	voucherID, ok := model.VoucherOf(orderID)
	if !ok {
		return model.Order{}, model.NotFound("order")
	}
	failpoint.Reach(failpoint.BeforeCancel)
	order, changed, err := s.store.Cancel(ctx, userID, orderID)
	if s.admission != nil && model.CodeOf(err) == model.CodeNotFound {
		if err = s.notCancelable(ctx, userID, orderID); err == nil {
			order, changed, err = s.store.Cancel(ctx, userID, orderID) // it was persisted meanwhile, or there is none
		}
	}
	if err == nil && s.admission != nil {
		s.admission.returnUnit(ctx, order)
	}
	if changed || errors.Is(err, model.ErrUnknownOutcome) {
		announceChange(ctx, s.copies, s.announcer, s.log, voucherID)
	}
	return order, err
}

// notCancelable says why an order without a row cannot be canceled; nil when it
// is not processing, as far as that is known.
func (s *Orders) notCancelable(ctx context.Context, userID, orderID string) error {
	order, err := s.unpersisted(ctx, orderID)
	if err != nil || order == nil {
		return err
	}
	if _, err := own(*order, userID); err != nil {
		return err
	}
	return &model.Error{
		Code: model.CodeIllegalState, Detail: "An order that is processing cannot be canceled yet.",
		OrderStatus: model.OrderProcessing,
	}
}

// returnUnit tells the hot copy of a canceled order, also of one that was
// canceled before: its first call may have ended in between. The order's outbox
// row does it later if this cannot.
func (a *Admission) returnUnit(ctx context.Context, order model.Order) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	failpoint.Reach(failpoint.AfterCancel)
	applied, err := a.hot.Release(ctx, model.Release{OrderID: order.ID, VoucherID: order.VoucherID, UserID: order.UserID})
	failpoint.Reach(failpoint.AfterReturn)
	if err == nil && !applied {
		err = fmt.Errorf("voucher %s: %w", order.VoucherID, model.ErrCopyClosed)
	}
	if err == nil {
		err = a.notes.DoneOrders(ctx, []string{order.ID})
		failpoint.Reach(failpoint.AfterReturnNoted)
	}
	if err != nil {
		a.log.WarnContext(ctx, "the unit of a canceled order comes back a moment later",
			slog.String("order_id", order.ID), slog.Any("error", err))
	}
}
