package service

import (
	"context"
	"errors"
	"time"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/model"
)

// Redemptions uses up the codes that buyers show.
type Redemptions struct {
	store RedemptionStore
	codes *Codes
	wrong *backoff.Failures // by administrator
}

// NewRedemptions makes the service. Without codes it answers UNAVAILABLE.
//
// A code cannot be guessed; wrong ones are slowed down so that a till gone wrong, or
// somebody at one, is noticed and costs nothing. Twenty mistakes at once are a bad day,
// and one more every five seconds is a person who mistypes.
func NewRedemptions(store RedemptionStore, codes *Codes) *Redemptions {
	policy := backoff.Policy{Free: 20, First: firstWait, Longest: longestWait, Forget: 5 * time.Second}
	return &Redemptions{store: store, codes: codes, wrong: backoff.New(policy, maxRemembered, time.Now)}
}

// Redeem uses the code that a person has typed, once, and returns its order. A code that
// is mistyped is VALIDATION, one that no order has NOT_FOUND, and one that was used or
// refunded ILLEGAL_STATE; after many wrong ones an administrator hears RATE_LIMITED.
func (s *Redemptions) Redeem(ctx context.Context, adminID, typed string) (model.Order, error) {
	if s.codes == nil {
		return model.Order{}, model.Unavailable("There are no codes: no payments are configured.", nil)
	}
	if wait := s.wrong.Wait(adminID); wait > 0 {
		return model.Order{}, tooMany("Too many wrong codes: wait before you try again.", wait)
	}
	// A client that hangs up changes nothing: what is begun comes to its end.
	ctx, enough := context.WithTimeout(context.WithoutCancel(ctx), budget.Work)
	defer enough()
	order, err := s.redeem(ctx, adminID, typed)
	refused, ok := errors.AsType[*model.Error](err)
	if ok && (refused.Code == model.CodeNotFound || refused.Code == model.CodeValidation) {
		s.wrong.Begin(adminID) // now and not before: right ones at once, of a shop's tills, are no wrong ones
	}
	return order, err
}

func (s *Redemptions) redeem(ctx context.Context, adminID, typed string) (model.Order, error) {
	hash, err := s.codes.Hash(typed)
	if err != nil {
		return model.Order{}, err
	}
	order, err := s.store.Redeem(ctx, hash, adminID)
	if err != nil {
		return model.Order{}, err
	}
	return s.codes.Show(ctx, order), nil
}
