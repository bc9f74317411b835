package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"seckill/model"
)

// close undoes the reservations of closed rows. A copy that is closed, or cannot
// be told, is told nothing more, and holds up no other.
func (s *Settler) close(ctx context.Context, orders []finishedOrder) error {
	var applied []string
	var failed []error
	later := map[string]bool{}
	for _, order := range orders {
		if later[order.row.VoucherID] {
			continue
		}
		done, err := s.undo(ctx, order.row)
		failed = append(failed, err)
		if done {
			applied = append(applied, order.row.ID)
		} else {
			later[order.row.VoucherID] = true
		}
	}
	if len(applied) > 0 {
		if err := s.notes.DoneOrders(ctx, applied); err != nil {
			failed = append(failed, fmt.Errorf("note %d releases: %w", len(applied), err))
		}
	}
	return errors.Join(failed...)
}

// refusedByTheDatabase reports whether an order failed because its hot copy had
// more to sell than the database, or had lost the user's other order: whatever it
// is, that copy is stale.
func refusedByTheDatabase(row model.Order) bool {
	return row.Status == model.OrderFailed &&
		(row.Reason == model.ReasonSoldOut || row.Reason == model.ReasonAlreadyOrdered)
}

// undo gives back in the hot copy the unit of a closed row. False means later: the
// copy is closed, or is to be replaced.
func (s *Settler) undo(ctx context.Context, row model.Order) (bool, error) {
	if refusedByTheDatabase(row) {
		return s.replace(ctx, row)
	}
	applied, err := s.copies.Release(ctx, model.Release{OrderID: row.ID, VoucherID: row.VoucherID, UserID: row.UserID})
	if err != nil {
		return false, fmt.Errorf("release order %s: %w", row.ID, err)
	}
	return applied, nil
}

// replace asks for another copy as long as the open one has the mark of an order
// that the database refused. That mark goes with its copy and by no other way: the
// unit it holds never existed, or belongs to the user's live order. True means that
// it is gone.
func (s *Settler) replace(ctx context.Context, row model.Order) (bool, error) {
	// The epoch first: one that is later than the mark's would cost a rebuild more.
	copies, err := s.copies.Read(ctx, []string{row.VoucherID})
	hot, known := copies[row.VoucherID]
	if !known {
		return false, fmt.Errorf("read the hot copy of voucher %s: %w", row.VoucherID, cmp.Or(err, model.ErrCopyClosed))
	}
	marked, _, err := s.copies.OrderOf(ctx, row.VoucherID, row.UserID)
	if errors.Is(err, model.ErrCopyClosed) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the mark of order %s: %w", row.ID, err)
	}
	if marked != row.ID {
		return true, nil
	}
	s.log.WarnContext(ctx, "a hot copy is stale and is rebuilt", slog.String("voucher_id", row.VoucherID),
		slog.Int64("epoch", hot.Epoch), slog.String("order_id", row.ID), slog.String("reason", row.Reason))
	s.rebuilds.Replace(row.VoucherID, hot.Epoch)
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
