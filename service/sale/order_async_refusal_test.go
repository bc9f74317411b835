package sale

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// The refusals of a purchase in the order of the contract: each case has every
// reason that stands behind its own in the list as well.
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
				check.That(t, tt.want != model.CodeNotStarted || (!refusal.BeginAt.IsZero() && refusal.RetryAfter > 0), "%+v", refusal)
				check.That(t, tt.want != model.CodeCoolingDown || (!refusal.RetryAt.IsZero() && refusal.RetryAfter > 0), "%+v", refusal)
				check.That(t, tt.want != model.CodeAlreadyOrdered || (refusal.OrderID == "o.v1" && refusal.OrderStatus == model.OrderProcessing), "%+v", refusal)
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
			s.rows.put(model.Order{ID: "old.v1", UserID: "alice", Status: model.OrderCanceled, CooldownUntil: new(time.Now().Add(time.Minute))})
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
			} else if got := s.refused(t, "alice", tt.want); tt.order != "" && (got.OrderID != tt.order || got.OrderStatus != tt.status) {
				t.Errorf("%+v, want order %s %s", got, tt.order, tt.status)
			}
			check.Equal(t, "releases", s.hot.Calls("Release"), tt.releases)
			if n := s.doctor.replaces.Load(); n != tt.replaces || n > 0 && s.doctor.replaced.Load() != s.sale.Epoch() {
				t.Errorf("%d rebuilds of epoch %d, want %d", n, s.doctor.replaced.Load(), tt.replaces)
			}
			check.That(t, tt.replaces <= 0 || s.sale.Marks()["alice"] == "old.v1", "the mark was put right by hand: %s", s.sale.Marks()["alice"])
			if n := s.hot.Calls("Reserve"); n > admissionAttempts {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// A mark that comes back again and again is not chased.
func TestMarkThatDoesNotGoIsTriedOnce(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.rows.put(model.Order{ID: "old.v1", UserID: "alice", Status: model.OrderCanceled})
		s.hot.Answer = func(model.ReserveRequest) *model.ReserveResult {
			return &model.ReserveResult{Err: model.AlreadyOrdered(model.Order{ID: "old.v1"})}
		}
		s.refused(t, "alice", model.CodeUnavailable)
		check.Equal(t, "attempts to reserve", s.hot.Calls("Reserve"), admissionAttempts)
	})
}

func TestOneOfManyRequestsTakesTheUnitBehindAStaleMark(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.rows.put(model.Order{ID: "old.v1", UserID: "alice", Status: model.OrderCanceled})
		s.sale.Mark("alice", "old.v1")
		var crowd sync.WaitGroup
		var made atomic.Int64
		for range 500 {
			crowd.Go(func() {
				order, err := s.Place(t.Context(), "alice", "v1")
				switch refusal, _ := errors.AsType[*model.Error](err); {
				case err == nil:
					made.Add(1)
				case model.CodeOf(err) != model.CodeAlreadyOrdered || refusal.OrderID == "old.v1":
					t.Errorf("%+v, %v", order, err)
				}
			})
		}
		crowd.Wait()
		check.That(t, made.Load() == 1 && len(s.line.users()) == 1, "%d orders were made and %d queued, want 1", made.Load(), len(s.line.users()))
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
		check.That(t, len(ids) == 2 && ids[0] != ids[1] && order.ID == ids[1], "asked with %v, answered %s", ids, order.ID)
	})
}

// A reservation whose first sending was settled before the second was answered has a row.
func TestReservationThatWasSettledMeanwhileIsAnsweredWithItsRow(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.hot.Answer = func(a model.ReserveRequest) *model.ReserveResult {
			row := s.rows.put(model.Order{ID: a.OrderID, UserID: a.UserID, Status: model.OrderUnpaid})
			return &model.ReserveResult{Reservation: model.Reservation{Order: model.Order{ID: row.ID, VoucherID: "v1", UserID: a.UserID}}}
		}
		if order, err := s.Place(t.Context(), "alice", "v1"); err != nil || order.Status != model.OrderUnpaid {
			t.Errorf("%+v, %v", order, err)
		}
		check.Equal(t, "messages published once more", s.line.published.Load(), 0)
	})
}
