// Package sqldb opens the service's database and runs what package repository asks of it. It knows no voucher.
//
// database.go opens MySQL, MariaDB or SQLite, and has what differs in their SQL. connection.go sets connections up and
// drops useless ones. transaction.go runs queries and transactions, again where that is safe, and judges drivers'
// errors. migrate.go updates the schema, and claims a name for one process.
package sqldb

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	gormsqlite "gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"seckill/internal/budget"
	"seckill/internal/refusal"
	"seckill/internal/tracing"
	"seckill/model"
)

const (
	// operationBudget bounds one call with its wait for a connection. The rest of an answer has budget.Brief.
	operationBudget = budget.Answer - budget.Brief
	// maxConnections: beyond 16 transactions on a hot voucher throughput falls (measured); a dozen instances fit.
	maxConnections = 16
	// browseConnections of them serve only lists, counts and exports: at 1 ms a page, some thousand a second.
	browseConnections = 4
	// buyersConnections of those that sell serve buyers' other writes at most: a locked row keeps one for a second.
	buyersConnections = 4
	// connectionLifetime makes a pool notice, within minutes, a changed address of the server or a rebalanced proxy.
	connectionLifetime = budget.Late / 2
	// sqliteConnections: readers disturb nobody, but each has a page cache. Three of them are for browsing.
	sqliteConnections       = 8
	sqliteBrowseConnections = 3
	// sqliteBuyersConnections: all share one writer, and a purchase is to wait there for one of the others at the most.
	sqliteBuyersConnections = 1
)

// The names of the dialects: MySQL is MariaDB and TiDB too.
const (
	MySQL  = "mysql"
	SQLite = "sqlite"
)

// writeNothing is refused by a server that would refuse a sale's statements: read-only for this account, without
// quorum, or rejecting queries. It matches no row, so that it locks, writes and replicates nothing.
const writeNothing = "UPDATE order_mode SET mode = mode WHERE id = 0"

// groupMajority is false on a member of Group Replication that left its group or reaches no majority of it. It takes
// writeNothing then, but lets a COMMIT wait for group_replication_unreachable_majority_timeout or for ever. A server
// that is no member has no row, and MariaDB skips what is for MySQL 8 alone.
const groupMajority = "SELECT COALESCE(/*!80000 (SELECT SUM(member_state IN ('ONLINE', 'RECOVERING')) * 2 > COUNT(*)" +
	" FROM performance_schema.replication_group_members), */ TRUE)"

var errNoMajority = errors.New("the member of Group Replication reaches no majority of its group")

// Options says which database to open.
type Options struct {
	// DSN is a go-sql-driver DSN of MySQL 8+ or MariaDB 10.6+, as `user:password@tcp(host:3306)/seckill`. It needs no
	// parameters and has one address: a proxy stands before several servers. Empty: SQLite.
	DSN string
	// TLS is how the server is spoken to; nil leaves that to the DSN.
	TLS *tls.Config
	// SQLiteFile is the file of the embedded database, made when missing.
	SQLiteFile string
	// Trace records commits and expiries, and the statements of purchases and of lists; nil records nothing.
	Trace *tracing.Tracer
	// OpenDB opens the pools of purchases and of lists; nil leaves that to Trace.
	OpenDB func(driver.Connector) *sql.DB
	// Log hears what the driver has to say; nil discards it.
	Log *slog.Logger
	// Events has every change written into the outbox of events, too. Something must publish them, or the outbox grows.
	Events bool
	// Slack is added to each limit of time, for tests: their machine may be busy with others.
	Slack time.Duration
}

// Database is an open database and its pools of connections.
type Database struct {
	// Dialect is what differs in its SQL. Trace, Events and Slack are as in Options. All four are for reading.
	Dialect Dialect
	Trace   *tracing.Tracer
	Events  bool
	Slack   time.Duration
	// Codes makes the code of an order that costs nothing, which is paid where it is made. Nil: none can be made.
	Codes func(orderID string) model.SealedCode

	sql  *sql.DB
	gorm *gorm.DB
	log  *slog.Logger

	// browsing is the pool of lists, counts and exports: they take no connection from purchases. See share.
	browsing *sql.DB
	browsers share
	// buyers is the share of the connections that sell for what buyers write beside purchases, see model.OfBuyers.
	buyers share
	health *sql.DB

	// blind says that the account may not look at groupMajority, or that there is nothing to look at.
	blind atomic.Bool

	// maintenance opens a pool for work that may take long: migrations.
	maintenance func() (*sql.DB, error)
	// file is SQLite's file, schema the name of MySQL's schema.
	file, schema string
	// writer is SQLite's only writing connection, else nil: its pool queues fairly, SQLite polls. Its cache stays warm.
	writer *sql.DB

	// unwritten is the latest transaction that the server could not write. Smaller ones may still fit.
	unwritten *refusal.Latest

	closed  atomic.Bool
	commits sync.WaitGroup // COMMITs whose caller has gone
}

// Open connects, and fails when the database is silent or too old, or the options are wrong. No error has a password.
func Open(ctx context.Context, o Options) (*Database, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.OpenDB == nil {
		o.OpenDB = o.Trace.OpenDB
	}
	d := &Database{log: o.Log, Trace: o.Trace, Events: o.Events, Slack: o.Slack, unwritten: refusal.New(o.Slack)}
	prepare := d.prepareMySQL
	if o.DSN == "" {
		prepare = d.prepareSQLite
	}
	dialector, err := prepare(o)
	if err != nil {
		return nil, err
	}
	if err := d.connect(ctx, dialector); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Database) prepareMySQL(o Options) (gorm.Dialector, error) {
	cfg, err := mysqlConfig(o)
	if err != nil {
		return nil, err
	}
	of := &primary{}
	session := append(mysqlSession(), mysqlSlack(o.Slack)...)
	open := func() (*sql.DB, error) { return openMySQL(o.OpenDB, cfg, of, session) }
	d.browsers, d.buyers = make(share, browseConnections), make(share, buyersConnections)
	if err := d.openPools(open, maxConnections-browseConnections); err != nil {
		return nil, err
	}
	for _, pool := range []*sql.DB{d.sql, d.browsing, d.health} {
		pool.SetConnMaxLifetime(connectionLifetime)
		pool.SetConnMaxIdleTime(budget.Survey)
	}
	d.schema = cfg.DBName
	d.Dialect = mysqlDialect()
	d.maintenance = func() (*sql.DB, error) {
		patient := cfg.Clone()
		patient.ReadTimeout, patient.WriteTimeout = 0, 0 // a migration takes as long as its tables are large
		// It waits seconds for a table in use. The lock's silent connection must outlast all migrations.
		patience := append(mysqlSession(), "SET SESSION lock_wait_timeout = 60, wait_timeout = 86400, innodb_lock_wait_timeout = 60 /*M!100300 , idle_write_transaction_timeout = 0, idle_readonly_transaction_timeout = 0 */")
		return openMySQL(sql.OpenDB, patient, of, patience)
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
	d.browsers, d.buyers = make(share, sqliteBrowseConnections), make(share, sqliteBuyersConnections)
	if err := d.openPools(open, sqliteConnections-sqliteBrowseConnections); err != nil {
		return nil, err
	}
	var err error
	if d.writer, err = open(); err != nil {
		return nil, err
	}
	d.writer.SetMaxOpenConns(1)
	d.file = o.SQLiteFile
	d.Dialect = sqliteDialect()
	d.maintenance = open
	return gormsqlite.New(gormsqlite.Config{DriverName: sqliteDriver, Conn: d.sql}), nil
}

// openPools opens the pools of purchases, lists and Ready. None closes idle connections: a rush must not reopen them.
func (d *Database) openPools(open func() (*sql.DB, error), selling int) error {
	for _, pool := range []struct {
		into **sql.DB
		size int
	}{{&d.sql, selling}, {&d.browsing, cap(d.browsers)}, {&d.health, 1}} {
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
	if err := patiently(ctx, func() error { return d.Ping(ctx) }); err != nil {
		return err
	}
	if err := d.checkVersion(ctx); err != nil {
		return err
	}
	var err error
	d.gorm, err = gorm.Open(dialector, &gorm.Config{
		SkipDefaultTransaction: true, // transactions are opened where they are meant
		DisableAutomaticPing:   true,
		// The MySQL driver interpolates: one round trip each. Prepared statements were a fifth slower for single
		// orders, no faster for batches of varying size, and GORM's cache of them keeps a goroutine that nothing ends.
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
	ctx, cancel := context.WithTimeout(ctx, d.Budget())
	defer cancel()
	return Named("reach the database", d.sql.PingContext(ctx))
}

// Ready asks whether a sale could be made: its rows can be read, and the server takes writes. A full disk shows only in
// a transaction. Ready has a connection of its own, so that it does not wait behind purchases.
func (d *Database) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.Budget())
	defer cancel()
	var mode string
	var vouchers, orders int
	err := d.health.QueryRowContext(ctx,
		"SELECT mode, (SELECT COUNT(*) FROM (SELECT id FROM vouchers LIMIT 1) AS some_voucher),"+
			" (SELECT COUNT(*) FROM (SELECT id FROM orders LIMIT 1) AS some_order) FROM order_mode WHERE id = 1").Scan(&mode, &vouchers, &orders)
	if err == nil && d.Dialect.Name == MySQL {
		err = d.takesWrites(ctx)
	}
	return Named("look whether the database can be sold from", cmp.Or(err, d.unwritten.Err()))
}

func (d *Database) takesWrites(ctx context.Context) error {
	if _, err := d.health.ExecContext(ctx, writeNothing); err != nil || d.blind.Load() {
		return err
	}
	majority := true
	err := d.health.QueryRowContext(ctx, groupMajority).Scan(&majority)
	if _, answered := errors.AsType[*mysql.MySQLError](err); answered {
		d.blind.Store(isMySQL(err, noSuchTable, tableDenied))
		return nil // it has carried the statement out
	}
	if err == nil && !majority {
		return errNoMajority
	}
	return err
}

// Close waits for the COMMITs under way, within the driver's timeouts, and closes all. Again it does nothing.
func (d *Database) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.commits.Wait()
	err := errors.Join(d.sql.Close(), d.browsing.Close(), d.health.Close())
	if d.writer != nil {
		err = errors.Join(err, d.writer.Close())
	}
	if err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}

// SQL is the pool of purchases, for questions this package does not answer.
func (d *Database) SQL() *sql.DB { return d.sql }

// Budget bounds one call, waiting for a connection included.
func (d *Database) Budget() time.Duration { return operationBudget + d.Slack }

//go:embed migrations/mysql/*.sql migrations/sqlite/*.sql
var migrationFiles embed.FS

// Dialect is what differs between the databases in the service's SQL, which is written for MySQL.
type Dialect struct {
	Name string
	// Now is the database's clock, in the type of the DATETIME columns.
	Now string
	// HourAgo is an hour before now, and InAnHour an hour after it.
	HourAgo, InAnHour string
	// Share ends a SELECT whose rows must not change in the transaction. SQLite's are alone anyway.
	Share string
	// Then joins a table to one that is read before it, whatever the optimizer would rather do.
	Then string
	// ByPrimaryKey follows a table's name that is read by its primary key alone. SQLite locks no rows.
	ByPrimaryKey string
	// Purge is a statement that deletes a table's oldest rows by a column: before an instant, at most so many.
	Purge func(table, column string) string
}

func mysqlDialect() Dialect {
	return Dialect{
		Name:     MySQL,
		Now:      "NOW(6)",
		HourAgo:  "(NOW(6) - INTERVAL 1 HOUR)",
		InAnHour: "(NOW(6) + INTERVAL 1 HOUR)",
		Share:    " LOCK IN SHARE MODE", // MariaDB knows no FOR SHARE

		Then:         " STRAIGHT_JOIN ",
		ByPrimaryKey: " FORCE INDEX (PRIMARY)",
		Purge: func(table, column string) string {
			return fmt.Sprintf("DELETE FROM %[1]s WHERE %[2]s < ? ORDER BY %[2]s LIMIT ?", table, column)
		},
	}
}

// onTiDB is TiDB's dialect. It refuses LOCK IN SHARE MODE (1235), and FOR UPDATE only makes more transactions wait.
// GET_LOCK without a wait, which claims and migrations use, takes a second there.
func (d Dialect) onTiDB() Dialect {
	d.Share = " FOR UPDATE"
	return d
}

// sqliteDialect has columns of microseconds since 1970, and a clock of float milliseconds; DELETE has no LIMIT there.
func sqliteDialect() Dialect {
	const now = "(CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER) * 1000)"
	return Dialect{
		Name:     SQLite,
		Now:      now,
		HourAgo:  "(" + now + " - 3600000000)",
		InAnHour: "(" + now + " + 3600000000)",
		Then:     " CROSS JOIN ",

		Purge: func(table, column string) string {
			return fmt.Sprintf("DELETE FROM %[1]s WHERE rowid IN (SELECT rowid FROM %[1]s WHERE %[2]s < ? ORDER BY %[2]s LIMIT ?)", table, column)
		},
	}
}

// Through names a table that is read through an index: the optimizer would now and then read and sort all.
func (d Dialect) Through(table, index string) string {
	if d.Name == SQLite {
		return table + " INDEXED BY " + index
	}
	return table + " FORCE INDEX (" + index + ")"
}
