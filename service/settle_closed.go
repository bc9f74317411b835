package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"seckill/model"
)

// close undoes the reservations of closed rows. After an error it only goes on
// with copies that sell too much: they must not go on selling.
func (s *Settler) close(ctx context.Context, orders []finishedOrder) error {
	var applied []string
	var failed error
	for _, order := range orders {
		if failed != nil && !soldTooMany(order.row) {
			continue
		}
		done, err := s.undo(ctx, order)
		if err != nil {
			failed = errors.Join(failed, err)
		} else if done {
			applied = append(applied, order.row.ID)
		}
	}
	if len(applied) > 0 {
		if err := s.notes.DoneOrders(ctx, applied); err != nil {
			failed = errors.Join(failed, fmt.Errorf("note %d releases: %w", len(applied), err))
		}
	}
	return failed
}

// soldTooMany reports whether an order failed because its hot copy had more
// units than the database.
func soldTooMany(row model.Order) bool {
	return row.Status == model.OrderFailed && row.Reason == model.ReasonSoldOut
}

// undo puts right in the hot copy what a closed row had reserved there. False
// means later: the copy is closed.
func (s *Settler) undo(ctx context.Context, order finishedOrder) (bool, error) {
	release := model.Release{OrderID: order.row.ID, VoucherID: order.row.VoucherID, UserID: order.row.UserID}
	if soldTooMany(order.row) {
		return s.invalidate(ctx, release, order.reservation.Epoch)
	}
	if order.row.Status == model.OrderFailed && order.row.Reason == model.ReasonAlreadyOrdered {
		other, err := s.liveOrder(ctx, order)
		if err != nil {
			return false, err
		}
		if other != "" {
			return s.correct(ctx, release, other)
		}
	}
	applied, err := s.copies.Release(ctx, release)
	if err != nil {
		return false, fmt.Errorf("release order %s: %w", release.OrderID, err)
	}
	return applied, nil
}

// correct makes a user's mark name the live order, which gives the unit of the
// other one back.
func (s *Settler) correct(ctx context.Context, release model.Release, liveOrderID string) (bool, error) {
	err := s.copies.Correct(ctx, release, liveOrderID)
	switch {
	case errors.Is(err, model.ErrCopyClosed):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("correct the mark of order %s: %w", release.OrderID, err)
	default:
		return true, nil
	}
}

// liveOrder finds the order that stood in the way of one that failed.
func (s *Settler) liveOrder(ctx context.Context, order finishedOrder) (string, error) {
	if order.other != "" {
		return order.other, nil
	}
	for _, status := range []model.OrderStatus{model.OrderUnpaid, model.OrderPaid} {
		page, err := s.orders.List(ctx, model.OrderQuery{
			UserID: order.row.UserID, VoucherID: order.row.VoucherID, Status: status, Limit: 1,
		})
		if err != nil {
			return "", fmt.Errorf("find the live order beside %s: %w", order.row.ID, err)
		}
		if len(page.Items) > 0 {
			return page.Items[0].ID, nil
		}
	}
	return "", nil
}

// invalidate closes a copy that had more units than the database. Nothing is
// given back, because the unit never existed: the mark goes with the rebuild.
// Without an epoch it is the current copy's fault only while the mark is there;
// true means that it is gone.
func (s *Settler) invalidate(ctx context.Context, release model.Release, epoch int64) (bool, error) {
	id := release.VoucherID
	if epoch == 0 {
		marked, _, err := s.copies.OrderOf(ctx, id, release.UserID)
		if errors.Is(err, model.ErrCopyClosed) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("look for the mark of order %s: %w", release.OrderID, err)
		}
		if marked != release.OrderID {
			return true, nil
		}
		copies, err := s.copies.Read(ctx, []string{id})
		if err != nil {
			return false, fmt.Errorf("read the hot copy of voucher %s: %w", id, err)
		}
		epoch = copies[id].Epoch
	}
	if err := s.copies.Invalidate(ctx, id, epoch); err != nil {
		s.rebuilds.Demand(id)
		return false, fmt.Errorf("close the hot copy of voucher %s, epoch %d, with too many units: %w", id, epoch, err)
	}
	s.log.WarnContext(ctx, "a hot copy had too many units and is rebuilt",
		slog.String("voucher_id", id), slog.Int64("epoch", epoch))
	s.rebuilds.Request(id)
	return false, nil
}

// split tells reservations that have a row from those that have none.
func split(rows map[string]model.Order, reservations []model.Reservation) (decided []finishedOrder, open []model.Reservation) {
	for _, r := range reservations {
		if row, ok := rows[r.ID]; ok {
			decided = append(decided, finishedOrder{reservation: r, row: row})
		} else {
			open = append(open, r)
		}
	}
	return decided, open
}
