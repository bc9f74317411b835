package repository_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"seckill/model"
)

// TestPurgeIdempotency: what is old goes, in however many batches, and what is
// young still protects.
func TestPurgeIdempotency(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		const age = 7 * 24 * time.Hour
		now := time.Now().UTC()
		asked := model.NewVoucher{Title: "T", Stock: 5, BeginAt: now.Add(-time.Hour), EndAt: now.Add(time.Hour)}
		create := func(key string) model.Voucher {
			v, err := f.vouchers.Create(t.Context(), newID(t), asked, model.Idempotency{Scope: "s", Key: key, Fingerprint: "f"})
			must(t, err)
			return v
		}
		purge := func(want int64) {
			t.Helper()
			if n, err := f.db.PurgeIdempotency(t.Context(), age); n != want || err != nil {
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
		zero := int64(0)
		f.place(t, order(t, fresh.ID, "alice"))
		_, err := f.vouchers.ChangeStock(t.Context(), fresh.ID, model.StockChange{Stock: &zero}, model.Idempotency{Scope: "s", Key: "none", Fingerprint: "f"})
		wantCode(t, err, model.CodeConflict)
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
		if n := f.number(t, "SELECT COUNT(*) FROM idempotency_keys"); n != 4 {
			t.Errorf("%d keys are left, want 4", n)
		}

		indexes := "SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()" +
			" AND table_name = 'idempotency_keys' AND column_name = 'created_at' AND seq_in_index = 1"
		if f.store.dialect == "sqlite" {
			indexes = "SELECT COUNT(*) FROM pragma_index_list('idempotency_keys') AS list, pragma_index_info(list.name) AS part" +
				" WHERE part.name = 'created_at' AND part.seqno = 0"
		}
		if f.number(t, indexes) != 1 {
			t.Error("a purge reads the whole table: created_at has no index")
		}
	})
}
