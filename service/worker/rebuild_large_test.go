package worker_test

import (
	"database/sql"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
)

const (
	// reopenWithin is how long a sale of a million buyers may be closed for a rebuild,
	// beyond what its queue takes.
	reopenWithin = 5 * time.Second
	// reopenMemory is what a rebuild may take of the process.
	reopenMemory = 100 << 20
)

// closedShop is a backstage of which nothing runs but what a test asks for.
func closedShop(t testing.TB) (b *backstage, db *sql.DB) {
	t.Helper()
	b = openBackstage(t, testserver.Redis(t, "--appendonly", "no", "--maxmemory", "0").URL())
	db = check.Value(sql.Open("mysql", b.dsn))(t)
	t.Cleanup(func() { must(t, db.Close()) })
	return b, db
}

// sold makes live orders of a voucher, by statements of many.
func sold(t testing.TB, db *sql.DB, voucherID string, orders int) {
	t.Helper()
	const at = 50_000
	for first := 0; first < orders; first += at {
		last := min(first+at, orders) - 1
		must(t, check.ErrorOf(db.ExecContext(t.Context(), fmt.Sprintf(`
			INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at)
			SELECT CONCAT('live', LPAD(seq, 8, '0'), '.', v.id), v.id, CONCAT('live', seq), 'unpaid', v.price, v.currency, v.created_at
			FROM vouchers v JOIN %s WHERE v.id = ?`, testserver.Numbers(first, last)), voucherID)))
	}
	must(t, check.ErrorOf(db.ExecContext(t.Context(), "UPDATE vouchers SET remaining = remaining - ? WHERE id = ?", orders, voucherID)))
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

// A sale is reopened from a stream: neither its buyers nor its reservations are in
// the memory of the process. BUYERS=1000000 makes it a large one, whose time and
// memory are bounded; three in ten of the buyers are reserved.
func TestASaleIsReopenedFromAStream(t *testing.T) {
	t.Parallel()
	buyers := 20_000
	if text := os.Getenv("BUYERS"); text != "" {
		buyers = check.Value(strconv.Atoi(text))(t)
	}
	b, db := closedShop(t)
	v := b.voucher(t, int64(buyers)+10)
	reserved := buyers * 3 / 10
	sold(t, db, v.ID, buyers-reserved)
	must(t, b.Rebuilder.Rebuild(t.Context(), v.ID))
	for first := 0; first < reserved; first += 500 {
		admitted := check.Value(b.hot.Reserve(t.Context(), admissions(v.ID, first, min(first+500, reserved))))(t)
		for _, a := range admitted {
			must(t, a.Err)
		}
	}
	var took time.Duration
	memory := peak(func() {
		began := time.Now()
		must(t, b.Rebuilder.Rebuild(t.Context(), v.ID))
		took = time.Since(began)
	})
	t.Logf("%d buyers, %d of them reserved: closed for %v, %.1f MiB", buyers, reserved, took, float64(memory)/(1<<20))
	if os.Getenv("BUYERS") != "" && (took > reopenWithin || memory > reopenMemory) {
		t.Errorf("want less than %v and %d MiB", reopenWithin, reopenMemory>>20)
	}
	copies := check.Value(b.hot.Read(t.Context(), []string{v.ID}))(t)
	if hot := copies[v.ID]; hot.State != model.CopyOpen || hot.Epoch != 3 || hot.Buyers != int64(buyers) ||
		hot.Reserved != int64(reserved) || hot.Voucher.Remaining != 10 {
		t.Errorf("the copy: %+v", hot)
	}
	due, err := b.hot.Due(t.Context(), v.ID, time.Hour, 1000)
	if must(t, err); len(due) != 1000 || due[0].Epoch != 3 {
		t.Errorf("%d are due at once", len(due))
	}
}
