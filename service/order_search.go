package service

import (
	"context"

	"seckill/model"
)

// OrderSearch finds orders for administrators.
type OrderSearch struct {
	store  OrderSearchStore
	orders OrderDetails
	codes  *Codes
}

// NewOrderSearch makes the service. Without codes it finds none by one.
func NewOrderSearch(store OrderSearchStore, orders OrderDetails, codes *Codes) *OrderSearch {
	return &OrderSearch{store, orders, codes}
}

// Find returns one page, newest first. Orders that are still processing are found by their id alone.
// VALIDATION: the cursor or the status is none.
func (s *OrderSearch) Find(ctx context.Context, q model.OrderSearch) (model.OrderPage, error) {
	if _, order := model.VoucherOf(q.Words); order && q.Cursor == "" {
		detail, err := s.orders.Detail(ctx, q.Words)
		switch {
		case err == nil && (q.Status == "" || q.Status == detail.Status):
			return model.OrderPage{Items: []model.Order{detail.Order}}, nil
		case err != nil && model.CodeOf(err) != model.CodeNotFound:
			return model.OrderPage{}, err
		}
	}
	if s.codes != nil && q.Words != "" {
		q.CodeHash, _ = s.codes.Hash(q.Words) // none, if it is no code
	}
	page, err := s.store.Search(ctx, q)
	for i := range page.Items {
		page.Items[i] = s.codes.Show(ctx, page.Items[i])
	}
	return page, err
}
