package testserver

import (
	"context"
	"database/sql"
	_ "embed" // mariadb.sql
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
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

// mariadbReady asks for the data directory, so that another test's server on the same port is not taken
// for this one.
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

// launchSharedDatabase starts a server that flushes lazily, because no test kills it, and has room for the pools of many
// tests.
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
