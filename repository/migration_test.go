package repository_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

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

// goesUpTo brings an empty database to an earlier schema.
func (f *fixture) goesUpTo(t testing.TB, schema int64) {
	t.Helper()
	dialect := goose.DialectMySQL
	if f.store.dialect == "sqlite" {
		dialect = goose.DialectSQLite3
	}
	provider := check.Value(goose.NewProvider(dialect, f.db.SQL(), os.DirFS("sqldb/migrations/"+f.store.dialect),
		goose.WithTableName("schema_migrations"), goose.WithDisableGlobalRegistry(true)))(t)
	check.Must(t, check.ErrorOf(provider.UpTo(t.Context(), schema)))
}

// earlier is a database of an earlier schema.
func earlier(t testing.TB, s store, schema int64) *fixture {
	t.Helper()
	f := openFixture(t, s, emptyDatabase(t, s))
	f.goesUpTo(t, schema)
	return f
}

// inParts is the first schema in which a voucher could be sold in parts, and lastInParts the last.
const inParts, lastInParts = 20, 24

// old is a voucher of an earlier schema, with a live order of each of three users.
type old struct {
	stock, remaining int64
	epoch            int64         // of its hot copy
	shards, copies   int           // in how many parts it is sold, and lies in Redis; zero: one
	parts            map[int]int64 // behind the first, by number
	want             int64         // what is left of it afterwards
	raised           bool          // its hot copy is closed
}

// put inserts it with the columns that a schema has.
func (f *fixture) put(t testing.TB, id string, v old, schema int64) {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Microsecond)
	f.exec(t, "INSERT INTO vouchers (id, title, description, price, face_value, currency, stock, remaining, begin_at, end_at, state, version, created_at)"+
		" VALUES (?, 'Tea', '', 1, 2, 'CNY', ?, ?, ?, ?, 'published', 5, ?)", id, v.stock, v.remaining, now.Add(-time.Hour), now.Add(time.Hour), now)
	for n := 0; schema >= 2 && n < 3; n++ {
		f.exec(t, "INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at) VALUES (?, ?, ?, 'paid', 1, 'CNY', ?)",
			fmt.Sprint(n, ".", id), id, user(n), now)
	}
	if schema >= 6 {
		f.exec(t, "UPDATE vouchers SET copy_epoch = ?, copy_open_epoch = ?, copy_barrier = NULL WHERE id = ?", v.epoch, v.epoch, id)
	}
	if schema >= inParts {
		f.exec(t, "UPDATE vouchers SET shards = ? WHERE id = ?", max(v.shards, 1), id)
	}
	if schema >= 21 {
		f.exec(t, "UPDATE vouchers SET copy_shards = ? WHERE id = ?", max(v.copies, 1), id)
	}
	for shard, remaining := range v.parts {
		f.exec(t, "INSERT INTO voucher_stock (voucher_id, shard, remaining, version, revision) VALUES (?, ?, ?, 7, 1)", id, shard, remaining)
	}
}

// TestEarlierSchemas: from each of them a database comes to this one. What is left of a voucher in parts is added up, never
// to more than can be sold, and copies that may lie in parts are closed. A process that dies in between is followed by one
// that does the rest.
func TestEarlierSchemas(t *testing.T) {
	t.Parallel()
	whole := map[string]old{"whole": {stock: 12, remaining: 9, epoch: 4, want: 9}, "soldout": {stock: 3, want: 0}}
	parted := map[string]old{
		"parts":   {stock: 12, remaining: 2, epoch: 4, shards: 3, copies: 3, parts: map[int]int64{1: 7, 2: 0}, want: 9, raised: true},
		"emptied": {stock: 3, epoch: 4, shards: 2, copies: 2, parts: map[int]int64{1: 0}, want: 0, raised: true},
		"draft":   {stock: 12, remaining: 5, shards: 2, parts: map[int]int64{1: 4}, want: 9},
		"again":   {stock: 12, remaining: 9, epoch: 4, copies: 16, want: 9, raised: true}, // it is whole, and its copy is not yet
		// A hand was on these. What is lost comes back by audit --repair --stock; what is too much is not sold.
		"lost":    {stock: 12, remaining: 2, epoch: 4, shards: 3, copies: 3, parts: map[int]int64{1: 4}, want: 6, raised: true},
		"beyond":  {stock: 12, remaining: 2, epoch: 4, shards: 2, copies: 2, parts: map[int]int64{1: 7, 5: 2}, want: 9, raised: true},
		"toomuch": {stock: 12, remaining: 2, epoch: 4, shards: 2, copies: 2, parts: map[int]int64{1: 99}, want: 9, raised: true},
	}
	for _, s := range dialects() {
		for schema := int64(1); schema <= lastInParts; schema++ {
			if s.dialect == "mysql" && schema < 19 && !check.Faults {
				continue // each takes as long as all of SQLite's
			}
			t.Run(fmt.Sprint(s.dialect, " ", schema), func(t *testing.T) {
				t.Parallel()
				f := earlier(t, s, schema)
				vouchers := maps.Clone(whole)
				if schema >= inParts {
					maps.Copy(vouchers, parted)
				}
				for id, v := range vouchers {
					f.put(t, id, v, schema)
				}
				check.Must(t, f.db.Migrate(t.Context()))
				f.mode(t, model.ModeSync, "")
				for id, v := range vouchers {
					f.isWhole(t, id, v, schema)
				}
				if s.dialect == "mysql" { // the process has died before the columns went, or before the table did
					const columns, table = "ALTER TABLE vouchers ADD COLUMN shards INT NOT NULL DEFAULT 1, ADD COLUMN copy_shards INT NOT NULL DEFAULT 1",
						"CREATE TABLE voucher_stock (voucher_id VARCHAR(64), shard INT, remaining BIGINT, version BIGINT, PRIMARY KEY (voucher_id, shard))"
					for _, left := range [][]string{{columns, table}, {table}} {
						for _, statement := range append(left, fmt.Sprint("DELETE FROM schema_migrations WHERE version_id > ", lastInParts)) {
							f.exec(t, statement)
						}
						check.Must(t, f.db.Migrate(t.Context()))
					}
				}
			})
		}
	}
}

// isWhole checks what the migration has made of a voucher, and sells what is left of it.
func (f *fixture) isWhole(t testing.TB, id string, was old, schema int64) {
	t.Helper()
	now := check.Value(f.vouchers.Get(t.Context(), id))(t)
	record := f.record(t, id)
	epoch, version := was.epoch, int64(5)
	if was.raised && (schema >= 21 || was.shards > 1) {
		epoch++
	}
	if was.shards > 1 || schema >= 21 && was.copies > 1 {
		version += 1 + 7*int64(len(was.parts))
	}
	if schema < 6 {
		epoch = 0
	}
	if now.Remaining != was.want || now.Version != version || record.Epoch != epoch {
		t.Errorf("%s: %d left, version %d, epoch %d; want %d, %d and %d", id, now.Remaining, now.Version, record.Epoch, was.want, version, epoch)
	}
	if schema < 2 {
		return // it has no orders, and was made up
	}
	for n := range was.want + 1 {
		outcome := f.place(t, order(t, id, "late"+user(int(n))))
		if sold := outcome.Err == nil; sold != (n < was.want) {
			t.Errorf("%s: buyer %d of %d is answered %v", id, n, was.want, outcome.Err)
		}
	}
	if audit := check.Value(f.vouchers.Audit(t.Context(), id))(t); audit.Balanced != (id != "lost") {
		t.Errorf("%s: %+v", id, audit.Database)
	}
}

// TestASaleDuringTheMigration: an instance of the version before has taken a unit of a part and not committed yet. The
// migration waits for it, and adds up what it has left.
func TestASaleDuringTheMigration(t *testing.T) {
	t.Parallel()
	f := earlier(t, stores()[0], lastInParts)
	f.put(t, "parts", old{stock: 12, remaining: 2, shards: 2, parts: map[int]int64{1: 7}}, lastInParts)
	sale := check.Value(f.db.SQL().BeginTx(t.Context(), nil))(t)
	check.Must(t, check.ErrorOf(sale.ExecContext(t.Context(), "UPDATE voucher_stock SET remaining = remaining - 1, version = version + 1 WHERE voucher_id = 'parts' AND shard = 1 AND revision = 1")))
	migrated := make(chan error, 1)
	go func() { migrated <- f.db.Migrate(t.Context()) }()
	check.Eventually(t, "the migration waits for the sale", func() bool { return f.blocked(t, "voucher_stock") })
	check.Must(t, check.ErrorOf(sale.ExecContext(t.Context(), "INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at) VALUES ('3.parts', 'parts', 'zoe', 'unpaid', 1, 'CNY', NOW(6))")))
	check.Must(t, sale.Commit())
	check.Must(t, check.Receive(t, "the migration", migrated))
	check.Equal(t, "units left", check.Value(f.vouchers.Get(t.Context(), "parts"))(t).Remaining, 8)
	f.balanced(t, "parts", 4)
}
