package sale

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// A server of hot copies that does not answer keeps readings of other servers' vouchers waiting for nothing.
func TestASilentServerHoldsUpNoReadingOfOthers(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		other := s.sale.Voucher()
		other.ID = "v2"
		s.hot.Add(other)
		s.hot.With(func() {
			s.hot.Nodes = map[string]string{"v1": "silent", "v3": "silent", "v2": "well"}
			s.hot.Silent = map[string]bool{"v1": true, "v3": true}
		})
		var waiting sync.WaitGroup
		for _, id := range []string{"v1", "v3"} { // as many as readings are under way at once
			waiting.Go(func() { _, _ = s.Place(t.Context(), "alice", id) })
			synctest.Wait()
		}
		began := time.Now()
		_, err := s.Place(t.Context(), "alice", "v2")
		check.Must(t, err)
		check.That(t, time.Since(began) < 100*time.Millisecond, "answered after %v", time.Since(began))
		waiting.Wait()
	})
}

// A hot copy that is closed says nothing about the sale: not even that it is sold out, though it was a moment ago.
func TestClosedCopyIsNeverSoldOut(t *testing.T) {
	t.Parallel()
	for name, hide := range map[string]func(s hotShop){
		"closed":     func(s hotShop) { s.sale.Set("state", model.CopyClosed) },
		"rebuilding": func(s hotShop) { s.sale.Set("state", model.CopyRebuilding) },
	} {
		for _, known := range []bool{true, false} {
			inHotShops(t, fmt.Sprint(name, ", known ", known), func(t *testing.T, s hotShop) {
				s.table.Change(func(v *model.Voucher) { v.Remaining = 0 })
				if known {
					s.sale.Set("stock", 0)
					s.refused(t, "alice", model.CodeSoldOut)
				} else {
					s.buys(t, "bob")
				}
				s.hot.With(func() { hide(s) })
				if known {
					servicetest.Pass(900 * time.Millisecond) // what was seen open is told for less than a second
				}
				for range 3 {
					check.Equal(t, "when to come again", s.refused(t, "alice", model.CodeUnavailable).RetryAfter, time.Second)
				}
				check.That(t, s.doctor.requests.Load() >= 3, "a rebuild was asked for %d times", s.doctor.requests.Load())
				if n := s.hot.Calls("Reserve"); n > 2 {
					t.Errorf("the closed copy was asked %d times: it must be known from memory", n)
				}
				s.sale.Set("state", model.CopyOpen)
				s.sale.Set("stock", 5)
				servicetest.Pass(900 * time.Millisecond)
				s.buys(t, "alice")
			})
		}
	}
}

// Whatever the state of the hot copy, the window and the state of the sale are
// told, by the database where need be. A row that was there is only away.
func TestClosedCopyOfASaleThatIsNotOn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(v *model.Voucher)
		want   model.Code
		known  model.Code // when the sale was on before, if that makes a difference
	}{
		"ended":    {func(v *model.Voucher) { v.EndAt = time.Now().Add(-time.Minute) }, model.CodeEnded, ""},
		"paused":   {func(v *model.Voucher) { v.State = model.VoucherPaused }, model.CodePaused, ""},
		"upcoming": {func(v *model.Voucher) { v.BeginAt = time.Now().Add(time.Minute) }, model.CodeNotStarted, ""},
		"draft":    {func(v *model.Voucher) { v.State = model.VoucherDraft }, model.CodeNotFound, ""},
		"nowhere":  {func(v *model.Voucher) { v.ID = "another" }, model.CodeNotFound, model.CodeUnavailable},
	} {
		for _, gone := range []error{nil, errors.New("connection refused")} {
			for _, known := range []bool{true, false} {
				inHotShops(t, fmt.Sprint(name, ", Redis says ", gone, ", was open ", known), func(t *testing.T, s hotShop) {
					want := tt.want
					if known && gone == nil { // the hot copy itself says that it is closed
						s.buys(t, "bob")
						want = cmp.Or(tt.known, want)
					}
					s.table.Change(tt.change)
					s.hot.With(func() { s.sale.Set("state", model.CopyClosed); s.hot.Down = gone })
					s.refused(t, "alice", want)
				})
			}
		}
	}
}

func TestOpenCopyGoesOnWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.table.Fail(model.Unavailable("gone", nil))
		s.rows.fail(model.Unavailable("gone", nil))
		for i := range 10 {
			s.buys(t, fmt.Sprint("user", i))
			servicetest.Pass(time.Second)
		}
		s.refused(t, "late", model.CodeSoldOut)
		order, err := s.Get(t.Context(), "user1", s.sale.Marks()["user1"], 0)
		check.That(t, err == nil && order.Status == model.OrderProcessing, "%+v, %v", order, err)
		check.That(t, s.table.Queries.Load() == 0 && s.rows.queries.Load() == 0, "the database was asked %d and %d times", s.table.Queries.Load(), s.rows.queries.Load())
		s.sale.Set("state", model.CopyClosed)
		servicetest.Pass(time.Second)
		s.refused(t, "late", model.CodeUnavailable)
	})
}

// One reading that fails does no harm: the copy that is held is good for its time.
func TestHotCopiesThatCannotBeReadForAMoment(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		_ = s.buys(t, "alice")
		s.hot.With(func() { s.hot.Down = errors.New("connection reset") })
		servicetest.Pass(300*time.Millisecond + time.Millisecond)
		if err := s.cache.Refusal(t.Context(), "zoe", "v1"); err != nil { // the refresh finds nothing new
			t.Errorf("%v", err)
		}
		servicetest.Pass(100 * time.Millisecond)
		s.hot.With(func() { s.hot.Down = nil })
		s.buys(t, "bob")
		check.Equal(t, "rebuilds asked for of a copy that is only not reached", s.doctor.requests.Load(), 0)
	})
}

// The flag is told to losers only, from a reading of the buyers during which nothing changed.
func TestSoldOutHotCopyIsToldFromMemoryButNotToBuyers(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		for i := range 10 {
			s.buys(t, fmt.Sprint("winner", i))
		}
		s.refused(t, "loser", model.CodeSoldOut)
		servicetest.Pass(10 * time.Millisecond)
		before := s.hot.Calls("Reserve")
		for i := range 10 {
			refusal := s.refused(t, fmt.Sprint("winner", i), model.CodeAlreadyOrdered)
			check.Equal(t, "the order of the winner", refusal.OrderID, s.sale.Marks()[fmt.Sprint("winner", i)])
			s.refused(t, fmt.Sprint("loser", i), model.CodeSoldOut)
		}
		check.Equal(t, "calls for 10 winners and 10 losers", s.hot.Calls("Reserve")-before, 10)
	})
}

func TestBuyersThatWereReadAcrossAChangeAreNotUsed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s hotShop){
		"another buyer": func(s hotShop) { s.sale.Drop("buyers", "alice"); s.sale.Mark("bob", "b.v1"); s.sale.Touch() },
		"rebuilt":       func(s hotShop) { s.sale.Rebuild() },
		"closed":        func(s hotShop) { s.sale.Set("state", model.CopyClosed) },
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			s.sale.Mark("alice", "a.v1")
			s.sale.Set("stock", 1)
			s.hot.Yields = 20 * time.Millisecond
			time.AfterFunc(10*time.Millisecond, func() { s.hot.With(func() { change(s) }) })
			// With a filter of the buyers the answer would be that nothing is left.
			if err := s.cache.Refusal(t.Context(), "bob", "v1"); err != nil {
				t.Errorf("bob was told %v from memory", err)
			}
		})
	}
}
