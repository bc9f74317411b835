package testserver

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

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
