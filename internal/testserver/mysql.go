package testserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// mysqlHome is where `make deps-mysql8` has put MySQL 8; empty: the tests run on MariaDB.
func mysqlHome() string { return os.Getenv("TESTSERVER_MYSQL") }

// OnMySQL tells whether the tests' database is MySQL 8 and not MariaDB.
func OnMySQL() bool { return mysqlHome() != "" }

// databaseEngine is MariaDB, or MySQL 8 where the environment names one.
func databaseEngine() engine {
	home := mysqlHome()
	if home == "" {
		return mariadbEngine()
	}
	e := mariadbEngine()
	e.program = filepath.Join(home, "bin", "mysqld")
	e.args = func(s *Server) []string {
		args := append([]string{"--defaults-file=" + configFile("my.cnf")}, mysqlArgs(s.data())...)
		args = append(args,
			"--socket="+filepath.Join(s.dir, "socket"),
			"--pid-file="+filepath.Join(s.dir, "pid"),
			"--tmpdir="+s.dir,
			"--bind-address="+loopback,
			"--port="+strconv.Itoa(s.port.number),
			"--innodb-buffer-pool-size=64M",
			"--innodb-buffer-pool-dump-at-shutdown=OFF",
			"--innodb-buffer-pool-load-at-startup=OFF",
			// Of what the server observes only the threads, by which Waiting names a statement: the rest is a quarter of
			// a gigabyte.
			"--performance-schema-instrument=%=OFF",
			"--performance-schema-instrument=thread/%=ON",
			"--performance-schema-digests-size=0",
			"--performance-schema-error-size=0",
			"--performance-schema-events-statements-history-long-size=0",
			"--performance-schema-events-stages-history-long-size=0",
			"--performance-schema-events-waits-history-long-size=0",
			"--performance-schema-events-transactions-history-long-size=0",
			"--mysqlx=OFF",             // it would want a port of its own
		)
		return append(args, s.extra...)
	}
	return e
}

// mysqlArgs are needed alike when the data directory is made and when a server runs on it.
func mysqlArgs(data string) []string {
	args := []string{"--datadir=" + data, "--lc-messages-dir=" + filepath.Join(mysqlHome(), "share"), "--innodb-use-native-aio=OFF"}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root")
	}
	return args
}

// installMySQL makes a data directory with the accounts of MariaDB's, and that of a group's members.
func installMySQL(ctx context.Context, dir string) (string, error) {
	accounts := filepath.Join(dir, "accounts.sql")
	if err := os.WriteFile(accounts, []byte(mysqlAccountsSQL), 0o600); err != nil {
		return "", fmt.Errorf("write %s: %w", accounts, err)
	}
	path := filepath.Join(dir, "data")
	program := filepath.Join(mysqlHome(), "bin", "mysqld")
	args := append([]string{"--no-defaults", "--initialize-insecure", "--init-file=" + accounts}, mysqlArgs(path)...)
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s --initialize-insecure: %w\n%s", program, err, out)
	}
	return path, nil
}

const mysqlAccountsSQL = `CREATE DATABASE seckill CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci;
CREATE USER root@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
CREATE USER seckill@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO seckill@'127.0.0.1';
REVOKE SUPER, CONNECTION_ADMIN ON *.* FROM seckill@'127.0.0.1';
CREATE USER recovery@'127.0.0.1';
GRANT REPLICATION SLAVE ON *.* TO recovery@'127.0.0.1';
`
