package testserver

import (
	"os"
	"path/filepath"
	"strconv"
)

// mysqlHome is where `make deps-mysql8` has put MySQL 8; empty: the tests run on MariaDB.
func mysqlHome() string { return os.Getenv("TESTSERVER_MYSQL") }

// OnMySQL tells whether the tests' database is MySQL 8 and not MariaDB.
func OnMySQL() bool { return mysqlHome() != "" }

// databaseEngine is MariaDB, or MySQL 8 where the environment names one.
func databaseEngine() engine {
	e := mariadbEngine()
	if !OnMySQL() {
		return e
	}
	e.program = filepath.Join(mysqlHome(), "bin", "mysqld")
	e.args = func(s *Server) []string {
		args := []string{
			"--defaults-file=" + configFile("my.cnf"),
			"--datadir=" + s.data(),
			"--lc-messages-dir=" + filepath.Join(mysqlHome(), "share"),
			"--socket=" + filepath.Join(s.dir, "socket"),
			"--pid-file=" + filepath.Join(s.dir, "pid"),
			"--tmpdir=" + s.dir,
			"--bind-address=" + loopback,
			"--port=" + strconv.Itoa(s.port.number),
			"--mysqlx=OFF", // it would want a port of its own
		}
		return append(append(args, smallMySQL()...), s.extra...)
	}
	return e
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
