package repository_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

// reservation is an order that a hot copy has admitted for 77 CNY an hour ago.
func reservation(t testing.TB, voucherID, userID string, epoch int64, sequence uint64) model.Reservation {
	t.Helper()
	o := order(t, voucherID, userID)
	o.Price, o.Currency, o.CreatedAt = 77, "CNY", time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)
	return model.Reservation{Order: o, Epoch: epoch, Sequence: sequence}
}

func (f *fixture) opened(t testing.TB, voucherID string) {
	t.Helper()
	check.Must(t, check.ErrorOf(f.copies.Close(t.Context(), voucherID, 0, "")))
	check.Must(t, f.copies.Open(t.Context(), voucherID, 1))
}

// closed begins the second epoch, for which messages count up to a sequence.
func (f *fixture) closed(t testing.TB, voucherID string, barrier uint64) {
	t.Helper()
	check.Must(t, check.ErrorOf(f.copies.Close(t.Context(), voucherID, 1, "")))
	check.Must(t, f.copies.SetBarrier(t.Context(), voucherID, 2, barrier))
}

func (f *fixture) persist(t testing.TB, list ...model.Reservation) []model.Outcome {
	t.Helper()
	outcomes := check.Value(f.orders.Persist(t.Context(), list))(t)
	check.Need(t, len(outcomes) == len(list), "%d outcomes for %d reservations", len(outcomes), len(list))
	return outcomes
}

func (f *fixture) outbox(t testing.TB) (orders []string) {
	t.Helper()
	list := check.Value(f.releases.After(t.Context(), model.Release{}, 1000))(t)
	for _, r := range list {
		id, ok := model.VoucherOf(r.OrderID)
		check.That(t, ok && id == r.VoucherID && r.UserID != "" && r.ID != 0, "release %+v", r)
		orders = append(orders, r.OrderID)
	}
	slices.Sort(orders)
	return orders
}

func (f *fixture) wantFailed(t testing.TB, asked model.Reservation, got model.Outcome, reason string) {
	t.Helper()
	row := check.Value(f.orders.Get(t.Context(), asked.ID))(t)
	check.That(t, got.Err == nil && got.Order.ID == asked.ID && got.Order.Status == model.OrderFailed &&
		got.Order.Reason == reason, "outcome %+v, want failed, %s", got, reason)
	if row.Status != model.OrderFailed || row.Reason != reason || row.ClosedAt == nil || row.ExpiresAt != nil ||
		row.UserID != asked.UserID ||
		!row.CreatedAt.Equal(asked.CreatedAt) || !aboutNow(*row.ClosedAt) {
		t.Errorf("row %+v", row)
	}
	check.That(t, slices.Contains(f.outbox(t), asked.ID), "no release of %s", asked.ID)
}

// TestPersist: every kind of ending side by side, and the same again when the message is delivered once more.
func TestPersist(t *testing.T) {
	t.Parallel()
	overAsync(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 2)
		ended := f.voucher(t, model.VoucherFields{
			Stock: 1, BeginAt: time.Now().Add(-2 * time.Hour),
			EndAt: time.Now().Add(-time.Minute),
		})
		f.opened(t, v.ID)
		f.opened(t, ended.ID)
		list := []model.Reservation{
			reservation(t, v.ID, "alice", 1, 1),
			reservation(t, v.ID, "alice", 1, 1), // the copy had lost the first one
			reservation(t, v.ID, "bob", 1, 2),
			reservation(t, v.ID, "carol", 1, 2),     // the copy had more units
			reservation(t, ended.ID, "alice", 1, 2), // admitted in time
			reservation(t, "nosuchvoucher", "dave", 1, 2),
			reservation(t, v.ID, "no user!", 1, 2),
			reservation(t, v.ID, "erin", 0, 2), // never admitted
		}
		began := time.Now()
		for _, again := range []bool{false, true} {
			got := f.persist(t, list...)
			for _, i := range []int{0, 2, 4} {
				o := got[i].Order
				if got[i].Err != nil || got[i].Created == again || o.Status != model.OrderUnpaid || o.Price != 77 ||
					o.Currency != "CNY" ||
					!o.CreatedAt.Equal(list[i].CreatedAt) || o.ExpiresAt.Before(began.Add(paymentWindow-time.Minute)) {
					t.Errorf("%d, again %v: %+v", i, again, got[i])
				}
			}
			f.wantFailed(t, list[1], got[1], model.ReasonAlreadyOrdered)
			f.wantFailed(t, list[3], got[3], model.ReasonSoldOut)
			wantCode(t, got[5].Err, model.CodeNotFound)
			wantCode(t, got[6].Err, model.CodeValidation)
			wantCode(t, got[7].Err, model.CodeValidation)
			if rows := f.number(t, "SELECT COUNT(*) FROM orders"); rows != 5 || len(f.outbox(t)) != 2 {
				t.Errorf("%d rows, outbox %v", rows, f.outbox(t))
			}
			f.balanced(t, v.ID, 2)
			f.balanced(t, ended.ID, 1)
		}
		detail := check.Value(f.orders.Detail(t.Context(), list[3].ID))(t)
		h := detail.History
		check.That(t, len(h) == 2 && h[0].To == model.OrderProcessing && h[0].From == nil &&
			h[1].To == model.OrderFailed, "history %+v", detail.History)
	})
}

// TestPersistNeverRevives a closed order, and gives a price that was not told with the admission.
func TestPersistNeverRevives(t *testing.T) {
	t.Parallel()
	overAsync(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		f.opened(t, v.ID)
		r := reservation(t, v.ID, "alice", 1, 1)
		r.Currency = ""
		if got := f.persist(t, r)[0]; got.Order.Price != v.Price || got.Order.Currency != v.Currency {
			t.Errorf("%+v, want the voucher's price", got)
		}
		_, changed, err := f.cancel(t.Context(), "alice", r.ID)
		check.Must(t, err)
		got := f.persist(t, r)[0]
		check.That(t, got.Err == nil && !got.Created && got.Order.Status == model.OrderCanceled && changed,
			"a canceled order came back as %+v", got)
		thief := r
		thief.UserID = "mallory"
		wantCode(t, f.persist(t, thief)[0].Err, model.CodeConflict)
		f.balanced(t, v.ID, 0)
	})
}

func TestSuperseded(t *testing.T) {
	t.Parallel()
	overAsync(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 100)
		for i, step := range []struct {
			change   func()
			epoch    int64
			sequence uint64
			replaced bool
		}{
			{func() { f.opened(t, v.ID) }, 1, 5, false},
			{nil, 7, 5, false}, // the database was restored: its stock decides
			// There is no barrier yet.
			{func() { _, err := f.copies.Close(t.Context(), v.ID, 1, ""); check.Must(t, err) }, 1, 6, false},
			{nil, 2, 6, false},
			{func() { check.Must(t, f.copies.SetBarrier(t.Context(), v.ID, 2, 10)) }, 1, 10, false},
			{nil, 1, 11, true},
			{nil, 2, 11, false},
			{func() { check.Must(t, f.copies.Open(t.Context(), v.ID, 2)) }, 2, 12, false},
			{nil, 1, 10, true}, // the rebuild waited for every message that counted
			// A rebuild died, and the next one goes on.
			{func() { f.closedFrom(t, v.ID, 2, 20); f.closedFrom(t, v.ID, 3, 30) }, 2, 30, false},
			{nil, 3, 25, true}, // no copy was ever open with it
			{nil, 4, 31, false},
		} {
			if step.change != nil {
				step.change()
			}
			r := reservation(t, v.ID, user(i), step.epoch, step.sequence)
			got := f.persist(t, r)[0]
			if step.replaced {
				f.wantDropped(t, v.ID, r, got)
			} else if got.Err != nil || got.Order.Status != model.OrderUnpaid {
				t.Errorf("step %d: %+v", i, got)
			}
		}
		f.balanced(t, v.ID, 9)
	})
}

// wantDropped: an order of a replaced copy is undecided until the copy opened last is known not to hold it.
func (f *fixture) wantDropped(t testing.TB, voucherID string, r model.Reservation, got model.Outcome) {
	t.Helper()
	opened := check.Value(f.copies.Read(t.Context(), []string{voucherID}))(t)[voucherID].OpenEpoch
	for _, other := range []int64{opened - 1, opened + 1} {
		check.That(t, errors.Is(got.Err, model.ErrCopyReplaced) && model.CodeOf(got.Err) == model.CodeUnavailable &&
			!slices.Contains(f.outbox(t), r.ID), "outcome %+v, want undecided", got)
		r.Absent = &other
		got = f.persist(t, r)[0]
	}
	r.Absent = &opened
	f.wantFailed(t, r, f.persist(t, r)[0], model.ReasonSuperseded)
}

func (f *fixture) closedFrom(t testing.TB, voucherID string, from int64, barrier uint64) {
	t.Helper()
	record := check.Value(f.copies.Close(t.Context(), voucherID, from, ""))(t)
	check.Must(t, f.copies.SetBarrier(t.Context(), voucherID, record.Epoch, barrier))
}

// TestFail: a failed order holds only what identifies it; what is there wins.
func TestFail(t *testing.T) {
	t.Parallel()
	overAsync(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		f.opened(t, v.ID)
		poison := reservation(t, v.ID, "alice", 1, 1)
		poison.Currency = "no currency"
		wantCode(t, f.persist(t, poison)[0].Err, model.CodeValidation)
		for range 2 {
			row := check.Value(f.orders.Fail(t.Context(), poison, model.ReasonUnprocessable))(t)
			check.That(t, row.Price == 0 && row.Currency == v.Currency, "row %+v", row)
			f.wantFailed(t, poison, model.Outcome{Order: row}, model.ReasonUnprocessable)
		}
		odd := reservation(t, "nosuchvoucher", "bob", 1, 1)
		odd.CreatedAt = time.Time{} // not readable: now
		row := check.Value(f.orders.Fail(t.Context(), odd, model.ReasonUnprocessable))(t)
		check.That(t, aboutNow(row.CreatedAt) && len(f.outbox(t)) == 2, "row %+v, outbox %v", row, f.outbox(t))
		good := reservation(t, v.ID, "carol", 1, 1)
		f.persist(t, good)
		row = check.Value(f.orders.Fail(t.Context(), good, model.ReasonUnprocessable))(t)
		check.Equal(t, "a good order's status", row.Status, model.OrderUnpaid)
		good.UserID = "eve"
		wantCode(t, check.ErrorOf(f.orders.Fail(t.Context(), good, model.ReasonUnprocessable)), model.CodeConflict)
		for _, id := range []string{"", "no id!", strings.Repeat("x", 65)} {
			good.ID = id
			wantCode(t, check.ErrorOf(f.orders.Fail(t.Context(), good, model.ReasonUnprocessable)),
				model.CodeValidation)
		}
		// Once a failed row is there, no message makes an order of it.
		poison.Currency = "CNY"
		got := f.persist(t, poison)[0]
		check.That(t, !got.Created && got.Order.Status == model.OrderFailed, "a failed order came back as %+v", got)
		f.balanced(t, v.ID, 1)
	})
}

// What only the database refuses is an error for the whole, and unlike trouble of the server.
func TestUnstorableData(t *testing.T) {
	t.Parallel()
	f := newAsync(t, stores()[0])
	defer f.exec(t, "ALTER TABLE orders DROP CONSTRAINT odd")
	v := f.onSale(t, 5)
	f.exec(t, "ALTER TABLE orders ADD CONSTRAINT odd CHECK (user_id <> 'odd')")
	wantCode(t, check.ErrorOf(f.orders.Persist(t.Context(), []model.Reservation{
		reservation(t, v.ID, "alice", 1, 1), reservation(t, v.ID, "odd", 1, 1),
	})), model.CodeInternal)
	f.balanced(t, v.ID, 0)
	f.persist(t, reservation(t, v.ID, "alice", 1, 1))
	f.balanced(t, v.ID, 1)
}

// New orders cost no question whether they are there, and what is there already decides all the same.
func TestNewOrdersAreNotLookedFor(t *testing.T) {
	t.Parallel()
	overMySQL(t, func(t *testing.T, strategy model.StockStrategy) {
		var looks, inserts atomic.Int64
		near, far := throughWire(t, strategy, func(_ *wire, statement string) verdict {
			switch {
			case strings.Contains(statement, "FROM orders"):
				looks.Add(1)
			case strings.HasPrefix(statement, "INSERT INTO orders"):
				inserts.Add(1)
			}
			return pass
		})
		told := func(what string, wantLooks, wantInserts int64) {
			t.Helper()
			check.Equal(t, "looks, "+what, looks.Swap(0), wantLooks)
			check.Equal(t, "inserts, "+what, inserts.Swap(0), wantInserts)
		}
		v := near.onSale(t, 100)
		asked := []model.Order{order(t, v.ID, "alice"), order(t, v.ID, "bob"), order(t, v.ID, "carol")}
		for _, outcome := range far.create(t, asked...) {
			check.Must(t, outcome.Err)
		}
		told("of new orders", 0, 1)

		// One that was made, one of a user who has one, and one that is new.
		outcomes := far.create(t, asked[0], order(t, v.ID, "bob"), order(t, v.ID, "dave"))
		if o := outcomes[0]; o.Err != nil || o.Created || o.Order.ID != asked[0].ID {
			t.Errorf("the order that was there: %+v", o)
		}
		wantCode(t, outcomes[1].Err, model.CodeAlreadyOrdered)
		if o := outcomes[2]; o.Err != nil || !o.Created {
			t.Errorf("the new order: %+v", o)
		}
		told("with a duplicate", 1, 2)
		near.balanced(t, v.ID, 4)

		// Where users ask again they will again; after a while it is tried without.
		check.Must(t, far.place(t, order(t, v.ID, "erin")).Err)
		told("after a duplicate", 1, 1)
		for range 40 {
			check.Must(t, far.place(t, order(t, v.ID, newID(t))).Err)
		}
		inserts.Store(0)
		n := looks.Swap(0)
		check.That(t, n != 0 && n != 40, "%d of 40 orders after a duplicate were looked for", n)

		// Where somebody gets none, it must be known why.
		wantCode(t, far.place(t, order(t, near.onSale(t, 0).ID, "alice")).Err, model.CodeSoldOut)
		told("of a sold-out voucher", 1, 0)
	})
}

func TestUnitsAreTakenTogether(t *testing.T) {
	t.Parallel()
	overMySQL(t, func(t *testing.T, strategy model.StockStrategy) {
		const vouchers = 205 // more than two statements' worth
		var statements atomic.Int64
		near, far := throughWire(t, strategy, func(_ *wire, statement string) verdict {
			if strings.HasPrefix(statement, "UPDATE vouchers") {
				statements.Add(1)
			}
			return pass
		})
		ids := make([]string, vouchers)
		for i := range ids {
			ids[i] = near.onSale(t, int64(i%4)).ID // every fourth has nothing left
		}
		sold := make([]int64, vouchers)
		round := func(ids ...string) (taken int64) {
			var orders []model.Order
			for _, id := range ids {
				orders = append(orders, order(t, id, newID(t)))
			}
			for i, outcome := range far.create(t, orders...) {
				if outcome.Err == nil {
					sold[i]++
					continue
				}
				wantCode(t, outcome.Err, model.CodeSoldOut)
			}
			return statements.Swap(0)
		}
		round(ids...)
		for i := range ids {
			near.balanced(t, ids[i], sold[i])
			check.Equal(t, "sold", sold[i], min(1, int64(i%4)))
		}
		far.asIn(t, "") // which has not seen how long the statements of a busy machine take
		full := []string{near.onSale(t, 9).ID, near.onSale(t, 9).ID, near.onSale(t, 9).ID}
		check.Equal(t, "statements for three", round(full...), 1)
	})
}

// Where somebody waits, it is found out whose row keeps all waiting. Orders of the queue go on sharing statements.
func TestASlowStatementIsLookedInto(t *testing.T) {
	t.Parallel()
	var statements atomic.Int64
	var takes atomic.Bool
	near, far := throughWire(t, model.StockConditional, func(_ *wire, statement string) verdict {
		if strings.HasPrefix(statement, "UPDATE vouchers") {
			statements.Add(1)
			if takes.Load() {
				<-time.After(repository.SlowTaking)
			}
		}
		return pass
	})
	store := map[model.OrderMode]func(ids []string) []model.Outcome{
		model.ModeSync: func(ids []string) []model.Outcome {
			return far.create(t, order(t, ids[0], newID(t)), order(t, ids[1], newID(t)))
		},
		model.ModeAsync: func(ids []string) []model.Outcome {
			return far.persist(t, reservation(t, ids[0], newID(t), 1, 1), reservation(t, ids[1], newID(t), 1, 1))
		},
	}
	want := map[model.OrderMode]int64{model.ModeSync: 2, model.ModeAsync: 1}
	for _, mode := range []model.OrderMode{model.ModeSync, model.ModeAsync} {
		far.asIn(t, mode)
		ids := []string{near.onSale(t, 9).ID, near.onSale(t, 9).ID}
		if mode == model.ModeAsync {
			near.switchTo(t, mode)
			near.opened(t, ids[0])
			near.opened(t, ids[1])
		}
		for _, slow := range []bool{true, false} {
			takes.Store(slow)
			statements.Store(0)
			for _, outcome := range store[mode](ids) {
				check.Must(t, outcome.Err)
			}
		}
		check.Equal(t, "statements after a slow one, "+string(mode), statements.Load(), want[mode])
	}
}
