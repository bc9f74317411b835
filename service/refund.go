package service

import (
	"context"
	"errors"
	"log/slog"

	"seckill/internal/budget"
	"seckill/internal/ids"
	"seckill/model"
	"seckill/service/sale"
	"seckill/service/sale/cache"
)

// Refunds gives money back when an administrator asks for it, and shows what became of
// that.
type Refunds struct{ RefundDeps }

// RefundDeps is what Refunds works with.
type RefundDeps struct {
	Store RefundStore
	// Detail finds any order, also one that has no row yet.
	Detail   func(ctx context.Context, orderID string) (model.OrderDetail, error)
	Cache    *cache.Vouchers
	Announce sale.Announce // told of units that came back
	Log      *slog.Logger
}

// NewRefunds makes the service.
func NewRefunds(deps RefundDeps) *Refunds { return &Refunds{deps} }

// Request refunds a paid order: its unit is on sale again, and its money goes back soon. A
// refund that had failed for good is tried again. NOT_FOUND when there is no such order,
// ILLEGAL_STATE with its status when there is nothing to refund.
func (s *Refunds) Request(ctx context.Context, adminID, orderID string) (model.Refund, error) {
	voucherID, ok := model.VoucherOf(orderID)
	if !ok {
		return model.Refund{}, model.NotFound("order")
	}
	id, err := ids.New()
	if err != nil {
		return model.Refund{}, err
	}
	// A client that hangs up changes nothing: what is begun comes to its end.
	ctx, enough := context.WithTimeout(context.WithoutCancel(ctx), budget.Work)
	defer enough()
	refund, _, err := s.Store.Request(ctx, orderID, id, adminID)
	if err == nil || errors.Is(err, model.ErrUnknownOutcome) {
		s.Cache.Returned(voucherID)
		s.Announce.Tell(ctx, s.Log, voucherID)
	}
	if model.CodeOf(err) == model.CodeNotFound {
		return model.Refund{}, s.absent(ctx, orderID)
	}
	return refund, err
}

// absent is NOT_FOUND, or the refusal of an order that has no row yet.
func (s *Refunds) absent(ctx context.Context, orderID string) error {
	order, err := s.Detail(ctx, orderID)
	if err != nil {
		return err
	}
	_, err = model.Move(order.Status, model.OrderRefunded, model.MoverAdmin)
	return err
}

// List returns one page of refunds, newest first.
func (s *Refunds) List(ctx context.Context, q model.RefundQuery) (model.RefundPage, error) {
	return s.Store.List(ctx, q)
}
