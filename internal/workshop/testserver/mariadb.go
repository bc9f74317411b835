package testserver

import (
	"context"
	"database/sql"
	_ "embed" // mariadb.sql
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/workshop/check"
)

const (
	// owner is the account that DSN names. It may do everything but write while the server is read-only,
	// as the account of a real service; AdminDSN names one that may.
	owner = "seckill"
	admin = "root"

	// DefaultSchema is there in every MariaDB, also after ClearData.
	DefaultSchema = "seckill"
)

// MariaDB starts a mariadbd of the test's own from deployments/my.cnf, as durable as in production. Further
// arguments win over the file, e.g. "--innodb-lock-wait-timeout=1". It has one empty schema, DefaultSchema.
func MariaDB(t testing.TB, args ...string) *Server {
	t.Helper()
	return testsHome().MariaDB(t, args...)
}

// DSN is the go-sql-driver DSN of a schema, for the account of a service: it may do everything but write
// while the server is read-only. Only a MariaDB has one.
func (s *Server) DSN(schema string) string { return dsn(owner, s.Addr(), schema) }

// AdminDSN is the DSN of the database's administrator, who may do everything, e.g. SET GLOBAL read_only = 1.
func (s *Server) AdminDSN(schema string) string { return dsn(admin, s.Addr(), schema) }

func dsn(user, addr, schema string) string { return user + "@tcp(" + addr + ")/" + schema }

func mariadbEngine() engine {
	return engine{
		program: "mariadbd",
		apt:     "mariadb-server",
		prepare: process.template.copy,
		args: func(s *Server) []string {
			// --defaults-file must be first.
			args := append([]string{"--defaults-file=" + configFile("my.cnf")}, installArgs()...)
			args = append(args,
				"--datadir="+s.data(),
				"--socket="+filepath.Join(s.dir, "socket"),
				"--pid-file="+filepath.Join(s.dir, "pid"),
				"--tmpdir="+s.dir,
				"--bind-address="+loopback,
				"--port="+strconv.Itoa(s.port.number),
				// Many small servers on one machine: little memory, and no kernel limit of io_uring.
				"--innodb-buffer-pool-size=64M",
				"--innodb-use-native-aio=OFF",
				"--innodb-buffer-pool-dump-at-shutdown=OFF",
				"--innodb-buffer-pool-load-at-startup=OFF",
			)
			return append(args, s.extra...)
		},
		ready: mariadbReady,
	}
}

// installArgs are needed alike when the data directory is made and when a server runs on it.
func installArgs() []string {
	args := []string{"--innodb-log-file-size=8M"} // a change of this size at start would cost a second
	if os.Geteuid() == 0 {
		args = append(args, "--user=root") // else mariadbd refuses to run as root
	}
	return args
}

// mariadbReady asks for the data directory, so that another test's server on the same port is not taken for this one.
func mariadbReady(ctx context.Context, s *Server) error {
	db, err := connect(s.AdminDSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	var dir string
	if err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&dir); err != nil {
		return fmt.Errorf("ask mariadbd on %s: %w", s.Addr(), err)
	}
	if filepath.Clean(dir) != s.data() {
		return fmt.Errorf("another mariadbd answers on %s", s.Addr())
	}
	return nil
}

// connect opens a pool that says nothing about the refused connections of a server that is starting.
func connect(dsn string) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("parse dsn: %w", err)
	}
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// template is a fresh data directory, made once per test binary (0.6 s) and copied for each server (0.1 s).
type template struct {
	once sync.Once
	path string
	err  error
}

func (t *template) copy(ctx context.Context, data string) error {
	t.once.Do(func() { t.path, t.err = install(ctx) })
	if t.err != nil {
		return t.err
	}
	if err := os.CopyFS(data, os.DirFS(t.path)); err != nil {
		return fmt.Errorf("copy the template: %w", err)
	}
	return nil
}

func install(ctx context.Context) (string, error) {
	const program = "mariadb-install-db"
	if _, err := exec.LookPath(program); err != nil {
		return "", fmt.Errorf("%s is missing: install it with `apt-get install mariadb-server`: %w", program, err)
	}
	dir, err := process.dir("template")
	if err != nil {
		return "", err
	}
	accounts := filepath.Join(dir, "accounts.sql")
	if err := os.WriteFile(accounts, accountsSQL, 0o600); err != nil {
		return "", fmt.Errorf("write %s: %w", accounts, err)
	}
	path := filepath.Join(dir, "data")
	args := append([]string{"--no-defaults"}, installArgs()...)
	args = append(args,
		"--datadir="+path, "--skip-test-db", "--skip-name-resolve",
		"--auth-root-authentication-method=normal", "--extra-file="+accounts)
	cmd := exec.CommandContext(ctx, program, args...)
	// Two bootstraps at once would otherwise meet in the files of their temporary tables.
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return path, nil
}

// accountsSQL are the accounts of every MariaDB.
//
//go:embed mariadb.sql
var accountsSQL []byte

// dropBudget bounds the removal of a test's schema. It would wait for ever for the tables of a transaction that a
// test left open.
const dropBudget = 30 * time.Second

// Schema returns the DSN of a fresh, empty schema in the database server that all tests share. It is dropped when the
// test is over.
func Schema(t testing.TB) string {
	t.Helper()
	server := process.database.get(t, sharedDatabase())
	// The process id separates the test binaries that share the server.
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), process.serial.Add(1))
	if err := administer(server, "CREATE DATABASE "+name); err != nil {
		t.Fatalf("testserver: %v", err)
	}
	t.Cleanup(func() {
		if err := administer(server, "DROP DATABASE "+name); err != nil {
			t.Errorf("testserver: %v (is a transaction of the test still open?)", err)
		}
	})
	return server.DSN(name)
}

// launchSharedDatabase starts a server that flushes lazily, because no test kills it, and has room for the pools of
// many tests.
func launchSharedDatabase() (*Server, error) {
	args := []string{
		"--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF",
		"--innodb-buffer-pool-size=256M", "--max-connections=4000",
	}
	if !OnMySQL() {
		args = append(args, "--innodb-flush-method=nosync")
	}
	return launch(stderr{}, testsHome().database(), args)
}

// administer runs one statement as the administrator.
func administer(server *Server, statement string) error {
	db, err := connect(server.AdminDSN(""))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), dropBudget)
	defer cancel()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// Home is a folder with servers of another version than the system has, as `make deps-engines` installs them below
// bin/engines. The empty one stands for the system's.
type Home string

// Engine is where `make deps-engines` has put one.
func Engine(name string) Home {
	return Home(filepath.Join(filepath.Dir(filepath.Dir(configFile("my.cnf"))), "bin", "engines", name))
}

func (h Home) program(name string) string { return filepath.Join(string(h), "bin", name) }

// mysql tells whether the database there is a MySQL and not a MariaDB.
func (h Home) mysql() bool {
	_, err := os.Stat(h.program("mysqld"))
	return h != "" && err == nil
}

// testsHome is where the tests' database is from.
func testsHome() Home { return Home(os.Getenv("TESTSERVER_MYSQL")) }

// OnMySQL tells whether the tests' database is MySQL 8 and not MariaDB.
func OnMySQL() bool { return testsHome().mysql() }

// database is the engine of MariaDB or MySQL.
func (h Home) database() engine {
	e := mariadbEngine()
	if h == "" {
		return e
	}
	e.prepare = func(_ context.Context, data string) error {
		return os.CopyFS(data, os.DirFS(filepath.Join(string(h), "data")))
	}
	messages := []string{"--lc-messages-dir=" + filepath.Join(string(h), "messages")}
	if !h.mysql() {
		e.program = h.program("mariadbd")
		args := e.args
		e.args = func(s *Server) []string {
			return slices.Concat(args(s), messages, []string{"--plugin-dir=" + string(h)})
		}
		return e
	}
	e.program = h.program("mysqld")
	e.args = func(s *Server) []string {
		return slices.Concat([]string{
			"--defaults-file=" + configFile("my.cnf"),
			"--datadir=" + s.data(),
			"--socket=" + filepath.Join(s.dir, "socket"),
			"--pid-file=" + filepath.Join(s.dir, "pid"),
			"--tmpdir=" + s.dir,
			"--bind-address=" + loopback,
			"--port=" + strconv.Itoa(s.port.number),
			"--mysqlx=OFF",                // it would want a port of its own
			"--secure-file-priv=" + s.dir, // one that is built in need not exist
		}, messages, smallMySQL(), s.extra)
	}
	return e
}

// MariaDB starts a database of this version, as the function of that name.
func (h Home) MariaDB(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, h.database(), args)
}

// Redis starts a Redis or Valkey of this version, as the function of that name.
func (h Home) Redis(t testing.TB, args ...string) *Server {
	t.Helper()
	e := redisEngine()
	if h != "" {
		e.program = h.program(e.program)
	}
	return start(t, e, args)
}

// NATS starts a NATS server of this version, as the function of that name.
func (h Home) NATS(t testing.TB, settings ...string) *Server {
	t.Helper()
	program := h.program("nats-server")
	if h == "" {
		program = NATSProgram(t)
	}
	return start(t, natsEngine(program, nil), settings)
}

// smallMySQL is for many servers on one machine.
func smallMySQL() []string {
	args := []string{
		"--innodb-buffer-pool-size=64M",
		"--innodb-redo-log-capacity=32M",
		"--innodb-use-native-aio=OFF",
		"--innodb-buffer-pool-dump-at-shutdown=OFF",
		"--innodb-buffer-pool-load-at-startup=OFF",
		// Of what the server observes only the threads, by which Waiting names a statement. The rest is a quarter of a
		// gigabyte.
		"--performance-schema-instrument=%=OFF",
		"--performance-schema-instrument=thread/%=ON",
		"--performance-schema-digests-size=0",
		"--performance-schema-error-size=0",
		"--performance-schema-events-statements-history-long-size=0",
		"--performance-schema-events-stages-history-long-size=0",
		"--performance-schema-events-waits-history-long-size=0",
		"--performance-schema-events-transactions-history-long-size=0",
	}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root") // else mysqld refuses to run as root
	}
	return args
}

// What MariaDB and MySQL 8 tell of themselves, asked the way that each understands. The pools are an administrator's.

// Hostile gives a server global settings that operators have for good or bad reasons, and that a service cannot work
// with unless its sessions have their own.
func Hostile(t testing.TB, db *sql.DB) {
	t.Helper()
	for _, setting := range []string{
		"sql_safe_updates = 1", "autocommit = 0", "completion_type = 2", "sql_big_selects = 0", "max_join_size = 3", "sql_select_limit = 1", "sql_auto_is_null = 1",
		"unique_checks = 0", "time_zone = '-11:30'", "innodb_lock_wait_timeout = 1000", "group_concat_max_len = 4", "div_precision_increment = 0",
		"sql_mode = 'ANSI,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,NO_AUTO_VALUE_ON_ZERO,HIGH_NOT_PRECEDENCE'",
		"character_set_server = latin1", "collation_server = latin1_general_cs", "default_storage_engine = MyISAM", "foreign_key_checks = 0",
		"check_constraint_checks = 0", "TRANSACTION ISOLATION LEVEL SERIALIZABLE", "TRANSACTION READ ONLY",
	} {
		_, err := db.ExecContext(t.Context(), "SET GLOBAL "+setting)
		if known, ok := errors.AsType[*mysql.MySQLError](err); !ok || known.Number != 1193 { // each engine lacks some
			check.Must(t, err)
		}
	}
}

// Status is the sum of a server's counters, by the names that SHOW GLOBAL STATUS has.
func Status(t testing.TB, db *sql.DB, names ...string) (sum int64) {
	t.Helper()
	rows := check.Value(db.QueryContext(t.Context(), "SHOW GLOBAL STATUS WHERE variable_name IN ('"+strings.Join(names, "', '")+"')"))(t)
	defer rows.Close()
	found := 0
	for ; rows.Next(); found++ {
		var name string
		var value int64
		check.Must(t, rows.Scan(&name, &value))
		sum += value
	}
	check.Must(t, rows.Err())
	check.Equal(t, "counters found", found, len(names))
	return sum
}

// Deadlocks is how many deadlocks a server has ended.
func Deadlocks(t testing.TB, db *sql.DB) (n int64) {
	t.Helper()
	if !OnMySQL() {
		return Status(t, db, "Innodb_deadlocks")
	}
	check.Must(t, db.QueryRowContext(t.Context(), "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks' AND status = 'enabled'").Scan(&n))
	return n
}

// Waiting tells whether a statement that contains a text waits for a row that another transaction has locked. MariaDB
// says that exactly only to those who look rarely, so that there a statement is taken to wait when it has run for so
// long.
func Waiting(t testing.TB, db *sql.DB, text string) bool {
	t.Helper()
	question := "SELECT COUNT(*) FROM information_schema.processlist WHERE command = 'Query' AND time_ms > 50 AND id <> CONNECTION_ID() AND info LIKE ?"
	if OnMySQL() {
		question = "SELECT COUNT(*) FROM performance_schema.data_lock_waits JOIN performance_schema.threads ON thread_id = requesting_thread_id WHERE processlist_info LIKE ?"
	}
	var n int
	check.Must(t, db.QueryRowContext(t.Context(), question, "%"+text+"%").Scan(&n))
	return n > 0
}

// Step is how a database reads one table of a statement.
type Step struct{ Table, Key, Extra string }

// Plan is how a database would carry a statement out.
func Plan(t testing.TB, db *sql.DB, statement string, args ...any) (steps []Step) {
	t.Helper()
	rows := check.Value(db.QueryContext(t.Context(), "EXPLAIN FORMAT=TRADITIONAL "+statement, args...))(t)
	defer rows.Close()
	columns := check.Value(rows.Columns())(t)
	for rows.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		check.Must(t, rows.Scan(into...))
		said := map[string]string{}
		for i, column := range columns {
			said[strings.ToLower(column)] = values[i].String
		}
		steps = append(steps, Step{said["table"], said["key"], said["extra"]})
	}
	check.Must(t, rows.Err())
	return steps
}

// Numbers is a table with the numbers from first to last in its column seq, to select from.
func Numbers(first, last int) string {
	if !OnMySQL() {
		return fmt.Sprintf("seq_%d_to_%d", first, last)
	}
	const digit = "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5" +
		" UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) AS d%d"
	var sum, digits []string
	for place, weight := 0, 1; weight <= last-first || place == 0; place, weight = place+1, weight*10 {
		sum = append(sum, fmt.Sprintf("%d * d%d.n", weight, place))
		digits = append(digits, fmt.Sprintf(digit, place))
	}
	offset := strings.Join(sum, " + ")
	return fmt.Sprintf("(SELECT %d + %s AS seq FROM %s WHERE %s <= %d) AS numbers", first, offset, strings.Join(digits, " JOIN "), offset, last-first)
}
