package repository_test

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"seckill/model"
)

// TestIdempotencyKey: the first answer again, whatever happened since; another
// question under the key is a CONFLICT.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		asked := model.NewVoucher{Title: "T", Stock: 5, BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour)}
		key := model.Idempotency{Scope: "admin create", Key: "k 1 ", Fingerprint: "f"}
		first, err := f.vouchers.Create(t.Context(), newID(t), asked, key)
		must(t, err)
		second, err := f.vouchers.Create(t.Context(), newID(t), asked, key)
		must(t, err)
		same(t, first, second)
		for _, other := range []model.Idempotency{
			{Scope: key.Scope, Key: "k 1", Fingerprint: "f"}, // a blank makes a difference
			{Scope: key.Scope, Key: "K 1 ", Fingerprint: "f"},
			{Scope: "somebody else", Key: key.Key, Fingerprint: "f"},
			{},
		} {
			v, err := f.vouchers.Create(t.Context(), newID(t), asked, other)
			must(t, err)
			if v.ID == first.ID {
				t.Errorf("%+v met %+v", other, key)
			}
		}
		_, err = f.vouchers.Create(t.Context(), newID(t), asked, model.Idempotency{Scope: key.Scope, Key: key.Key, Fingerprint: "g"})
		wantCode(t, err, model.CodeConflict)
		if n := f.number(t, "SELECT COUNT(*) FROM vouchers"); n != 5 {
			t.Errorf("%d vouchers, want 5", n)
		}

		// Stock: applied once, also by its answer.
		add := model.Idempotency{Scope: "stock", Key: "add", Fingerprint: "+2"}
		two := int64(2)
		changed, err := f.vouchers.ChangeStock(t.Context(), first.ID, model.StockChange{Delta: &two}, add)
		must(t, err)
		must(t, f.place(t, order(t, first.ID, "alice")).Err)
		again, err := f.vouchers.ChangeStock(t.Context(), first.ID, model.StockChange{Delta: &two}, add)
		must(t, err)
		same(t, changed, again)
		// A CONFLICT is an answer, too: it stays even when the change would be possible by now.
		none := model.Idempotency{Scope: "stock", Key: "none", Fingerprint: "0"}
		zero := int64(0)
		for range 2 {
			_, err = f.vouchers.ChangeStock(t.Context(), first.ID, model.StockChange{Stock: &zero}, none)
			wantCode(t, err, model.CodeConflict)
			f.exec(t, "UPDATE orders SET status = 'canceled'")
			f.exec(t, "UPDATE vouchers SET remaining = stock WHERE id = ?", first.ID)
		}
		// What was refused for its form was not answered: it may be asked better.
		bad := model.Idempotency{Scope: "stock", Key: "bad", Fingerprint: "x"}
		minus := int64(-1)
		_, err = f.vouchers.ChangeStock(t.Context(), first.ID, model.StockChange{Stock: &minus}, bad)
		wantCode(t, err, model.CodeValidation)
		_, err = f.vouchers.ChangeStock(t.Context(), first.ID, model.StockChange{Stock: &two}, bad)
		must(t, err)
	})
}

func same(t *testing.T, a, b model.Voucher) {
	t.Helper()
	one, err := json.Marshal(a)
	must(t, err)
	two, err := json.Marshal(b)
	must(t, err)
	if string(one) != string(two) || a.Version != b.Version || !a.CreatedAt.Equal(b.CreatedAt) {
		t.Errorf("answers differ:\n%s\n%s", one, two)
	}
}

// TestIdempotencyRace: many calls with one key at once happen once, and all hear
// the same.
func TestIdempotencyRace(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		other := openFixture(t, f.store, f.options)
		asked := model.NewVoucher{Title: "T", Stock: 5, BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour)}
		var id atomic.Value
		id.Store("")
		volley(12, func(i int) {
			v, err := []*fixture{f, other}[i%2].vouchers.Create(t.Context(), newID(t), asked, model.Idempotency{Scope: "s", Key: "k", Fingerprint: "f"})
			if err != nil {
				t.Errorf("create: %v", err)
			} else if !id.CompareAndSwap("", v.ID) && id.Load() != v.ID {
				t.Errorf("created %s and %s", id.Load(), v.ID)
			}
		})
		if n := f.number(t, "SELECT COUNT(*) FROM vouchers"); n != 1 {
			t.Fatalf("%d vouchers", n)
		}
		made, _ := id.Load().(string)
		volley(12, func(i int) {
			one := int64(1)
			v, err := []*fixture{f, other}[i%2].vouchers.ChangeStock(t.Context(), made, model.StockChange{Delta: &one}, model.Idempotency{Scope: "s", Key: "k2", Fingerprint: "f"})
			if err != nil || v.Stock != 6 {
				t.Errorf("change: %+v, %v", v, err)
			}
		})
		// One key, different questions: one of them is answered.
		var won atomic.Int32
		volley(6, func(i int) {
			n := int64(10 + i)
			_, err := f.vouchers.ChangeStock(t.Context(), made, model.StockChange{Stock: &n}, model.Idempotency{Scope: "s", Key: "k3", Fingerprint: user(i)})
			if err == nil {
				won.Add(1)
			} else if model.CodeOf(err) != model.CodeConflict {
				t.Errorf("change: %v", err)
			}
		})
		if won.Load() != 1 {
			t.Errorf("%d changes under one key", won.Load())
		}
	})
}
