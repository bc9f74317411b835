package sale

import (
	"context"
	"errors"
	"time"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/model"
)

// Get returns a user's own order. With wait it answers when the order is no longer processing, or at its end.
func (s *Orders) Get(ctx context.Context, userID, orderID string, wait time.Duration) (model.Order, error) {
	if _, ok := model.VoucherOf(orderID); !ok {
		return model.Order{}, model.NotFound("order")
	}
	order, err := s.seller.get(ctx, userID, orderID, wait)
	return s.shown(ctx, order), err
}

func (s *Orders) shown(ctx context.Context, order model.Order) model.Order {
	if s.deps.Show == nil {
		return order
	}
	return s.deps.Show(ctx, order)
}

func own(order model.Order, userID string) (model.Order, error) {
	if order.UserID != userID {
		return model.Order{}, model.NotFound("order")
	}
	return order, nil
}

// List returns one page of orders, newest first.
func (s *Orders) List(ctx context.Context, q model.OrderQuery) (model.OrderPage, error) {
	page, err := s.seller.List(ctx, q)
	for i := range page.Items {
		page.Items[i] = s.shown(ctx, page.Items[i])
	}
	return page, err
}

// Each calls yield with every order of a voucher, newest first. NOT_FOUND comes before the first call.
func (s *Orders) Each(ctx context.Context, q model.OrderQuery, yield func(model.BookedOrder) error) error {
	if !model.ValidID(q.VoucherID) {
		return model.NotFound("voucher")
	}
	if _, err := s.deps.Cache.Read(ctx, q.VoucherID); err != nil {
		return err
	}
	return s.seller.Each(ctx, q, yield)
}

// Detail returns any user's order with its history, for administrators.
func (s *Orders) Detail(ctx context.Context, orderID string) (model.OrderDetail, error) {
	if _, ok := model.VoucherOf(orderID); !ok {
		return model.OrderDetail{}, model.NotFound("order")
	}
	detail, err := s.seller.detail(ctx, orderID)
	detail.Order = s.shown(ctx, detail.Order)
	return detail, err
}

// Cancel cancels a user's unpaid order, or returns one canceled before. Its unit is on sale at once, or a moment later.
func (s *Orders) Cancel(ctx context.Context, userID, orderID string) (model.Order, error) {
	return s.end(ctx, model.Cancellation{OrderID: orderID, UserID: userID})
}

// CancelFor is Cancel of anybody's order by an administrator; history and log say who that was.
func (s *Orders) CancelFor(ctx context.Context, adminID, orderID string) (model.Order, error) {
	if _, ok := model.VoucherOf(orderID); !ok {
		return model.Order{}, model.NotFound("order")
	}
	found, err := s.seller.detail(ctx, orderID)
	if err != nil {
		return model.Order{}, err
	}
	return s.end(ctx, model.Cancellation{OrderID: orderID, UserID: found.UserID, By: adminID})
}

func (s *Orders) end(ctx context.Context, asked model.Cancellation) (model.Order, error) {
	voucherID, ok := model.VoucherOf(asked.OrderID)
	if !ok {
		return model.Order{}, model.NotFound("order")
	}
	ctx, enough := context.WithTimeout(context.WithoutCancel(ctx), budget.Work)
	defer enough()
	failpoint.Reach(failpoint.BeforeCancel)
	order, changed, err := s.seller.cancel(ctx, asked)
	if changed || errors.Is(err, model.ErrUnknownOutcome) {
		s.deps.Cache.Returned(voucherID)
		s.deps.Announce.Tell(ctx, s.deps.Log, voucherID)
	}
	return order, err
}
