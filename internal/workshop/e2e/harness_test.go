package e2e_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"seckill/config"
	command "seckill/internal/app"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
)

func TestMain(m *testing.M) {
	// With dozens of instances in this process, garbage collection took a tenth of its time.
	debug.SetGCPercent(400)
	testserver.Main(m)
}

const secret = "a secret of the tests, 32 bytes or more"

type settings map[string]string

func (s settings) with(more settings) settings {
	all := maps.Clone(s)
	maps.Copy(all, more)
	return all
}

func (s settings) environ() []string {
	var environ []string
	for name, value := range s {
		environ = append(environ, name+"="+value)
	}
	return environ
}

func adminOf(t testing.TB, server *testserver.Server, schema string) *sql.DB {
	t.Helper()
	return patient(t, server.AdminDSN(schema))
}

// patient opens a database whose statements wait for rows as long as for any event: how long others queue for one says
// how busy the machine is.
func patient(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	cfg := check.Value(mysql.ParseDSN(dsn))(t)
	cfg.Params = map[string]string{"innodb_lock_wait_timeout": strconv.Itoa(int(check.Deadline.Seconds()))}
	db := sql.OpenDB(check.Value(mysql.NewConnector(cfg))(t))
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// meanwhile has loops do something again and again, until what it returns is called, which waits for them.
func meanwhile(loops int, do func(loop, n int)) (stop func()) {
	var (
		over    atomic.Bool
		looping sync.WaitGroup
	)
	for loop := range loops {
		looping.Go(func() {
			for n := 0; !over.Load(); n++ {
				do(loop, n)
			}
		})
	}
	return sync.OnceFunc(func() {
		over.Store(true)
		looping.Wait()
	})
}

func base() settings {
	return settings{
		"SECKILL_JWT_SECRET": secret, "SECKILL_HTTP_ADDR": "127.0.0.1:0", "SECKILL_OPS_ADDR": "127.0.0.1:0",
		"SECKILL_RATE_USER": "0", "SECKILL_RATE_ADDR": "0", // all come from 127.0.0.1
	}
}

// onServers is a deployment on the tests' shared servers: a fresh schema, and users that no other test has.
func onServers(t *testing.T) settings {
	t.Helper()
	return base().with(settings{
		"SECKILL_DATABASE_DSN": testserver.Schema(t), "SECKILL_REDIS_URL": testserver.SharedRedis(t),
		"SECKILL_DRAIN_GRACE": "1s", // long enough to see it
	})
}

func embeddedSettings(t *testing.T) settings {
	t.Helper()
	return base().with(settings{"SECKILL_DATA_DIR": t.TempDir()})
}

// app is the program under test, seen through HTTP.
type app struct {
	remote.Service

	ops string
	// prefix makes users unique among tests that share a Redis: users' locks have the same names in all deployments.
	prefix string
}

func begin(t *testing.T, s settings) (*command.Instance, error) {
	t.Helper()
	cfg := check.Value(config.Load(s.environ()))(t)
	log := slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})
	return command.Start(t.Context(), cfg, slog.New(log))
}

func start(t *testing.T, s settings) *app {
	t.Helper()
	instance := check.Value(begin(t, s))(t)
	a := newApp(t, instance.BaseURL(), instance.OpsURL())
	t.Cleanup(func() {
		a.Client.CloseIdleConnections()
		halt(instance)
	})
	return a
}

// halt stops an instance at once: no load balancer has to notice.
func halt(instance *command.Instance) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	instance.Stop(now)
}

func newApp(t testing.TB, url, ops string) *app {
	t.Helper()
	return &app{
		Service: remote.Service{
			URL: url, Client: remote.Client(t, "", 4000),
			Tokens: check.Value(remote.Authority(secret))(t),
		},
		ops: ops, prefix: t.Name()[:4] + strconv.FormatInt(time.Now().UnixNano(), 36) + ":",
	}
}

// process is the program in a process of its own. Its addresses, and so its *app, survive a restart.
type process struct {
	*app
	path     string
	settings settings
	output   *check.Log

	mu     sync.Mutex // held while it is started or killed
	cmd    *exec.Cmd
	exited <-chan struct{} // closed once it has been waited for
}

// launch starts `seckill serve` and returns when it is ready. What is left of it is killed at the end of the test.
func launch(t testing.TB, s settings) *process {
	t.Helper()
	return launchAs(t, testserver.Program(t), s)
}

func launchAs(t testing.TB, path string, s settings) *process {
	t.Helper()
	p := prepare(t, path, s)
	p.serves(t)
	return p
}

func prepare(t testing.TB, path string, s settings) *process {
	t.Helper()
	main, ops := testserver.Address(t), testserver.Address(t)
	p := &process{
		app: newApp(t, "http://"+main, "http://"+ops), path: path, output: &check.Log{},
		settings: s.with(settings{"SECKILL_HTTP_ADDR": main, "SECKILL_OPS_ADDR": ops}),
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			testserver.KeepLog(t, "seckill-"+p.settings["SECKILL_HTTP_ADDR"], p.output.String())
		}
	})
	return p
}

func (p *process) start(t testing.TB, more ...settings) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.settings
	for _, m := range more {
		s = s.with(m)
	}
	cmd := exec.Command(p.path, "serve")
	cmd.Env = append(os.Environ(), s.environ()...)
	cmd.Stdout, cmd.Stderr = p.output, p.output
	exited := check.Value(testserver.StartTied(cmd))(t)
	p.cmd, p.exited = cmd, exited
}

func (p *process) serves(t testing.TB) {
	t.Helper()
	p.start(t)
	p.awaitReady(t)
}

func (p *process) restarts(t testing.TB) {
	t.Helper()
	p.kill()
	p.serves(t)
}

// stops ends the program as an orchestrator does, and demands that it ends well.
func (p *process) stops(t testing.TB) {
	t.Helper()
	check.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.ends(t)
}

func (p *process) awaitReady(t testing.TB) {
	t.Helper()
	check.Patiently(t, "the program is ready", func() bool {
		check.Need(t, p.alive(), "the program ended: %v\n%s", p.cmd.ProcessState, p.output)
		return p.Status("/readyz") == http.StatusOK
	})
}

// revive starts the program again if it has ended.
func (p *process) revive(t testing.TB) {
	t.Helper()
	if !p.alive() {
		t.Logf("it had ended: %v", p.cmd.ProcessState)
		p.start(t)
	}
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// ends waits until the program has ended by itself, and demands that it ended well.
func (p *process) ends(t testing.TB) {
	t.Helper()
	check.Receive(t, "the end of the program", p.exited)
	check.Equal(t, "its exit code", p.cmd.ProcessState.ExitCode(), 0)
}

// kill ends the program as a power cut would, and returns when it is gone.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // gone already is as good
	<-p.exited
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// asyncOnServers is onServers with orders that are queued in the NATS server the tests share.
func asyncOnServers(t *testing.T) settings {
	t.Helper()
	return onServers(t).with(settings{
		"SECKILL_ORDER_MODE": "async", "SECKILL_NATS_URL": testserver.SharedNATS(t),
	})
}

func modes() map[string]func(*testing.T) settings {
	return map[string]func(*testing.T) settings{"sync": onServers, "async": asyncOnServers}
}

func inModes(t *testing.T, test func(t *testing.T, mode string, s settings)) {
	t.Helper()
	for mode, on := range modes() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			test(t, mode, on(t))
		})
	}
}

type servers struct {
	database, redis, nats *testserver.Server
}

// asyncOnOwnServers is a deployment whose servers no other test has.
func asyncOnOwnServers(t testing.TB) (servers, settings) {
	t.Helper()
	own := servers{database: testserver.MariaDB(t), redis: testserver.Redis(t), nats: testserver.NATS(t)}
	return own, base().with(settings{
		"SECKILL_DATABASE_DSN": own.database.DSN(testserver.DefaultSchema), "SECKILL_REDIS_URL": own.redis.URL(),
		"SECKILL_NATS_URL": own.nats.URL(), "SECKILL_ORDER_MODE": "async",
	})
}

// asyncOnOwnRedis is a deployment of which no other test has the Redis.
func asyncOnOwnRedis(t *testing.T) (*testserver.Server, settings) {
	t.Helper()
	own := testserver.Redis(t)
	return own, asyncOnServers(t).with(settings{"SECKILL_REDIS_URL": own.URL()})
}

func asyncOnOwnDatabase(t *testing.T) (*testserver.Server, settings) {
	t.Helper()
	own := testserver.MariaDB(t)
	return own, asyncOnServers(t).with(settings{"SECKILL_DATABASE_DSN": own.DSN(testserver.DefaultSchema)})
}

func asyncOnOwnNATS(t *testing.T) (*testserver.Server, settings) {
	t.Helper()
	own := testserver.NATS(t)
	return own, asyncOnServers(t).with(settings{"SECKILL_NATS_URL": own.URL()})
}

// holdRow keeps a voucher's row locked until the returned function lets it go.
func holdRow(t *testing.T, s settings, voucherID string) (release func()) {
	t.Helper()
	tx := check.Value(behind(t, s).BeginTx(t.Context(), nil))(t)
	check.Must(t, check.ErrorOf(tx.ExecContext(t.Context(), "SELECT id FROM vouchers WHERE id = ? FOR UPDATE",
		voucherID)))
	return func() { check.Must(t, tx.Rollback()) }
}

type absence struct {
	name       string
	begin, end func(t *testing.T)
}

func absences(database *testserver.Server) []absence {
	readOnly := func(value string) func(*testing.T) {
		return func(t *testing.T) {
			t.Helper()
			check.Must(t, check.ErrorOf(adminOf(t, database, "").ExecContext(t.Context(),
				"SET GLOBAL read_only = "+value)))
		}
	}
	return []absence{
		{"killed", func(*testing.T) { database.Kill() }, func(*testing.T) { database.Start() }},
		{"stopped in its tracks", func(*testing.T) { database.Pause() }, func(*testing.T) { database.Resume() }},
		{"read-only", readOnly("1"), readOnly("0")},
	}
}

func (s settings) role(name string) settings { return s.with(settings{"SECKILL_ROLE": name}) }

// sorted are the keys in order, so that a seed gives the same test again.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// runs a command of the real program, and returns what it said.
func runs(t testing.TB, s settings, args ...string) (output string, err error) {
	t.Helper()
	return typed(t, s, "", args...)
}

// typed is runs with what somebody types meanwhile.
func typed(t testing.TB, s settings, stdin string, args ...string) (output string, err error) {
	t.Helper()
	program := testserver.Program(t) // whose build is no part of what it may take
	cmd := exec.CommandContext(check.Context(t), program, args...)
	cmd.Env, cmd.Stdin = append(os.Environ(), s.environ()...), strings.NewReader(stdin)
	said, err := cmd.CombinedOutput()
	if err != nil {
		return string(said), fmt.Errorf("seckill %v: %w\n%s", args, err, said)
	}
	return string(said), nil
}
