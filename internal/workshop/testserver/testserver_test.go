package testserver_test

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

func openRedis(t *testing.T, url string) *redis.Client {
	t.Helper()
	options := check.Value(redis.ParseURL(url))(t)
	options.MaxRetries = -1
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}

func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	cfg := check.Value(mysql.ParseDSN(dsn))(t)
	cfg.Logger = &mysql.NopLogger{}
	connector := check.Value(mysql.NewConnector(cfg))(t)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func query(t *testing.T, db *sql.DB, question string) string {
	t.Helper()
	var answer string
	err := db.QueryRowContext(t.Context(), question).Scan(&answer)
	check.Need(t, err == nil, "%s: %v", question, err)
	return answer
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

// Servers run on the files of deployments/, with what a test, or the sharing, adds.
func TestServersRunOnTheirFiles(t *testing.T) {
	t.Parallel()
	cache, sharedCache := openRedis(t, testserver.Redis(t, "--maxmemory", "64mb").URL()),
		openRedis(t, testserver.SharedRedis(t))
	setting := func(client *redis.Client, name string) string {
		return check.Value(client.ConfigGet(t.Context(), name).Result())(t)[name]
	}
	for name, want := range map[string]string{
		"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec", "save": "", "maxmemory": "67108864",
	} {
		check.Equal(t, name, setting(cache, name), want)
	}
	check.Equal(t, "shared", setting(sharedCache, "maxmemory-policy")+" "+setting(sharedCache, "appendonly"),
		"noeviction no")

	own := openDB(t, testserver.MariaDB(t, "--innodb-lock-wait-timeout=1").DSN(testserver.DefaultSchema))
	check.Equal(t, "the database", query(t,
		own, `SELECT CONCAT_WS(' ', @@innodb_flush_log_at_trx_commit, @@tx_isolation, @@character_set_server,
		@@time_zone, @@idle_write_transaction_timeout, @@max_connections, @@innodb_lock_wait_timeout)`), "1 READ-COMMITTED utf8mb4 +00:00 5 400 1")
	shared := "SELECT CONCAT_WS(' ', @@innodb_flush_log_at_trx_commit, @@tx_isolation, @@innodb_lock_wait_timeout)"
	check.Equal(t, "the shared one", query(t, openDB(t, testserver.Schema(t)), shared), "0 READ-COMMITTED 3")

	for limit, settings := range map[int64][]string{4 << 30: nil, 1 << 20: {"max_file_store: 1MB"}} {
		js := openNATS(t, testserver.NATS(t, settings...))
		for name, holds := range map[string]bool{"S": true, "T": false} {
			stream := jetstream.StreamConfig{Name: name, MaxBytes: limit}
			if !holds {
				stream.MaxBytes++
			}
			err := check.ErrorOf(js.CreateStream(t.Context(), stream))
			check.That(t, (err == nil) == holds, "%v: a stream of %d bytes: %v", settings, stream.MaxBytes, err)
		}
	}
}

// openNATS connects anew: a test that kills its server wants no client that reconnects behind its back.
func openNATS(t *testing.T, server *testserver.Server) jetstream.JetStream {
	t.Helper()
	conn := check.Value(nats.Connect(server.URL(), nats.NoReconnect()))(t)
	t.Cleanup(conn.Close)
	js := check.Value(jetstream.New(conn))(t)
	return js
}

// TestMain runs the tests. Started again by one with a role as last argument, it plays a package that goes wrong so.
func TestMain(m *testing.M) {
	switch os.Args[len(os.Args)-1] {
	case roleForgetful:
		os.Exit(m.Run())
	case roleLeaky:
		go func() { select {} }()
	}
	testserver.Main(m)
}

const (
	roleForgetful = "role=forgetful" // has a TestMain that does not call Main
	roleLeaky     = "role=leaky"     // leaves a goroutine behind
	roleVictim    = "role=victim"    // is killed while its servers run
	roleBare      = "role=bare"      // runs where no server is installed
)

func again(t *testing.T, role string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOneServer$", "-test.v", role)
	cmd.Env = os.Environ()
	return cmd
}

func TestOneServer(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	if os.Args[len(os.Args)-1] != roleVictim {
		return
	}
	fmt.Fprintf(os.Stdout, "\npid %d\n", server.PID())
	<-t.Context().Done() // never: the test is killed here
}

func TestMistakesFailTheRun(t *testing.T) {
	t.Parallel()
	tests := []struct {
		role, want string
		env        []string
	}{
		{role: roleForgetful, want: "no TestMain that calls testserver.Main"},
		{role: roleLeaky, want: "goroutines are left over"},
		{role: roleBare, want: "apt-get install redis-server", env: []string{"PATH=/nowhere"}},
	}
	for _, test := range tests {
		t.Run(test.role, func(t *testing.T) {
			t.Parallel()
			cmd := again(t, test.role)
			cmd.Env = append(cmd.Env, test.env...)
			out, err := cmd.CombinedOutput()
			exit, ok := errors.AsType[*exec.ExitError](err)
			check.Need(t, ok && exit.ExitCode() == 1, "run ended with %v, want exit code 1\n%s", err, out)
			check.Need(t, strings.Contains(string(out), test.want), "output lacks %q:\n%s", test.want, out)
		})
	}
}

func TestServersDieWithTheTest(t *testing.T) {
	t.Parallel()
	cmd := again(t, roleVictim)
	stdout := check.Value(cmd.StdoutPipe())(t)
	check.Must(t, cmd.Start())
	pid := 0
	for lines := bufio.NewScanner(stdout); pid == 0 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			pid = check.Value(strconv.Atoi(text))(t)
		}
	}
	check.Must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	check.Need(t, pid != 0, "the run named no server")

	check.Eventually(t, "the server dies with its test", func() bool { return !alive(pid) })
}

// alive says whether the process runs. A zombie, which waits for a parent that may never ask, does not.
func alive(pid int) bool {
	if err := syscall.Kill(pid, 0); err != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
