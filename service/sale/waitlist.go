package sale

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/lane"
	"seckill/internal/poll"
	"seckill/model"
)

const (
	shortestJoinPause = budget.Blink / 5 // between the first two looks; it doubles up to budget.Glance
	// maxShared who ask about a voucher share a transaction, which holds its row. maxSharing wait for one voucher.
	maxShared  = 500
	maxSharing = 8192
)

// PlaceStore keeps the places of waitlists.
type PlaceStore interface {
	// Join gives users places at the end, in one transaction. CONFLICT with model.ErrUnitsFree: something remains.
	Join(ctx context.Context, voucherID string, asked []model.Joining) ([]model.Joined, error)
	// Leave gives the places of users up, in one transaction, and says of each what became of it.
	Leave(ctx context.Context, voucherID string, users []string) ([]error, error)
	Place(ctx context.Context, voucherID, userID string) (model.WaitlistPlace, error)
}

type asking[T any] struct {
	voucherID string
	asked     T
}

// perVoucher lets those who ask about a voucher at once share a transaction.
func perVoucher[In, Out any](
	run func(ctx context.Context, voucherID string, asked []In) ([]Out, error),
) *lane.Keyed[asking[In], Out] {
	of := func(a asking[In]) string { return a.voucherID }
	return lane.NewKeyed(of, func(ctx context.Context, all []asking[In]) ([]Out, error) {
		asked := make([]In, len(all))
		for i, one := range all {
			asked[i] = one.asked
		}
		return run(model.OfBuyers(ctx, false), all[0].voucherID, asked)
	}, lane.Options{MaxBatch: maxShared, MaxQueue: maxSharing, Timeout: commitTimeout})
}

// Join gives a user, whose token names groups, a place on a waitlist, or finds it; created tells which. Only the
// database decides who waits: where nothing remains there, every unit is a committed order, and no hot copy sells.
func (s *Orders) Join(
	ctx context.Context, userID, voucherID string, groups ...string,
) (place model.WaitlistPlace, created bool, err error) {
	if !model.ValidID(voucherID) {
		return place, false, model.NotFound("voucher")
	}
	if err := s.deps.Selling(); err != nil {
		return place, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Work)
	defer cancel()
	err = s.deps.Cache.Refusal(ctx, userID, voucherID, groups...)
	switch {
	case err == nil, model.CodeOf(err) == model.CodeSoldOut, errors.Is(err, model.ErrCopyClosed):
	case errors.Is(err, model.ErrEntry):
		return place, false, model.Conflict("The voucher is drawn: enter the draw. Who is not drawn waits.")
	default:
		return place, false, err
	}
	if !s.deps.Cache.Waitlist(voucherID) {
		return place, false, model.NoWaitlist()
	}
	asked := model.Joining{UserID: userID, Early: s.deps.Cache.Early(voucherID, groups)}
	return s.join(ctx, asking[model.Joining]{voucherID, asked}, groups)
}

// join asks for a place until it is known whether units are free.
func (s *Orders) join(
	ctx context.Context, asked asking[model.Joining], groups []string,
) (model.WaitlistPlace, bool, error) {
	patient, enough := context.WithTimeout(ctx, budget.Call)
	defer enough()
	for n := 0; ; n++ {
		joined, err := s.joins.Do(ctx, asked)
		if err != nil {
			return model.WaitlistPlace{}, false, lane.Undone("The place could not be given in time.",
				fmt.Errorf("join the waitlist of voucher %s: %w", asked.voucherID, err))
		}
		if !errors.Is(joined.Err, model.ErrUnitsFree) {
			return joined.Place, joined.Created, joined.Err
		}
		if err := s.seller.free(ctx, asked.asked.UserID, groups, asked.voucherID); err != nil {
			return model.WaitlistPlace{}, false, err
		}
		if patient.Err() != nil {
			return model.WaitlistPlace{}, false,
				model.Unavailable("The last orders are still being stored.", joined.Err)
		}
		poll.Pause(patient, backoff.Doubled(shortestJoinPause, budget.Glance, n))
	}
}

// free refuses a place while units remain in the database, which sells.
func (*syncSeller) free(context.Context, string, []string, string) error { return model.UnitsFree() }

// free refuses a place while the copy has units, or the user's order; the rest is orders on their way.
func (s *asyncSeller) free(ctx context.Context, userID string, groups []string, voucherID string) error {
	if err := s.ordered(ctx, userID, voucherID); err != nil {
		return err
	}
	err := s.open(voucherID, s.deps.Cache.Refusal(ctx, userID, voucherID, groups...))
	if err != nil && model.CodeOf(err) != model.CodeSoldOut {
		return err // the hot copy is closed, or the sale is over meanwhile
	}
	remaining, err := s.deps.Cache.Remaining(ctx, voucherID)
	if err == nil && remaining > 0 {
		err = model.UnitsFree()
	}
	return s.open(voucherID, err)
}

// Leave gives a place up; NOT_FOUND without one, ALREADY_ORDERED with a live order. It waits for no others.
func (s *Orders) Leave(ctx context.Context, userID, voucherID string) error {
	ctx, enough := context.WithTimeout(ctx, budget.Work)
	defer enough()
	switch _, err := s.deps.Places.Place(ctx, voucherID, userID); {
	// Leave changes nothing then, and tells whether there is an order.
	case err != nil && model.CodeOf(err) == model.CodeNotFound:
		answers, err := s.deps.Places.Leave(ctx, voucherID, []string{userID})
		if err != nil {
			return err
		}
		return answers[0]
	case err != nil:
		return err
	}
	answer, err := s.leaves.Do(ctx, asking[string]{voucherID, userID})
	if err != nil {
		return lane.Undone("The place could not be given up in time.",
			fmt.Errorf("leave the waitlist of voucher %s: %w", voucherID, err))
	}
	return answer
}

// Waits returns a user's place, or the order that the last one has become; NOT_FOUND when there is none.
func (s *Orders) Waits(ctx context.Context, userID, voucherID string) (model.WaitlistPlace, error) {
	return s.deps.Places.Place(ctx, voucherID, userID)
}

// newEnters enters users into draws from the database. Concurrent entries share transactions as orders do.
func newEnters(deps Deps) *lane.Lane[model.Entering, model.Entered] {
	return lane.NewLane(lane.Rules[model.Entering, model.Entered]{
		Key: func(one model.Entering) string { return one.VoucherID }, Run: deps.Entries.Enter,
		Judge: func(answer model.Entered) lane.Trouble { return lane.Trouble{Slow: answer.Waited > budget.Glance} },
		Total: loneWriters, Isolated: isolated(deps.Log,
			"the entries of a draw take long or fail; they share no transactions with others for now"),
	}, commitOptions(deps))
}

// enter enters the user; the Order has only Entry, the same when repeated. Late, it takes no unit: no lock is kept.
func (s *Orders) enter(ctx context.Context, user *hold) (model.Order, error) {
	if err := lost(user.lease); err != nil { //nolint:contextcheck // the lock has a life of its own
		return model.Order{}, err
	}
	ticket := s.enters.Submit(ctx, model.Entering{
		VoucherID: user.voucherID, UserID: user.userID, Early: s.deps.Cache.Early(user.voucherID, user.groups),
	})[0]
	answer, err := ticket.Wait(ctx)
	switch err = cmp.Or(err, answer.Err); {
	case err == nil:
		return model.Order{VoucherID: user.voucherID, UserID: user.userID, Entry: &answer.Entry}, nil
	case ctx.Err() != nil:
		return model.Order{}, model.Unavailable("It is not known yet whether you are entered.",
			fmt.Errorf("%w: %w", model.ErrUnknownOutcome, err))
	default:
		return model.Order{}, lane.Undone("Too many orders are waiting.",
			fmt.Errorf("enter the draw of voucher %s: %w", user.voucherID, err))
	}
}
