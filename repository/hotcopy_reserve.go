package repository

import (
	"context"
	"errors"
	"time"

	"seckill/model"
)

const (
	// reservePatience bounds a Reserve: the request it is made for is answered
	// within 5 s, and has to publish yet.
	reservePatience = 4 * time.Second
	// reservePause is the first pause before a call without an answer is made
	// again, and reservePauseMax the longest, while Redis restarts.
	reservePause    = 5 * time.Millisecond
	reservePauseMax = 200 * time.Millisecond
)

// What an admission asks of reserve.lua.
const (
	reserveLook    = 1 // at the lock of the user
	reserveAnytime = 2
)

// reservation is one call of reserve.lua on its way.
type reservation struct {
	copyCall
	asked []model.ReserveRequest
	at    []int // where each of them stands among all
	lost  error // an earlier sending that has no answer
}

// Reserve takes a unit for each admission, of any mix of vouchers. The answer to
// one is in its Err; of two of one voucher and user the first counts. What was
// reserved before is answered as the first time: with the status processing, or
// with none at all when it was settled since, and its row is to be read.
//
// An order whose call has no answer is reserved again until ctx ends, and then
// has an Err that wraps model.ErrUnknownOutcome; one that Redis was never asked
// for, or refused to work on, has an UNAVAILABLE. Reserve itself fails only when
// nothing else can be said of any order.
func (h *HotCopies) Reserve(ctx context.Context, asked []model.ReserveRequest) ([]model.ReserveResult, error) {
	ctx, cancel := context.WithTimeout(ctx, reservePatience)
	defer cancel()
	reservations := h.reservations(asked)
	h.reserve(ctx, reservations)

	answers := make([]model.ReserveResult, len(asked))
	var failed []error
	for _, r := range reservations {
		err := r.failure()
		if err != nil {
			failed = append(failed, err)
		}
		for i, at := range r.at {
			answers[at].Reservation = reserved(r.asked[i])
			if answers[at].Err = err; err == nil {
				r.answer(&answers[at], i)
			}
		}
	}
	if len(failed) > 0 && len(failed) == len(reservations) {
		return answers, errors.Join(failed...)
	}
	return answers, nil
}

// failure tells why nothing can be said of a reservation's orders; nil when Redis
// has answered.
func (r *reservation) failure() error {
	if r.lost != nil {
		return r.lost
	}
	if !r.sent {
		return model.Unavailable("There was no time left to ask Redis.", context.DeadlineExceeded)
	}
	return r.fail("reserve orders")
}

// reserve makes the calls, and those again that have no answer, while ctx lasts.
func (h *HotCopies) reserve(ctx context.Context, open []*reservation) {
	for pause := reservePause; len(open) > 0; pause = min(2*pause, reservePauseMax) {
		if ctx.Err() != nil {
			return
		}
		calls := make([]*copyCall, len(open))
		for i, r := range open {
			calls[i] = &r.copyCall
		}
		h.run(ctx, calls...)
		open = lost(open)
		if len(open) > 0 {
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// lost returns the reservations whose outcome is unknown. One that was lost
// before stays so until Redis answers: a Redis that refuses now may have worked
// on it then.
func lost(tried []*reservation) (open []*reservation) {
	for _, r := range tried {
		err := r.fail("reserve orders")
		if errors.Is(err, model.ErrUnknownOutcome) {
			r.lost = err
		}
		if r.lost != nil && err != nil && model.CodeOf(err) == model.CodeUnavailable {
			open = append(open, r)
		} else {
			r.lost = nil
		}
	}
	return open
}

// reservations makes calls of at most copyOrders orders of one voucher each.
func (h *HotCopies) reservations(asked []model.ReserveRequest) []*reservation {
	var all []*reservation
	filling := make(map[string]*reservation)
	for at, a := range asked {
		r := filling[a.VoucherID]
		if r == nil || len(r.asked) == copyOrders {
			r = &reservation{copyCall: copyCall{script: h.scripts.reserve, voucher: a.VoucherID, once: true}}
			filling[a.VoucherID] = r
			all = append(all, r)
		}
		r.asked = append(r.asked, a)
		r.at = append(r.at, at)
		r.ask(a, h.options.LockKeys)
	}
	return all
}

// ask adds an admission to the call.
func (r *reservation) ask(a model.ReserveRequest, lockKeys bool) {
	flags := 0
	if lockKeys && !a.Locked {
		flags += reserveLook
		r.keys = append(r.keys, userLockKey(a.UserID))
	}
	if a.Anytime {
		flags += reserveAnytime
	}
	r.args = append(r.args, a.OrderID, a.UserID, flags)
}
