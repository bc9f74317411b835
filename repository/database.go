package repository

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	gormsqlite "gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"seckill/model"
)

const (
	// operationBudget bounds one call, waiting for a connection included. The
	// longest answer of the service is the lock's wait and 5 s; half a second
	// is left for the rest of the road.
	operationBudget = 4500 * time.Millisecond
	// maxConnections: beyond 16 concurrent transactions on one hot voucher
	// throughput falls again (measured), and a dozen instances still fit into
	// a server's usual few hundred connections. Those for browsing are among them.
	maxConnections = 16
	// browseConnections are for lists, counts and exports alone. A page of a list
	// takes a millisecond, so that four of them answer some thousand calls a second,
	// and a seller has the other twelve.
	browseConnections = 4
	// browseWait bounds the wait for one of them. A list is not worth a longer one, and
	// the calls that wait are bounded by it.
	browseWait = time.Second
	// connectionLifetime makes a pool notice, within minutes, a changed address
	// of the server or a rebalanced proxy.
	connectionLifetime = 5 * time.Minute
	// sqliteConnections: readers do not disturb each other or the one writer,
	// but each has a page cache of its own. Three of them are for browsing.
	sqliteConnections       = 8
	sqliteBrowseConnections = 3
)

// The dialects.
const (
	dialectMySQL  = "mysql"
	dialectSQLite = "sqlite"
)

// Options says which database to open.
type Options struct {
	// DSN is a go-sql-driver DSN of MySQL 8+ or MariaDB 10.6+, for example
	// `user:password@tcp(host:3306)/seckill`. It needs no parameters: the
	// service imposes what it depends on. `tcp(h1:3306,h2:3306)` names several
	// servers, of which the first that takes writes is used. Empty: SQLite.
	DSN string
	// TLS is how the server is spoken to; nil leaves that to the DSN.
	TLS *tls.Config
	// SQLiteFile is the file of the embedded database, made when missing.
	SQLiteFile string
	// OpenDB opens the pools of those who sell and browse; nil is sql.OpenDB.
	OpenDB func(driver.Connector) *sql.DB
	// Log hears what the driver has to say; nil discards it.
	Log *slog.Logger
	// Events has every change written into the outbox of events, too. Something must
	// publish them, or the outbox grows.
	Events bool
}

// Database is an open database and its pools of connections.
type Database struct {
	dialect dialect
	sql     *sql.DB
	gorm    *gorm.DB
	log     *slog.Logger
	events  bool

	// browsing is the pool of lists, counts and exports: a flood of them takes no
	// connection from those who sell. It holds as many tokens as it has connections;
	// a call takes one first, because a pool by itself has no bound for the wait.
	browsing *sql.DB
	browsers chan struct{}
	// health is the one connection of Ready.
	health *sql.DB

	// hosts are the servers of MySQL; nil elsewhere.
	hosts *hosts

	// maintenance opens a pool for work that may take long: migrations.
	maintenance func() (*sql.DB, error)
	// file is SQLite's file, schema the name of MySQL's schema.
	file, schema string
	// writer is SQLite's only connection that writes; nil elsewhere. Waiting
	// for it in the pool is fair, waiting for the lock in SQLite is polling, and
	// its cache stays warm: no other connection of this process changes pages.
	writer *sql.DB

	closed  atomic.Bool
	commits sync.WaitGroup // COMMITs whose caller has gone
}

// Open connects, and fails when the database does not answer, is too old, or
// when the options are no good. Passwords appear in no error.
func Open(ctx context.Context, o Options) (*Database, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.OpenDB == nil {
		o.OpenDB = sql.OpenDB
	}
	d := &Database{log: o.Log, events: o.Events}
	prepare := d.prepareMySQL
	if o.DSN == "" {
		prepare = d.prepareSQLite
	}
	dialector, err := prepare(o)
	if err != nil {
		return nil, err
	}
	if d.hosts != nil {
		d.hosts.watch(ctx)
	}
	if err := d.connect(ctx, dialector); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Database) prepareMySQL(o Options) (gorm.Dialector, error) {
	configs, err := mysqlConfigs(o)
	if err != nil {
		return nil, err
	}
	if d.hosts, err = newHosts(configs, o.Log); err != nil {
		return nil, err
	}
	open := func() (*sql.DB, error) { return openMySQL(o.OpenDB, d.hosts, configs, mysqlSession) }
	if err := d.openPools(open, maxConnections-browseConnections, browseConnections); err != nil {
		return nil, err
	}
	d.sql.SetConnMaxLifetime(connectionLifetime)
	d.browsing.SetConnMaxLifetime(connectionLifetime)
	d.health.SetConnMaxLifetime(connectionLifetime)
	d.hosts.left = func() {
		for _, pool := range []*sql.DB{d.sql, d.browsing, d.health} {
			size := pool.Stats().MaxOpenConnections
			pool.SetMaxIdleConns(0) // closes those that nobody uses
			pool.SetMaxIdleConns(size)
		}
	}
	d.schema = configs[0].DBName
	d.dialect = mysqlDialect()
	d.maintenance = func() (*sql.DB, error) {
		patient := make([]*mysql.Config, len(configs))
		for i, cfg := range configs {
			patient[i] = cfg.Clone()
			patient[i].ReadTimeout, patient[i].WriteTimeout = 0, 0 // a migration takes as long as its tables are large
		}
		return openMySQL(sql.OpenDB, d.hosts, patient, mysqlMaintenanceSession)
	}
	return gormmysql.New(gormmysql.Config{
		Conn: d.sql,
		// No RETURNING and no question for the version: nothing depends on them.
		SkipInitializeWithVersion: true, DisableWithReturning: true,
	}), nil
}

func (d *Database) prepareSQLite(o Options) (gorm.Dialector, error) {
	if o.SQLiteFile == "" {
		return nil, errors.New("open the database: neither a DSN nor a file for SQLite is given")
	}
	open := func() (*sql.DB, error) { return openSQLite(o.OpenDB, o.SQLiteFile) }
	if err := d.openPools(open, sqliteConnections-sqliteBrowseConnections, sqliteBrowseConnections); err != nil {
		return nil, err
	}
	var err error
	if d.writer, err = open(); err != nil {
		return nil, err
	}
	d.writer.SetMaxOpenConns(1)
	d.file = o.SQLiteFile
	d.dialect = sqliteDialect()
	d.maintenance = open
	return gormsqlite.New(gormsqlite.Config{DriverName: sqliteDriver, Conn: d.sql}), nil
}

// openPools opens the pools of those who sell, of those who browse, and of Ready. Every
// connection stays open once it is: a rush must not begin with opening them.
func (d *Database) openPools(open func() (*sql.DB, error), selling, browsing int) error {
	d.browsers = make(chan struct{}, browsing)
	for _, pool := range []struct {
		into **sql.DB
		size int
	}{{&d.sql, selling}, {&d.browsing, browsing}, {&d.health, 1}} {
		opened, err := open()
		if err != nil {
			return err
		}
		opened.SetMaxOpenConns(pool.size)
		opened.SetMaxIdleConns(pool.size)
		*pool.into = opened
	}
	return nil
}

func (d *Database) connect(ctx context.Context, dialector gorm.Dialector) error {
	if err := d.Ping(ctx); err != nil {
		return err
	}
	if err := d.checkVersion(ctx); err != nil {
		return err
	}
	var err error
	d.gorm, err = gorm.Open(dialector, &gorm.Config{
		SkipDefaultTransaction: true, // transactions are opened where they are meant
		DisableAutomaticPing:   true,
		// Statements are interpolated by the MySQL driver, one round trip each.
		// Prepared ones were a fifth slower for single orders and no faster for
		// batches (which differ in size, so few are met again), and GORM's cache
		// of them keeps a goroutine that nothing ends.
		PrepareStmt: false,
		Logger:      logger.Discard, // errors are returned, with what was being done
	})
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	return nil
}

// Ping asks the database for a sign of life.
func (d *Database) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, operationBudget)
	defer cancel()
	return d.fail("reach the database", d.sql.PingContext(ctx))
}

// Ready asks whether a sale could be made: what it reads can be read, and the server
// takes writes, which one that is read-only and a cluster's member without quorum do
// not. It has a connection of its own, so that it does not wait behind those who buy.
func (d *Database) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, operationBudget)
	defer cancel()
	var mode string
	var vouchers, orders int
	err := d.health.QueryRowContext(ctx, "SELECT mode, (SELECT COUNT(*) FROM (SELECT id FROM vouchers LIMIT 1) AS some_voucher),"+
		" (SELECT COUNT(*) FROM (SELECT id FROM orders LIMIT 1) AS some_order) FROM order_mode WHERE id = 1").Scan(&mode, &vouchers, &orders)
	if err == nil && d.hosts != nil {
		err = d.hosts.takesWrites(ctx, d.health)
	}
	return d.fail("look whether the database can be sold from", err)
}

// Close waits for the COMMITs under way, which is bounded by the driver's
// timeouts, and closes every connection. Closing again does nothing.
func (d *Database) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.commits.Wait()
	err := errors.Join(d.sql.Close(), d.browsing.Close(), d.health.Close(), d.hosts.close())
	if d.writer != nil {
		err = errors.Join(err, d.writer.Close())
	}
	if err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}

// SQL is the pool of those who sell, for questions this package does not answer.
func (d *Database) SQL() *sql.DB { return d.sql }

// Dialect is "mysql" (MariaDB too) or "sqlite".
func (d *Database) Dialect() string { return d.dialect.name }

// dialect is what differs between the databases in the SQL of this package,
// which is written for MySQL.
type dialect struct {
	name string
	// now is the database's clock, in the type of the DATETIME columns.
	now string
	// hourAgo is an hour before now, and inAnHour an hour after it.
	hourAgo, inAnHour string
	// share ends a SELECT whose rows must not change until the transaction ends.
	// SQLite's transactions are alone anyway.
	share string
	// byPrimaryKey follows the name of a table that is read through its primary key alone.
	// SQLite locks no rows, so that it does not matter there.
	byPrimaryKey string
	// deleteParts deletes what voucher_stock has of a voucher, by the primary key.
	deleteParts string
	// purge makes a statement that deletes the oldest rows of a table, by a column that
	// tells their time: those before an instant, at most so many.
	purge func(table, column string) string
}

func mysqlDialect() dialect {
	return dialect{
		name:     dialectMySQL,
		now:      "NOW(6)",
		hourAgo:  "(NOW(6) - INTERVAL 1 HOUR)",
		inAnHour: "(NOW(6) + INTERVAL 1 HOUR)",
		share:    " LOCK IN SHARE MODE", // MariaDB knows no FOR SHARE

		byPrimaryKey: " FORCE INDEX (PRIMARY)",
		deleteParts:  "DELETE voucher_stock FROM voucher_stock FORCE INDEX (PRIMARY) WHERE voucher_id = ?",
		purge: func(table, column string) string {
			return fmt.Sprintf("DELETE FROM %[1]s WHERE %[2]s < ? ORDER BY %[2]s LIMIT ?", table, column)
		},
	}
}

// onTiDB is the dialect of TiDB, which refuses LOCK IN SHARE MODE (1235) because it has
// no such lock. The lock that excludes others as well lets transactions wait for each
// other that need not, and nothing else changes. GET_LOCK with no time to wait, which
// claims and migrations use, waits a second there.
func (d dialect) onTiDB() dialect {
	d.share = " FOR UPDATE"
	return d
}

// sqliteDialect: columns hold microseconds since 1970. SQLite's clock counts
// milliseconds; its result is rounded because it is a floating point number.
// A DELETE with a LIMIT is an option that SQLite is built without.
func sqliteDialect() dialect {
	const now = "(CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) * 1000)"
	return dialect{
		name:     dialectSQLite,
		now:      now,
		hourAgo:  "(" + now + " - 3600000000)",
		inAnHour: "(" + now + " + 3600000000)",

		deleteParts: "DELETE FROM voucher_stock WHERE voucher_id = ?",
		purge: func(table, column string) string {
			return fmt.Sprintf("DELETE FROM %[1]s WHERE rowid IN (SELECT rowid FROM %[1]s WHERE %[2]s < ? ORDER BY %[2]s LIMIT ?)", table, column)
		},
	}
}

// mode is the order mode as a value within a SELECT. It says that it locks: under
// READ COMMITTED a subselect locks nothing by itself, not even in an UPDATE.
func (d dialect) mode() string { return "(SELECT mode FROM order_mode WHERE id = 1" + d.share + ")" }

// sql makes a statement of the file of a name: without its comments, and with
// the dialect's clock in place of NOW(6), the locked order mode in place of
// ORDER_MODE, and a sum over a voucher's parts in place of PARTS(…). It panics when
// the program was built without that file.
func (d dialect) sql(name string) string {
	file, err := statements.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err)
	}
	var lines []string
	for line := range strings.Lines(string(file)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return strings.NewReplacer(
		"NOW(6)", d.now, "ORDER_MODE", d.mode(),
		"PARTS(remaining)", partsRemaining, "PARTS(version)", partsVersion, "PARTS(lost)", partsLost,
	).Replace(strings.Join(lines, " "))
}

// resolution is what the DATETIME columns keep; times are cut to it before
// they are compared with what the database gives back.
const resolution = time.Microsecond

// stored is an instant as the database keeps it.
func stored(t time.Time) time.Time { return t.UTC().Truncate(resolution) }

// clock reads the database's clock, which MySQL gives as a time and SQLite as
// microseconds since 1970.
type clock struct{ time.Time }

// Scan implements sql.Scanner.
func (c *clock) Scan(value any) error {
	switch value := value.(type) {
	case time.Time:
		c.Time = value.UTC()
	case int64:
		c.Time = time.UnixMicro(value).UTC()
	default:
		return fmt.Errorf("read the database's clock: unexpected %T", value)
	}
	return nil
}

// Value implements driver.Valuer.
func (c clock) Value() (driver.Value, error) { return c.Time, nil }

// readClock reads the database's clock, as its columns keep it.
func readClock(tx *gorm.DB, d dialect) (time.Time, error) {
	var now clock
	if err := tx.Raw("SELECT " + d.now).Row().Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return stored(now.Time), nil
}

// The statements that are files, see their comments, and the migrations.
var (
	//go:embed sql/*.sql
	statements embed.FS
	//go:embed migrations/mysql/*.sql migrations/sqlite/*.sql
	migrationFiles embed.FS
)

// validIDs are the ids that can exist. SQL must not be asked for others: it
// ignores blanks at the end, and refuses to compare ASCII with other letters.
func validIDs(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !model.ValidID(id) })
}

// streamRows are read at once for streams: a fraction of a megabyte, and few
// enough questions that their number does not matter.
const streamRows = 500

// pages calls yield for everything that read finds, page by page. Read is given
// what the page before ended with, at first the zero value, and a page that is
// shorter than size is the last. An error of yield ends it and is returned.
func pages[T any](size int, read func(last T) ([]T, error), yield func([]T) error) error {
	var last T
	for {
		page, err := read(last)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := yield(page); err != nil || len(page) < size {
			return err
		}
		last = page[len(page)-1]
	}
}

// each makes of a function of one a function of a page.
func each[T any](yield func(T) error) func([]T) error {
	return func(page []T) error {
		for _, one := range page {
			if err := yield(one); err != nil {
				return err
			}
		}
		return nil
	}
}

// through names a table that is read through an index, whatever the optimizer thinks:
// by its estimates it would now and then read all vouchers of a window and sort them.
func (d dialect) through(table, index string) string {
	if d.name == dialectSQLite {
		return table + " INDEXED BY " + index
	}
	return table + " FORCE INDEX (" + index + ")"
}

// newestFirst limits a query to what follows a cursor. The first condition is
// implied by the second; it is what the index on (…, created_at, id) can use.
func newestFirst(db *gorm.DB, after model.Cursor, limit int) *gorm.DB {
	db = db.Order("created_at DESC, id DESC").Limit(limit)
	if after.ID == "" {
		return db
	}
	return db.Where("created_at <= ?", after.At).
		Where("(created_at < ? OR id < ?)", after.At, after.ID)
}
