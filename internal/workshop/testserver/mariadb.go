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
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"seckill/internal/workshop/check"
)

// DefaultSchema is there in every MariaDB, also after ClearData.
const DefaultSchema = "seckill"

// DSN is the go-sql-driver DSN of a schema, for a service's account, which a read-only server stops.
func (s *Server) DSN(schema string) string { return "seckill@tcp(" + s.Addr() + ")/" + schema }

// AdminDSN is the DSN of the database's administrator, who may do everything, e.g. SET GLOBAL read_only = 1.
func (s *Server) AdminDSN(schema string) string { return "root@tcp(" + s.Addr() + ")/" + schema }

func (s *Server) administer(ctx context.Context, statement string, into ...any) error {
	db, err := sql.Open("mysql", s.AdminDSN("")+"?multiStatements=true")
	if err != nil {
		return err
	}
	defer db.Close()
	if len(into) > 0 {
		err = db.QueryRowContext(ctx, statement).Scan(into...)
	} else {
		_, err = db.ExecContext(ctx, statement)
	}
	if err != nil {
		return fmt.Errorf("%s on %s: %w", statement, s.Addr(), err)
	}
	return nil
}

// Home is a folder of another version's servers (`make deps-engines`); empty: the system's.
type Home string

// Engine is where `make deps-engines` has put one.
func Engine(name string) Home { return Home(filepath.Join(moduleRoot(), "bin", "engines", name)) }

func testsHome() Home { return Home(os.Getenv("TESTSERVER_MYSQL")) }

// OnMySQL tells whether the tests' database is MySQL 8 and not MariaDB.
func OnMySQL() bool { return testsHome().mysql() }

func (h Home) program(name string) string {
	if h == "" {
		return name
	}
	return filepath.Join(string(h), "bin", name)
}

func (h Home) mysql() bool {
	_, err := os.Stat(h.program("mysqld"))
	return h != "" && err == nil
}

// MariaDB starts a mariadbd of the test's own from deployments/my.cnf, as durable as in production. Further
// arguments win over the file, e.g. "--innodb-lock-wait-timeout=1". It has one empty schema, DefaultSchema.
func MariaDB(t testing.TB, args ...string) *Server {
	t.Helper()
	return testsHome().MariaDB(t, args...)
}

// MariaDB starts a database of this version, as the function of that name.
func (h Home) MariaDB(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, h.database(), args)
}

const greeted = "\n" // in the greeting of a database: its first byte is 10, the version of the protocol

func (h Home) database() engine {
	e := engine{program: h.program("mariadbd"), apt: "mariadb-server", answer: greeted, prepare: copyTemplate}
	var own []string
	switch {
	case h.mysql():
		e.program = h.program("mysqld")
		own = []string{"--mysqlx=OFF"} // it would want a port of its own
	case h != "":
		own = []string{"--plugin-dir=" + string(h)}
	}
	if h != "" {
		own = append(own, "--lc-messages-dir="+filepath.Join(string(h), "messages"))
		e.prepare = func(_ context.Context, data string) error {
			return os.CopyFS(data, os.DirFS(filepath.Join(string(h), "data")))
		}
	}
	e.args = func(s *Server) []string {
		return slices.Concat([]string{
			"--defaults-file=" + configFile("my.cnf"), // it must be first
			"--datadir=" + s.data(),
			"--socket=" + filepath.Join(s.dir, "socket"),
			"--pid-file=" + filepath.Join(s.dir, "pid"),
			"--tmpdir=" + s.dir,
			"--secure-file-priv=" + s.dir, // one that is built in need not exist
			"--bind-address=" + loopback,
			"--port=" + strconv.Itoa(s.port.number),
		}, own, h.small(), s.extra)
	}
	return e
}

func (h Home) small() []string {
	args := []string{
		"--innodb-buffer-pool-size=64M", "--innodb-buffer-pool-dump-at-shutdown=OFF",
		"--innodb-buffer-pool-load-at-startup=OFF",
		"--innodb-use-native-aio=OFF", // the kernel limits io_uring
	}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root") // else it refuses to run as root
	}
	if !h.mysql() {
		return append(args, "--innodb-log-file-size=8M")
	}
	return append(args,
		"--innodb-redo-log-capacity=32M",
		// The server observes only threads, by which Waiting names a statement. The rest takes a quarter of a gigabyte.
		"--performance-schema-instrument=%=OFF",
		"--performance-schema-instrument=thread/%=ON",
		"--performance-schema-digests-size=0",
		"--performance-schema-error-size=0",
		"--performance-schema-events-statements-history-long-size=0",
		"--performance-schema-events-stages-history-long-size=0",
		"--performance-schema-events-waits-history-long-size=0",
		"--performance-schema-events-transactions-history-long-size=0",
	)
}

func install() (string, error) {
	dir, err := process.dir("template")
	if err != nil {
		return "", err
	}
	accounts, path := filepath.Join(dir, "accounts.sql"), filepath.Join(dir, "data")
	if err := os.WriteFile(accounts, accountsSQL, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.Background(), "mariadb-install-db",
		slices.Concat([]string{"--no-defaults"}, Home("").small(), []string{
			"--datadir=" + path, "--skip-test-db", "--skip-name-resolve", "--auth-root-authentication-method=normal",
			"--extra-file=" + accounts,
		})...)
	// Two bootstraps at once would otherwise meet in the files of their temporary tables.
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w (apt-get install mariadb-server)\n%s", cmd, err, out)
	}
	return path, nil
}

func copyTemplate(_ context.Context, data string) error {
	path, err := template()
	if err != nil {
		return err
	}
	return os.CopyFS(data, os.DirFS(path))
}

//go:embed mariadb.sql
var accountsSQL []byte

const dropBudget = 30 * time.Second // of the removal of a schema, which would wait for a transaction left open

// Schema returns the DSN of a fresh, empty schema in the shared database server, dropped with the test.
func Schema(t testing.TB) string {
	t.Helper()
	server := sharedDatabase.get(t)
	// The process id separates the test binaries that share the server.
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), process.serial.Add(1))
	check.Must(t, server.administer(t.Context(), "CREATE DATABASE "+name))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dropBudget)
		defer cancel()
		if err := server.administer(ctx, "DROP DATABASE "+name); err != nil {
			t.Errorf("testserver: %v (is a transaction of the test still open?)", err)
		}
	})
	return server.DSN(name)
}

// launchSharedDatabase starts a server that flushes lazily, and has room for the pools of many tests.
func launchSharedDatabase() (*Server, error) {
	args := []string{
		"--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF", "--innodb-buffer-pool-size=256M",
		"--max-connections=4000",
	}
	if !OnMySQL() {
		args = append(args, "--innodb-flush-method=nosync")
	}
	return launch(testsHome().database(), args)
}

// joined asks a member of a cluster about itself; it takes part when it answers with this word.
func joined(question, word string) func(context.Context, *Server) error {
	return func(ctx context.Context, s *Server) error {
		var said string
		err := s.administer(ctx, question, &said)
		if err == nil && said != word {
			err = fmt.Errorf("the member on %s says %s and not %s", s.Addr(), said, word)
		}
		return err
	}
}

// members starts a cluster's members one after the other, with ports between them. The first begins it.
func members(
	t testing.TB, count, ports int, begin string, member func(number int, between []port, addresses string) engine,
) (servers []*Server) {
	t.Helper()
	var between [][]port
	var addresses []string
	for range count {
		own := takePorts(t, ports)
		between, addresses = append(between, own), append(addresses, own[0].addr())
	}
	for number := range count {
		e := member(number, between[number], strings.Join(addresses, ","))
		args := e.args
		e.args = func(s *Server) []string {
			all := args(s)
			if number == 0 && s.child == nil {
				all = append(all, begin)
			}
			return append(all, s.extra...)
		}
		servers = append(servers, start(t, e, nil))
	}
	return servers
}

// Galera starts members of one Galera cluster with deployments/engines/galera/node, as durable as in production, each
// with DefaultSchema and MariaDB's accounts. A killed one comes back with Start while the others have quorum.
func Galera(t testing.TB, count int) []*Server {
	t.Helper()
	return members(t, count, 3, "--wsrep-new-cluster", func(number int, between []port, addresses string) engine {
		return engine{
			program: configFile("engines/galera/node"), apt: "mariadb-server", answer: greeted,
			joined: joined("SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_ready'", "ON"),
			prepare: func(ctx context.Context, data string) error {
				server := filepath.Dir(data) // a member that joins is filled by another account
				err := errors.Join(os.Chmod(server, 0o711), os.Chmod(filepath.Dir(server), 0o711))
				if err != nil || number > 0 {
					return errors.Join(err, os.MkdirAll(data, 0o700))
				}
				return copyTemplate(ctx, data)
			},
			args: func(s *Server) []string {
				ports := fmt.Sprintf("%d:%d:%d", between[0].number, between[1].number, between[2].number)
				return append([]string{s.dir, strconv.Itoa(s.port.number), ports, addresses}, Home("").small()...)
			},
		}
	})
}

// GroupReplication starts members of one single-primary group of MySQL 8 with
// deployments/engines/group-replication/node, as durable as production, the first as primary, each with DefaultSchema
// and MariaDB's accounts. A killed one comes back with Start while there is a majority. It needs TESTSERVER_MYSQL.
func GroupReplication(t testing.TB, count int) []*Server {
	t.Helper()
	home := testsHome()
	check.Need(t, home.mysql(), "testserver: TESTSERVER_MYSQL does not name a MySQL 8, see `make deps-mysql8`")
	return members(t, count, 1, "--group-replication-bootstrap-group=ON",
		func(_ int, between []port, addresses string) engine {
			return engine{
				program: configFile("engines/group-replication/node"), environ: []string{"MYSQL_HOME=" + string(home)},
				answer: greeted, prepare: home.database().prepare,
				joined: joined("SELECT member_state FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid", "ONLINE"),
				args: func(s *Server) []string {
					const least = "--group-replication-message-cache-size=134217728" // that it takes
					return append([]string{
						s.dir, strconv.Itoa(s.port.number), strconv.Itoa(between[0].number),
						addresses, least,
					}, home.small()...)
				},
			}
		})
}

// Proxied is one address for a cluster, as deployments/engines/haproxy gives it: the first member that takes writes.
func Proxied(t testing.TB, members []*Server) *Server {
	t.Helper()
	grant := "CREATE USER IF NOT EXISTS haproxy@'127.0.0.1'"
	if OnMySQL() {
		grant += "; GRANT SELECT ON performance_schema.replication_group_members TO haproxy@'127.0.0.1'"
	}
	takes := func(member *Server) bool { return member.administer(t.Context(), grant) == nil } // and tells the others
	check.Need(t, slices.ContainsFunc(members, takes), "no member takes writes")
	return start(t, engine{
		program: configFile("engines/haproxy/run"), answer: greeted,
		// Until it has asked them it takes all members for well, and closes the connections of those who are not.
		joined: joined("SELECT IF(@@global.read_only, 'no', 'yes')", "yes"),
		args: func(s *Server) []string {
			return append([]string{strconv.Itoa(s.port.number)}, each(members, (*Server).Addr)...)
		},
	}, nil)
}

// What MariaDB and MySQL 8 tell of themselves, asked the way that each understands. The pools are an administrator's.

// Hostile sets global settings that operators have, and with which a service needs its own in sessions.
func Hostile(t testing.TB, db *sql.DB) {
	t.Helper()
	for _, setting := range []string{
		"sql_safe_updates = 1", "autocommit = 0", "completion_type = 2", "sql_big_selects = 0", "max_join_size = 3",
		"sql_select_limit = 1", "sql_auto_is_null = 1",
		"unique_checks = 0", "time_zone = '-11:30'", "innodb_lock_wait_timeout = 1000", "group_concat_max_len = 4",
		"div_precision_increment = 0",
		"sql_mode = 'ANSI,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,NO_AUTO_VALUE_ON_ZERO,HIGH_NOT_PRECEDENCE'",
		"character_set_server = latin1", "collation_server = latin1_general_cs", "default_storage_engine = MyISAM",
		"foreign_key_checks = 0",
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
	schema := map[bool]string{true: "performance_schema", false: "information_schema"}[OnMySQL()]
	var found int
	check.Must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*), CAST(SUM(variable_value) AS SIGNED) FROM "+schema+
		".global_status WHERE variable_name IN ('"+strings.Join(names, "', '")+"')").Scan(&found, &sum))
	check.Equal(t, "counters found", found, len(names))
	return sum
}

// Waiting tells whether a statement with a text waits for a row that another transaction has locked.
func Waiting(t testing.TB, db *sql.DB, text string) bool {
	t.Helper()
	if OnMySQL() {
		const question = "SELECT COUNT(*) FROM performance_schema.data_lock_waits JOIN performance_schema.threads ON thread_id = requesting_thread_id WHERE processlist_info LIKE ?"
		var n int
		check.Must(t, db.QueryRowContext(t.Context(), question, "%"+text+"%").Scan(&n))
		return n > 0
	}
	var kind, name, status string // information_schema.innodb_trx is an old copy while several ask
	check.Must(t, db.QueryRowContext(t.Context(), "SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &status))
	return slices.ContainsFunc(strings.Split(status, "\n---TRANSACTION ")[1:], func(transaction string) bool {
		return strings.Contains(transaction, "LOCK WAIT") && strings.Contains(transaction, text)
	})
}

// Numbers is a table with the numbers from first to last in its column seq, to select from.
func Numbers(first, last int) string {
	return fmt.Sprintf("(SELECT %d + n AS seq FROM JSON_TABLE(CONCAT('[0', REPEAT(',0', %d), ']'), '$[*]' COLUMNS (n FOR ORDINALITY)) AS listed) AS numbers",
		first-1, last-first)
}
