//part:stores
package repository_test

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"gorm.io/gorm"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

// TestSession: what the service depends on holds on its connections, whatever the DSN and the server say.
func TestSession(t *testing.T) {
	t.Parallel()
	isolation := "tx_isolation" // MariaDB's name before 11.1
	wanted := map[string]string{
		"time_zone": "+00:00", "innodb_lock_wait_timeout": "1", "autocommit": "1", "character_set_client": "utf8mb4",
	}
	if testserver.OnMySQL() {
		isolation = "transaction_isolation"
	} else {
		wanted["idle_write_transaction_timeout"], wanted["idle_readonly_transaction_timeout"] = "5", "10"
	}
	wanted[isolation] = "READ-COMMITTED"
	dsn := migrated(t, stores()[0]).DSN +
		"?parseTime=false&loc=Asia%2FShanghai&clientFoundRows=false&multiStatements=true" +
		"&time_zone=%27%2B08%3A00%27&sql_mode=%27%27&innodb_lock_wait_timeout=50&" + isolation +
		"=%27SERIALIZABLE%27&readTimeout=1h"
	f := openFixture(t, stores()[0], sqldb.Options{DSN: dsn})
	for variable, want := range wanted {
		var got string
		check.Must(t, f.db.SQL().QueryRowContext(t.Context(), "SELECT @@"+variable).Scan(&got))
		check.Equal(t, variable, got, want)
	}
	var mode string
	check.Must(t, f.db.SQL().QueryRowContext(t.Context(), "SELECT @@sql_mode").Scan(&mode))
	check.That(t, strings.Contains(mode, "STRICT_ALL_TABLES"), "sql_mode is %s", mode)
	if _, err := f.db.SQL().ExecContext(t.Context(), "SELECT 1; SELECT 2"); err == nil {
		t.Error("several statements in one were taken")
	}
	v := f.onSale(t, 1)
	read := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
	check.That(t, read.BeginAt.Equal(v.BeginAt) && read.CreatedAt.Equal(v.CreatedAt) && read.Title == title,
		"read %+v, want %+v", read, v)
	check.Equal(t, "the dialect", f.db.Dialect.Name, "mysql")
}

// An operator's global settings harm neither migration nor sale: CHECK, UNIQUE and transactions hold all the same.
func TestHostileGlobals(t *testing.T) {
	t.Parallel()
	server := testserver.MariaDB(t)
	admin := check.Value(sql.Open("mysql", server.AdminDSN("")))(t)
	t.Cleanup(func() { check.Must(t, admin.Close()) })
	testserver.Hostile(t, admin)
	f := openFixture(t, stores()[0], sqldb.Options{DSN: server.DSN(testserver.DefaultSchema), Slack: check.Deadline})
	check.Must(t, f.db.Migrate(t.Context()))
	check.Equal(t, "tables of another engine",
		f.number(t, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND engine <> 'InnoDB'"), int64(0))
	v := f.onSale(t, 1)
	check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
	wantCode(t, f.place(t, order(t, v.ID, "bob")).Err, model.CodeSoldOut)
	_, err := f.db.SQL().ExecContext(t.Context(), "UPDATE vouchers SET remaining = remaining - 1")
	check.That(t, err != nil, "CHECK is not enforced")
	check.Equal(t, "orders", f.number(t, "SELECT COUNT(*) FROM orders"), int64(1))
}

// TestZeroTime: who reads since the zero time reads all that there is, in every database; who writes it is refused.
func TestZeroTime(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		f.onSale(t, 1)
		var found int
		check.Must(t, f.db.SQL().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM vouchers WHERE begin_at > ?",
			time.Time{}).Scan(&found))
		check.Equal(t, "vouchers since ever", found, 1)
		if _, err := f.db.SQL().ExecContext(t.Context(), "UPDATE vouchers SET begin_at = ?", time.Time{}); err == nil {
			t.Error("the zero time was written")
		}
	})
}

// A connection that waits for longer may have been cut by its server. (The pool shows nobody for how long they may.)
func TestConnectionsRestAMinute(t *testing.T) {
	t.Parallel()
	var pools []*sql.DB
	openFixture(t, stores()[0], sqldb.Options{
		DSN: testserver.Schema(t),
		OpenDB: func(connector driver.Connector) *sql.DB {
			pools = append(pools, sql.OpenDB(connector))
			return pools[len(pools)-1]
		},
	})
	check.Equal(t, "pools", len(pools), 3)
	for _, pool := range pools {
		rest := time.Duration(reflect.ValueOf(pool).Elem().FieldByName("maxIdleTime").Int())
		check.That(t, 0 < rest && rest <= time.Minute, "a connection rests for %s", rest)
	}
}

func TestSQLiteSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t, stores()[3])
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "3000"} {
		var got string
		check.Must(t, f.db.SQL().QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got))
		check.Equal(t, pragma, got, want)
	}
	check.Equal(t, "the dialect", f.db.Dialect.Name, "sqlite")
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	for _, dsn := range []string{
		"root:" + secret, "root:" + secret + "@tcp(127.0.0.1:1)/", "root:" + secret + "@tcp(127.0.0.1:1)",
		"root:" + secret + "(@tcp(127.0.0.1:1)/x",
		"root:x@" + secret + "@" + secret + "/" + secret + "?timeout=" + secret,
		"root:" + secret + "@tcp(127.0.0.1:1)/schema", secret, "root:" + secret + "@tcp(127.0.0.1:1)/x?tls=" + secret,
	} {
		db, err := sqldb.Open(t.Context(), sqldb.Options{DSN: dsn})
		if err == nil {
			check.Must(t, db.Close())
			t.Errorf("%s was accepted", dsn)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("a password shows: %v", err)
		}
	}
	wantCode(t, check.ErrorOf(sqldb.Open(t.Context(), sqldb.Options{DSN: "root:x@tcp(127.0.0.1:1)/schema"})),
		model.CodeUnavailable)
	for _, file := range []string{"", filepath.Join(t.TempDir(), "no", "such", "directory", "x.db")} {
		if _, err := sqldb.Open(t.Context(), sqldb.Options{SQLiteFile: file}); err == nil {
			t.Errorf("SQLite file %q was accepted", file)
		}
	}
}

func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	instances := check.Count(t, "INSTANCES", 4, 10)
	for _, s := range dialects() {
		t.Run(s.dialect, func(t *testing.T) {
			t.Parallel()
			options := emptyDatabase(t, s)
			var ready atomic.Int32
			check.Volley(instances, func(int) {
				db, err := sqldb.Open(t.Context(), options)
				if err == nil {
					err = db.Migrate(t.Context())
				}
				if err != nil {
					t.Errorf("migrate: %v", err)
					return
				}
				ready.Add(1)
				check.Must(t, db.Close())
			})
			f := openFixture(t, s, options)
			found := check.Value(filepath.Glob("sqldb/migrations/" + s.dialect + "/*.sql"))(t)
			files := len(found)
			if rows := f.number(t, "SELECT COUNT(*) FROM schema_versions WHERE version_id > 0"); rows != int64(files) ||
				files == 0 || int(ready.Load()) != instances {
				t.Errorf("%d migrations recorded by %d instances, want %d", rows, ready.Load(), files)
			}
			list := check.Value(f.db.MigrationStatus(t.Context()))(t)
			check.Need(t, len(list) == files, "status %+v", list)
			for i, m := range list {
				// SQLite leaves a number out where there is nothing to do for it.
				if !m.Applied || m.Name != filepath.Base(found[i]) ||
					!strings.HasPrefix(m.Name, fmt.Sprintf("%05d_", m.Version)) || m.AppliedAt.IsZero() {
					t.Errorf("migration %+v", m)
				}
			}
			check.Must(t, f.db.Migrate(t.Context())) // again: nothing
		})
	}
}

// MySQL commits DDL by itself, so a process can die between a table and its record. The next one must get through.
func TestMigrationAfterACrash(t *testing.T) {
	t.Parallel()
	f := freshFixture(t, stores()[0])
	f.exec(t, "DROP TABLE waitlist") // died in the middle
	f.exec(t, "DELETE FROM schema_versions WHERE version_id > 0")
	check.Equal(t, "applied", check.Value(f.db.MigrationStatus(t.Context()))(t)[0].Applied, false)
	check.Must(t, f.db.Migrate(t.Context()))
	check.Equal(t, "places", f.number(t, "SELECT COUNT(*) FROM waitlist"), 0)
	f.exec(t, "DELETE FROM schema_versions") // died before the first record
	check.Must(t, f.db.Migrate(t.Context()))
	f.onSale(t, 1)
}

// SQLite's DDL and its record are one transaction. Each record's write fails once; the next process must get through.
func TestMigrationIsAllOrNothing(t *testing.T) {
	t.Parallel()
	db := check.Value(sqldb.Open(t.Context(), sqldb.Options{SQLiteFile: filepath.Join(t.TempDir(), "seckill.db")}))(t)
	t.Cleanup(func() { check.Must(t, db.Close()) })
	f := &fixture{db: db}
	list := check.Value(db.MigrationStatus(t.Context()))(t) // makes the table of records
	for _, m := range list {
		f.exec(t, fmt.Sprintf("CREATE TRIGGER refusal BEFORE INSERT ON schema_versions WHEN NEW.version_id = %d "+
			"BEGIN SELECT RAISE(ABORT, 'the power is gone'); END", m.Version))
		err := db.Migrate(t.Context())
		check.Need(t, err != nil, "migration %d succeeded without its record", m.Version)
		f.exec(t, "DROP TRIGGER refusal")
	}
	check.Must(t, db.Migrate(t.Context()))
	check.Equal(t, "migrations recorded", f.number(t, "SELECT COUNT(*) FROM schema_versions WHERE version_id > 0"),
		int64(len(list)))
}

func TestSurvivesRestart(t *testing.T) {
	t.Parallel()
	f := newFixture(t, stores()[3])
	v := f.onSale(t, 2)
	check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
	check.Must(t, f.db.Close())
	check.Must(t, f.db.Close()) // again: nothing
	wantCode(t, check.ErrorOf(f.vouchers.Get(t.Context(), v.ID)), model.CodeUnavailable)
	again := openFixture(t, f.store, f.options)
	check.Must(t, again.db.Migrate(t.Context()))
	again.balanced(t, v.ID, 1)
}

// The lock package says how its table looks; the migration must say the same, comments aside.
func TestLockTableIsTheLockPackagesOwn(t *testing.T) {
	t.Parallel()
	migration := check.Value(os.ReadFile("sqldb/migrations/mysql/00001_baseline.sql"))(t)
	_, statement, found := strings.Cut(string(migration), "CREATE TABLE IF NOT EXISTS "+lock.DefaultTable+" ")
	check.Need(t, found, "the migration makes no such table")
	statement, _, _ = strings.Cut("CREATE TABLE IF NOT EXISTS "+lock.DefaultTable+" "+statement, ";")
	got, want := bare(statement), bare(lock.MySQLTable(lock.DefaultTable))
	check.That(t, got == want, "the migration says\n%s\nthe lock package\n%s", got, want)
}

func bare(statement string) string {
	for {
		before, after, found := strings.Cut(statement, " COMMENT '")
		if !found {
			break
		}
		_, after, _ = strings.Cut(after, "'")
		statement = before + after
	}
	return strings.ToLower(strings.Join(strings.Fields(strings.TrimSuffix(strings.TrimSpace(statement), ";")), " "))
}

func TestMain(m *testing.M) { testserver.Main(m) }

// A disk that is full refuses what is bought, readiness says so, and with room again the sale goes on.
func TestAFullDatabaseIsNotReady(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dialects()[1])
	v := f.onSale(t, 100_000)
	limit := func(pages int) {
		check.Must(t, f.db.Write(t.Context(), "limit the file", func(tx *gorm.DB) error {
			return tx.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages)).Error
		}))
	}
	limit(1) // SQLite makes it as many as there are
	bought := 0
	var err error
	for err == nil {
		if _, err = f.orders.CreateOrders(t.Context(), []model.Order{order(t, v.ID, newID(t))}); err == nil {
			bought++
		}
	}
	wantCode(t, err, model.CodeUnavailable)
	err = f.db.Ready(t.Context())
	check.That(t, model.CodeOf(err) == model.CodeUnavailable && strings.Contains(err.Error(), "disk is full"),
		"it is ready: %v", err)
	limit(1 << 30)
	check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
	f.balanced(t, v.ID, int64(bought+1))
}

func TestExclusive(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		other := openFixture(t, f.store, f.options)
		first := f.db.Exclusive("embedded")
		held, err := first.Held(t.Context())
		check.Need(t, err == nil && held, "held %v, %v", held, err)
		second := other.db.Exclusive("embedded")
		defer func() { check.Must(t, second.Close()) }()
		if held, err := second.Held(t.Context()); err != nil || held {
			t.Errorf("a second holds: %v, %v", held, err)
		}
		third := other.db.Exclusive("something else")
		if held, err := third.Held(t.Context()); err != nil || !held {
			t.Errorf("another name: %v, %v", held, err)
		}
		check.Must(t, third.Close())
		// Named locks belong to the server, the claim to the schema.
		elsewhere := newFixture(t, f.store).db.Exclusive("embedded")
		if held, err := elsewhere.Held(t.Context()); err != nil || !held {
			t.Errorf("another schema: %v, %v", held, err)
		}
		check.Must(t, elsewhere.Close())
		check.Must(t, first.Close())
		check.Eventually(t, "the second holds", func() bool {
			held, err := second.Held(t.Context())
			return held && err == nil
		})
	})
}

func TestExclusiveIsTakenAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, stores()[0])
	claim := f.db.Exclusive("embedded")
	defer func() { check.Must(t, claim.Close()) }()
	held, err := claim.Held(t.Context())
	check.Need(t, err == nil && held, "held %v, %v", held, err)
	var schema string
	check.Must(t, f.db.SQL().QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&schema))
	holder := func() (id int64) {
		_ = f.db.SQL().QueryRowContext(t.Context(), "SELECT COALESCE(IS_USED_LOCK(?), 0)",
			"seckill."+schema+".embedded").Scan(&id)
		return id
	}
	before := holder()
	f.exec(t, "KILL ?", before)
	check.Eventually(t, "another connection holds it", func() bool {
		now := holder()
		return now != 0 && now != before
	})
	if held, err := claim.Held(t.Context()); err != nil || !held {
		t.Errorf("held %v, %v", held, err)
	}
}

func TestExclusiveWithoutAServer(t *testing.T) {
	t.Parallel()
	cfg := check.Value(mysql.ParseDSN(testserver.Schema(t)))(t)
	proxy := testserver.NewProxy(t, cfg.Addr, nil)
	cfg.Addr = proxy.Addr()
	f := openFixture(t, stores()[0], sqldb.Options{DSN: cfg.FormatDSN(), Slack: check.Deadline})
	claim := f.db.Exclusive("embedded")
	if held, err := claim.Held(t.Context()); err != nil || !held {
		t.Fatalf("held %v, %v", held, err)
	}
	proxy.Close() // connections are refused from here on
	if held, err := claim.Held(t.Context()); err == nil || held {
		t.Errorf("held %v, %v", held, err)
	}
	check.Must(t, claim.Close())
}

// Of many who take the place of the same claim one does, and the claim is renewed only by who has read it.
func TestRedisClaim(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store{dialect: "mysql"})
	claims := &repository.RedisClaims{DB: f.db}
	first, _, err := claims.Read(t.Context())
	if check.Must(t, err); first.Identity != "" {
		t.Fatalf("%+v", first)
	}
	var won atomic.Int32
	check.Volley(8, func(i int) {
		taken, err := claims.Take(t.Context(), user(i), first)
		if check.Must(t, err); taken {
			won.Add(1)
		}
	})
	now, age, err := claims.Read(t.Context())
	if check.Must(t, err); won.Load() != 1 || now.Identity == "" || age < 0 || age > time.Minute {
		t.Errorf("%d took it, %+v, %v old", won.Load(), now, age)
	}
	if taken, err := claims.Take(t.Context(), now.Identity, now); err != nil || !taken {
		t.Errorf("renewed: %v, %v", taken, err)
	}
	if taken, err := claims.Take(t.Context(), "another", now); err != nil || taken {
		t.Errorf("although it was renewed: %v, %v", taken, err)
	}
}

// A version goes on with a schema to which a later one has added: it asks for its own migrations, and undoes none.
func TestANewerSchemaIsTaken(t *testing.T) {
	t.Parallel()
	for _, s := range dialects() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			f := freshFixture(t, s)
			f.exec(t, "ALTER TABLE vouchers ADD COLUMN later INT NOT NULL DEFAULT 7")
			f.exec(t, "INSERT INTO schema_versions (version_id, is_applied) VALUES (99999, 1)")
			check.Must(t, f.db.Migrate(t.Context()))
			for _, migration := range check.Value(f.db.MigrationStatus(t.Context()))(t) {
				check.That(t, migration.Applied, "%s counts as missing", migration.Name)
			}
			f.onSale(t, 3)
			var kept int
			check.Must(t, f.db.SQL().QueryRowContext(t.Context(),
				"SELECT COUNT(*) FROM vouchers WHERE later = 7").Scan(&kept))
			check.Equal(t, "vouchers with the later column", kept, 1)
		})
	}
}

// A database from before the first version is refused with a sentence, and left as it is.
func TestADatabaseOfBeforeIsRefused(t *testing.T) {
	t.Parallel()
	for _, s := range dialects() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			f := openFixture(t, s, emptyDatabase(t, s))
			f.exec(t, "CREATE TABLE schema_migrations (version_id BIGINT NOT NULL)")
			f.exec(t, "INSERT INTO schema_migrations (version_id) VALUES (31)")
			err := f.db.Migrate(t.Context())
			wantCode(t, err, model.CodeUnavailable)
			check.That(t, err != nil && strings.Contains(err.Error(), "before version 1.0.0"), "%v", err)
			wantCode(t, f.db.SchemaProbe()(t.Context()), model.CodeUnavailable)
			check.That(t, f.db.SQL().QueryRowContext(t.Context(), "SELECT 1 FROM vouchers").Scan(new(int)) != nil,
				"a table was made in it")
		})
	}
}
