package service

import (
	"cmp"
	"context"
	"time"

	"seckill/model"
)

// Get returns a user's own order. With wait it answers as soon as the order
// is not processing any more, at most that long; committed orders never are.
func (s *Orders) Get(ctx context.Context, userID, orderID string, wait time.Duration) (model.Order, error) {
	if _, ok := model.VoucherOf(orderID); !ok {
		return model.Order{}, model.NotFound("order")
	}
	if s.admission != nil {
		if wait > 0 {
			return s.await(ctx, userID, orderID, wait)
		}
		return s.look(ctx, userID, orderID)
	}
	order, err := s.store.Get(ctx, orderID)
	if err != nil {
		return model.Order{}, s.unheard(err)
	}
	return own(order, userID)
}

// unheard makes UNAVAILABLE of NOT_FOUND while the database is sold from in
// another order mode: an order may be processing that this instance cannot see.
func (s *Orders) unheard(err error) error {
	if s.mode == nil || model.CodeOf(err) != model.CodeNotFound {
		return err
	}
	return cmp.Or(s.mode.Selling(), err)
}

// own hides the orders of others.
func own(order model.Order, userID string) (model.Order, error) {
	if order.UserID != userID {
		return model.Order{}, model.NotFound("order")
	}
	return order, nil
}

// List returns one page of orders, newest first.
func (s *Orders) List(ctx context.Context, q model.OrderQuery) (model.OrderPage, error) {
	switch {
	case s.admission != nil && q.UserID != "":
		return s.listWithProcessing(ctx, q)
	case s.inHotCopy(q):
		return s.listProcessing(ctx, q)
	default:
		return s.store.List(ctx, q)
	}
}

// Each calls yield with every order of a voucher, newest first, for
// administrators. NOT_FOUND comes before the first call.
func (s *Orders) Each(ctx context.Context, q model.OrderQuery, yield func(model.Order) error) error {
	if err := s.voucherExists(ctx, q.VoucherID); err != nil {
		return err
	}
	if s.inHotCopy(q) {
		return s.eachProcessing(ctx, q, yield)
	}
	return s.store.Each(ctx, q, yield)
}

// Detail returns anybody's order with its history, for administrators.
func (s *Orders) Detail(ctx context.Context, orderID string) (model.OrderDetail, error) {
	if _, ok := model.VoucherOf(orderID); !ok {
		return model.OrderDetail{}, model.NotFound("order")
	}
	detail, err := s.store.Detail(ctx, orderID)
	if s.admission == nil {
		return detail, s.unheard(err)
	}
	if model.CodeOf(err) != model.CodeNotFound {
		return detail, err
	}
	order, err := s.unpersisted(ctx, orderID)
	if err != nil {
		return model.OrderDetail{}, err
	}
	if order == nil { // it was persisted between the two looks, or there is none
		return s.store.Detail(ctx, orderID)
	}
	return model.OrderDetail{Order: *order, History: []model.OrderMove{
		{At: order.CreatedAt, To: model.OrderProcessing, By: order.UserID},
	}}, nil
}

func (s *Orders) voucherExists(ctx context.Context, id string) error {
	if !model.ValidID(id) {
		return model.NotFound("voucher")
	}
	_, err := s.copies.Read(ctx, id)
	return err
}
