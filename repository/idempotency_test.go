package repository_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

// TestIdempotencyKey: the first answer again, whatever happened since; another question under the key is a CONFLICT.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		asked := model.VoucherFields{Title: "T", Stock: 5, BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour)}
		key := model.Idempotency{Scope: "admin create", Key: "k 1 ", Fingerprint: "f"}
		first := check.Value(f.vouchers.Create(t.Context(), newID(t), asked, "", key))(t)
		second := check.Value(f.vouchers.Create(t.Context(), newID(t), asked, "", key))(t)
		same(t, first, second)
		for _, other := range []model.Idempotency{
			{Scope: key.Scope, Key: "k 1", Fingerprint: "f"}, // a blank makes a difference
			{Scope: key.Scope, Key: "K 1 ", Fingerprint: "f"},
			{Scope: "somebody else", Key: key.Key, Fingerprint: "f"},
			{},
		} {
			v := check.Value(f.vouchers.Create(t.Context(), newID(t), asked, "", other))(t)
			if v.ID == first.ID {
				t.Errorf("%+v met %+v", other, key)
			}
		}
		another := model.Idempotency{Scope: key.Scope, Key: key.Key, Fingerprint: "g"}
		wantCode(t, check.ErrorOf(f.vouchers.Create(t.Context(), newID(t), asked, "", another)), model.CodeConflict)
		check.Equal(t, "vouchers", f.number(t, "SELECT COUNT(*) FROM vouchers"), 5)

		// Stock: applied once, also by its answer.
		add := model.Idempotency{Scope: "stock", Key: "add", Fingerprint: "+2"}
		two := int64(2)
		changed := check.Value(f.vouchers.ChangeStock(t.Context(), first.ID, model.StockChange{Delta: &two}, add))(t)
		check.Must(t, f.place(t, order(t, first.ID, "alice")).Err)
		again := check.Value(f.vouchers.ChangeStock(t.Context(), first.ID, model.StockChange{Delta: &two}, add))(t)
		same(t, changed, again)
		// A CONFLICT is an answer, too: it stays even when the change would be possible by now.
		none := model.Idempotency{Scope: "stock", Key: "none", Fingerprint: "0"}
		for range 2 {
			wantCode(t, check.ErrorOf(f.vouchers.ChangeStock(t.Context(), first.ID, model.StockChange{Stock: new(int64(0))}, none)), model.CodeConflict)
			f.exec(t, "UPDATE orders SET status = 'canceled'")
			f.exec(t, "UPDATE vouchers SET remaining = stock WHERE id = ?", first.ID)
		}
		// What was refused for its form was not answered: it may be asked better.
		bad := model.Idempotency{Scope: "stock", Key: "bad", Fingerprint: "x"}
		wantCode(t, check.ErrorOf(f.vouchers.ChangeStock(t.Context(), first.ID, model.StockChange{Stock: new(int64(-1))}, bad)), model.CodeValidation)
		check.Must(t, check.ErrorOf(f.vouchers.ChangeStock(t.Context(), first.ID, model.StockChange{Stock: &two}, bad)))
	})
}

func same(t *testing.T, a, b model.Voucher) {
	t.Helper()
	one := check.Value(json.Marshal(a))(t)
	two := check.Value(json.Marshal(b))(t)
	if string(one) != string(two) || a.Version != b.Version || !a.CreatedAt.Equal(b.CreatedAt) {
		t.Errorf("answers differ:\n%s\n%s", one, two)
	}
}

// TestIdempotencyRace: many calls with one key at once happen once, and all hear the same.
func TestIdempotencyRace(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		other := openFixture(t, f.store, f.options)
		asked := model.VoucherFields{Title: "T", Stock: 5, BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour)}
		var id atomic.Value
		id.Store("")
		check.Volley(12, func(i int) {
			v, err := []*fixture{f, other}[i%2].vouchers.Create(t.Context(), newID(t), asked, "", model.Idempotency{Scope: "s", Key: "k", Fingerprint: "f"})
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
		check.Volley(12, func(i int) {
			one := int64(1)
			v, err := []*fixture{f, other}[i%2].vouchers.ChangeStock(t.Context(), made, model.StockChange{Delta: &one}, model.Idempotency{Scope: "s", Key: "k2", Fingerprint: "f"})
			if err != nil || v.Stock != 6 {
				t.Errorf("change: %+v, %v", v, err)
			}
		})
		// One key, different questions: one of them is answered.
		var won atomic.Int32
		check.Volley(6, func(i int) {
			_, err := f.vouchers.ChangeStock(t.Context(), made, model.StockChange{Stock: new(int64(10 + i))}, model.Idempotency{Scope: "s", Key: "k3", Fingerprint: user(i)})
			if err == nil {
				won.Add(1)
			} else if model.CodeOf(err) != model.CodeConflict {
				t.Errorf("change: %v", err)
			}
		})
		check.Equal(t, "changes under one key", won.Load(), 1)
	})
}

// TestPurgeIdempotency: what is old goes, in however many batches, and what is young still protects.
func TestPurgeIdempotency(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		const age = 7 * 24 * time.Hour
		now := time.Now().UTC()
		asked := model.VoucherFields{Title: "T", Stock: 5, BeginAt: now.Add(-time.Hour), EndAt: now.Add(time.Hour)}
		create := func(key string) model.Voucher {
			v := check.Value(f.vouchers.Create(t.Context(), newID(t), asked, "", model.Idempotency{Scope: "s", Key: key, Fingerprint: "f"}))(t)
			return v
		}
		purge := func(want int64) {
			t.Helper()
			if n, err := repository.NewPurges(f.db).PurgeIdempotency(t.Context(), age); n != want || err != nil {
				t.Errorf("%d purged, want %d: %v", n, want, err)
			}
		}
		old, young, fresh := create("old"), create("young"), create("fresh")
		backdate := func(key string, by time.Duration) {
			f.exec(t, "UPDATE idempotency_keys SET created_at = ? WHERE idempotency_key = ?", now.Add(-by), []byte(key))
		}
		backdate("old", age+time.Minute)
		backdate("young", age-time.Minute)
		purge(1)
		purge(0)
		if create("young").ID != young.ID || create("fresh").ID != fresh.ID {
			t.Error("a key that is not old was forgotten")
		}
		if create("old").ID == old.ID {
			t.Error("an old key is still there")
		}

		// A CONFLICT is kept for as long.
		f.place(t, order(t, fresh.ID, "alice"))
		none, once := model.StockChange{Stock: new(int64(0))}, model.Idempotency{Scope: "s", Key: "none", Fingerprint: "f"}
		wantCode(t, check.ErrorOf(f.vouchers.ChangeStock(t.Context(), fresh.ID, none, once)), model.CodeConflict)
		purge(0)

		const many = 2500
		var rows []string
		var times []any
		for i := range many {
			rows = append(rows, fmt.Sprintf("('many', 'k%d', 'f', '{}', ?)", i))
			times = append(times, now.Add(-age-time.Hour))
		}
		f.exec(t, "INSERT INTO idempotency_keys (scope, idempotency_key, fingerprint, answer, created_at) VALUES "+strings.Join(rows, ", "), times...)
		purge(many)
		check.Equal(t, "keys that are left", f.number(t, "SELECT COUNT(*) FROM idempotency_keys"), 4)

		indexes := "SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()" +
			" AND table_name = 'idempotency_keys' AND column_name = 'created_at' AND seq_in_index = 1"
		if f.store.dialect == "sqlite" {
			indexes = "SELECT COUNT(*) FROM pragma_index_list('idempotency_keys') AS list, pragma_index_info(list.name) AS part" +
				" WHERE part.name = 'created_at' AND part.seqno = 0"
		}
		check.Equal(t, "indexes of created_at, without which a purge reads the whole table", f.number(t, indexes), 1)
	})
}
