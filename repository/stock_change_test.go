package repository_test

import (
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

func (f *fixture) intend(t testing.TB, id string, stock int64) model.StockIntent {
	t.Helper()
	intent, needed, err := f.vouchers.IntendStock(t.Context(), id, model.StockChange{Stock: &stock},
		model.Idempotency{})
	check.Must(t, err)
	check.Need(t, needed && intent.Stock == stock && intent.VoucherID == id, "intent %+v, needed %v", intent, needed)
	return intent
}

func (f *fixture) changeStock(t testing.TB, id string, stock int64) (model.Voucher, error) {
	t.Helper()
	return f.vouchers.ChangeStock(t.Context(), id, model.StockChange{Stock: &stock}, model.Idempotency{})
}

func (f *fixture) intents(t testing.TB) int {
	t.Helper()
	list := check.Value(f.vouchers.Intents(t.Context(), 0))(t)
	return len(list)
}

func TestStockShrinksAsIntended(t *testing.T) {
	t.Parallel()
	overAsyncDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 10)
		wantCode(t, check.ErrorOf(f.changeStock(t, v.ID, 8)), model.CodeUnavailable) // not lowered in the hot copy
		intent := f.intend(t, v.ID, 8)
		check.That(t, intent.Revision == v.Revision && aboutNow(intent.CreatedAt), "intent %+v of %+v", intent, v)
		wantCode(t, check.ErrorOf(f.changeStock(t, v.ID, 7)), model.CodeUnavailable) // lowered, but not that far
		got := check.Value(f.changeStock(t, v.ID, 8))(t)
		check.That(t, got.Stock == 8 && got.Remaining == 8 && got.Revision == v.Revision+1 && f.intents(t) == 0,
			"%+v, %d intents", got, f.intents(t))
		check.Must(t, f.vouchers.DropIntent(t.Context(), intent)) // carried out: nothing
		if now, err := f.vouchers.Get(t.Context(), v.ID); err != nil || now.Revision != got.Revision {
			t.Errorf("%+v, %v", now, err)
		}
		// A voucher that was changed after the intent: the hot copy may have been told since.
		f.intend(t, v.ID, 5)
		title := "New"
		check.Must(t, check.ErrorOf(f.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{Title: &title})))
		wantCode(t, check.ErrorOf(f.changeStock(t, v.ID, 5)), model.CodeUnavailable)
		if now, err := f.vouchers.Get(t.Context(), v.ID); err != nil || now.Stock != 8 {
			t.Errorf("%+v, %v", now, err)
		}
	})
}

// TestNoIntentNeeded: ChangeStock alone gives the answer.
func TestNoIntentNeeded(t *testing.T) {
	t.Parallel()
	overAsyncDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 10)
		f.persist(t, reservation(t, v.ID, "alice", 1, 1), reservation(t, v.ID, "bob", 1, 1))
		minus := model.StockChange{Delta: new(int64(-4))}
		once := model.Idempotency{Scope: "s", Key: "k", Fingerprint: "f"}
		for _, again := range []bool{false, true} {
			_, needed, err := f.vouchers.IntendStock(t.Context(), v.ID, minus, once)
			check.Must(t, err)
			got, err := f.vouchers.ChangeStock(t.Context(), v.ID, minus, once)
			check.That(t, err == nil && needed != again && got.Stock == 6 && got.Revision == v.Revision+1,
				"again %v: needed %v, %+v, %v", again, needed, got, err)
		}
		for _, test := range []struct {
			change model.StockChange
			want   model.Code
		}{
			{model.StockChange{Delta: new(int64(4))}, ""},
			{model.StockChange{Stock: new(int64(10))}, ""},
			{model.StockChange{Stock: new(int64(1))}, model.CodeConflict},
			{model.StockChange{Delta: new(int64(-10))}, model.CodeConflict},
		} {
			_, needed, err := f.vouchers.IntendStock(t.Context(), v.ID, test.change, model.Idempotency{})
			check.Must(t, err)
			_, err = f.vouchers.ChangeStock(t.Context(), v.ID, test.change, model.Idempotency{})
			check.That(t, !needed && (test.want == "") == (err == nil) &&
				(err == nil || model.CodeOf(err) == test.want), "%+v: needed %v, %v", test.change, needed, err)
		}
		for id, change := range map[string]model.StockChange{
			v.ID: {Stock: new(int64(-1))}, "absent": {Stock: new(int64(1))}, "no id!": {Stock: new(int64(1))},
		} {
			_, _, err := f.vouchers.IntendStock(t.Context(), id, change, model.Idempotency{})
			_, want := f.vouchers.ChangeStock(t.Context(), id, change, model.Idempotency{})
			wantCode(t, err, model.CodeOf(want))
		}
		_, _, err := f.vouchers.IntendStock(t.Context(), v.ID, minus,
			model.Idempotency{Scope: "s", Key: "k", Fingerprint: "g"})
		wantCode(t, err, model.CodeConflict)
		check.Equal(t, "intents that stayed", f.intents(t), 0)
		f.switchTo(t, model.ModeSync)
		if _, needed, err := f.vouchers.IntendStock(t.Context(), v.ID, minus, model.Idempotency{}); needed ||
			err != nil {
			t.Errorf("in sync mode: needed %v, %v", needed, err)
		}
	})
}

// A call that did not shrink the stock as intended, or died, leaves a voucher whose revision overwrites the hot copy.
func TestDroppedIntent(t *testing.T) {
	t.Parallel()
	overAsyncDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 10)
		dead := f.intend(t, v.ID, 5)
		five := model.StockChange{Stock: new(int64(5))}
		_, _, err := f.vouchers.IntendStock(t.Context(), v.ID, five, model.Idempotency{})
		wantCode(t, err, model.CodeUnavailable) // another call is at it
		if list, err := f.vouchers.Intents(t.Context(), time.Minute); err != nil || len(list) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
		f.exec(t, "UPDATE stock_intents SET created_at = ?", map[string]any{
			"mysql": dead.CreatedAt.Add(-11 * time.Second), "sqlite": dead.CreatedAt.Add(-11 * time.Second).UnixMicro(),
		}[f.store.dialect])
		list := check.Value(f.vouchers.Intents(t.Context(), 10*time.Second))(t)
		check.Need(t, len(list) == 1 && list[0].Stock == 5 && list[0].VoucherID == v.ID &&
			list[0].Revision == v.Revision, "%+v", list)
		fresh := f.intend(t, v.ID, 4) // takes its place
		check.Must(t, f.vouchers.DropIntent(t.Context(), list[0]))
		check.Equal(t, "intents, as the old one does not take the new one with it", f.intents(t), 1)
		for range 2 {
			check.Must(t, f.vouchers.DropIntent(t.Context(), fresh))
			now, err := f.vouchers.Get(t.Context(), v.ID)
			check.That(t, err == nil && now.Revision == v.Revision+1 && now.Version == v.Version+1 &&
				now.Stock == 10 && f.intents(t) == 0, "%+v, %v, %d intents", now, err, f.intents(t))
		}
	})
}

// TestIntentWithoutAnAnswer: COMMIT or its answer is lost; the call finds its own intent, and not that of another call.
func TestIntentWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]verdict{"not applied": cutBefore, "applied": cutAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near := newAsync(t, stores()[0])
			v := near.onSale(t, 10)
			far := near.through(t, onceOn("COMMIT", func(*wire) verdict { return lost }))
			far.intend(t, v.ID, 5)
			got, err := near.changeStock(t, v.ID, 5)
			check.That(t, err == nil && got.Stock == 5 && near.intents(t) == 0, "%+v, %v", got, err)
		})
	}
}

func TestIntentsAtOnce(t *testing.T) {
	t.Parallel()
	overAsyncDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 100)
		var shrunk atomic.Int64
		check.Volley(8, func(int) {
			for range 5 {
				change := model.StockChange{Delta: new(int64(-1))}
				intent, needed, err := f.vouchers.IntendStock(t.Context(), v.ID, change, model.Idempotency{})
				if err != nil {
					wantCode(t, err, model.CodeUnavailable)
					continue
				}
				got, err := f.vouchers.ChangeStock(t.Context(), v.ID, change, model.Idempotency{})
				check.That(t, err == nil && needed && got.Stock == intent.Stock,
					"intended %+v, got %+v, %v", intent, got, err)
				shrunk.Add(1)
			}
		})
		now := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
		check.That(t, now.Stock == 100-shrunk.Load() && shrunk.Load() != 0 && f.intents(t) == 0,
			"%d left after %d changes", now.Stock, shrunk.Load())
	})
}

// TestRepairStock while orders are made and canceled: no unit is lost or made up.
func TestRepairStock(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 200)
		var sold []model.Order
		for i := range 20 {
			outcome := f.place(t, order(t, v.ID, user(i)))
			check.Must(t, outcome.Err)
			sold = append(sold, outcome.Order)
		}
		f.exec(t, "UPDATE vouchers SET remaining = remaining - 5 WHERE id = ?", v.ID) // five units leak
		check.Volley(61, func(i int) {
			switch {
			case i == 60:
				found := check.Value(f.vouchers.RepairStock(t.Context(), v.ID))(t)
				check.That(t, found != nil && found.Stock-found.Remaining-found.LiveOrders == 5,
					"found %+v, want a difference of 5", found)
			case i < 20:
				f.cancels(t, sold[i].UserID, sold[i].ID)
			default:
				check.Must(t, f.place(t, order(t, v.ID, user(i))).Err)
			}
		})
		f.balanced(t, v.ID, 40)
		if found, err := f.vouchers.RepairStock(t.Context(), v.ID); err != nil || found != nil {
			t.Errorf("of what adds up: %+v, %v", found, err)
		}
		wantCode(t, check.ErrorOf(f.vouchers.RepairStock(t.Context(), "nope")), model.CodeNotFound)
		f.exec(t, "UPDATE vouchers SET stock = 30, remaining = 2 WHERE id = ?", v.ID) // more is sold than there is
		found := check.Value(f.vouchers.RepairStock(t.Context(), v.ID))(t)
		check.That(t, found != nil && *found == model.AuditDatabase{Stock: 30, Remaining: 2, LiveOrders: 40},
			"found %+v", found)
		check.Equal(t, "what remains", check.Value(f.vouchers.Get(t.Context(), v.ID))(t).Remaining, 0)
	})
}

// TestPessimisticNeedsRowLocks: SQLite has none.
func TestPessimisticNeedsRowLocks(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		_, err := repository.NewOrders(f.db, repository.OrderOptions{
			Strategy:      model.StockPessimistic,
			PaymentWindow: time.Minute,
		})
		check.That(t, (err != nil) == (f.store.dialect == "sqlite"), "error %v", err)
		for _, options := range []repository.OrderOptions{{Strategy: "hopeful", PaymentWindow: time.Minute}, {}} {
			if _, err := repository.NewOrders(f.db, options); err == nil {
				t.Errorf("%+v was accepted", options)
			}
		}
	})
}
