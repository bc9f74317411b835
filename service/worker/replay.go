package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"seckill/internal/ids"
	"seckill/model"
)

// replayTimeout bounds one replay: an operator waits for it.
const replayTimeout = 10 * time.Second

// Replayer gives the buyers of dead letters another chance.
type Replayer struct{ Parts }

// Replay makes a new reservation of a dead letter, under a new id, because the
// old one is a failed order, and also outside the sale's window, because it was
// admitted within it. An order without a row, whose reservation still stands, is
// queued again as it is: its user is still told that it is processing. The letter
// goes once the queue has the order; a refusal (ALREADY_ORDERED, SOLD_OUT …) is
// returned and keeps it. A letter whose order got its row after all needs nothing
// else, and goes.
func (r *Replayer) Replay(ctx context.Context, sequence uint64) (model.Reservation, error) {
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	letter, err := r.Queue.DeadLetter(ctx, sequence)
	if err != nil {
		return model.Reservation{}, fmt.Errorf("read dead letter %d: %w", sequence, err)
	}
	if letter.Reservation == nil {
		return model.Reservation{}, model.Conflict(fmt.Sprintf(
			"Dead letter %d is a message that could not be read; it names no order that could be replayed.", sequence))
	}
	reserved, err := r.again(ctx, *letter.Reservation)
	if err != nil {
		return reserved, fmt.Errorf("replay dead letter %d: %w", sequence, err)
	}
	if err := r.Queue.RemoveDeadLetter(ctx, sequence); err != nil {
		return reserved, fmt.Errorf("dead letter %d was replayed as order %s and could not be removed: %w", sequence, reserved.ID, err)
	}
	return reserved, nil
}

// again returns the order that its user has in the place of one that failed.
func (r *Replayer) again(ctx context.Context, old model.Reservation) (model.Reservation, error) {
	rows, err := r.Database.Find(ctx, []string{old.ID})
	if err != nil {
		return model.Reservation{}, err
	}
	row, decided := rows[old.ID]
	if row.Live() {
		return model.Reservation{Order: row}, nil
	}
	reserved, stands := model.Reservation{}, false
	if !decided {
		if reserved, stands, err = r.Hot.Pending(ctx, old.ID); err != nil {
			return model.Reservation{}, fmt.Errorf("look for the reservation of order %s: %w", old.ID, closed(err))
		}
	}
	if stands { // in a copy that is open, or its message would come too late
		err = r.confirm(ctx, reserved)
	} else {
		reserved, err = r.reserve(ctx, old)
	}
	if err != nil {
		return model.Reservation{}, err
	}
	if err := r.publish(ctx, reserved); err != nil {
		return reserved, fmt.Errorf("as order %s: %w", reserved.ID, err)
	}
	return reserved, nil
}

func (r *Replayer) reserve(ctx context.Context, old model.Reservation) (model.Reservation, error) {
	unique, err := ids.New()
	if err != nil {
		return model.Reservation{}, err
	}
	admitted, err := r.Hot.Reserve(ctx, []model.ReserveRequest{{
		OrderID: model.OrderID(unique, old.VoucherID), VoucherID: old.VoucherID, UserID: old.UserID, Anytime: true,
	}})
	switch {
	case err != nil:
		return model.Reservation{}, fmt.Errorf("reserve for user %s: %w", old.UserID, err)
	case len(admitted) != 1:
		return model.Reservation{}, fmt.Errorf("reserve for user %s: %d answers", old.UserID, len(admitted))
	case errors.Is(admitted[0].Err, model.ErrCopyClosed):
		return model.Reservation{}, closed(admitted[0].Err)
	case errors.Is(admitted[0].Err, model.ErrUserLocked):
		return model.Reservation{}, &model.Error{
			Code: model.CodeLockBusy, Detail: "Another request of this user is under way.", RetryAfter: time.Second, Cause: admitted[0].Err,
		}
	default:
		return admitted[0].Reservation, admitted[0].Err
	}
}

// closed makes UNAVAILABLE of a copy that is closed.
func closed(err error) error {
	if errors.Is(err, model.ErrCopyClosed) {
		return model.Unavailable("The voucher's hot copy is closed.", err)
	}
	return err
}

// publish promises the new order. Unknown stays unknown: the reservation is
// published again by the reconciler, and the letter stays to be looked at.
func (r *Replayer) publish(ctx context.Context, reserved model.Reservation) error {
	if err := r.Queue.Publish(ctx, []model.Reservation{reserved}); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return r.confirm(ctx, reserved)
}

// confirm makes sure that the copy that holds a reservation is open.
func (r *Replayer) confirm(ctx context.Context, reserved model.Reservation) error {
	confirmed, err := r.Hot.Confirm(ctx, []model.Reservation{reserved})
	if err != nil {
		return fmt.Errorf("confirm: %w", err)
	}
	if len(confirmed) != 1 || !confirmed[0] {
		return model.Unavailable("The voucher was rebuilt meanwhile.", model.ErrCopyClosed)
	}
	return nil
}
