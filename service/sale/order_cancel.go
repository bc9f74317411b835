package sale

import (
	"context"
	"errors"
	"fmt"

	"seckill/internal/failpoint"
	"seckill/internal/lane"
	"seckill/model"
)

const (
	// maxCancelBatch orders share one transaction, which holds their voucher's row.
	maxCancelBatch = 100
	// maxCancelQueue cancellations of one voucher wait. Further ones are refused at once.
	maxCancelQueue = 1024
)

// canceler cancels orders of both order modes. Concurrent cancellations of one voucher
// share a transaction: a transaction for each would keep buyers waiting for the
// voucher's row. Two vouchers never share one, because a voucher in trouble must not
// hold up others.
type canceler struct {
	store OrderStore
	group *lane.Keyed[model.Cancellation, model.Canceled]
}

func newCanceler(store OrderStore) canceler {
	c := canceler{store: store}
	c.group = lane.NewKeyed(voucherOf, c.commit, lane.Options{MaxBatch: maxCancelBatch, MaxQueue: maxCancelQueue, Timeout: commitTimeout})
	return c
}

// do cancels one order.
func (c canceler) do(ctx context.Context, asked model.Cancellation) (model.Canceled, error) {
	canceled, err := c.group.Do(ctx, asked)
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(err, lane.ErrNotRun):
		return model.Canceled{}, model.Unavailable("It is not known yet whether the order was canceled.",
			fmt.Errorf("%w: order %s: %w", model.ErrUnknownOutcome, asked.OrderID, err))
	case err != nil:
		return model.Canceled{}, lane.Undone("The order could not be canceled in time.", fmt.Errorf("cancel order %s: %w", asked.OrderID, err))
	}
	failpoint.Reach(failpoint.AfterCancel)
	return canceled, canceled.Err
}

func voucherOf(asked model.Cancellation) string {
	voucherID, _ := model.VoucherOf(asked.OrderID)
	return voucherID
}

// commit cancels orders of one voucher in one transaction. When the database refuses the
// data of some of them, each is tried alone.
func (c canceler) commit(ctx context.Context, asked []model.Cancellation) ([]model.Canceled, error) {
	ctx = model.OfBuyers(ctx, false)
	answers, err := c.store.Cancel(ctx, asked)
	if len(asked) == 1 || !errors.Is(err, model.ErrDataRefused) {
		return answers, err
	}
	answers = make([]model.Canceled, len(asked))
	for i := range asked {
		alone, err := c.store.Cancel(ctx, asked[i:i+1])
		if answers[i].Err = err; err == nil {
			answers[i] = alone[0]
		}
	}
	return answers, nil
}
