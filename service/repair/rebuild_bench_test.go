package repair_test

import (
	"database/sql"
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// closedShop is a backstage of which nothing runs but what a test asks for.
func closedShop(t testing.TB) (b *backstage, db *sql.DB) {
	t.Helper()
	b = openBackstage(t, testserver.Redis(t, "--appendonly", "no", "--maxmemory", "0").URL())
	db = check.Value(sql.Open("mysql", b.dsn))(t)
	t.Cleanup(func() { check.Must(t, db.Close()) })
	return b, db
}

// sold makes live orders of a voucher, by statements of many.
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
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), "UPDATE vouchers SET remaining = remaining - ? WHERE id = ?", orders, voucherID)))
}

// used is the memory that this process has of its machine.
func used() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}

// peak is how much more memory the process had while work ran than before.
func peak(work func()) int64 {
	debug.FreeOSMemory()
	before, most := used(), int64(0)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				most = max(most, used()-before)
			}
		}
	})
	work()
	close(done)
	watching.Wait()
	return most
}

// BenchmarkReopenedSale measures how long a sale is closed for a rebuild, beyond what its queue takes, and how much
// memory that takes: the buyers and the reservations are streams. Three in ten of the buyers are reserved. BUYERS is
// how many there are; with a million it should be 5 s and 100 MiB at most.
func BenchmarkReopenedSale(b *testing.B) {
	buyers := check.Count(b, "BUYERS", 20_000, 20_000)
	reserved := buyers * 3 / 10
	for b.Loop() {
		shop, db := closedShop(b)
		v := shop.voucher(b, int64(buyers)+10)
		sold(b, db, v.ID, buyers-reserved)
		check.Must(b, shop.Rebuilder.Do(b.Context(), v.ID, model.AnyEpoch))
		for first := 0; first < reserved; first += 500 {
			check.Must(b, check.ErrorOf(shop.hot.Reserve(b.Context(), admissions(v.ID, first, min(first+500, reserved)))))
		}
		began := time.Now()
		memory := peak(func() { check.Must(b, shop.Rebuilder.Do(b.Context(), v.ID, model.AnyEpoch)) })
		b.ReportMetric(time.Since(began).Seconds(), "closed-s")
		b.ReportMetric(float64(memory)/(1<<20), "MiB")
		hot := check.Value(shop.hot.Read(b.Context(), []string{v.ID}))(b)[v.ID]
		if hot.State != model.CopyOpen || hot.Buyers != int64(buyers) || hot.Reserved != int64(reserved) || hot.Voucher.Remaining != 10 {
			b.Errorf("the copy: %+v", hot)
		}
	}
}
