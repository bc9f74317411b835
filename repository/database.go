package repository

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	gormmysql "gorm.io/driver/mysql"
	gormsqlite "gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

const (
	// operationBudget bounds one call, waiting for a connection included. The
	// longest answer of the service is the lock's wait and 5 s; half a second
	// is left for the rest of the road.
	operationBudget = 4500 * time.Millisecond
	// maxConnections: beyond 16 concurrent transactions on one hot voucher
	// throughput falls again (measured), and a dozen instances still fit into
	// a server's usual few hundred connections.
	maxConnections = 16
	// connectionLifetime makes a pool notice, within minutes, a changed address
	// of the server or a rebalanced proxy.
	connectionLifetime = 5 * time.Minute
	// sqliteConnections: readers do not disturb each other or the one writer,
	// but each has a page cache of its own.
	sqliteConnections = 8
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
	// service imposes what it depends on. Empty: SQLite.
	DSN string
	// SQLiteFile is the file of the embedded database, made when missing.
	SQLiteFile string
	// Log hears what the driver has to say; nil discards it.
	Log *slog.Logger
}

// Database is an open database and its pool of connections.
type Database struct {
	dialect dialect
	sql     *sql.DB
	gorm    *gorm.DB
	log     *slog.Logger

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
	d := &Database{log: o.Log}
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
	if d.sql, err = openMySQL(cfg, mysqlSession); err != nil {
		return nil, err
	}
	d.sql.SetMaxOpenConns(maxConnections)
	d.sql.SetMaxIdleConns(maxConnections)
	d.sql.SetConnMaxLifetime(connectionLifetime)
	d.schema = cfg.DBName
	d.dialect = mysqlDialect()
	d.maintenance = func() (*sql.DB, error) {
		patient := cfg.Clone()
		patient.ReadTimeout, patient.WriteTimeout = 0, 0 // a migration takes as long as its tables are large
		return openMySQL(patient, mysqlMaintenanceSession)
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
	open := func() (*sql.DB, error) { return openSQLite(o.SQLiteFile) }
	var err error
	if d.sql, err = open(); err != nil {
		return nil, err
	}
	d.sql.SetMaxOpenConns(sqliteConnections)
	d.sql.SetMaxIdleConns(sqliteConnections)
	if d.writer, err = open(); err != nil {
		return nil, err
	}
	d.writer.SetMaxOpenConns(1)
	d.file = o.SQLiteFile
	d.dialect = sqliteDialect()
	d.maintenance = open
	return gormsqlite.New(gormsqlite.Config{DriverName: sqliteDriver, Conn: d.sql}), nil
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

// Close waits for the COMMITs under way, which is bounded by the driver's
// timeouts, and closes every connection. Closing again does nothing.
func (d *Database) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.commits.Wait()
	err := d.sql.Close()
	if d.writer != nil {
		err = errors.Join(err, d.writer.Close())
	}
	if err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}

// SQL is the pool, for questions this package does not answer.
func (d *Database) SQL() *sql.DB { return d.sql }

// Dialect is "mysql" (MariaDB too) or "sqlite".
func (d *Database) Dialect() string { return d.dialect.name }
