package repair

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"seckill/internal/budget"
	"seckill/internal/ids"
	"seckill/model"
)

// Replayer gives the buyers of dead letters another chance.
type Replayer struct{ deps Deps }

// Replay makes a new reservation of a dead letter. It has a new id, because the old one is that of a failed order, and
// it may be outside the sale's window, because the old one was within it. An order that has no row and is still
// reserved is queued again as it is: its user still hears that it is processing. The letter is removed once the queue
// has the order, or when its order has got a live row after all. A refusal (ALREADY_ORDERED, SOLD_OUT …) is returned,
// and the letter stays. The administrators' log has who asked; an empty adminID is nobody.
func (r *Replayer) Replay(ctx context.Context, sequence uint64, adminID string) (model.Reservation, error) {
	ctx, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	letter, err := r.deps.Queue.DeadLetter(ctx, sequence)
	if err != nil {
		return model.Reservation{}, fmt.Errorf("read dead letter %d: %w", sequence, err)
	}
	if letter.Reservation == nil {
		return model.Reservation{}, model.Conflict(fmt.Sprintf(
			"Dead letter %d is a message that could not be read; it names no order that could be replayed.", sequence))
	}
	if err := r.recordLetter(ctx, adminID, model.ActionLetterReplay, letter); err != nil {
		return model.Reservation{}, err
	}
	reserved, err := r.again(ctx, *letter.Reservation)
	if err != nil {
		return reserved, fmt.Errorf("replay dead letter %d: %w", sequence, err)
	}
	if err := r.deps.Queue.RemoveDeadLetter(ctx, sequence); err != nil {
		return reserved, fmt.Errorf("dead letter %d was replayed as order %s and could not be removed: %w", sequence, reserved.ID, err)
	}
	return reserved, nil
}

// Drop removes a dead letter for good. The administrators' log has who asked, and what the
// letter held; an empty adminID is nobody.
func (r *Replayer) Drop(ctx context.Context, sequence uint64, adminID string) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	letter, err := r.deps.Queue.DeadLetter(ctx, sequence)
	if err != nil {
		return fmt.Errorf("read dead letter %d: %w", sequence, err)
	}
	if err := r.recordLetter(ctx, adminID, model.ActionLetterDrop, letter); err != nil {
		return err
	}
	return r.deps.Queue.RemoveDeadLetter(ctx, sequence)
}

// loggedLetter is what the administrators' log keeps of a dead letter.
type loggedLetter struct {
	Reason    string `json:"reason"`
	OrderID   string `json:"order_id,omitempty"`
	VoucherID string `json:"voucher_id,omitempty"`
	UserID    string `json:"user_id,omitempty"`
}

func (r *Replayer) recordLetter(ctx context.Context, adminID, action string, letter model.DeadLetter) error {
	held := loggedLetter{Reason: letter.Reason}
	if letter.Reservation != nil {
		held.OrderID, held.VoucherID, held.UserID = letter.Reservation.ID, letter.Reservation.VoucherID, letter.Reservation.UserID
	}
	return r.deps.record(ctx, adminID, action, strconv.FormatUint(letter.Sequence, 10), held)
}

// again returns the order that takes the place of an old one.
func (r *Replayer) again(ctx context.Context, old model.Reservation) (model.Reservation, error) {
	rows, err := r.deps.Database.Find(ctx, []string{old.ID})
	if err != nil {
		return model.Reservation{}, err
	}
	row, decided := rows[old.ID]
	if row.Live() {
		return model.Reservation{Order: row}, nil
	}
	reserved, stands := model.Reservation{}, false
	if !decided {
		if reserved, stands, err = r.deps.Hot.Pending(ctx, old.ID); err != nil {
			return model.Reservation{}, fmt.Errorf("look for the reservation of order %s: %w", old.ID, closed(err))
		}
	}
	if stands { // its hot copy must be open, or the message would come too late
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
	results, err := r.deps.Hot.Reserve(ctx, []model.ReserveRequest{{
		OrderID: model.OrderID(unique, old.VoucherID), VoucherID: old.VoucherID, UserID: old.UserID, Anytime: true,
	}})
	if err != nil {
		return model.Reservation{}, fmt.Errorf("reserve for user %s: %w", old.UserID, err)
	}
	if len(results) != 1 {
		return model.Reservation{}, fmt.Errorf("reserve for user %s: %d answers", old.UserID, len(results))
	}
	refusal := results[0].Err
	if errors.Is(refusal, model.ErrUserLocked) {
		return model.Reservation{}, &model.Error{
			Code: model.CodeLockBusy, Detail: "Another request of this user is under way.", RetryAfter: time.Second, Cause: refusal,
		}
	}
	return results[0].Reservation, closed(refusal)
}

// closed makes UNAVAILABLE of the error of a hot copy that is closed.
func closed(err error) error {
	if errors.Is(err, model.ErrCopyClosed) {
		return model.Unavailable("The voucher's hot copy is closed.", err)
	}
	return err
}

// publish queues the order. When it is unknown whether it is queued, the reconciler
// publishes the reservation again, and the letter stays.
func (r *Replayer) publish(ctx context.Context, reserved model.Reservation) error {
	if err := r.deps.Queue.Publish(ctx, []model.Reservation{reserved}); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return r.confirm(ctx, reserved)
}

// confirm makes sure that the hot copy that holds a reservation is open.
func (r *Replayer) confirm(ctx context.Context, reserved model.Reservation) error {
	confirmed, err := r.deps.Hot.Confirm(ctx, []model.Reservation{reserved})
	if err != nil {
		return fmt.Errorf("confirm: %w", err)
	}
	if len(confirmed) != 1 || !confirmed[0] {
		return model.Unavailable("The voucher was rebuilt meanwhile.", model.ErrCopyClosed)
	}
	return nil
}
