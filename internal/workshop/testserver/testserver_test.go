package testserver_test

import (
	"database/sql"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
)

func openRedis(t *testing.T, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	check.Must(t, err)
	options.MaxRetries = -1
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}

func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	check.Must(t, err)
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	check.Must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func run(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func query(t *testing.T, db *sql.DB, question string) string {
	t.Helper()
	var answer string
	if err := db.QueryRowContext(t.Context(), question).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	return answer
}

func TestRedisLives(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	client := openRedis(t, server.URL())
	ctx := t.Context()

	steps := []struct {
		name string
		do   func()
		want string // of the key, afterwards
	}{
		{"crash", func() { server.Kill(); server.Start() }, "kept"},
		{"orderly restart", func() { server.Stop(); server.Start() }, "kept"},
		{"restart of a paused one", func() { server.Pause(); server.Stop(); server.Start() }, "kept"},
		{"start of a running one", func() { server.Start() }, "kept"},
		{"restart empty", func() { server.Kill(); server.ClearData(); server.Start() }, ""},
	}
	check.Must(t, client.Set(ctx, "key", "kept", 0).Err())
	addr := server.Addr()
	for _, step := range steps {
		step.do()
		if server.Addr() != addr {
			t.Fatalf("%s: address changed from %s to %s", step.name, addr, server.Addr())
		}
		got, err := client.Get(ctx, "key").Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			// The pool may hold connections of the process that is gone.
			got, err = client.Get(ctx, "key").Result()
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got != step.want {
			t.Fatalf("%s: key = %q, want %q", step.name, got, step.want)
		}
	}
}

func TestPausedRedisIsSilent(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	client := openRedis(t, server.URL())
	check.Must(t, client.Ping(t.Context()).Err())

	server.Pause()
	err := client.Ping(check.Expiring(t)).Err()
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
		t.Fatalf("ping of a paused server = %v, want a timeout", err)
	}

	server.Resume()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatalf("ping after Resume: %v", err)
	}
}

// What a program has started goes with it: a pipe that both hold is closed when both are gone.
func TestAKilledProgramLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	check.Must(t, syscall.Mkfifo(pipe, 0o600))
	program := testserver.Run(t, nil, "sh", "-c", "exec >'"+pipe+"'; echo begun; sleep 1000 & wait")
	reader := check.Value(os.Open(pipe))(t)
	defer reader.Close()
	begun := make([]byte, len("begun\n"))
	check.Value(io.ReadFull(reader, begun))(t)
	check.Must(t, program.Kill())
	check.Must(t, reader.SetReadDeadline(time.Now().Add(check.Deadline)))
	rest := check.Value(io.ReadAll(reader))(t)
	check.Equal(t, "bytes that were written after it", len(rest), 0)
}

func TestRedisRunsOnItsFile(t *testing.T) {
	t.Parallel()
	own := openRedis(t, testserver.Redis(t, "--maxmemory", "64mb").URL())
	shared := openRedis(t, testserver.SharedRedis(t))
	tests := []struct {
		client        *redis.Client
		setting, want string
	}{
		{own, "maxmemory-policy", "noeviction"},
		{own, "appendonly", "yes"},
		{own, "appendfsync", "everysec"},
		{own, "save", ""},
		{own, "maxmemory", "67108864"},
		{shared, "maxmemory-policy", "noeviction"},
		{shared, "appendonly", "no"},
	}
	for _, test := range tests {
		got, err := test.client.ConfigGet(t.Context(), test.setting).Result()
		check.Must(t, err)
		if got[test.setting] != test.want {
			t.Errorf("%s = %q, want %q", test.setting, got[test.setting], test.want)
		}
	}
}

func TestMariaDBLives(t *testing.T) {
	t.Parallel()
	server := testserver.MariaDB(t)
	db := openDB(t, server.DSN(testserver.DefaultSchema))
	run(t, db, "CREATE TABLE things (id INT PRIMARY KEY)", "INSERT INTO things VALUES (1)")

	server.Kill()
	if err := db.PingContext(t.Context()); err == nil {
		t.Fatal("a killed server answers")
	}
	server.Start()
	if got := query(t, db, "SELECT COUNT(*) FROM things"); got != "1" {
		t.Fatalf("after a crash: %s rows, want 1", got)
	}

	server.Stop()
	server.ClearData()
	server.Start()
	if got := query(t, db, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"); got != "0" {
		t.Fatalf("after ClearData: %s tables, want 0", got)
	}
}

func TestMariaDBRunsOnItsFile(t *testing.T) {
	t.Parallel()
	own := openDB(t, testserver.MariaDB(t, "--innodb-lock-wait-timeout=1").DSN(testserver.DefaultSchema))
	shared := openDB(t, testserver.Schema(t))
	tests := []struct {
		db            *sql.DB
		setting, want string
	}{
		{own, "innodb_flush_log_at_trx_commit", "1"},
		{own, "tx_isolation", "READ-COMMITTED"},
		{own, "character_set_server", "utf8mb4"},
		{own, "time_zone", "+00:00"},
		{own, "idle_write_transaction_timeout", "5"},
		{own, "max_connections", "400"},
		{own, "innodb_lock_wait_timeout", "1"},
		{shared, "tx_isolation", "READ-COMMITTED"},
		{shared, "innodb_flush_log_at_trx_commit", "0"},
		{shared, "innodb_lock_wait_timeout", "3"},
	}
	for _, test := range tests {
		if got := query(t, test.db, "SELECT @@"+test.setting); got != test.want {
			t.Errorf("%s = %q, want %q", test.setting, got, test.want)
		}
	}
}

func TestReadOnlyBindsTheServiceButNotTheAdministrator(t *testing.T) {
	t.Parallel()
	server := testserver.MariaDB(t)
	admin := openDB(t, server.AdminDSN(testserver.DefaultSchema))
	service := openDB(t, server.DSN(testserver.DefaultSchema))
	run(t, admin, "CREATE TABLE things (id INT PRIMARY KEY)", "SET GLOBAL read_only = 1", "INSERT INTO things VALUES (1)")

	_, err := service.ExecContext(t.Context(), "INSERT INTO things VALUES (2)")
	const optionPreventsStatement = 1290
	if refused, ok := errors.AsType[*mysql.MySQLError](err); !ok || refused.Number != optionPreventsStatement {
		t.Fatalf("insert into a read-only server = %v, want error %d", err, optionPreventsStatement)
	}
	run(t, admin, "SET GLOBAL read_only = 0")
	run(t, service, "INSERT INTO things VALUES (2)")
}

func TestSchemasAreApart(t *testing.T) {
	t.Parallel()
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			db := openDB(t, testserver.Schema(t))
			// Fails if two tests shared a schema.
			run(t, db, "CREATE TABLE things (id INT PRIMARY KEY)", "INSERT INTO things VALUES (1)")
		})
	}
}

//nolint:tparallel // the subtest is over, with its cleanup, before the rest looks
func TestSchemaIsDropped(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("user", func(t *testing.T) {
		name = query(t, openDB(t, testserver.Schema(t)), "SELECT DATABASE()")
	})
	db := openDB(t, testserver.Schema(t))
	if got := query(t, db, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '"+name+"'"); got != "0" {
		t.Fatalf("schema %s is still there", name)
	}
}
