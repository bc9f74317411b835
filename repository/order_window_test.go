package repository_test

import (
	"errors"
	"testing"
	"time"

	"seckill/model"
)

// TestWindowByTheDatabasesClock: buyers ask all the time while a short sale
// comes and goes. Nobody buys outside of it, on the clock that decides.
func TestWindowByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		begin := time.Now().Add(time.Hour)
		v := f.voucher(t, model.NewVoucher{Stock: 1 << 30, BeginAt: begin, EndAt: begin.Add(time.Hour)})
		refused, ok := errors.AsType[*model.Error](f.place(t, order(t, v.ID, "early")).Err)
		if !ok || refused.Code != model.CodeNotStarted || !refused.BeginAt.Equal(v.BeginAt) || refused.RetryAfter <= 59*time.Minute {
			t.Errorf("an hour early: %+v", refused)
		}
		var bought []model.Order
		for length := 200 * time.Millisecond; len(bought) == 0; length *= 2 { // longer, if the machine was too busy to come in time
			begin, end := time.Now().Add(50*time.Millisecond), time.Now().Add(50*time.Millisecond+length)
			var err error
			v, err = f.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{BeginAt: &begin, EndAt: &end})
			must(t, err)
			bought = f.buyUntilEnded(t, v)
		}
		for _, o := range bought {
			if o.CreatedAt.Before(v.BeginAt) || !o.CreatedAt.Before(v.EndAt) {
				t.Errorf("bought at %s, window %s to %s", o.CreatedAt, v.BeginAt, v.EndAt)
			}
		}
		// ReserveResult before, it is asked nothing any more.
		late := order(t, v.ID, "late")
		late.CreatedAt = v.BeginAt.Add(1234567 * time.Nanosecond)
		outcome := f.place(t, late)
		must(t, outcome.Err)
		if !outcome.Order.CreatedAt.Equal(late.CreatedAt.Truncate(time.Microsecond)) || outcome.Order.ExpiresAt.Before(v.EndAt.Add(paymentWindow)) {
			t.Errorf("admitted at %s: %+v", late.CreatedAt, outcome.Order)
		}
	})
}

// buyUntilEnded buys for one user after the other until the sale has ended, and
// checks that refusals come in order and that orders are dated by the database.
func (f *fixture) buyUntilEnded(t *testing.T, v model.Voucher) (bought []model.Order) {
	t.Helper()
	for ended := 0; ended < 3; {
		before, err := f.vouchers.Get(t.Context(), v.ID)
		must(t, err)
		outcome := f.place(t, order(t, v.ID, newID(t)))
		after, err := f.vouchers.Get(t.Context(), v.ID)
		must(t, err)
		switch {
		case outcome.Err == nil:
			bought = append(bought, outcome.Order)
			if at := outcome.Order.CreatedAt; at.Before(before.ServerTime) || at.After(after.ServerTime) || ended > 0 {
				t.Errorf("created at %s, asked between %s and %s", at, before.ServerTime, after.ServerTime)
			}
		case model.CodeOf(outcome.Err) == model.CodeEnded:
			ended++
		case model.CodeOf(outcome.Err) != model.CodeNotStarted || len(bought) > 0 || ended > 0:
			t.Errorf("after %d sales: %v", len(bought), outcome.Err)
		}
	}
	return bought
}
