package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"seckill/internal/batch"
	"seckill/internal/ids"
	"seckill/model"
)

// overcome deals with a hot copy's refusal: nil means that what stood in the
// way is gone, and that it is worth asking once more.
func (r *reserving) overcome(ctx context.Context, refusal error) error {
	if errors.Is(refusal, model.ErrCopyClosed) {
		return r.closed(ctx)
	}
	if errors.Is(refusal, model.ErrOrderClosed) {
		// An order of this id is closed: it cannot be ours.
		unique, err := ids.New()
		r.asked.OrderID = model.OrderID(unique, r.asked.VoucherID)
		return err
	}
	refused, ok := errors.AsType[*model.Error](refusal)
	switch {
	case ok && refused.Code == model.CodeSoldOut:
		r.Cache.SoldOut(r.asked.VoucherID)
	case ok && refused.Code == model.CodeAlreadyOrdered && refused.OrderStatus == "":
		return r.marked(ctx, refused.OrderID)
	}
	if errors.Is(refusal, model.ErrUserLocked) {
		return lockBusy(refusal)
	}
	return refusal
}

// closed answers for a hot copy that turned out to be closed: by the voucher's
// window and state if they refuse anyway. Those behind this request are told
// from memory.
func (r *reserving) closed(ctx context.Context) error {
	r.Cache.Closed(r.asked.VoucherID)
	err := r.Cache.Refusal(ctx, r.asked.UserID, r.asked.VoucherID)
	if err == nil || errors.Is(err, model.ErrCopyClosed) {
		return r.notLoaded(r.asked.VoucherID)
	}
	return err
}

// marked asks the database for the order that the hot copy says the user has,
// and which waits in no queue. A live one is the answer. One that is closed has
// a mark that was not taken away yet: it goes, and nil means ask once more. One
// that the database refused shows that the copy is stale.
func (r *reserving) marked(ctx context.Context, orderID string) error {
	row, err := r.row(ctx, orderID)
	switch {
	case err != nil:
		return batch.Undone("Your earlier order could not be looked up.", err)
	case row == nil:
		return r.lostOrder(ctx, orderID)
	case row.Live():
		return model.AlreadyOrdered(*row)
	}
	if row.RefusedAfterAdmission() {
		return r.stale("refused")
	}
	applied, err := r.Hot.Release(ctx, model.Release{
		OrderID: row.ID, VoucherID: r.asked.VoucherID, UserID: r.asked.UserID,
	})
	if err != nil {
		return model.Unavailable("Your earlier order could not be closed.", fmt.Errorf("release order %s: %w", row.ID, err))
	}
	if !applied {
		return r.closed(ctx)
	}
	r.Admission.StaleMark("released")
	return nil
}

// lostOrder answers for a mark whose order is nowhere. It may have been queued
// a moment ago; otherwise the database has lost a row that it had, or the copy
// is not of this database: only a rebuild can tell who may buy.
func (r *reserving) lostOrder(ctx context.Context, orderID string) error {
	pending, found, err := r.Hot.Pending(ctx, orderID)
	switch {
	case found && err == nil:
		return model.AlreadyOrdered(pending.Processing())
	case errors.Is(err, model.ErrCopyClosed):
		return r.closed(ctx)
	case err != nil:
		return model.Unavailable("Your earlier order could not be looked up.", fmt.Errorf("look up order %s: %w", orderID, err))
	}
	r.Log.ErrorContext(ctx, "a hot copy knows an order that the database does not; it is rebuilt",
		slog.String("order_id", orderID), slog.String("voucher_id", r.asked.VoucherID), slog.String("user_id", r.asked.UserID))
	return r.stale("lost")
}

// stale has the hot copy replaced that gave the latest answer.
func (r *reserving) stale(mark string) error {
	r.Admission.StaleMark(mark)
	r.Rebuild(r.asked.VoucherID, r.epoch)
	return model.Unavailable("The sale is being loaded.", nil)
}
