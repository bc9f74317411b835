//part:stores

package command

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"seckill/internal/demo"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

type server struct {
	cmd            *exec.Cmd
	stdout, stderr *check.Log
	exited         chan struct{}
}

// serve starts a server in a directory, on free ports, and waits for its welcome.
func serve(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	return welcoming(t, dir, exec.Command(testserver.Program(t), args...), nil)
}

// welcoming is serve for any command that starts a server; stderr may be a file.
func welcoming(t *testing.T, dir string, cmd *exec.Cmd, stderr *os.File) *server {
	t.Helper()
	s := &server{cmd: cmd, stdout: &check.Log{}, stderr: &check.Log{}, exited: make(chan struct{})}
	s.cmd.Args = append(s.cmd.Args, "--http-addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0")
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = dir, s.stdout, s.stderr
	if stderr != nil {
		s.cmd.Stderr = stderr
	}
	check.Must(t, s.cmd.Start())
	go func() {
		_ = s.cmd.Wait() // the tests look at the exit code
		close(s.exited)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.exited
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s", s.stdout, s.stderr)
		}
	})
	check.Eventually(t, "the server welcomes people", func() bool {
		select {
		case <-s.exited:
			t.Fatal("the server ended")
		default:
		}
		return s.stdout.Has(welcomes)
	})
	return s
}

func (s *server) stop(t *testing.T, signal os.Signal) int {
	t.Helper()
	check.Must(t, s.cmd.Process.Signal(signal))
	check.Receive(t, "the server's end", s.exited)
	return s.cmd.ProcessState.ExitCode()
}

func pasted(t *testing.T, lines ...string) string {
	t.Helper()
	program := testserver.Program(t) // whose build is no part of what it may take
	cmd := exec.CommandContext(check.Context(t), "bash", "-euc", strings.Join(lines, "\n"))
	// The program is called by its name, as where it is installed.
	cmd.Env = []string{"PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	check.Need(t, err == nil, "%v: %s", err, out)
	return string(out)
}

// curls are the lines of the welcome to paste, and where the server is.
func (s *server) curls(t *testing.T) (lines []string, base string) {
	t.Helper()
	lines = regexp.MustCompile(`(?m)^(?:ADMIN=|BUYER=|VOUCHER=|curl ).*$`).FindAllString(s.stdout.String(), -1)
	check.Need(t, len(lines) == 5, "%d lines to paste: %q", len(lines), lines)
	return lines, regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(s.stdout.String())
}

// Without settings the data is in ./data, for one server at a time. The welcome's lines buy. A restart keeps the data.
func TestEmbeddedServer(t *testing.T) {
	t.Parallel()
	place := t.TempDir()
	dir := filepath.Join(place, "data")
	first := serve(t, place)
	for _, file := range []string{"seckill.db", "jwt.secret"} {
		check.Must(t, check.ErrorOf(os.Stat(filepath.Join(dir, file))))
	}
	lines, base := first.curls(t)
	answers := strings.SplitN(strings.TrimSpace(pasted(t, append([]string{"cd " + place}, lines...)...)), "\n", 2)
	check.Need(t, len(answers) == 2, "answers: %q", answers)
	var order model.Order
	var page model.OrderPage
	check.Must(t, json.Unmarshal([]byte(answers[0]), &order))
	check.Must(t, json.Unmarshal([]byte(answers[1]), &page))
	if order.Status != model.OrderUnpaid || order.UserID != "1" || len(page.Items) != 1 ||
		page.Items[0].ID != order.ID {
		t.Errorf("bought %+v, listed %+v", order, page)
	}
	if got := call(t, in(dir), "", "serve", "--http-addr", "127.0.0.1:0", "--ops-addr",
		"127.0.0.1:0"); got.code != exitError ||
		!strings.Contains(got.stderr, "another seckill serves") {
		t.Errorf("a second server: %+v", got)
	}
	if got := call(t, in(dir), "", "audit"); got.code != 0 || !strings.Contains(got.stdout, order.VoucherID) {
		t.Errorf("an audit beside the server: %+v", got)
	}
	ready := []string{"ready", "--url", base}
	call(t, nil, "", ready...).shows(exitOK, `"database": "ok"`)
	check.Equal(t, "the exit code after SIGTERM", first.stop(t, syscall.SIGTERM), 0)
	call(t, nil, "", ready...).shows(exitError, "connection refused")

	second := serve(t, t.TempDir(), "serve", "--data-dir", dir)
	_, moved := second.curls(t)
	again := pasted(t, "cd "+place, lines[1], "VOUCHER="+order.VoucherID, strings.ReplaceAll(lines[4], base, moved))
	check.That(t, strings.Contains(again, order.ID), "after a restart: %s", again)
	check.Equal(t, "the exit code after SIGINT", second.stop(t, os.Interrupt), 0)
}

// After its terminal closes, or its log's reader leaves, a server finishes what is under way. nohup keeps it running.
func TestAClosedTerminalIsNoKill(t *testing.T) {
	t.Parallel()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // else a server would inherit that the tests run under nohup
	closed := serve(t, t.TempDir())
	check.Must(t, closed.cmd.Process.Signal(syscall.SIGHUP)) // the shell
	check.Equal(t, "the exit code after a second SIGHUP", closed.stop(t, syscall.SIGHUP), 0)
	check.That(t, closed.stderr.Has("msg=stopped") || closed.stderr.Has(`"msg":"stopped"`),
		"the end was not orderly: %s", closed.stderr)

	reader, writer, err := os.Pipe()
	check.Must(t, err)
	unread := welcoming(t, t.TempDir(), exec.Command(testserver.Program(t), "serve"), writer)
	check.Must(t, reader.Close())
	check.Equal(t, "the exit code without a reader of the log", unread.stop(t, syscall.SIGTERM), 0)
	check.Must(t, writer.Close())

	kept := welcoming(t, t.TempDir(), exec.Command("nohup", testserver.Program(t), "serve"), nil)
	_, base := kept.curls(t)
	check.Must(t, kept.cmd.Process.Signal(syscall.SIGHUP))
	check.Stays(t, "under nohup it is ready", func() bool {
		return remote.Service{URL: base, Client: http.DefaultClient}.Status("/readyz") == http.StatusOK
	})
	check.Equal(t, "the exit code under nohup", kept.stop(t, syscall.SIGTERM), 0)
}

func terminal(t *testing.T) (*os.File, *check.Log) {
	t.Helper()
	person := check.Value(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))(t)
	fd := int(person.Fd())
	check.Must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number := check.Value(unix.IoctlGetInt(fd, unix.TIOCGPTN))(t)
	program := check.Value(os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0))(t)
	seen := &check.Log{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(seen, person) // ends with an error when the program has closed its side
	}()
	t.Cleanup(func() {
		_ = program.Close()
		<-read
		_ = person.Close()
	})
	return program, seen
}

func TestServeSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	secret := "SECKILL_JWT_SECRET=0123456789abcdef0123456789abcdef"
	instance, _ := started(t)
	taken := strings.TrimPrefix(instance.BaseURL(), "http://")
	spoiled := func(file string) string {
		dir := t.TempDir()
		check.Must(t, os.Mkdir(filepath.Join(dir, file), 0o700))
		return dir
	}
	for name, test := range map[string]struct {
		environ []string
		stderr  string
	}{
		"no database": {[]string{secret, "SECKILL_DATABASE_DSN=root@tcp(127.0.0.1:1)/x"}, "database"},
		"no Redis":    {append(in(t.TempDir()), "SECKILL_REDIS_URL=redis://127.0.0.1:1"), "SECKILL_REDIS_URL"},
		"no queue": {
			append(in(t.TempDir()), "SECKILL_ORDER_MODE=async", "SECKILL_NATS_URL=nats://127.0.0.1:1"),
			"SECKILL_NATS_URL",
		},
		"no schema, which async needs at the start": {
			append(asyncEnviron(t), "SECKILL_MIGRATE=off"), "run seckill migrate",
		},
		"port in use":                     {append(in(t.TempDir()), "SECKILL_HTTP_ADDR="+taken), taken},
		"no data dir":                     {in("/dev/null/data"), "/dev/null"},
		"a data dir that takes no files":  {in("/proc/self"), "name another one with SECKILL_DATA_DIR"},
		"a data dir without its database": {in(spoiled("seckill.db")), "(SECKILL_DATA_DIR)"},
		"short secret":                    {[]string{"SECKILL_JWT_SECRET=x"}, "SECKILL_JWT_SECRET"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := call(t, append([]string{"SECKILL_HTTP_ADDR=127.0.0.1:0", "SECKILL_OPS_ADDR=127.0.0.1:0"},
				test.environ...), "", "serve")
			check.That(t, got.code == exitError && strings.Contains(got.stderr, test.stderr) && got.stdout == "",
				"%+v", got)
		})
	}
}

// attended is a server in this process, whose output a person reads, or a file keeps.
type attended struct {
	seen, logged *check.Log
	stop         func()
}

// attend starts a server, and waits until its output, or else its log, has a text.
func attend(t *testing.T, person bool, until string, environ ...string) attended {
	t.Helper()
	s := attended{seen: &check.Log{}, logged: &check.Log{}}
	process := Process{
		Environ: append([]string{
			"SECKILL_HTTP_ADDR=127.0.0.1:0", "SECKILL_OPS_ADDR=127.0.0.1:0",
			"SECKILL_LOG_LEVEL=debug",
		}, environ...),
		Args: []string{"serve"}, Stdin: strings.NewReader(""), Stdout: s.seen, Stderr: s.logged,
	}
	if person {
		process.Stdout, s.seen = terminal(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- Run(ctx, process) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		check.Equal(t, "the exit code", <-done, exitOK)
	})
	t.Cleanup(s.stop)
	check.Eventually(t, "the server says "+until, func() bool { return s.seen.Has(until) || s.logged.Has(until) })
	return s
}

const welcomes = "Stop with Ctrl-C"

// door is what a server says of its console.
func (s attended) door(t *testing.T) (base, username, password string) {
	t.Helper()
	text := s.seen.String()
	found := regexp.MustCompile(`Open in a browser:\s+(http://127\.0\.0\.1:\d+)/console\s`).FindStringSubmatch(text)
	check.Need(t, found != nil && strings.Index(text, found[0]) <= strings.Index(text, "API"),
		"the console's address does not come first:\n%s", text)
	if account := regexp.MustCompile(`username +(\S+)\s+password +(\S+)`).FindStringSubmatch(text); account != nil {
		username, password = account[1], account[2]
	}
	return found[1], username, password
}

// tokens finds what opens the API.
func (s attended) tokens() []string {
	return regexp.MustCompile(`eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`).FindAllString(s.seen.String(), -1)
}

// The first lines on the terminal suffice for the console and have tokens. The password is there once, and in no log.
func TestTheFirstStartMakesAnAdministrator(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := attend(t, true, welcomes, in(dir)...)
	base, username, password := first.door(t)
	check.Need(t, username == "admin" && len(password) >= 16,
		"it prints %q and %q:\n%s", username, password, first.seen)
	check.That(t, !strings.Contains(first.logged.String(), password), "the password is in the log")
	check.Equal(t, "tokens on the terminal, one in each of three lines", len(first.tokens()), 3)
	c := client(t)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := c.PostForm(base+"/console/sign-in", url.Values{"username": {username}, "password": {password}})
	check.Must(t, err)
	check.Must(t, response.Body.Close())
	check.That(t, response.StatusCode == http.StatusSeeOther && response.Header.Get("Location") == "/console",
		"signing in as %s: %d", username, response.StatusCode)
	first.stop()

	again := attend(t, true, welcomes, in(dir)...)
	base, username, other := again.door(t)
	check.That(t, username+other == "" && !strings.Contains(again.seen.String(), "admin create"),
		"the second start makes an account, too:\n%s", again.seen)
	status := login(t, base, "admin", password)
	check.That(t, status == http.StatusOK, "the password of the first start: %d", status)
	if got := call(t, in(dir), "", "admin", "list"); strings.Count(got.stdout, "\n") != 2 ||
		!strings.Contains(got.stdout, "admin") {
		t.Errorf("administrators: %+v", got)
	}
}

// What nobody reads at once is a log: a token there makes its readers administrators. It says how to make an account.
func TestTokensAreForTheTerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := attend(t, false, welcomes, in(dir)...)
	base, username, password := s.door(t)
	check.That(t, username+password == "" && len(s.tokens()) == 0, "a password or a token is in a log:\n%s", s.seen)
	command := regexp.MustCompile(`seckill admin create .*`).FindString(s.seen.String())
	got := call(t, in(dir), "", "admin", "list")
	check.Need(t, command != "" && strings.Count(got.stdout, "\n") == 1, "%q, administrators: %+v", command, got)
	pasted(t, "echo 'correct horse' | "+strings.ReplaceAll(command, "NAME", "grace"))
	status := login(t, base, "grace", "correct horse")
	check.That(t, status == http.StatusOK, "the account that it makes: %d", status)
}

func TestAFirstStartBesideABuyerOfTheName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	quiet := attend(t, false, welcomes, in(dir)...)
	base, _, _ := quiet.door(t)
	body := strings.NewReader(`{"username":"Admin","password":"correct horse"}`)
	response, err := client(t).Post(base+"/api/v1/auth/register", "application/json", body)
	check.Must(t, err)
	check.Must(t, response.Body.Close())
	check.Equal(t, "the buyer registers", response.StatusCode, http.StatusCreated)
	quiet.stop()
	s := attend(t, true, welcomes, in(dir)...)
	base, username, _ := s.door(t)
	check.That(t, username == "" && strings.Contains(s.seen.String(), "seckill admin create"), "it says:\n%s", s.seen)
	check.Equal(t, "the buyer's login", login(t, base, "admin", "correct horse"), http.StatusOK)
}

func TestWithoutTheConsoleThereIsNoAccount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := attend(t, true, welcomes, append(in(dir), "SECKILL_CONSOLE=off")...)
	text := s.seen.String()
	check.That(t, !strings.Contains(text, "/console") && !strings.Contains(text, "password"), "it says:\n%s", text)
	got := call(t, in(dir), "", "admin", "list")
	check.That(t, strings.Count(got.stdout, "\n") == 1, "administrators: %+v", got)
}

// A database of its own is a real one: nobody gets in by starting the server.
func TestARealDatabaseGetsNoAccountByItself(t *testing.T) {
	t.Parallel()
	environ := []string{
		"SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_REDIS_URL=" + testserver.SharedRedis(t),
		"SECKILL_JWT_SECRET=0123456789abcdef0123456789abcdef", "SECKILL_CONSOLE=on",
	}
	s := attend(t, true, `"msg":"listening"`, environ...)
	s.stop()
	text := s.seen.String()
	check.That(t, text == "", "it prints:\n%s", text)
	got := call(t, environ[:1], "", "admin", "list")
	check.That(t, got.code == 0 && strings.Count(got.stdout, "\n") == 1, "administrators: %+v", got)
}

// A demo sells, and its three counts agree.
func TestDemo(t *testing.T) {
	t.Parallel()
	for mode, demos := range map[string][]struct {
		buyers int
		stock  int64
		want   []string // in its output
	}{ // make test runs the first of each mode
		"sync": {
			{120, 7, []string{
				"201 CREATED 7 ", "409 SOLD_OUT 113 ", "120 of 120 answered, 7 sold", "7 of 7 sold", "MEDIAN P99",
				"remaining 0, balanced",
			}},
			{5, 50, []string{"201 CREATED 5 ", "5 of 50 sold", "remaining 45, balanced"}},
			{1, 0, []string{"409 SOLD_OUT 1 ", "0 of 0 sold"}},
			{1, 1, []string{"1 of 1 sold"}},
		},
		"async": {
			{120, 7, []string{
				"202 ACCEPTED 7 ", "409 SOLD_OUT 113 ", "7 orders were processing", "7 of 7 sold",
				"remaining 0, balanced",
			}},
			{5, 50, []string{"(stock 50, remaining 45, balanced)"}},
		},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			instance, cfg := started(t, "SECKILL_ORDER_MODE="+mode, "SECKILL_RATE_USER=0", "SECKILL_RATE_ADDR=0")
			at := counterOf(t, instance, cfg)
			if !check.Faults {
				demos = demos[:1]
			}
			for _, d := range demos {
				var out check.Log
				s := demo.Sale{
					Base: at.URL, Tokens: at.Tokens, HTTP: at.Client, Buyers: d.buyers, Stock: d.stock,
					Out: &out,
				}
				check.Must(t, s.Run(t.Context()))
				for _, want := range d.want {
					if text := words(out.String()); !strings.Contains(text, want) {
						t.Errorf("%d buyers of %d: it lacks %q:\n%s", d.buyers, d.stock, want, text)
					}
				}
			}
		})
	}
}

// The command has a server of its own, takes only the order mode from the environment, and leaves nothing behind.
func TestDemoCleansUp(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	environ := []string{"SECKILL_LOCK_MODE=maybe", "SECKILL_ORDER_MODE=async"}
	got := call(t, environ, "", "demo", "--buyers", "2", "--stock", "1", "--stock-strategy", "optimistic")
	check.Need(t, got.code == 0 && strings.Contains(words(got.stdout), "202 ACCEPTED 1 "), "%+v", got)
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	check.That(t, err == nil && len(left) == 0, "left over: %q, %v", left, err)
}
