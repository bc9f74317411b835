package service

import (
	"context"
	"fmt"

	"seckill/internal/batch"
	"seckill/model"
)

const (
	// maxCancelBatch orders share one transaction, which holds the rows of their vouchers.
	maxCancelBatch = 100
	// maxCancelQueue cancellations wait. Further ones are refused at once.
	maxCancelQueue = 1024
)

// canceler cancels orders of both order modes. Concurrent cancellations share a
// transaction, one at a time: each transaction holds its voucher's row until it is
// committed, and one for each order would leave those who buy none of the row's time.
type canceler struct {
	store OrderStore
	group *batch.Group[model.Cancellation, model.Canceled]
}

func newCanceler(store OrderStore) canceler {
	c := canceler{store: store}
	c.group = batch.New(c.commit, batch.Options{
		Writers: 1, MaxBatch: maxCancelBatch, MaxQueue: maxCancelQueue, Timeout: commitTimeout,
	})
	return c
}

// do cancels one order. Once its transaction runs it makes no difference when the
// client hangs up.
func (c canceler) do(ctx context.Context, userID, orderID string) (model.Order, bool, error) {
	ticket, err := c.group.Submit(ctx, model.Cancellation{OrderID: orderID, UserID: userID})
	if err != nil {
		return model.Order{}, false, batch.Undone("Too many cancellations are waiting.", err)
	}
	canceled, err := ticket.Wait(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return model.Order{}, false, model.Unavailable("It is not known yet whether the order was canceled.",
			fmt.Errorf("%w: order %s: %w", model.ErrUnknownOutcome, orderID, err))
	case err != nil:
		return model.Order{}, false, batch.Undone("The order could not be canceled.", fmt.Errorf("cancel order %s: %w", orderID, err))
	}
	return canceled.Order, canceled.Changed, canceled.Err
}

func (c canceler) commit(ctx context.Context, asked []model.Cancellation) ([]model.Canceled, error) {
	return byVoucher(ctx, asked, c.store.Cancel,
		func(one model.Cancellation) string { id, _ := model.VoucherOf(one.OrderID); return id },
		func(err error) model.Canceled { return model.Canceled{Err: err} })
}
