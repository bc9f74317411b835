package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/budget"
	"seckill/internal/sqlitefile"
)

// leastPacket is the longest statement a server must take: a voucher, or its entry of the log. An order takes 1 KB.
const leastPacket = 64 << 10

// mysqlSession is what every connection is told, whatever the server's global settings are.
//   - READ COMMITTED (see package repository), transactions that may write, and InnoDB tables, goose's included.
//   - Strict mode: what does not fit is an error, never cut. UNIQUE and (MariaDB) CHECK are enforced.
//   - UTC: NOW(6) is the clock that decides windows, and is compared with columns that hold UTC.
//   - A COMMIT only commits: completion_type would begin another transaction, or hang up.
//   - What an operator has set for people refuses no statements, and cuts no results.
//   - innodb_lock_wait_timeout: 1 s for a voucher's row means a stuck transaction, no queue, and who waits keeps
//     vouchers locked. MySQL counts in seconds, and the server goes on waiting when its client has hung up.
//   - idle_write_transaction_timeout (MariaDB): a process stopped in a transaction holds the hot row 5 s, not for ever.
//     idle_readonly_transaction_timeout is longer: a hot copy's snapshot waits for Redis in between, at most twice 2 s.
//   - max_statement_time (MariaDB): an administrator's would end a COMMIT that waits for a replica. A SELECT has a
//     limit of its own, see endingConn.ending.
func mysqlSession() []string {
	return []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
		"SET SESSION sql_mode = 'STRICT_ALL_TABLES,ONLY_FULL_GROUP_BY,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'" +
			", time_zone = '+00:00', autocommit = 1, innodb_lock_wait_timeout = 1" +
			" /*M!100300 , idle_write_transaction_timeout = 5, idle_readonly_transaction_timeout = 10, max_statement_time = 0 */",
		"SET SESSION sql_safe_updates = 0, sql_big_selects = 1, sql_select_limit = 18446744073709551615, sql_auto_is_null = 0" +
			", completion_type = 0, unique_checks = 1, default_storage_engine = InnoDB /*M!100300 , check_constraint_checks = 1 */",
	}
}

// mysqlSlack adds to what a session waits for, see Options.
func mysqlSlack(slack time.Duration) []string {
	if slack == 0 {
		return nil
	}
	return []string{fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d"+
		" /*M!100300 , idle_write_transaction_timeout = 0, idle_readonly_transaction_timeout = 0 */",
		1+int(slack.Seconds()))}
}

// mysqlClusterSession makes what one instance committed visible to the next read through any member. A server without
// the variable is in no such cluster. TiDB needs none: a transaction's timestamp follows every commit.
//   - wsrep_sync_wait (Galera): SELECT and BEGIN wait for what was committed before; without wsrep_on it means nothing.
//   - group_replication_consistency: with several writers each transaction waits like that. With one, which all
//     instances use, a new one waits for what its predecessor has committed.
func mysqlClusterSession() []string {
	return []string{
		"SET SESSION wsrep_sync_wait = 1",
		"SET SESSION group_replication_consistency = IF(@@group_replication_single_primary_mode, 'BEFORE_ON_PRIMARY_FAILOVER', 'BEFORE')",
	}
}

// errDSN does not repeat the driver's own message, which can hold a piece of a password that has an @ or a / in it.
var errDSN = errors.New("the database's DSN does not parse: user:password@tcp(host:port)/schema is expected")

func mysqlConfig(o Options) (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(o.DSN)
	if err != nil {
		return nil, errDSN
	}
	if cfg.DBName == "" {
		return nil, errors.New("the database's DSN names no schema: user:password@tcp(host:port)/schema is expected")
	}
	cfg.ParseTime = true
	cfg.Loc = time.UTC
	cfg.ClientFoundRows = true // else a repeated compare-and-set looks refused
	cfg.InterpolateParams = true
	cfg.CheckConnLiveness = true
	cfg.RejectReadOnly = false // endingConn does it, for more errors, and drops the other connections too
	cfg.MultiStatements = false
	cfg.AllowAllFiles = false
	cfg.MaxAllowedPacket = 0 // each connection asks the server for it
	cfg.Timeout = budget.Look + o.Slack
	cfg.ReadTimeout = budget.Work + o.Slack
	cfg.WriteTimeout = budget.Work + o.Slack
	cfg.Collation = "utf8mb4_bin"
	cfg.Logger = driverLog{o.Log}
	if o.TLS != nil {
		cfg.TLS = o.TLS.Clone() // the driver writes the host's name into it
	}
	// An instant with more digits than a column is compared with no index (MariaDB).
	return cfg, cfg.Apply(mysql.Charset("utf8mb4", "utf8mb4_bin"), mysql.TimeTruncate(time.Microsecond))
}

func openMySQL(pool func(driver.Connector) *sql.DB, cfg *mysql.Config, of *primary, session []string) (*sql.DB, error) {
	base, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, errDSN
	}
	return pool(endingConnector{base, slices.Concat(session, mysqlClusterSession()), of, cfg.ReadTimeout}), nil
}

// primary counts the servers behind the database's address. When one refuses a write as demoted, a proxy or a moved
// address may lead to another. Older connections are closed: the demoted server would answer reads with what is past.
type primary struct {
	mu     sync.Mutex
	number atomic.Int64
	since  time.Time
}

// refused says that the numbered server takes no writes. While none does, connections are not made anew.
func (p *primary) refused(number int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number == p.number.Load() && time.Since(p.since) >= budget.Glance {
		p.number.Add(1)
		p.since = time.Now()
	}
}

type driverLog struct{ log *slog.Logger }

func (l driverLog) Print(v ...any) {
	l.log.Debug("database driver", slog.String("remark", fmt.Sprint(v...)))
}

// checkVersion refuses servers that ignore what the schema relies on: MySQL before 8.0.16 enforces no CHECK.
func (d *Database) checkVersion(ctx context.Context) error {
	if d.Dialect.Name != MySQL {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.Budget())
	defer cancel()
	var version string
	var packet int64
	if err := d.sql.QueryRowContext(ctx, "SELECT VERSION(), @@max_allowed_packet").Scan(&version, &packet); err != nil {
		return Named("ask for the database's version", err)
	}
	if packet < leastPacket {
		return fmt.Errorf("the database takes statements of %d bytes (max_allowed_packet), and must take %d", packet,
			leastPacket)
	}
	if !supported(version) {
		return fmt.Errorf("the database is %s; MySQL 8.0.16, MariaDB 10.6 or TiDB 7.2 is the oldest that works",
			version)
	}
	if !strings.Contains(version, tidb) {
		return nil
	}
	d.Dialect = d.Dialect.onTiDB()
	var enforced bool // docs.pingcap.com/tidb/stable/constraints/#check
	if err := d.sql.QueryRowContext(ctx, "SELECT @@global.tidb_enable_check_constraint").Scan(&enforced); err != nil {
		return Named("ask TiDB whether it enforces CHECK", err)
	}
	if !enforced {
		return errors.New("TiDB ignores CHECK constraints: SET GLOBAL tidb_enable_check_constraint = ON before the tables are made")
	}
	return nil
}

// tidb stands in TiDB's version behind that of the MySQL it speaks like, and before its own.
const tidb = "-TiDB-v"

func supported(version string) bool {
	oldest := [3]int{8, 0, 16}
	if _, own, found := strings.Cut(version, tidb); found {
		oldest = [3]int{7, 2, 0} // with CHECK constraints
		version = own
	} else if strings.Contains(version, "MariaDB") {
		oldest = [3]int{10, 6, 0}
		version = strings.TrimPrefix(version, "5.5.5-") // how old servers greeted old clients
	}
	var have [3]int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &have[0], &have[1], &have[2]); n < 2 {
		return true // a fork with numbers of its own: let it try
	}
	return slices.Compare(have[:], oldest[:]) >= 0
}

// sqliteDriver is the name under which modernc.org/sqlite registers itself: SQLite without cgo.
const sqliteDriver = "sqlite"

// openSQLite makes a pool on a file. Times are microseconds since 1970, which sort and compare exactly.
func openSQLite(pool func(driver.Connector) *sql.DB, file string) (*sql.DB, error) {
	connector, err := sqlitefile.Connector(file, url.Values{
		"_time_integer_format": {"unix_micro"},
		"_inttotime":           {"1"},
		"_timezone":            {"UTC"},
		"_dqs":                 {"0"},
	})
	if err != nil {
		return nil, err
	}
	return pool(endingConnector{Connector: connector, primary: &primary{}}), nil
}

// endingConnector's connections do not outlive a failed COMMIT or ROLLBACK. A server that refuses either may keep the
// transaction open (a node without quorum does): the next BEGIN would commit it. Pools close only on driver.ErrBadConn.
type endingConnector struct {
	driver.Connector

	session []string // what every new connection is told
	primary *primary
	// patience is how long an answer is waited for; 0: as long as it takes.
	patience time.Duration
}

func (c endingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	number := c.primary.number.Load()
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	whole, ok := conn.(wholeConn)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("connection of type %T is not whole", conn)
	}
	for _, statement := range c.session {
		_, err := whole.ExecContext(ctx, statement, nil)
		if err != nil && !isMySQL(err, unknownVariable) { // only a cluster's are not known everywhere
			return nil, errors.Join(fmt.Errorf("set up a connection: %w", err), conn.Close())
		}
	}
	return &endingConn{wholeConn: whole, primary: c.primary, number: number, patience: c.patience}, nil
}

// wholeConn is what both drivers' connections can do. The pool looks for each, and does without a hidden one.
type wholeConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type endingConn struct {
	wholeConn

	primary  *primary
	number   int64 // of the primary that it was opened to
	patience time.Duration
	inside   bool
	// refused: the server refused for what may be this connection's: rights granted later need a new one.
	refused bool
}

// over says that another primary may have taken the place of the one that this connection was opened to.
func (c *endingConn) over() bool { return c.primary.number.Load() != c.number }

// IsValid implements driver.Validator: the pool closes a connection that is not.
func (c *endingConn) IsValid() bool { return !c.refused && !c.over() && c.wholeConn.IsValid() }

// ResetSession implements driver.SessionResetter: a connection to an earlier primary is replaced.
func (c *endingConn) ResetSession(ctx context.Context) error {
	if c.over() {
		return driver.ErrBadConn
	}
	return c.wholeConn.ResetSession(ctx)
}

func (c *endingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.strayed() {
		return nil, driver.ErrBadConn
	}
	if slices.ContainsFunc(args, noTime) {
		return nil, errNoTime
	}
	result, err := c.wholeConn.ExecContext(ctx, query, args)
	return result, c.note(err)
}

func (c *endingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.strayed() {
		return nil, driver.ErrBadConn
	}
	rows, err := c.wholeConn.QueryContext(ctx, c.ending(ctx, query), sinceEver(args))
	return rows, c.note(err)
}

// The zero time becomes 0000-00-00, which MySQL 8 refuses. Who reads since it means all; who writes it forgot a time.

var errNoTime = errors.New("a statement that writes has the zero time as a parameter")

func noTime(arg driver.NamedValue) bool {
	at, ok := arg.Value.(time.Time)
	return ok && at.IsZero()
}

// sinceEver puts the first instant that every database knows in the place of zero times.
func sinceEver(args []driver.NamedValue) []driver.NamedValue {
	if !slices.ContainsFunc(args, noTime) {
		return args
	}
	args = slices.Clone(args)
	for i := range args {
		if noTime(args[i]) {
			args[i].Value = time.Date(1000, time.January, 1, 0, 0, 0, 0, time.UTC)
		}
	}
	return args
}

// ending has the server end a SELECT shortly before its caller leaves: MySQL and MariaDB notice a client that hung up
// only when they answer. The limit is part of the statement: it costs no round trip, and a router that gives the
// session to somebody else keeps it. MariaDB obeys the first comment. MySQL and TiDB skip it, and take the second one
// for a hint. Routers skip both. Writes have no limit: they touch few rows, wait for one at most
// innodb_lock_wait_timeout, and nobody knows what an interrupted COMMIT did.
func (c *endingConn) ending(ctx context.Context, query string) string {
	rest, reads := strings.CutPrefix(query, "SELECT ")
	if !reads || c.patience == 0 {
		return query
	}
	left := c.patience
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	left = max(left-left/8, time.Millisecond) // 0 is no limit
	return fmt.Sprintf("/*M!100101 SET STATEMENT max_statement_time=%.3f FOR */ SELECT /*+ MAX_EXECUTION_TIME(%d) */ %s",
		left.Seconds(), left.Milliseconds(), rest)
}

// strayed says that nothing more is to be asked here. A transaction comes to its end where it began.
func (c *endingConn) strayed() bool { return !c.inside && c.over() }

// note has the pool close a useless connection. Outside a transaction a demoted server's refusal is repeated elsewhere.
func (c *endingConn) note(err error) error {
	if _, answered := errors.AsType[*mysql.MySQLError](err); !answered || classify(err) != faultAway {
		return err
	}
	c.refused = true
	if !demoted(err) {
		return err
	}
	c.primary.refused(c.number)
	if c.inside {
		return err
	}
	return fmt.Errorf("%w; %w", err, driver.ErrBadConn)
}

func (c *endingConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	if c.strayed() {
		return nil, driver.ErrBadConn
	}
	tx, err := c.wholeConn.BeginTx(ctx, options)
	if err != nil {
		return nil, c.note(err)
	}
	c.inside = true
	return endingTx{tx, c}, nil
}

// CheckNamedValue implements driver.NamedValueChecker, which only MySQL's driver has.
func (c *endingConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.wholeConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip // the pool's own way
}

type endingTx struct {
	tx   driver.Tx
	conn *endingConn
}

func (t endingTx) Commit() error { return t.end(t.tx.Commit()) }

func (t endingTx) Rollback() error { return t.end(t.tx.Rollback()) }

// end makes the pool close the connection when the transaction may still be open.
func (t endingTx) end(err error) error {
	if err == nil {
		t.conn.inside = false
		return nil
	}
	return fmt.Errorf("%w; %w", t.conn.note(err), driver.ErrBadConn)
}
