//part:stores

package hotcopy_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestReserveTakesAUnit(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		before := s.read()
		r := s.buy("bob")
		if r.Status != model.OrderProcessing || r.Price != 1000 || r.Currency != "CNY" || r.Epoch != 1 ||
			!aboutNow(r.CreatedAt) || r.UserID != "bob" || r.VoucherID != s.v.ID {
			t.Errorf("reserved %+v", r)
		}
		s.wants(model.CopyOpen, 9, 1, 1)
		if after := s.read(); after.Voucher.Version == before.Voucher.Version {
			t.Error("the version is the same after a reservation")
		}
		pending, ok, err := s.copies.Pending(t.Context(), r.ID)
		check.Must(t, err)
		check.That(t, ok && pending == r, "pending %+v, want %+v", pending, r)
		id, of, err := s.copies.OrderOf(t.Context(), s.v.ID, "bob")
		check.Must(t, err)
		check.That(t, id == r.ID && of != nil && *of == r, "order of bob %s %+v", id, of)
		all := check.Value(s.copies.OrdersOf(t.Context(), []model.Buyer{
			{VoucherID: s.v.ID, UserID: "bob"},
			{VoucherID: s.v.ID, UserID: "eve"},
			{VoucherID: s.v.ID},
			{VoucherID: "missing" + s.v.ID, UserID: "bob"},
		}))(t)
		if all[0].OrderID != r.ID || all[0].Pending == nil || *all[0].Pending != r ||
			!slices.Equal(all[1:], make([]model.BuyersOrder, 3)) {
			t.Errorf("orders %+v", all)
		}
	})
}

func TestReserveRefuses(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		r := s.buy("bob")
		other := s.admit(s.admission("bob"))
		wantCode(t, other.Err, model.CodeAlreadyOrdered)
		e, _ := errors.AsType[*model.Error](other.Err)
		check.That(t, e.OrderID == r.ID && e.OrderStatus == model.OrderProcessing, "refused with %+v", e)
		check.Must(t, s.copies.Settle(t.Context(), []model.Order{r.Order}))
		e, _ = errors.AsType[*model.Error](s.admit(s.admission("bob")).Err)
		check.That(t, e.OrderID == r.ID && e.OrderStatus == "", "refused with %+v after the order was settled", e)
		for i := range 9 {
			s.buy(user(i))
		}
		wantCode(t, s.admit(s.admission("late")).Err, model.CodeSoldOut)
		wantCode(t, s.admit(s.admission("bob")).Err, model.CodeAlreadyOrdered)
		anytime := s.admission("late")
		anytime.Anytime = true
		wantCode(t, s.admit(anytime).Err, model.CodeSoldOut)
		s.wants(model.CopyOpen, 0, 9, 10)
	})
}

func TestReserveMindsTheWindowOnRedisClock(t *testing.T) {
	t.Parallel()
	hour := time.Hour
	for _, test := range []struct {
		code       model.Code
		begin, end time.Duration
		state      model.VoucherState
	}{
		{model.CodeNotStarted, hour, 2 * hour, model.VoucherPublished},
		{model.CodeEnded, -2 * hour, -hour, model.VoucherPublished},
		{model.CodeEnded, -2 * hour, -hour, model.VoucherPaused},
		{model.CodePaused, -hour, hour, model.VoucherPaused},
		{model.CodePaused, hour, 2 * hour, model.VoucherPaused},
		{model.CodeNotFound, -hour, hour, model.VoucherDraft},
		{model.CodeNotFound, -hour, hour, model.VoucherArchived},
	} {
		t.Run(string(test.code)+" "+string(test.state), func(t *testing.T) {
			t.Parallel()
			overRedis(t, func(t *testing.T, s *sale) {
				bob := s.buy("bob")
				changed := s.v
				changed.Revision, changed.State = 2, test.state
				changed.BeginAt, changed.EndAt = time.Now().Add(test.begin), time.Now().Add(test.end)
				applied := check.Value(s.copies.Apply(t.Context(), changed))(t)
				check.That(t, applied, "not applied")
				refusal := s.admit(s.admission("eve")).Err
				wantCode(t, refusal, test.code)
				if e, _ := errors.AsType[*model.Error](refusal); test.code == model.CodeNotStarted &&
					(!e.BeginAt.Equal(changed.BeginAt.Truncate(time.Microsecond)) || e.RetryAfter < hour-time.Minute ||
						e.RetryAfter > hour) {
					t.Errorf("refused with %+v", e)
				}
				again := s.admit(model.ReserveRequest{OrderID: bob.ID, VoucherID: s.v.ID, UserID: "bob"})
				check.That(t, again.Err == nil && again.Reservation == bob,
					"the first admission, repeated outside the window: %+v", again)
				anytime := s.admission("eve")
				anytime.Anytime = true
				check.Must(t, s.admit(anytime).Err)
			})
		})
	}
}

func TestReserveBeginsEarlyForSome(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		changed := s.v
		changed.Revision, changed.BeginAt, changed.EndAt = 2, time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
		changed.Early = model.Early{
			For:  model.Groups{"gold"},
			From: new(time.Now().Add(-time.Minute).UTC().Truncate(time.Microsecond)),
		}
		changed.Groups, changed.Cooldown = model.Groups{"gold", "staff"}, model.Window(time.Minute)
		check.Value(s.copies.Apply(t.Context(), changed))(t)
		wantCode(t, s.admit(s.admission("eve")).Err, model.CodeNotStarted)
		early := s.admission("ann")
		early.Early = true
		check.Must(t, s.admit(early).Err)
		read := check.Value(s.copies.Read(t.Context(), []string{s.v.ID}))(t)[s.v.ID].Voucher
		check.That(t, read.SameRules(&changed.VoucherFields), "the copy tells the rules %v %v", read.Groups, read.Early)
		later := changed
		later.Revision, later.Early.From = 3, new(time.Now().Add(time.Minute).UTC().Truncate(time.Microsecond))
		check.Value(s.copies.Apply(t.Context(), later))(t)
		early = s.admission("bob")
		early.Early = true
		refusal, _ := errors.AsType[*model.Error](s.admit(early).Err)
		check.That(t, refusal != nil && refusal.Code == model.CodeNotStarted &&
			refusal.BeginAt.Equal(*later.Early.From), "before the early beginning: %+v", refusal)
		without := changed
		without.Revision, without.Early, without.Groups = 4, model.Early{}, nil
		check.Value(s.copies.Apply(t.Context(), without))(t)
		wantCode(t, s.admit(early).Err, model.CodeNotStarted)
	})
}

func TestReserveGroups(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		second := s.v
		s.v = voucherOf(newID(t), 3)
		s.rebuild(7, 0, nil, nil)
		first := s.v
		s.v = second
		var group []model.ReserveRequest
		for i := range 12 { // of 10 units
			group = append(group, s.admission(user(i)))
		}
		double := s.admission(user(0))
		group = append(group, double, group[1])
		for i := range 5 { // of 3 units
			a := s.admission(user(i))
			a.VoucherID, a.OrderID = first.ID, model.OrderID(newID(t), first.ID)
			group = append(group, a)
		}
		group = append(group, model.ReserveRequest{
			OrderID: "a.unheard", VoucherID: "unheard" + newID(t),
			UserID: "bob",
		})
		answers := check.Value(s.copies.Reserve(t.Context(), group))(t)
		codes := make(map[model.Code]int)
		for i, a := range answers {
			check.That(t, a.ID == group[i].OrderID && a.UserID == group[i].UserID && a.VoucherID == group[i].VoucherID,
				"answer %d is %+v", i, a)
			if a.Err == nil {
				codes[""]++
			} else if !errors.Is(a.Err, model.ErrCopyClosed) {
				codes[model.CodeOf(a.Err)]++
			}
		}
		check.That(t, codes[""] == 10+1+3 && codes[model.CodeSoldOut] == 2+2 && codes[model.CodeAlreadyOrdered] == 1,
			"answers %v", codes)
		wantCode(t, answers[12].Err, model.CodeAlreadyOrdered)
		check.Is(t, "the answer", answers[len(answers)-1].Err, model.ErrCopyClosed)
		if answers[14].Epoch != 7 || answers[0].Epoch != 1 {
			t.Errorf("epochs %d and %d", answers[14].Epoch, answers[0].Epoch)
		}
		s.wants(model.CopyOpen, 0, 10, 10)
	})
}

func TestReserveMindsTheLock(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		bob, eve := "bob:"+newID(t), "eve:"+newID(t)
		s.lock(bob)
		locked := s.admission(bob)
		answers := check.Value(s.copies.Reserve(t.Context(),
			[]model.ReserveRequest{s.admission(eve), locked, s.admission("zoe:" + newID(t))}))(t)
		if answers[0].Err != nil || answers[2].Err != nil {
			t.Errorf("others: %v, %v", answers[0].Err, answers[2].Err)
		}
		check.Is(t, "the answer", answers[1].Err, model.ErrUserLocked)
		s.wants(model.CopyOpen, 8, 2, 2)
		locked.Locked = true
		check.Must(t, s.admit(locked).Err)
		locked.Locked = false
		check.Must(t, s.admit(locked).Err) // as the first time
	})
}

// Each user asks several times at once, and is given one unit. Who comes again hears of that order.
func TestReserveRace(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		codes := make(map[model.Code]int)
		won, told := make(map[string]string), make(map[string]string)
		all := make([]model.ReserveRequest, check.Count(t, "REQUESTS", 100, 500))
		for i := range all {
			all[i] = s.admission(user(i % (len(all) / 4)))
		}
		s.crowd(all, func(a model.ReserveResult) {
			if a.Err == nil {
				codes[""]++
				won[a.UserID] = a.ID
				return
			}
			codes[model.CodeOf(a.Err)]++
			if refusal, _ := errors.AsType[*model.Error](a.Err); refusal != nil &&
				refusal.Code == model.CodeAlreadyOrdered {
				told[a.UserID] = refusal.OrderID
			}
		})
		// A user who comes when all is sold hears so, unless that user is a buyer.
		if codes[""] != 10 || codes[model.CodeAlreadyOrdered] != 30 || codes[model.CodeSoldOut] != len(all)-40 ||
			!maps.Equal(won, told) {
			t.Errorf("answers %v; orders %v, told of %v", codes, won, told)
		}
		s.wants(model.CopyOpen, 0, 10, 10)
	})
}
