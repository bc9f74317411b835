package hotcopy_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// marks are the copy's marks: user → order.
func (s *sale) marks() map[string]string {
	s.t.Helper()
	found := map[string]string{}
	check.Must(s.t, s.copies.Marks(s.t.Context(), s.v.ID, s.epoch, func(user, order string) error {
		found[user] = order
		return nil
	}))
	return found
}

// Of a voucher with a waitlist only the outbox gives units back, in its order: one with an heir is free at no time, however
// often it is given. A sold-out copy gets no other stock.
func TestAUnitChangesHands(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		s.v.Waitlist, s.v.Cooldown, s.v.Stock = true, model.Window(time.Minute), 2
		s.rebuild(2, 1, nil, nil)
		ann, bob := s.buy("ann"), s.buy("bob")
		check.Must(t, s.copies.Settle(t.Context(), []model.Order{ann.Order, bob.Order}))
		row := func(id int64, order, user, heir, heirUser string) model.Release {
			return model.Release{ID: id, OrderID: order, VoucherID: s.v.ID, UserID: user, HeirID: heir, HeirUserID: heirUser}
		}
		gives := func(want bool, marked map[string]string, rows ...model.Release) {
			t.Helper()
			applied := check.Value(s.copies.ReleaseAll(t.Context(), s.v.ID, rows))(t)
			got := s.marks()
			check.That(t, applied == want && maps.Equal(got, marked), "applied %v, and the marks are %v, want %v", applied, got, marked)
			check.Equal(t, "what remains", s.read().Voucher.Remaining, int64(2-len(marked)))
		}
		before := s.read().Voucher.Version
		tells := func(want error, marked map[string]string, told model.Release, before ...model.Release) {
			t.Helper()
			told.ID, told.Direct = 0, true
			check.Is(t, "what is told", check.ErrorOf(s.copies.ReleaseAll(t.Context(), s.v.ID, append(before, told))), want)
			got := s.marks()
			check.That(t, maps.Equal(got, marked), "the marks are %v, want %v", got, marked)
		}
		unsold := map[string]string{"ann": ann.ID, "bob": bob.ID}
		check.Is(t, "one of which it is not known who got the unit", check.ErrorOf(s.copies.Release(t.Context(), releaseOf(ann))), model.ErrNeedsOutbox)
		first, second := row(1, ann.ID, "ann", "h1", "carl"), row(2, "h1", "carl", "h2", "ann")
		tells(model.ErrNeedsOutbox, unsold, second) // the first one comes before
		tells(model.ErrNeedsOutbox, unsold, second, releaseOf(ann))
		tells(nil, map[string]string{"carl": "h1", "bob": bob.ID}, first)
		tells(model.ErrNeedsOutbox, map[string]string{"carl": "h1", "bob": bob.ID}, first)
		tells(nil, map[string]string{"ann": "h2", "bob": bob.ID}, second, first)
		for range 2 {
			gives(true, map[string]string{"ann": "h2", "bob": bob.ID}, first, second)
		}
		check.That(t, s.read().Voucher.Version != before, "the version is as it was, and instances do not learn who has an order")
		check.Is(t, "a late admission", s.admit(model.ReserveRequest{OrderID: ann.ID, VoucherID: s.v.ID, UserID: "ann"}).Err, model.ErrOrderClosed)

		// An earlier row has to take ann's mark away first.
		third, fourth := row(4, bob.ID, "bob", "h3", "ann"), row(3, "h2", "ann", "h4", "dora")
		third.CooldownUntil = new(time.Now().Add(time.Hour))
		gives(false, map[string]string{"ann": "h2", "bob": bob.ID}, third)
		gives(true, map[string]string{"ann": "h3", "dora": "h4"}, fourth, third)
		wantCode(t, s.admit(s.admission("bob")).Err, model.CodeCoolingDown)
		more := s.v
		more.Stock, more.Revision = 3, s.v.Revision+1
		_, err := s.copies.Apply(t.Context(), more)
		outgrown, ok := errors.AsType[*model.OutgrownError](err)
		check.That(t, ok && outgrown.Epoch == s.epoch, "a sold-out copy grows: %v", err)
		gives(true, map[string]string{"ann": "h3"}, row(5, "h4", "dora", "", ""))
		check.That(t, check.Value(s.copies.Apply(t.Context(), more))(t), "a copy with units left does not grow")
		check.Equal(t, "what remains", s.read().Voucher.Remaining, 2)
	})
}
