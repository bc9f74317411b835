package repository_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// before16 is the schema of orders as it was before they had a later life.
func before16(t testing.TB, f *fixture) {
	t.Helper()
	for _, statement := range []string{
		"DELETE FROM schema_migrations WHERE version_id > 15",
		"DROP TABLE order_codes", "DROP TABLE order_history", "DROP TABLE payments", "DROP TABLE refunds",
		"DROP TABLE webhook_messages", "DROP TABLE admin_log",
		"ALTER TABLE orders DROP KEY orders_due, DROP COLUMN sealed_code, DROP COLUMN redeemed_at, MODIFY COLUMN slot TINYINT " +
			"GENERATED ALWAYS AS (CASE WHEN status = 'unpaid' OR status = 'paid' THEN 1 ELSE NULL END) STORED",
		"ALTER TABLE vouchers DROP COLUMN payment_window",
	} {
		f.exec(t, statement)
	}
}

// filled is a database of before with orders of one voucher: two in three unpaid, the
// others canceled.
func filled(t testing.TB, f *fixture, orders int) model.Voucher {
	t.Helper()
	v := f.onSale(t, int64(orders))
	before16(t, f)
	const atOnce = 5_000 // a statement has seconds
	for from := 0; from < orders; from += atOnce {
		f.exec(t, "INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, expires_at, unpaid_at, closed_at) "+
			"SELECT CONCAT('o', seq, '.', ?), ?, CONCAT('u', seq), IF(seq % 3 = 0, 'canceled', 'unpaid'), 1000, 'CNY', "+
			"NOW(6) - INTERVAL 1 SECOND, NOW(6) + INTERVAL 15 MINUTE, NOW(6) - INTERVAL 1 SECOND, IF(seq % 3 = 0, NOW(6), NULL) "+
			"FROM "+testserver.Numbers(from+1, min(from+atOnce, orders)), v.ID, v.ID)
	}
	f.exec(t, "UPDATE vouchers SET remaining = stock - ?", orders-orders/3)
	return v
}

// migrateAndRead migrates while another instance reads orders as it always did, and
// returns how many readings it made and the longest of them.
func migrateAndRead(t testing.TB, f *fixture, v model.Voucher) (readings int32, longest time.Duration) {
	t.Helper()
	reading, stop := context.WithCancel(t.Context())
	var read atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for reading.Err() == nil {
			began := time.Now()
			var id string
			// What an instance of before asks for: the columns that it knows.
			err := f.db.SQL().QueryRowContext(reading, "SELECT id FROM orders WHERE voucher_id = ? AND user_id = 'u1' AND slot = 1", v.ID).Scan(&id)
			if reading.Err() != nil {
				return
			}
			if longest = max(longest, time.Since(began)); err != nil {
				t.Errorf("a reading during the migration: %v", err)
				return
			}
			read.Add(1)
		}
	}()
	check.Eventually(t, "the other instance reads", func() bool { return read.Load() > 0 })
	check.Must(t, f.db.Migrate(t.Context()))
	stop()
	<-done
	return read.Load(), longest
}

// TestMigrationOfOrders: a database that has orders gets the columns of their later life;
// nothing is lost, the orders go on, and an instance of before still makes some.
func TestMigrationOfOrders(t *testing.T) {
	t.Parallel()
	const orders = 600
	l := lifeOf(freshFixture(t, stores()[0]))
	v := filled(t, l.fixture, orders)
	sum := "SELECT SUM(CRC32(CONCAT_WS('|', id, voucher_id, user_id, status, reason, price, currency, created_at, expires_at, unpaid_at, closed_at, slot))) FROM orders"
	before := l.number(t, sum)
	if readings, _ := migrateAndRead(t, l.fixture, v); readings == 0 {
		t.Error("nothing was read during the migration")
	}
	check.Equal(t, "sum of all that the orders had", l.number(t, sum), before)
	l.balanced(t, v.ID, orders*2/3)
	l.exec(t, "UPDATE vouchers SET stock = stock + 1, remaining = remaining + 1")
	l.exec(t, "INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, expires_at, unpaid_at) "+
		"SELECT CONCAT('new.', id), id, 'eve', 'unpaid', 1000, 'CNY', NOW(6), NOW(6), NOW(6) FROM vouchers")
	l.exec(t, "UPDATE vouchers SET remaining = remaining - 1")
	check.Equal(t, "orders expired", len(check.Value(l.orders.Expire(t.Context(), []string{"new." + v.ID, "o1." + v.ID}))(t)), 1)
	if steps := l.steps(t, "o3."+v.ID); len(steps) != 2 || steps[1] != "canceled by u3" {
		t.Errorf("history of an order that was canceled before: %v", steps)
	}
	l.exec(t, "UPDATE orders SET status = 'redeemed' WHERE id = ?", "o1."+v.ID)
	l.balanced(t, v.ID, orders*2/3)
}

// A version goes on with a schema to which a later one has added: it asks for its own migrations, and undoes none.
func TestANewerSchemaIsTaken(t *testing.T) {
	t.Parallel()
	for _, s := range dialects() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			f := freshFixture(t, s)
			f.exec(t, "ALTER TABLE vouchers ADD COLUMN later INT NOT NULL DEFAULT 7")
			f.exec(t, "INSERT INTO schema_migrations (version_id, is_applied) VALUES (99999, 1)")
			check.Must(t, f.db.Migrate(t.Context()))
			for _, migration := range check.Value(f.db.MigrationStatus(t.Context()))(t) {
				if !migration.Applied {
					t.Errorf("%s counts as missing", migration.Name)
				}
			}
			f.onSale(t, 3)
			var kept int
			check.Must(t, f.db.SQL().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM vouchers WHERE later = 7").Scan(&kept))
			check.Equal(t, "vouchers with the later column", kept, 1)
		})
	}
}

// BenchmarkMigrationOfOrders migrates a million orders while another instance reads.
func BenchmarkMigrationOfOrders(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		f := freshFixture(b, stores()[0])
		v := filled(b, f, 1_000_000)
		b.StartTimer()
		readings, longest := migrateAndRead(b, f, v)
		b.ReportMetric(float64(readings), "readings")
		b.ReportMetric(longest.Seconds(), "longest-s")
	}
}
