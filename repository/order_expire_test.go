package repository_test

import (
	"database/sql"
	"os"
	"slices"
	"strconv"
	"strings"
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

// BenchmarkExpire expires a hundred thousand orders of one voucher, one batch after the other.
func BenchmarkExpire(b *testing.B) {
	const orders = 100_000
	for _, size := range []int{100, 200, 500} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				f := newAsync(b, stores()[0])
				filled(b, f, orders)
				must(b, f.db.Migrate(b.Context()))
				f.exec(b, "UPDATE orders SET expires_at = created_at")
				b.StartTimer()
				expired := 0
				for last := (model.OverdueOrder{}); ; {
					page := testserver.Value(f.orders.Overdue(b.Context(), false, last, 2000))(b)
					if len(page) == 0 {
						break
					}
					last = page[len(page)-1]
					for batch := range slices.Chunk(page, size) {
						ids := make([]string, len(batch))
						for i, order := range batch {
							ids[i] = order.ID
						}
						expired += len(testserver.Value(f.orders.Expire(b.Context(), ids))(b))
					}
				}
				b.ReportMetric(float64(expired), "orders")
				b.ReportMetric(b.Elapsed().Seconds(), "s")
			}
		})
	}
}
