package sale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/lane"
	"seckill/internal/poll"
	"seckill/model"
)

const (
	maxRowReads = 16_384 // look-ups of orders by id wait; far more than there are requests at once
)

func (s *asyncSeller) readRows(ctx context.Context, ids []string) ([]*model.Order, error) {
	found, err := s.deps.Store.Find(ctx, slices.Compact(slices.Sorted(slices.Values(ids))))
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

func (s *asyncSeller) row(ctx context.Context, orderID string) (*model.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	row, err := s.rows.Do(ctx, orderID)
	if err != nil {
		return nil, lane.Undone("The order could not be read in time.", err)
	}
	return row, nil
}

func (s *asyncSeller) get(ctx context.Context, userID, orderID string, wait time.Duration) (model.Order, error) {
	if wait > 0 {
		return s.await(ctx, userID, orderID, wait)
	}
	return s.look(ctx, userID, orderID)
}

// look returns a user's order as it is. The hot copy is asked first: an order leaves it for a row.
func (s *asyncSeller) look(ctx context.Context, userID, orderID string) (model.Order, error) {
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

// unpersisted returns a reserved order of the hot copy, or nil. UNAVAILABLE: there may be one.
func (s *asyncSeller) unpersisted(ctx context.Context, orderID string) (*model.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	pending, found, err := s.async.Hot.Pending(ctx, orderID)
	if found && err == nil {
		order := pending.Processing()
		return &order, nil
	}
	if err == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	voucherID, _ := model.VoucherOf(orderID)
	return nil, s.untold(ctx, voucherID, fmt.Errorf("look up order %s: %w", orderID, err))
}

// untold is UNAVAILABLE when a hot copy does not tell a voucher's processing orders; nil when there can be none.
func (s *asyncSeller) untold(ctx context.Context, voucherID string, cause error) error {
	unavailable := model.Unavailable("It is not known yet which orders are processing.", cause)
	if !errors.Is(cause, model.ErrCopyClosed) {
		return unavailable
	}
	v, err := s.deps.Cache.Read(ctx, voucherID)
	if model.CodeOf(err) == model.CodeNotFound || err == nil && v.Allocation == model.ByDraw {
		return nil // a draw has no hot copy
	}
	if err == nil && v.ServerTime.Sub(v.EndAt) > budget.Hour && s.async.Backlog.Empty(voucherID, budget.Hour/2) {
		return nil
	}
	return unavailable
}

// inHotCopies reports whether a query asks for a voucher's processing orders, which only its copy knows.
func inHotCopies(q model.OrderQuery) bool {
	return q.UserID == "" && q.VoucherID != "" && q.Status == model.OrderProcessing && q.Span.Of == ""
}

func (s *asyncSeller) List(ctx context.Context, q model.OrderQuery) (model.OrderPage, error) {
	if q.UserID != "" {
		return s.listWithProcessing(ctx, q)
	}
	if !inHotCopies(q) {
		return s.deps.Store.List(ctx, q)
	}
	page, err := s.async.Hot.Processing(ctx, q)
	if errors.Is(err, model.ErrCopyClosed) {
		return model.OrderPage{Items: []model.Order{}}, s.untold(ctx, q.VoucherID, err)
	}
	return page, err
}

func (s *asyncSeller) Each(ctx context.Context, q model.OrderQuery, yield func(model.BookedOrder) error) error {
	if !inHotCopies(q) {
		return s.deps.Store.Each(ctx, q, yield)
	}
	err := s.async.Hot.EachProcessing(ctx, q.VoucherID, func(order model.Order) error {
		return yield(model.BookedOrder{Order: order})
	})
	if errors.Is(err, model.ErrCopyClosed) {
		return s.untold(ctx, q.VoucherID, err)
	}
	return err
}

func (s *asyncSeller) detail(ctx context.Context, orderID string) (model.OrderDetail, error) {
	detail, err := s.deps.Store.Detail(ctx, orderID)
	if model.CodeOf(err) != model.CodeNotFound {
		return detail, err
	}
	order, err := s.unpersisted(ctx, orderID)
	if err != nil {
		return model.OrderDetail{}, err
	}
	if order == nil { // there is none, or it was persisted between the two looks
		return s.deps.Store.Detail(ctx, orderID)
	}
	return model.OrderDetail{Order: *order, History: []model.OrderMove{
		{At: order.CreatedAt, To: model.OrderProcessing, By: order.UserID},
	}}, nil
}

// listWithProcessing lists a user's orders, with one voucher the processing order on top; no list reads all hot copies.
func (s *asyncSeller) listWithProcessing(ctx context.Context, q model.OrderQuery) (model.OrderPage, error) {
	var order *model.Order
	var notTold error
	limit := q.Limit
	if q.VoucherID != "" && q.Cursor == "" && q.Span.Of == "" && (q.Status == "" || q.Status == model.OrderProcessing) {
		if order, notTold = s.processingOf(ctx, q); order != nil && limit > 1 {
			q.Limit--
		}
	}
	page, err := s.deps.Store.List(ctx, q)
	switch {
	case err != nil:
		return model.OrderPage{}, err
	case order == nil && notTold != nil && !slices.ContainsFunc(page.Items, model.Order.Live):
		return model.OrderPage{}, notTold // there may be one: no live order rules it out
	case order == nil, slices.ContainsFunc(page.Items, func(o model.Order) bool { return o.ID == order.ID }):
		return page, nil // there is none, or it was persisted meanwhile
	case limit == 1 && len(page.Items) > 0: // it alone fills the page
		cursor := model.Cursor{At: order.CreatedAt, ID: order.ID}
		return model.OrderPage{Items: []model.Order{*order}, NextCursor: cursor.String()}, nil
	}
	page.Items = slices.Insert(page.Items, 0, *order)
	return page, nil
}

// processingOf returns the user's reserved order without a row; nil for none. UNAVAILABLE: there may be one.
func (s *asyncSeller) processingOf(ctx context.Context, q model.OrderQuery) (*model.Order, error) {
	if !model.ValidID(q.VoucherID) || !model.ValidUserID(q.UserID) {
		return nil, nil //nolint:nilnil // such an id has no order
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	_, pending, err := s.async.Hot.OrderOf(ctx, q.VoucherID, q.UserID)
	if err != nil {
		return nil, s.untold(ctx, q.VoucherID, fmt.Errorf("look up the order of user %s: %w", q.UserID, err))
	}
	if pending == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	row, err := s.row(ctx, pending.ID)
	if err != nil || row != nil {
		return nil, err // its row is committed, and the hot copy not told of it yet
	}
	order := pending.Processing()
	return &order, nil
}

func (s *asyncSeller) cancel(ctx context.Context, asked model.Cancellation) (model.Order, bool, error) {
	canceled, err := s.cancels.do(ctx, asked)
	if model.CodeOf(err) == model.CodeNotFound {
		if err = s.notCancelable(ctx, asked.UserID, asked.OrderID); err == nil {
			canceled, err = s.cancels.do(ctx, asked) // it may have been persisted meanwhile
		}
	}
	if err == nil {
		s.returnUnit(ctx, canceled)
	}
	return canceled.Order, canceled.Changed, err
}

// notCancelable says why an order without a row cannot be canceled; nil when no hot copy has it.
func (s *asyncSeller) notCancelable(ctx context.Context, userID, orderID string) error {
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

// returnUnit gives a canceled order's unit back, even if canceled before. It retries for a while; then the outbox does.
func (s *asyncSeller) returnUnit(ctx context.Context, canceled model.Canceled) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	order := canceled.Order
	noted := false // by the outbox
	err := poll.Insist(ctx, budget.Blink, undoTimeout, func() (done bool, err error) {
		noted, err = s.giveBack(ctx, canceled)
		return err == nil || errors.Is(err, model.ErrCopyClosed), err // the next hot copy is made of the rows
	})
	if err == nil && !noted {
		err = s.async.Released(ctx, []string{order.ID})
		failpoint.Reach(failpoint.AfterReturnNoted)
	}
	if err != nil {
		s.deps.Log.WarnContext(ctx, "the unit of a canceled order comes back a moment later",
			slog.String("order_id", order.ID), slog.Any("error", err))
	}
}

// giveBack is one attempt of returnUnit. It reports whether the outbox did it, and noted that.
func (s *asyncSeller) giveBack(ctx context.Context, canceled model.Canceled) (noted bool, err error) {
	order, releases := canceled.Order, canceled.Releases
	if releases == nil {
		releases = []model.Release{order.Release()}
	}
	applied, err := s.async.Hot.ReleaseAll(ctx, order.VoucherID, releases)
	failpoint.Reach(failpoint.AfterReturn)
	if errors.Is(err, model.ErrNeedsOutbox) {
		return true, s.async.Relay(ctx, order.VoucherID)
	}
	if err == nil && !applied {
		v, unread := s.deps.Cache.Read(ctx, order.VoucherID)
		if unread == nil && v.Allocation == model.ByDraw {
			return false, nil // no hot copy has its orders
		}
		err = fmt.Errorf("voucher %s: %w", order.VoucherID, model.ErrCopyClosed)
	}
	return false, err
}
