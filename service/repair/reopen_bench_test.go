package repair_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func sold(t testing.TB, db *sql.DB, voucherID string, orders int) {
	t.Helper()
	const at = 50_000
	for first := 0; first < orders; first += at {
		last := min(first+at, orders) - 1
		check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), fmt.Sprintf(`
			INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at)
			SELECT CONCAT('live', LPAD(seq, 8, '0'), '.', v.id), v.id, CONCAT('live', seq), 'unpaid', v.price, v.currency, v.created_at
			FROM vouchers v JOIN %s WHERE v.id = ?`, testserver.Numbers(first, last)), voucherID)))
	}
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(),
		"UPDATE vouchers SET remaining = remaining - ? WHERE id = ?", orders, voucherID)))
}

// How long a rebuild closes a sale, beyond its queue; three in ten of BUYERS are reserved. A million: 5 s at most.
func BenchmarkReopenedSale(b *testing.B) {
	buyers := check.Count(b, "BUYERS", 20_000, 20_000)
	reserved := buyers * 3 / 10
	for b.Loop() {
		shop := openBackstage(b, testserver.Redis(b, "--appendonly", "no", "--maxmemory", "0").URL())
		v := shop.voucher(b, int64(buyers)+10)
		sold(b, shop.db.SQL(), v.ID, buyers-reserved)
		check.Must(b, shop.Rebuilder.Do(b.Context(), v.ID, model.AnyEpoch))
		for first := 0; first < reserved; first += 500 {
			check.Must(b, check.ErrorOf(shop.hot.Reserve(b.Context(),
				admissions(v.ID, first, min(first+500, reserved)))))
		}
		began := time.Now()
		check.Must(b, shop.Rebuilder.Do(b.Context(), v.ID, model.AnyEpoch))
		b.ReportMetric(time.Since(began).Seconds(), "closed-s")
		hot := check.Value(shop.hot.Read(b.Context(), []string{v.ID}))(b)[v.ID]
		check.That(b, hot.State == model.CopyOpen && hot.Buyers == int64(buyers) && hot.Reserved == int64(reserved) &&
			hot.Voucher.Remaining == 10, "%+v", hot)
	}
}
