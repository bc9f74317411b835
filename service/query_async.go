package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"seckill/model"
)

const (
	// maxRowReads look-ups of orders by id wait; far more than requests at once.
	maxRowReads = 16_384
	// processingFor is how long after its sale a voucher without a hot copy may
	// have orders that are processing: later nobody loads one any more, and with
	// an empty queue there is no place left where such an order could be.
	processingFor = time.Hour
)

// readRows reads the orders of one group; nil for those that are not there.
func (s *Orders) readRows(ctx context.Context, ids []string) ([]*model.Order, error) {
	found, err := s.store.Find(ctx, slices.Compact(slices.Sorted(slices.Values(ids))))
	if err != nil {
		return nil, err
	}
	rows := make([]*model.Order, len(ids))
	for i, id := range ids {
		if row, ok := found[id]; ok {
			rows[i] = &row
		}
	}
	return rows, nil
}

// row reads an order from the database; nil when it is not there.
func (s *Orders) row(ctx context.Context, orderID string) (*model.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	row, err := s.rows.Do(ctx, orderID)
	if err != nil {
		return nil, undone("The order could not be read in time.", err)
	}
	return row, nil
}

// look returns a user's order as it is now. The hot copy is asked first: an
// order leaves it only when its row is committed.
func (s *Orders) look(ctx context.Context, userID, orderID string) (model.Order, error) {
	order, notPending := s.unpersisted(ctx, orderID)
	if order != nil {
		return own(*order, userID)
	}
	row, err := s.row(ctx, orderID)
	switch {
	case err != nil:
		return model.Order{}, err
	case row != nil:
		return own(*row, userID)
	case notPending != nil:
		return model.Order{}, notPending
	default:
		return model.Order{}, model.NotFound("order")
	}
}

// unpersisted returns an order that the hot copy holds for processing, nil when
// it holds none of that id, and UNAVAILABLE when it cannot tell though there may
// be one.
func (s *Orders) unpersisted(ctx context.Context, orderID string) (*model.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	pending, found, err := s.admission.hot.Pending(ctx, orderID)
	if found && err == nil {
		order := processing(pending)
		return &order, nil
	}
	if err == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	voucherID, _ := model.VoucherOf(orderID)
	return nil, s.untold(ctx, voucherID, fmt.Errorf("look up order %s: %w", orderID, err))
}

// untold is UNAVAILABLE when a hot copy does not tell which orders of a voucher
// are processing, and nil when there can be none.
func (s *Orders) untold(ctx context.Context, voucherID string, cause error) error {
	unavailable := model.Unavailable("It is not known yet which orders are processing.", cause)
	if !errors.Is(cause, model.ErrCopyClosed) {
		return unavailable
	}
	v, err := s.copies.Read(ctx, voucherID)
	if model.CodeOf(err) == model.CodeNotFound {
		return nil
	}
	if err == nil && v.ServerTime.Sub(v.EndAt) > processingFor && s.admission.backlog.empty(voucherID) {
		return nil
	}
	return unavailable
}

// inHotCopy reports whether all orders of a query, of whichever user, are those
// that only a hot copy knows.
func (s *Orders) inHotCopy(q model.OrderQuery) bool {
	return s.admission != nil && q.UserID == "" && q.VoucherID != "" && q.Status == model.OrderProcessing
}

// listProcessing is List of them.
func (s *Orders) listProcessing(ctx context.Context, q model.OrderQuery) (model.OrderPage, error) {
	page, err := s.admission.hot.Processing(ctx, q)
	if errors.Is(err, model.ErrCopyClosed) {
		return model.OrderPage{Items: []model.Order{}}, s.untold(ctx, q.VoucherID, err)
	}
	return page, err
}

// eachProcessing is Each of them, from one reading.
func (s *Orders) eachProcessing(ctx context.Context, q model.OrderQuery, yield func(model.Order) error) error {
	err := s.admission.hot.EachProcessing(ctx, q.VoucherID, yield)
	if errors.Is(err, model.ErrCopyClosed) {
		return s.untold(ctx, q.VoucherID, err)
	}
	return err
}

// listWithProcessing is List with the user's order of a voucher that is still
// processing on top of the first page. Orders of all vouchers are listed as the
// database knows them: nobody knows all hot copies.
func (s *Orders) listWithProcessing(ctx context.Context, q model.OrderQuery) (model.OrderPage, error) {
	asked := q.VoucherID != "" && q.Cursor == "" && (q.Status == "" || q.Status == model.OrderProcessing)
	if !asked {
		return s.store.List(ctx, q)
	}
	order, notTold := s.processingOf(ctx, q)
	if order == nil {
		page, err := s.store.List(ctx, q)
		if err == nil && notTold != nil && !slices.ContainsFunc(page.Items, model.Order.Live) {
			return model.OrderPage{}, notTold // there may be one, and no live one rules that out
		}
		return page, err
	}
	single := q.Limit == 1
	if q.Limit > 1 {
		q.Limit-- // so that the page is no longer than asked
	}
	page, err := s.store.List(ctx, q)
	if err != nil {
		return model.OrderPage{}, err
	}
	persisted := func(o model.Order) bool { return o.ID == order.ID }
	switch {
	case slices.ContainsFunc(page.Items, persisted): // meanwhile
	case single && len(page.Items) > 0: // it fills the page
		return model.OrderPage{Items: []model.Order{*order}, NextCursor: model.Cursor{At: order.CreatedAt, ID: order.ID}.String()}, nil
	default:
		page.Items = slices.Insert(page.Items, 0, *order)
	}
	return page, nil
}

// processingOf returns the user's order of a voucher that is reserved and not
// persisted; nil for none, with UNAVAILABLE when there may be one.
func (s *Orders) processingOf(ctx context.Context, q model.OrderQuery) (*model.Order, error) {
	if !model.ValidID(q.VoucherID) || !model.ValidUserID(q.UserID) {
		return nil, nil //nolint:nilnil // there is none
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	_, pending, err := s.admission.hot.OrderOf(ctx, q.VoucherID, q.UserID)
	if err != nil {
		return nil, s.untold(ctx, q.VoucherID, fmt.Errorf("look up the order of user %s: %w", q.UserID, err))
	}
	if pending == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	row, err := s.row(ctx, pending.ID)
	if err != nil || row != nil {
		return nil, err // its row is committed, and only the hot copy not told so
	}
	order := processing(*pending)
	return &order, nil
}
