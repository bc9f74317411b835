package sale

import (
	"context"
	"errors"
	"fmt"

	"seckill/internal/lane"
	"seckill/model"
)

// entrants enter users into draws, in both order modes: the database is asked, and neither the hot copies nor the queue. As
// orders do, concurrent entries of all vouchers share transactions, and a voucher in trouble is isolated.
type entrants struct {
	deps   Deps
	seller seller
	enters *lane.Lane[model.Entering, model.Entered]
}

func newEntrants(deps Deps, s seller) *entrants {
	e := &entrants{deps: deps, seller: s}
	e.enters = lane.NewLane(lane.Rules[model.Entering, model.Entered]{
		Key: func(one model.Entering) string { return one.VoucherID },
		Run: func(ctx context.Context, asked []model.Entering) ([]model.Entered, error) {
			return e.deps.Entries.Enter(ctx, asked)
		},
		Judge: func(answer model.Entered) lane.Trouble { return lane.Trouble{Slow: answer.Waited > longWait} },
		Total: loneWriters, Isolated: isolated(deps.Log, "the entries of a draw take long or fail; they share no transactions with others for now"),
	}, commitOptions(deps))
	return e
}

func (e *entrants) close(ctx context.Context) { e.enters.Close(ctx) }

// refusal is that of a purchase, but for what a draw has none of.
func (e *entrants) refusal(ctx context.Context, userID string, groups []string, voucherID string) error {
	err := e.seller.refusal(ctx, userID, groups, voucherID)
	switch {
	case err == nil:
		return model.ErrEntry // it was a draw when the request came
	case errors.Is(err, model.ErrEntry):
		return nil
	default:
		return err
	}
}

// locksItself says that the database does not look at the user's lock.
func (e *entrants) locksItself() bool { return false }

// sell enters the user, and returns an Order with only Entry set. A repeated call finds the same entry.
// Unlike an order it is not held against the lock behind a client that was answered: an entry that comes late takes
// no unit.
func (e *entrants) sell(ctx context.Context, user *hold, voucherID string) (model.Order, error) {
	if err := user.lost(); err != nil { //nolint:contextcheck // the lock has a life of its own
		return model.Order{}, err
	}
	ticket := e.enters.Submit(ctx, model.Entering{VoucherID: voucherID, UserID: user.userID, Early: e.deps.Cache.Early(voucherID, user.groups)})[0]
	answer, err := ticket.Wait(ctx)
	if err == nil {
		err = answer.Err
	}
	switch {
	case err == nil:
		return model.Order{VoucherID: voucherID, UserID: user.userID, Entry: &answer.Entry}, nil
	case ctx.Err() != nil:
		return model.Order{}, model.Unavailable("It is not known yet whether you are entered.", fmt.Errorf("%w: %w", model.ErrUnknownOutcome, err))
	default:
		return model.Order{}, lane.Undone("Too many orders are waiting.", fmt.Errorf("enter the draw of voucher %s: %w", voucherID, err))
	}
}
