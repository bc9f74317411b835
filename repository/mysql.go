package repository

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// dialTimeout: a server that does not take a connection within a second
	// is down for the purposes of a request that has five.
	dialTimeout = time.Second
	// ioTimeout must outlast innodb_lock_wait_timeout (3 s), or a wait for a
	// row would look like a dead server; and it ends before operationBudget.
	ioTimeout = 4 * time.Second
)

// mysqlSession is what every connection is told.
//   - READ COMMITTED, see the package comment.
//   - Strict mode: what does not fit is an error, never cut.
//   - UTC: NOW(6) is the clock that decides windows, and is compared with
//     columns that hold UTC.
//   - innodb_lock_wait_timeout: who waits 3 s for the voucher's row meets a
//     stuck transaction, not a queue.
//   - idle_write_transaction_timeout (MariaDB): a process that was stopped in
//     the middle of a transaction holds the hot row 5 s and not for ever.
//   - idle_readonly_transaction_timeout (MariaDB): the same when it has only
//     locked so far. Longer, because who reads a snapshot for a hot copy waits
//     for Redis in between, at most twice 2 s.
func mysqlSession() []string {
	return []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
		"SET SESSION sql_mode = 'STRICT_ALL_TABLES,ONLY_FULL_GROUP_BY,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'" +
			", time_zone = '+00:00', autocommit = 1, innodb_lock_wait_timeout = 3" +
			" /*M!100300 , idle_write_transaction_timeout = 5, idle_readonly_transaction_timeout = 10 */",
	}
}

// mysqlMaintenanceSession waits for tables in use: seconds, a sale's longest
// transactions take one or two.
func mysqlMaintenanceSession() []string {
	return append(mysqlSession(), "SET SESSION lock_wait_timeout = 60 /*M!100300 , idle_write_transaction_timeout = 0, idle_readonly_transaction_timeout = 0 */")
}

// mysqlConfig reads the DSN and imposes what the service depends on. The
// parser's own message is not repeated: it can hold a piece of a password that
// has an @ or a / in it.
func mysqlConfig(o Options) (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(o.DSN)
	if err != nil {
		return nil, errors.New("the database's DSN does not parse: user:password@tcp(host:port)/schema is expected")
	}
	if cfg.DBName == "" {
		return nil, errors.New("the database's DSN names no schema: user:password@tcp(host:port)/schema is expected")
	}
	cfg.ParseTime = true
	cfg.Loc = time.UTC
	cfg.ClientFoundRows = true // else a repeated compare-and-set looks refused
	cfg.InterpolateParams = true
	cfg.CheckConnLiveness = true
	cfg.RejectReadOnly = true // a connection to a demoted server is dropped, the next finds the new one
	cfg.MultiStatements = false
	cfg.AllowAllFiles = false
	cfg.Timeout = dialTimeout
	cfg.ReadTimeout = ioTimeout
	cfg.WriteTimeout = ioTimeout
	cfg.Collation = "utf8mb4_bin"
	cfg.Logger = driverLog{o.Log}
	return cfg, cfg.Apply(mysql.Charset("utf8mb4", "utf8mb4_bin"))
}

// openMySQL makes a pool whose connections are told the session's settings.
func openMySQL(cfg *mysql.Config, session func() []string) (*sql.DB, error) {
	base, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, errors.New("the database's DSN is no good: user:password@tcp(host:port)/schema is expected")
	}
	return sql.OpenDB(endingConnector{sessionConnector{Connector: base, session: session}}), nil
}

// sessionConnector sets up every new connection.
type sessionConnector struct {
	driver.Connector
	session func() []string
}

// Connect implements driver.Connector.
func (c sessionConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	execer, ok := conn.(driver.ExecerContext)
	if !ok {
		return nil, errors.Join(fmt.Errorf("connection of type %T cannot execute", conn), conn.Close())
	}
	for _, statement := range c.session() {
		if _, err := execer.ExecContext(ctx, statement, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("set up a connection: %w", err), conn.Close())
		}
	}
	return conn, nil
}

// driverLog passes the driver's remarks about broken connections on.
type driverLog struct{ log *slog.Logger }

// Print implements mysql.Logger.
func (l driverLog) Print(v ...any) {
	l.log.Debug("database driver", slog.String("remark", fmt.Sprint(v...)))
}
