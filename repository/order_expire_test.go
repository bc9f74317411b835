package repository_test

import (
	"context"
	"database/sql"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/model"
)

// TestOverdueIsReadByItsIndex: a look that finds nothing reads nothing, however many
// orders there are, and a page is not sorted.
func TestOverdueIsReadByItsIndex(t *testing.T) {
	t.Parallel()
	f := newFixture(t, stores()[0])
	v := filled(t, f, 3000)
	must(t, f.db.Migrate(t.Context()))
	f.exec(t, "UPDATE orders SET expires_at = created_at WHERE user_id < 'u2'")
	f.exec(t, "ANALYZE TABLE orders")
	statement := testserver.Value(os.ReadFile("sql/order_overdue.sql"))(t)
	rows := testserver.Value(f.db.SQL().QueryContext(t.Context(), "EXPLAIN "+withoutComments(string(statement)),
		time.Unix(0, 0), time.Unix(0, 0), "", false, 100))(t)
	defer rows.Close()
	found := 0
	for rows.Next() {
		var id, selects, table, kind, keys, key, length, ref, count, extra sql.NullString
		must(t, rows.Scan(&id, &selects, &table, &kind, &keys, &key, &length, &ref, &count, &extra))
		if table.String != "orders" {
			continue
		}
		found++
		if key.String != "orders_due" || strings.Contains(extra.String, "filesort") {
			t.Errorf("orders of voucher %s are read by %s (%s)", v.ID, key.String, extra.String)
		}
	}
	must(t, rows.Err())
	testserver.Equal(t, "plans of orders", found, 1)
}

func withoutComments(statement string) string {
	var lines []string
	for line := range strings.Lines(statement) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// overdue is a voucher with so many orders whose time has passed.
func overdue(b *testing.B, f *fixture, orders int) model.Voucher {
	b.Helper()
	v := filled(b, f, orders*3/2) // two in three are unpaid
	must(b, f.db.Migrate(b.Context()))
	for f.number(b, "SELECT COUNT(*) FROM (SELECT 1 FROM orders WHERE status = 'unpaid' AND expires_at > NOW(6) LIMIT 1) left_over") > 0 {
		f.exec(b, "UPDATE orders SET expires_at = created_at WHERE status = 'unpaid' AND expires_at > NOW(6) LIMIT 20000")
	}
	return v
}

// expireAll expires what is overdue, one batch after the other, and tells how many that were.
func expireAll(ctx context.Context, tb testing.TB, f *fixture, size int) (expired int) {
	tb.Helper()
	for last := (model.OverdueOrder{}); ctx.Err() == nil; {
		page, err := f.orders.Overdue(ctx, false, last, 2000)
		if len(page) == 0 || err != nil {
			return expired
		}
		last = page[len(page)-1]
		for batch := range slices.Chunk(page, size) {
			ids := make([]string, len(batch))
			for i, order := range batch {
				ids[i] = order.ID
			}
			orders, err := f.orders.Expire(ctx, ids)
			if expired += len(orders); err != nil {
				return expired
			}
		}
	}
	return expired
}

// BenchmarkExpire expires a hundred thousand orders of one voucher, one batch after the other.
func BenchmarkExpire(b *testing.B) {
	for _, size := range []int{100, 200, 500} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				f := newAsync(b, stores()[0])
				overdue(b, f, 100_000)
				b.StartTimer()
				expired := expireAll(b.Context(), b, f, size)
				b.ReportMetric(float64(expired)/b.Elapsed().Seconds(), "orders/s")
			}
		})
	}
}

// BenchmarkSaleWhileExpiring sells one voucher for some seconds, alone and while its overdue
// orders expire; "share" is what is left of the sale.
func BenchmarkSaleWhileExpiring(b *testing.B) {
	const sellers, size = 4, 100
	for b.Loop() {
		f := newAsync(b, stores()[0])
		v := overdue(b, f, 100_000)
		f.exec(b, "UPDATE vouchers SET stock = stock + 10000000, remaining = remaining + 10000000")
		sell := func(seconds int) (sold int64) {
			ctx, stop := context.WithTimeout(b.Context(), time.Duration(seconds)*time.Second)
			defer stop()
			var total atomic.Int64
			testserver.Volley(sellers, func(int) {
				for ctx.Err() == nil {
					batch := make([]model.Order, size)
					for i := range batch {
						id := newID(b)
						batch[i] = model.Order{ID: model.OrderID(id, v.ID), VoucherID: v.ID, UserID: id}
					}
					if _, err := f.orders.CreateOrders(b.Context(), batch); err != nil {
						b.Error(err)
						return
					}
					total.Add(size)
				}
			})
			return total.Load()
		}
		alone := sell(4)
		ctx, stop := context.WithCancel(b.Context())
		expired := make(chan int, 1)
		began := time.Now()
		go func() { expired <- expireAll(ctx, b, f, 500) }()
		beside := sell(4)
		stop()
		b.ReportMetric(float64(<-expired)/time.Since(began).Seconds(), "expired/s")
		b.ReportMetric(float64(alone)/4, "alone/s")
		b.ReportMetric(float64(beside)/4, "beside/s")
		b.ReportMetric(float64(beside)/float64(alone), "share")
	}
}
