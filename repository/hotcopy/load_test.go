package hotcopy_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func (s *sale) keyOf(noun string) string {
	if noun == "head" {
		return s.head()
	}
	return s.key(noun)
}

func TestRebuildCarriesWhatIsGiven(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx := t.Context()
		s.v.Stock = 5000
		old := s.buy("old")
		var live []model.Order
		var pending []model.Reservation
		for i := range 1701 {
			r := model.Reservation{Epoch: 1, Order: model.Order{
				ID: fmt.Sprintf("%d.%s", i, s.v.ID), VoucherID: s.v.ID, UserID: user(i), Status: model.OrderProcessing,
				Price: 1000, Currency: "CNY", CreatedAt: old.CreatedAt,
			}}
			if i%2 == 0 {
				pending = append(pending, r)
			} else {
				live = append(live, r.Order)
			}
		}
		stale := s.copies
		s.rebuild(2, 1, live, pending)
		s.wants(model.CopyOpen, 5000-1701, 851, 1701)
		got := make(map[string]string)
		check.Must(t, s.copies.Marks(ctx, s.v.ID, 2,
			func(userID, orderID string) error { got[userID] = orderID; return nil }))
		want := make(map[string]string)
		for i := range 1701 {
			want[user(i)] = fmt.Sprintf("%d.%s", i, s.v.ID)
		}
		check.That(t, maps.Equal(got, want), "%d marks are not those loaded", len(got))
		count := 0
		check.Must(t, s.copies.Buyers(ctx, s.v,
			func(userID string) error { count++; delete(want, userID); return nil }))
		check.That(t, len(want) == 0 && count >= 1701, "%d buyers were not told of", len(want))
		carried := make(map[string]model.Reservation)
		check.Must(t, s.copies.Pendings(ctx, s.v.ID, 2,
			func(r model.Reservation) error { carried[r.ID] = r; return nil }))
		for _, r := range pending {
			check.Need(t, carried[r.ID] == r, "carried %+v, want %+v", carried[r.ID], r)
		}
		if due, err := s.copies.Due(ctx, s.v.ID, 0, 2000); err != nil || len(due) == 0 {
			t.Errorf("%d due, %v", len(due), err)
		}
		// Who reserves again what was carried publishes it in the new epoch.
		again := check.Value(stale.Reserve(ctx,
			[]model.ReserveRequest{{OrderID: pending[0].ID, VoucherID: s.v.ID, UserID: pending[0].UserID}}))(t)
		check.That(t, again[0].Err == nil && again[0].Epoch == 2 && again[0].CreatedAt.Equal(old.CreatedAt),
			"reserved again %+v", again[0])
		// Nothing of the old epoch is left, and nothing fails that looks for it.
		found := 0
		check.Must(t, s.copies.Pendings(ctx, s.v.ID, 1, func(model.Reservation) error { found++; return nil }))
		check.Must(t, s.copies.Pendings(ctx, s.v.ID, 99, func(model.Reservation) error { found++; return nil }))
		if _, ok, err := s.copies.Pending(ctx, old.ID); found != 0 || ok || err != nil {
			t.Errorf("%d old entries, found %v, %v", found, ok, err)
		}
	})
}

// A reservation is found by its id in the keys of its epoch, while these are there, and nowhere else.
func TestReservationsAreHeldByOneEpoch(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx := t.Context()
		a, b := s.buy(user(0)), s.buy(user(1))
		held := func(epoch int64, want ...model.Reservation) {
			t.Helper()
			got, err := s.copies.Held(ctx, s.v.ID, epoch, []string{"none." + s.v.ID, a.ID, b.ID})
			check.Need(t, err == nil && len(got) == len(want), "epoch %d holds %+v, %v", epoch, got, err)
			for _, r := range want {
				check.That(t, got[r.ID] == r, "epoch %d holds %+v, want %+v", epoch, got[r.ID], r)
			}
		}
		held(1, a, b)
		held(2)
		check.Must(t, s.copies.Close(ctx, s.record(2, 1)))
		held(1, a, b) // of the closed copy too
		check.Must(t, s.copies.Load(ctx, s.record(2, 1), nil, nil))
		a.Epoch = 2
		check.Must(t, s.copies.Load(ctx, s.record(2, 1), nil, []model.Reservation{a}))
		held(2, a) // and of one that is not open yet
		check.Must(t, s.copies.Open(ctx, s.record(2, 1), s.v, 0))
		held(1) // freed
		held(2, a)
	})
}

// Whichever is loaded first, the user has the mark of the live order, and both are there once however often loaded.
func TestALiveOrderWinsOverACarriedOne(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx := t.Context()
		carried := []model.Reservation{s.buy("bob"), s.buy("eve")}
		live := []model.Order{{ID: "live." + s.v.ID, UserID: "bob"}, {ID: "other." + s.v.ID, UserID: "zoe"}}
		for epoch := int64(2); epoch < 4; epoch++ {
			check.Must(t, s.load(epoch, s.epoch, nil, nil))
			for range 2 {
				if epoch == 2 {
					check.Must(t, s.copies.Load(ctx, s.record(epoch, 0), nil, carried))
				}
				check.Must(t, s.copies.Load(ctx, s.record(epoch, 0), live, nil))
				check.Must(t, s.copies.Load(ctx, s.record(epoch, 0), nil, carried))
			}
			check.Must(t, s.copies.Open(ctx, s.record(epoch, s.epoch), s.v, 0))
			s.epoch = epoch
			s.wants(model.CopyOpen, 7, 2, 3)
			for user, want := range map[string]string{"bob": live[0].ID, "eve": carried[1].ID, "zoe": live[1].ID} {
				if got, _, err := s.copies.OrderOf(ctx, s.v.ID, user); err != nil || got != want {
					t.Errorf("%s has %s, %v; want %s", user, got, err, want)
				}
			}
			if due, err := s.copies.Due(ctx, s.v.ID, time.Hour, 10); err != nil || len(due) != 2 {
				t.Errorf("%d are due at once, %v", len(due), err)
			}
		}
	})
}

// What the database cannot sell of the stock is not sold, and stays so over changes.
func TestMissingUnitsAreNotForSale(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx := t.Context()
		check.Must(t, s.load(2, 1, nil, []model.Reservation{s.buy("bob")}))
		check.Must(t, s.copies.Open(ctx, s.record(2, 1), s.v, 7))
		s.epoch = 2
		s.wants(model.CopyOpen, 2, 1, 1)
		s.v.Revision, s.v.Stock = 2, 12
		check.Must(t, check.ErrorOf(s.copies.Apply(ctx, s.v)))
		s.wants(model.CopyOpen, 4, 1, 1)
		wantCode(t, s.copies.Lower(ctx, s.v.ID, 7, 2), model.CodeConflict)
		check.Must(t, s.copies.Lower(ctx, s.v.ID, 9, 2))
		s.wants(model.CopyOpen, 1, 1, 1)
		s.buy("eve")
		wantCode(t, s.admit(s.admission("zoe")).Err, model.CodeSoldOut)
		s.wants(model.CopyOpen, 0, 2, 2)
	})
}

func TestConfirmAsksForTheOpenEpoch(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		r := s.buy("bob")
		nowhere := model.Reservation{Order: model.Order{VoucherID: "missing" + s.v.ID}, Epoch: 1}
		confirm := func(want bool) {
			t.Helper()
			got := check.Value(s.copies.Confirm(t.Context(), []model.Reservation{r, nowhere, r}))(t)
			check.That(t, len(got) == 3 && got[0] == want && got[2] == want && !got[1],
				"confirmed %v, want %v", got, want)
		}
		confirm(true)
		s.shut()
		confirm(false)
		was := r
		r.Epoch = 2 // which is not open yet
		confirm(false)
		r = was
		s.rebuild(2, 1, nil, nil)
		confirm(false)
		r = s.buy("bob")
		confirm(true)
	})
}

func TestOpenIsACompareAndSet(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx := t.Context()
		live := []model.Order{s.buy("bob").Order}
		open := func(epoch int64) error { return s.copies.Open(ctx, s.record(epoch, 1), s.v, 0) }
		load := func(epoch int64, live []model.Order) error { return s.copies.Load(ctx, s.record(epoch, 0), live, nil) }

		check.Must(t, open(1)) // it is open: a repetition
		check.Is(t, "the answer", open(2), model.ErrSuperseded)
		check.Is(t, "the answer", s.copies.Close(ctx, s.record(1, 0)), model.ErrSuperseded)
		check.Is(t, "the answer", load(1, nil), model.ErrSuperseded)
		check.Is(t, "the answer", load(1, live), model.ErrSuperseded)
		s.wants(model.CopyOpen, 9, 1, 1)

		check.Must(t, s.copies.Close(ctx, s.record(3, 1)))
		check.Must(t, s.copies.Close(ctx, s.record(3, 1)))
		check.Is(t, "the answer", s.copies.Close(ctx, s.record(2, 1)), model.ErrSuperseded)
		check.Is(t, "the answer", load(2, nil), model.ErrSuperseded)
		check.Is(t, "the answer", load(3, live), model.ErrSuperseded) // it has not begun
		check.Is(t, "the answer", open(3), model.ErrSuperseded)       // nothing is loaded, not even that
		check.Must(t, load(3, nil))
		got := s.read()
		check.That(t, got.State == model.CopyRebuilding && got.Epoch == 3, "reads %+v", got)
		check.Must(t, load(3, live))
		check.Must(t, s.copies.Close(ctx, s.record(3, 1))) // late: it undoes nothing
		check.Must(t, load(3, nil))                        // likewise
		check.Must(t, load(3, live))                       // the same
		check.Is(t, "the answer", s.admit(s.admission("eve")).Err, model.ErrCopyClosed)
		check.Must(t, open(3))
		check.Must(t, open(3))
		s.wants(model.CopyOpen, 9, 0, 1)

		check.Must(t, s.copies.Close(ctx, s.record(4, 3)))
		check.Must(t, load(4, nil))
		s.copies.Abandon(ctx, s.record(4, 0))
		check.Is(t, "the answer", load(4, live), model.ErrSuperseded)
		check.Is(t, "the answer", open(4), model.ErrSuperseded)
	})
}

func TestFlushAll(t *testing.T) {
	t.Parallel()
	s, _ := ownSale(t)
	r := s.buy("bob")
	was := check.Value(s.copies.Incarnation(t.Context()))(t)
	check.Must(t, s.client.FlushAll(t.Context()).Err())
	s.closedNow(r)
	is, err := s.copies.Incarnation(t.Context())
	check.That(t, err == nil && is != was, "the incarnation is %q, %v; was %q", is, err, was)
	check.Must(t, s.copies.Settle(t.Context(), []model.Order{r.Order}))
	count := 0
	check.Must(t, s.copies.Pendings(t.Context(), s.v.ID, 1, func(model.Reservation) error { count++; return nil }))
	check.Equal(t, "pending orders", count, 0)
	s.rebuild(2, 1, []model.Order{r.Order}, nil)
	s.wants(model.CopyOpen, 9, 0, 1)
}

// Whatever is lost in the middle of a load is noticed: the copy is not opened, and nothing more is loaded into it.
func TestALossDuringALoadIsNoticed(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx := t.Context()
		live := []model.Order{s.buy("bob").Order}
		for i, noun := range []string{"buyers", "pending", "due", "closed", "head"} {
			previous := s.epoch
			check.Must(t, s.load(previous+1, previous, live, nil))
			s.epoch++
			check.Must(t, s.client.Del(ctx, s.keyOf(noun)).Err())
			check.Is(t, "the answer", s.copies.Load(ctx, s.record(s.epoch, 0), live, nil), model.ErrSuperseded)
			if noun == "head" {
				// A late loader makes a head again.
				check.Must(t, s.copies.Close(ctx, s.record(s.epoch, previous)))
				check.Is(t, "the answer", s.copies.Load(ctx, s.record(s.epoch, 0), live, nil), model.ErrSuperseded)
			} else {
				// The next epoch has begun already.
				check.Is(t, "the answer", s.copies.Load(ctx, s.record(s.epoch, 0), nil, nil), model.ErrSuperseded)
			}
			check.Is(t, "the answer", s.copies.Load(ctx, s.record(s.epoch, 0), live, nil), model.ErrSuperseded)
			check.Is(t, "the answer", s.copies.Open(ctx, s.record(s.epoch, previous), s.v, 0), model.ErrSuperseded)
			s.rebuild(s.epoch+1, previous, live, nil)
			s.wants(model.CopyOpen, 9, 0, 1)
			if i == 0 && s.client.Exists(ctx, s.key("buyers")).Val() != 1 {
				t.Error("this test looks at other keys")
			}
		}
	})
}

func TestKeysExpireSomeTimeAfterTheSale(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		const week, slack = 7 * 24 * time.Hour, 5 * time.Minute
		expires := func(key string, want time.Duration) {
			t.Helper()
			ttl := s.client.PTTL(t.Context(), key).Val()
			check.That(t, (ttl-want).Abs() <= slack, "%s expires in %s, want %s", key, ttl, want)
		}
		all := func(want time.Duration) {
			t.Helper()
			for _, noun := range []string{"head", "buyers", "pending", "due", "closed"} {
				expires(s.keyOf(noun), want)
			}
		}
		all(week + time.Hour)
		s.v.Revision, s.v.EndAt = 2, time.Now().Add(30*24*time.Hour)
		check.Must(t, check.ErrorOf(s.copies.Apply(t.Context(), s.v)))
		all(week + 30*24*time.Hour)
		s.v.EndAt = time.Now().Add(-365 * 24 * time.Hour)
		check.Must(t, s.load(2, 1, nil, nil))
		s.epoch = 2
		expires(s.key("buyers"), time.Hour) // a load that may be given up
		check.Must(t, s.copies.Open(t.Context(), s.record(2, 1), s.v, 0))
		all(week)
	})
}

func TestApplyTakesOnlyNewerRevisions(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		apply := func(change func(*model.Voucher)) model.HotCopy {
			t.Helper()
			v := s.v
			change(&v)
			applied := check.Value(s.copies.Apply(t.Context(), v))(t)
			check.That(t, applied, "not applied")
			return s.read()
		}
		before := s.read()
		after := apply(func(v *model.Voucher) {
			v.Revision, v.Stock, v.Price, v.State = 5, 20, 900, model.VoucherPaused
			v.BeginAt, v.EndAt = v.BeginAt.Add(time.Minute), v.EndAt.Add(time.Minute)
		})
		if v := after.Voucher; v.Revision != 5 || v.Stock != 20 || v.Remaining != 20 || v.Price != 900 ||
			v.State != model.VoucherPaused ||
			!v.BeginAt.Equal(s.v.BeginAt.Add(time.Minute)) || !v.EndAt.Equal(s.v.EndAt.Add(time.Minute)) ||
			v.Phase != model.PhasePaused || v.Version == before.Voucher.Version || v.Currency != "CNY" {
			t.Errorf("reads %+v", v)
		}
		for _, revision := range []int64{4, 5} {
			late := apply(func(v *model.Voucher) { v.Revision, v.Stock = revision, 1 })
			check.That(t, late.Voucher.Stock == 20 && late.Voucher.Version == after.Voucher.Version,
				"revision %d was applied after 5: %+v", revision, late.Voucher)
		}
		s.shut()
		s.v.Revision = 6
		if applied, err := s.copies.Apply(t.Context(), s.v); applied || err != nil {
			t.Errorf("applied to a closed copy: %v, %v", applied, err)
		}
	})
}

func TestLowerNeverUndercutsWhatIsTaken(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx := t.Context()
		for i := range 4 {
			s.buy(user(i))
		}
		wantCode(t, s.copies.Lower(ctx, s.v.ID, 3, 2), model.CodeConflict)
		s.wants(model.CopyOpen, 6, 4, 4)
		check.Must(t, s.copies.Lower(ctx, s.v.ID, 4, 2))
		check.Must(t, s.copies.Lower(ctx, s.v.ID, 4, 2))
		s.wants(model.CopyOpen, 0, 4, 4)
		wantCode(t, s.admit(s.admission("eve")).Err, model.CodeSoldOut)

		stale := s.v // read before the intent, arrives after it
		stale.Revision = 2
		check.Must(t, check.ErrorOf(s.copies.Apply(ctx, stale)))
		s.wants(model.CopyOpen, 0, 4, 4)
		check.Must(t, s.copies.Lower(ctx, s.v.ID, 8, 2)) // no way up
		s.wants(model.CopyOpen, 0, 4, 4)
		dropped := s.v // the intent was given up
		dropped.Revision = 3
		check.Must(t, check.ErrorOf(s.copies.Apply(ctx, dropped)))
		s.wants(model.CopyOpen, 6, 4, 4)
		check.Is(t, "the answer", s.copies.Lower(ctx, s.v.ID, 5, 2), model.ErrSuperseded)
		s.shut()
		check.Is(t, "the answer", s.copies.Lower(ctx, s.v.ID, 5, 9), model.ErrCopyClosed)
	})
}

// The largest calls, with the longest ids, fit into 1 MB, which every Redis takes at least.
func TestARedisThatTakesLittle(t *testing.T) {
	t.Parallel()
	s, _ := ownSale(t, "--proto-max-bulk-len", "1mb", "--client-query-buffer-limit", "1mb")
	const many = 2000
	s.v.Stock = 2 * many
	id := func(i int) string { return fmt.Sprintf("%0*d.%s", 63-len(s.v.ID), i, s.v.ID) }
	carried := make([]model.Reservation, many)
	asked := make([]model.ReserveRequest, many)
	for i := range many {
		carried[i] = model.Reservation{Epoch: 1, Order: model.Order{
			ID: id(i), VoucherID: s.v.ID, UserID: fmt.Sprintf("%064d", i), Status: model.OrderProcessing,
			Price: model.MaxAmount, Currency: "CNY", CreatedAt: time.Now(),
		}}
		asked[i] = model.ReserveRequest{OrderID: id(many + i), VoucherID: s.v.ID, UserID: fmt.Sprintf("%064d", many+i)}
	}
	s.rebuild(2, 1, nil, carried)
	for _, answer := range check.Value(s.copies.Reserve(t.Context(), asked))(t) {
		check.Must(t, answer.Err)
	}
	s.wants(model.CopyOpen, 0, 2*many, 2*many)
}
