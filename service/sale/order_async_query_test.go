package sale

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

func TestStatusOfAnOrder(t *testing.T) {
	t.Parallel()
	row := model.Order{ID: "row.v1", UserID: "alice", Status: model.OrderPaid}
	away := errors.New("connection refused")
	for name, tt := range map[string]struct {
		prepare func(s hotShop)
		id      string // empty: that of alice's order, which is processing
		user    string
		want    model.OrderStatus
		code    model.Code
	}{
		"processing":                   {user: "alice", want: model.OrderProcessing},
		"processing, somebody else's":  {user: "bob", code: model.CodeNotFound},
		"persisted":                    {id: "row.v1", user: "alice", want: model.OrderPaid},
		"persisted, somebody else's":   {id: "row.v1", user: "bob", code: model.CodeNotFound},
		"nowhere":                      {id: "no.v1", user: "alice", code: model.CodeNotFound},
		"an id that cannot exist":      {id: "no", user: "alice", code: model.CodeNotFound},
		"of a voucher that is nowhere": {id: "no.v2", user: "alice", code: model.CodeNotFound},
		"persisted, copy closed": {
			prepare: func(s hotShop) { s.sale.Set("state", model.CopyClosed) },
			id:      "row.v1", user: "alice", want: model.OrderPaid,
		},
		"persisted, Redis away": {prepare: func(s hotShop) { s.hot.Down = away }, id: "row.v1", user: "alice", want: model.OrderPaid},
		"nowhere, copy closed": {
			prepare: func(s hotShop) { s.sale.Set("state", model.CopyClosed) },
			id:      "no.v1", user: "alice", code: model.CodeUnavailable,
		},
		"nowhere, Redis away": {prepare: func(s hotShop) { s.hot.Down = away }, id: "no.v1", user: "alice", code: model.CodeUnavailable},
		"nowhere, of a draw": {prepare: func(s hotShop) {
			s.sale.Set("state", model.CopyClosed)
			s.table.Change(func(v *model.Voucher) { v.Allocation = model.ByDraw })
		}, id: "no.v1", user: "alice", code: model.CodeNotFound},
		"nowhere, long after the sale": {prepare: func(s hotShop) {
			s.sale.Set("state", model.CopyClosed)
			s.table.Change(func(v *model.Voucher) { v.EndAt = time.Now().Add(-2 * time.Hour) })
		}, id: "no.v1", user: "alice", code: model.CodeNotFound},
		"nowhere, long after the sale, with a backlog": {prepare: func(s hotShop) {
			s.sale.Set("state", model.CopyClosed)
			s.table.Change(func(v *model.Voucher) { v.EndAt = time.Now().Add(-2 * time.Hour) })
			s.line.with(func() { s.line.backlog.Messages = 1 })
			servicetest.Pass(time.Second)
		}, id: "no.v1", user: "alice", code: model.CodeUnavailable},
		"database away": {
			prepare: func(s hotShop) { s.rows.fail(model.Unavailable("gone", nil)) },
			id:      "row.v1", user: "alice", code: model.CodeUnavailable,
		},
	} {
		for _, wait := range []time.Duration{0, 100 * time.Millisecond} {
			inHotShops(t, fmt.Sprint(name, ", wait ", wait), func(t *testing.T, s hotShop) {
				id := s.buys(t, "alice").ID
				if tt.id != "" {
					id = tt.id
				}
				s.rows.put(row)
				if tt.prepare != nil {
					tt.prepare(s)
				}
				order, err := s.Get(t.Context(), tt.user, id, wait)
				check.That(t, tt.code == "" || (err != nil && model.CodeOf(err) == tt.code), "%+v, %v; want %s", order,
					err, tt.code)
				check.That(t, tt.code != "" || (err == nil && order.Status == tt.want && order.ID == id &&
					order.UserID == tt.user), "%+v, %v; want %s", order, err, tt.want)
			})
		}
	}
}

func TestListShowsTheOrderThatIsProcessing(t *testing.T) {
	t.Parallel()
	closed := func(s hotShop) { s.sale.Set("state", model.CopyClosed) }
	live := func(s hotShop) { s.rows.put(model.Order{ID: "l.v1", UserID: "alice", Status: model.OrderUnpaid}) }
	ofVoucher := model.OrderQuery{UserID: "alice", VoucherID: "v1", Limit: 2}
	with := func(change func(q *model.OrderQuery)) model.OrderQuery {
		q := ofVoucher
		change(&q)
		return q
	}
	for name, tt := range map[string]struct {
		query   model.OrderQuery
		prepare func(s hotShop)
		want    []model.OrderStatus
		more    bool
		code    model.Code
	}{
		"on top of the first page": {query: ofVoucher, want: []model.OrderStatus{model.OrderProcessing, model.OrderCanceled}},
		"alone on a page of one": {
			query: with(func(q *model.OrderQuery) { q.Limit = 1 }),
			want:  []model.OrderStatus{model.OrderProcessing}, more: true,
		},
		"by its status": {
			query: with(func(q *model.OrderQuery) { q.Status = model.OrderProcessing }),
			want:  []model.OrderStatus{model.OrderProcessing},
		},
		"not by another": {query: with(func(q *model.OrderQuery) { q.Status = model.OrderPaid })},
		"of everybody":   {query: with(func(q *model.OrderQuery) { q.UserID = "" })},
		"of everybody by its status": {
			query: model.OrderQuery{VoucherID: "v1", Status: model.OrderProcessing},
			want:  []model.OrderStatus{model.OrderProcessing},
		},
		"of everybody when it cannot be told": {
			query: model.OrderQuery{VoucherID: "v1", Status: model.OrderProcessing}, prepare: closed,
			code: model.CodeUnavailable,
		},
		"not of others":    {query: with(func(q *model.OrderQuery) { q.UserID = "bob" })},
		"of all vouchers":  {query: model.OrderQuery{UserID: "alice", Status: model.OrderProcessing}},
		"not on next page": {query: with(func(q *model.OrderQuery) { q.Cursor = "next" }), want: []model.OrderStatus{model.OrderCanceled, model.OrderCanceled}},
		"not twice": {query: ofVoucher, prepare: func(s hotShop) { // its row is there, and the copy not told yet
			row := s.sale.Pending()[s.sale.Marks()["alice"]].Order
			row.Status = model.OrderUnpaid
			s.rows.put(row)
		}, want: []model.OrderStatus{model.OrderUnpaid, model.OrderCanceled}},
		"when it cannot be told": {query: ofVoucher, prepare: closed, code: model.CodeUnavailable},
		"of a draw": {query: ofVoucher, prepare: func(s hotShop) {
			closed(s)
			s.table.Change(func(v *model.Voucher) { v.Allocation = model.ByDraw })
		}, want: []model.OrderStatus{model.OrderCanceled, model.OrderCanceled}},
		"when a live one says that there can be none": {
			query:   with(func(q *model.OrderQuery) { q.Limit = 9 }),
			prepare: func(s hotShop) { closed(s); live(s) },
			want:    []model.OrderStatus{model.OrderCanceled, model.OrderCanceled, model.OrderUnpaid},
		},
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			for i := range 2 {
				s.rows.put(model.Order{
					ID: fmt.Sprint(i, ".v1"), UserID: "alice", Status: model.OrderCanceled,
					CreatedAt: time.Now().Add(-time.Hour),
				})
			}
			s.buys(t, "alice")
			if tt.prepare != nil {
				tt.prepare(s)
			}
			page, err := s.List(t.Context(), tt.query)
			if tt.code != "" {
				check.That(t, err != nil && model.CodeOf(err) == tt.code, "%+v, %v; want %s", page, err, tt.code)
				return
			}
			var got []model.OrderStatus
			for _, o := range page.Items {
				got = append(got, o.Status)
			}
			check.That(t, err == nil && fmt.Sprint(got) == fmt.Sprint(tt.want), "%v, %v; want %v", got, err, tt.want)
			check.That(t, !tt.more || page.NextCursor != "", "there is no next page")
		})
	}
}

func TestDetailOfAnOrderThatIsProcessing(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		placed := s.buys(t, "alice")
		detail, err := s.Detail(t.Context(), placed.ID)
		if err != nil || detail.Status != model.OrderProcessing || len(detail.History) != 1 ||
			detail.History[0].From != nil || detail.History[0].To != model.OrderProcessing {
			t.Errorf("%+v, %v", detail, err)
		}
		servicetest.Hears(t, "the caller", check.ErrorOf(s.Detail(t.Context(), "no.v1")), model.CodeNotFound)
		s.sale.Set("state", model.CopyClosed)
		servicetest.Hears(t, "the caller", check.ErrorOf(s.Detail(t.Context(), "no.v1")), model.CodeUnavailable)
	})
}

type empty struct{ OrderStore }

func (empty) Get(context.Context, string) (model.Order, error) {
	return model.Order{}, model.NotFound("order")
}

func (empty) Detail(context.Context, string) (model.OrderDetail, error) {
	return model.OrderDetail{}, model.NotFound("order")
}

// An instance of another order mode sees no reservations: it must not deny a promised order.
func TestInstanceOfAnotherModeKnowsThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	sells := func() error { return nil }
	switching := func() error { return model.Unavailable("another order mode", nil) }
	for name, want := range map[string]struct {
		selling Selling
		code    model.Code
	}{
		"its own":     {sells, model.CodeNotFound},
		"another one": {switching, model.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			orders := &Orders{seller: &syncSeller{deps: Deps{Store: empty{}, Selling: want.selling}}}
			_, got := orders.Get(t.Context(), "alice", "1.v", 0)
			_, detail := orders.Detail(t.Context(), "1.v")
			for _, err := range []error{got, detail} {
				servicetest.Hears(t, "the caller", err, want.code)
			}
		})
	}
}

// In the order of the contract; each case also has every reason that follows its own in the list.
func TestPrecedenceOfRefusals(t *testing.T) {
	t.Parallel()
	soldOut := func(s hotShop) { s.sale.Set("stock", int64(len(s.sale.Marks()))) }
	cooling := func(s hotShop) {
		soldOut(s)
		s.sale.Change(func(v *model.Voucher) { v.Cooldown = model.Window(time.Minute) })
		s.sale.Cool("alice", time.Now().Add(time.Minute))
	}
	ordered := func(s hotShop) {
		cooling(s)
		s.sale.Mark("alice", "o.v1")
		s.sale.Hold(model.Order{ID: "o.v1", UserID: "alice"})
		s.sale.Set("stock", 1)
	}
	locked := func(s hotShop) { ordered(s); s.hot.Lock("alice"); s.keys.Busy = "lock:order:alice" }
	upcoming := func(s hotShop) { locked(s); s.sale.Set("begin_us", time.Now().Add(time.Minute).UnixMicro()) }
	paused := func(s hotShop) { upcoming(s); s.sale.Set("vstate", model.VoucherPaused) }
	ended := func(s hotShop) { paused(s); s.sale.Set("end_us", time.Now().Add(-time.Minute).UnixMicro()) }
	draft := func(s hotShop) { ended(s); s.sale.Set("vstate", model.VoucherDraft) }
	archived := func(s hotShop) { ended(s); s.sale.Set("vstate", model.VoucherArchived) }
	for name, tt := range map[string]struct {
		prepare func(s hotShop)
		want    model.Code
	}{
		"draft":       {draft, model.CodeNotFound},
		"archived":    {archived, model.CodeNotFound},
		"ended":       {ended, model.CodeEnded},
		"paused":      {paused, model.CodePaused},
		"not started": {upcoming, model.CodeNotStarted},
		"locked":      {locked, model.CodeLockBusy},
		"ordered":     {ordered, model.CodeAlreadyOrdered},
		"cooling":     {cooling, model.CodeCoolingDown},
		"sold out":    {soldOut, model.CodeSoldOut},
	} {
		for _, place := range []string{"from memory", "from the hot copy"} {
			inHotShops(t, name+" "+place, func(t *testing.T, s hotShop) {
				if place == "from the hot copy" { // the local copy knows nothing of it
					check.Must(t, s.cache.Refusal(t.Context(), "zoe", "v1"))
				}
				s.hot.With(func() { tt.prepare(s) })
				refusal := s.refused(t, "alice", tt.want)
				check.That(t, tt.want != model.CodeNotStarted || (!refusal.BeginAt.IsZero() && refusal.RetryAfter > 0),
					"%+v", refusal)
				check.That(t, tt.want != model.CodeCoolingDown || (!refusal.RetryAt.IsZero() && refusal.RetryAfter > 0),
					"%+v", refusal)
				check.That(t, tt.want != model.CodeAlreadyOrdered ||
					(refusal.OrderID == "o.v1" && refusal.OrderStatus == model.OrderProcessing), "%+v", refusal)
			})
		}
	}
}

// The hot copy says that the user has an order, which waits in no queue: the database knows what became of it.
func TestMarkOfAnOrderThatIsNotPending(t *testing.T) {
	t.Parallel()
	row := func(status model.OrderStatus, reason string) func(s hotShop) {
		return func(s hotShop) {
			s.rows.put(model.Order{ID: "old.v1", UserID: "alice", Status: status, Reason: reason})
		}
	}
	for name, tt := range map[string]struct {
		prepare  func(s hotShop)
		want     model.Code        // empty: a new order
		order    string            // ALREADY_ORDERED: this one
		status   model.OrderStatus // and its status
		replaces int64
		releases int64
	}{
		"unpaid":   {prepare: row(model.OrderUnpaid, ""), want: model.CodeAlreadyOrdered, order: "old.v1", status: model.OrderUnpaid},
		"paid":     {prepare: row(model.OrderPaid, ""), want: model.CodeAlreadyOrdered, order: "old.v1", status: model.OrderPaid},
		"canceled": {prepare: row(model.OrderCanceled, ""), releases: 1},
		"expired":  {prepare: row(model.OrderExpired, ""), releases: 1},
		"refunded": {prepare: row(model.OrderRefunded, ""), releases: 1},
		"canceled, and cooling down": {prepare: func(s hotShop) {
			s.sale.Change(func(v *model.Voucher) { v.Cooldown = model.Window(time.Minute) })
			s.rows.put(model.Order{
				ID: "old.v1", UserID: "alice", Status: model.OrderCanceled,
				CooldownUntil: new(time.Now().Add(time.Minute)),
			})
		}, want: model.CodeCoolingDown, releases: 1},
		"failed":                    {prepare: row(model.OrderFailed, model.ReasonUnprocessable), releases: 1},
		"failed because of another": {prepare: row(model.OrderFailed, model.ReasonAlreadyOrdered), want: model.CodeUnavailable, replaces: 1},
		"failed as sold out":        {prepare: row(model.OrderFailed, model.ReasonSoldOut), want: model.CodeUnavailable, replaces: 1},
		"no row":                    {prepare: func(hotShop) {}, want: model.CodeUnavailable, replaces: 1},
		"unpaid, and shown late": {prepare: func(s hotShop) {
			row(model.OrderUnpaid, "")(s)
			s.rows.behind = s.rows.queries.Load() + 1
		}, want: model.CodeAlreadyOrdered, order: "old.v1", status: model.OrderUnpaid},
		"database away":     {prepare: func(s hotShop) { s.rows.fail(model.Unavailable("gone", nil)) }, want: model.CodeUnavailable},
		"database in error": {prepare: func(s hotShop) { s.rows.fail(errors.New("no such column")) }, want: model.CodeInternal},
		"no row, but queued": {prepare: func(s hotShop) {
			s.hot.Answer = func(a model.ReserveRequest) *model.ReserveResult { // between the call and the look-up
				s.sale.Hold(model.Order{ID: "old.v1", UserID: "alice"})
				return &model.ReserveResult{Err: model.AlreadyOrdered(model.Order{ID: "old.v1"})}
			}
		}, want: model.CodeAlreadyOrdered, order: "old.v1", status: model.OrderProcessing},
		"closed, and the copy too": {prepare: func(s hotShop) {
			row(model.OrderCanceled, "")(s)
			s.hot.Answer = func(a model.ReserveRequest) *model.ReserveResult {
				s.sale.Set("state", model.CopyClosed)
				return &model.ReserveResult{Err: model.AlreadyOrdered(model.Order{ID: "old.v1"})}
			}
		}, want: model.CodeUnavailable, releases: 1},
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			s.sale.Mark("alice", "old.v1")
			tt.prepare(s)
			if tt.want == "" {
				s.buys(t, "alice")
			} else if got := s.refused(t, "alice", tt.want); tt.order != "" &&
				(got.OrderID != tt.order || got.OrderStatus != tt.status) {
				t.Errorf("%+v, want order %s %s", got, tt.order, tt.status)
			}
			check.Equal(t, "releases", s.hot.Calls("release"), tt.releases)
			if n := s.doctor.replaces.Load(); n != tt.replaces || n > 0 && s.doctor.replaced.Load() != s.sale.Epoch() {
				t.Errorf("%d rebuilds of epoch %d, want %d", n, s.doctor.replaced.Load(), tt.replaces)
			}
			check.That(t, tt.replaces <= 0 || s.sale.Marks()["alice"] == "old.v1", "the mark was put right by hand: %s",
				s.sale.Marks()["alice"])
			n := s.hot.Calls("reserve")
			check.That(t, n <= admissionAttempts, "asked %d times", n)
		})
	}
}

func TestMarkThatDoesNotGoIsTriedOnce(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.rows.put(model.Order{ID: "old.v1", UserID: "alice", Status: model.OrderCanceled})
		s.hot.Answer = func(model.ReserveRequest) *model.ReserveResult {
			return &model.ReserveResult{Err: model.AlreadyOrdered(model.Order{ID: "old.v1"})}
		}
		s.refused(t, "alice", model.CodeUnavailable)
		check.Equal(t, "attempts to reserve", s.hot.Calls("reserve"), admissionAttempts)
	})
}

func TestOneOfManyRequestsTakesTheUnitBehindAStaleMark(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.rows.put(model.Order{ID: "old.v1", UserID: "alice", Status: model.OrderCanceled})
		s.sale.Mark("alice", "old.v1")
		var made atomic.Int64
		check.Volley(500, func(int) {
			order, err := s.Place(t.Context(), "alice", "v1")
			switch refusal, _ := errors.AsType[*model.Error](err); {
			case err == nil:
				made.Add(1)
			case model.CodeOf(err) != model.CodeAlreadyOrdered || refusal.OrderID == "old.v1":
				t.Errorf("%+v, %v", order, err)
			}
		})
		check.That(t, made.Load() == 1 && len(s.line.users()) == 1, "%d orders were made and %d queued, want 1",
			made.Load(), len(s.line.users()))
	})
}

// An id that somebody has closed is no reason to refuse anybody.
func TestClosedIDIsReplacedOnce(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		var ids []string
		s.hot.Answer = func(a model.ReserveRequest) *model.ReserveResult {
			ids = append(ids, a.OrderID)
			if len(ids) == 1 {
				return &model.ReserveResult{Err: model.ErrOrderClosed}
			}
			return nil
		}
		order := s.buys(t, "alice")
		check.That(t, len(ids) == 2 && ids[0] != ids[1] && order.ID == ids[1], "asked with %v, answered %s", ids,
			order.ID)
	})
}

func TestReservationThatWasSettledMeanwhileIsAnsweredWithItsRow(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.hot.Answer = func(a model.ReserveRequest) *model.ReserveResult {
			row := s.rows.put(model.Order{ID: a.OrderID, UserID: a.UserID, Status: model.OrderUnpaid})
			return &model.ReserveResult{Reservation: model.Reservation{Order: model.Order{
				ID: row.ID, VoucherID: "v1",
				UserID: a.UserID,
			}}}
		}
		if order, err := s.Place(t.Context(), "alice", "v1"); err != nil || order.Status != model.OrderUnpaid {
			t.Errorf("%+v, %v", order, err)
		}
		check.Equal(t, "messages published once more", s.line.published.Load(), 0)
	})
}
