package sale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"seckill/internal/budget"
	"seckill/internal/lane"
	"seckill/internal/poll"
	"seckill/model"
)

// retryable deals with a hot copy's refusal. It returns nil when the call is worth repeating
// once, and the refusal for the buyer otherwise.
func (r *reserving) retryable(ctx context.Context, refusal error) error {
	refused, ok := errors.AsType[*model.Error](refusal)
	switch {
	case errors.Is(refusal, model.ErrCopyClosed):
		return r.closed(ctx)
	case errors.Is(refusal, model.ErrOrderClosed): // an order of this id is closed: it cannot be this request's
		return r.newID()
	case errors.Is(refusal, model.ErrUserLocked):
		return lockBusy(refusal)
	case ok && refused.Code == model.CodeAlreadyOrdered && refused.OrderStatus == "":
		return r.marked(ctx, refused.OrderID)
	case ok && refused.Code == model.CodeSoldOut:
		r.seller.deps.Cache.SoldOut(r.asked.VoucherID)
	}
	return refusal
}

// closed answers when the hot copy turned out to be closed: by the voucher's window
// and state if they refuse anyway. Later requests hear it from the cache entry.
func (r *reserving) closed(ctx context.Context) error {
	r.seller.deps.Cache.Closed(r.asked.VoucherID)
	err := r.seller.deps.Cache.Refusal(ctx, r.asked.UserID, r.asked.VoucherID, r.user.groups...)
	if err == nil || errors.Is(err, model.ErrCopyClosed) {
		return r.seller.notLoaded(r.asked.VoucherID)
	}
	return err
}

// marked asks the database for the order that the user's mark in the hot copy names and that is not reserved any more.
// A live order is the answer. The mark of a closed order was not taken away yet: marked takes it away, and answers nil.
// An order that the database refused after its admission shows that the hot copy is stale.
func (r *reserving) marked(ctx context.Context, orderID string) error {
	row, err := r.seller.row(ctx, orderID)
	if err != nil {
		return lane.Undone("Your earlier order could not be looked up.", err)
	}
	if row == nil {
		if row, err = r.secondLook(ctx, orderID); err != nil {
			return err
		}
	}
	switch {
	case row == nil:
		return r.lostOrder(ctx, orderID)
	case row.Live():
		return model.AlreadyOrdered(*row)
	}
	if row.RefusedAfterAdmission() {
		return r.stale("refused")
	}
	applied, err := r.seller.async.Hot.ReleaseAll(ctx, r.asked.VoucherID, []model.Release{{
		OrderID: row.ID, VoucherID: r.asked.VoucherID, UserID: r.asked.UserID, CooldownUntil: row.CooldownUntil,
	}})
	if errors.Is(err, model.ErrNeedsOutbox) {
		applied, err = true, r.seller.async.Relay(ctx, r.asked.VoucherID)
	}
	if err != nil {
		return model.Unavailable("Your earlier order could not be closed.", fmt.Errorf("release order %s: %w", row.ID, err))
	}
	if !applied {
		return r.closed(ctx)
	}
	r.seller.async.Admission.StaleMarks.WithLabelValues("released").Inc()
	return nil
}

// secondLook looks again for the order of a mark that had no row. It may have been
// reserved a moment ago. Its row may have been committed between the two looks, or on
// another member of a cluster, and a rebuild must not be demanded for that.
func (r *reserving) secondLook(ctx context.Context, orderID string) (*model.Order, error) {
	pending, found, err := r.seller.async.Hot.Pending(ctx, orderID)
	switch {
	case found && err == nil:
		return nil, model.AlreadyOrdered(pending.Processing())
	case errors.Is(err, model.ErrCopyClosed):
		return nil, r.closed(ctx)
	case err != nil:
		return nil, model.Unavailable("Your earlier order could not be looked up.", fmt.Errorf("look up order %s: %w", orderID, err))
	}
	poll.Pause(ctx, budget.Glance)
	return r.seller.row(ctx, orderID)
}

// lostOrder answers for a mark whose order has no row and is not reserved. The database has lost a row, or the hot copy
// is not of this database, and only a rebuild can tell who may buy.
func (r *reserving) lostOrder(ctx context.Context, orderID string) error {
	r.seller.deps.Log.ErrorContext(ctx, "a hot copy knows an order that the database does not; it is rebuilt",
		slog.String("order_id", orderID), slog.String("voucher_id", r.asked.VoucherID), slog.String("user_id", r.asked.UserID))
	return r.stale("lost")
}

// stale has the hot copy rebuilt that gave the latest answer.
func (r *reserving) stale(mark string) error {
	r.seller.async.Admission.StaleMarks.WithLabelValues(mark).Inc()
	r.seller.async.Rebuild(r.asked.VoucherID, r.epoch)
	return model.Unavailable("The sale is being loaded.", nil)
}
