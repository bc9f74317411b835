package command

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// watched collects what a process writes and announces every piece.
type watched struct {
	mu     sync.Mutex
	buffer bytes.Buffer
	more   chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
	return w.buffer.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buffer.String()
}

// server is `seckill serve` in a process of its own.
type server struct {
	cmd            *exec.Cmd
	stdout, stderr *watched
	exited         chan struct{}
}

// serve starts a server on free ports and waits for its welcome.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{
		cmd:    exec.Command(testserver.Program(t), append(args, "--http-addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0")...),
		stdout: &watched{more: make(chan struct{}, 1)},
		stderr: &watched{more: make(chan struct{}, 1)},
		exited: make(chan struct{}),
	}
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	s.cmd.Dir = t.TempDir()
	s.cmd.Stdout, s.cmd.Stderr = s.stdout, s.stderr
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
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for !strings.Contains(s.stdout.String(), "Stop with Ctrl-C") {
		select {
		case <-s.stdout.more:
		case <-s.exited:
			t.Fatal("the server ended")
		case <-deadline.C:
			t.Fatal("the server never welcomed anybody")
		}
	}
	return s
}

// stop sends a signal and returns the exit code.
func (s *server) stop(t *testing.T, signal os.Signal) int {
	t.Helper()
	check.Must(t, s.cmd.Process.Signal(signal))
	select {
	case <-s.exited:
	case <-time.After(15 * time.Second):
		t.Fatal("the server did not end")
	}
	return s.cmd.ProcessState.ExitCode()
}

// pasted runs lines as a person would who pastes them into a shell.
func pasted(t *testing.T, lines ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euc", strings.Join(lines, "\n"))
	// The program is called by its name, as where it is installed.
	cmd.Env = []string{"PATH=" + filepath.Dir(testserver.Program(t)) + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// curls are the lines of the welcome to paste, and where the server is.
func (s *server) curls(t *testing.T) (lines []string, base string) {
	t.Helper()
	lines = regexp.MustCompile(`(?m)^(?:ADMIN=|BUYER=|VOUCHER=|curl ).*$`).FindAllString(s.stdout.String(), -1)
	if len(lines) != 5 {
		t.Fatalf("%d lines to paste: %q", len(lines), lines)
	}
	return lines, regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(s.stdout.String())
}

// The welcome's lines buy something, the data directory has one server at a
// time, and orders and tokens survive a restart.
func TestEmbeddedServer(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	first := serve(t, "--data-dir", dir)
	lines, base := first.curls(t)
	answers := strings.SplitN(strings.TrimSpace(pasted(t, lines...)), "\n", 2)
	if len(answers) != 2 {
		t.Fatalf("answers: %q", answers)
	}
	var order model.Order
	var page model.OrderPage
	if err := json.Unmarshal([]byte(answers[0]), &order); err != nil {
		t.Fatalf("%v: %s", err, answers[0])
	}
	if err := json.Unmarshal([]byte(answers[1]), &page); err != nil {
		t.Fatalf("%v: %s", err, answers[1])
	}
	if order.Status != model.OrderUnpaid || order.UserID != "1" || len(page.Items) != 1 || page.Items[0].ID != order.ID {
		t.Errorf("bought %+v, listed %+v", order, page)
	}
	if got := call(t, in(dir), "", "serve", "--http-addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0"); got.code != exitError ||
		!strings.Contains(got.stderr, "another seckill serves") {
		t.Errorf("a second server: %+v", got)
	}
	if got := call(t, in(dir), "", "audit"); got.code != 0 || !strings.Contains(got.stdout, order.VoucherID) {
		t.Errorf("an audit beside the server: %+v", got)
	}
	check.Equal(t, "the exit code after SIGTERM", first.stop(t, syscall.SIGTERM), 0)

	second := serve(t, "serve", "--data-dir", dir)
	_, moved := second.curls(t)
	again := pasted(t, lines[1], "VOUCHER="+order.VoucherID, strings.ReplaceAll(lines[4], base, moved))
	if !strings.Contains(again, order.ID) {
		t.Errorf("after a restart: %s", again)
	}
	check.Equal(t, "the exit code after SIGINT", second.stop(t, os.Interrupt), 0)
}

// A token in a log would be an administrator for whoever reads the log. A person at a
// terminal gets one.
func TestTokensAreForTheTerminal(t *testing.T) {
	t.Parallel()
	token := regexp.MustCompile(`eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`)
	s := serve(t)
	if found := token.FindString(s.stdout.String() + s.stderr.String()); found != "" {
		t.Errorf("a log holds the token %s", found)
	}

	terminal, seen := terminal(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan int)
	go func() {
		done <- Run(ctx, Process{
			Environ: append(in(t.TempDir()), "SECKILL_HTTP_ADDR=127.0.0.1:0", "SECKILL_OPS_ADDR=127.0.0.1:0"),
			Args:    []string{"serve"}, Stdin: strings.NewReader(""), Stdout: terminal, Stderr: t.Output(),
		})
	}()
	check.Eventually(t, "a person sees the welcome", func() bool {
		return strings.Contains(seen.String(), "Stop with Ctrl-C")
	})
	if found := token.FindAllString(seen.String(), -1); len(found) != 3 {
		t.Errorf("%d tokens on the terminal, want one in each of three lines:\n%s", len(found), seen)
	}
	stop()
	<-done
}

// terminal opens a pseudo-terminal: what is written to it is seen.
func terminal(t *testing.T) (*os.File, *watched) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	check.Must(t, err)
	fd := int(person.Fd())
	check.Must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	check.Must(t, err)
	program, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	check.Must(t, err)
	seen := &watched{more: make(chan struct{}, 1)}
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

func TestServeWithoutSettingsUsesData(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, file := range []string{"seckill.db", "jwt.secret"} {
		check.Must(t, check.ErrorOf(os.Stat(filepath.Join(s.cmd.Dir, "data", file))))
	}
	check.Equal(t, "the exit code after SIGTERM", s.stop(t, syscall.SIGTERM), 0)
}

func TestServeSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	secret := "SECKILL_JWT_SECRET=0123456789abcdef0123456789abcdef"
	instance, _ := started(t)
	taken := strings.TrimPrefix(instance.BaseURL(), "http://")
	for name, test := range map[string]struct {
		environ []string
		stderr  string
	}{
		"no database": {[]string{secret, "SECKILL_DATABASE_DSN=root@tcp(127.0.0.1:1)/x"}, "database"},
		"no Redis":    {append(in(t.TempDir()), "SECKILL_REDIS_URL=redis://127.0.0.1:1"), "SECKILL_REDIS_URL"},
		"no queue": {
			append(in(t.TempDir()), "SECKILL_ORDER_MODE=async", "SECKILL_NATS_URL=nats://127.0.0.1:1"), "SECKILL_NATS_URL",
		},
		"no schema, which async needs at the start": {
			append(asyncEnviron(t), "SECKILL_MIGRATE=off"), "run seckill migrate",
		},
		"port in use":  {append(in(t.TempDir()), "SECKILL_HTTP_ADDR="+taken), taken},
		"no data dir":  {in("/dev/null/data"), "/dev/null"},
		"short secret": {[]string{"SECKILL_JWT_SECRET=x"}, "SECKILL_JWT_SECRET"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := call(t, append([]string{"SECKILL_HTTP_ADDR=127.0.0.1:0", "SECKILL_OPS_ADDR=127.0.0.1:0"}, test.environ...), "", "serve")
			if got.code != exitError || !strings.Contains(got.stderr, test.stderr) || got.stdout != "" {
				t.Errorf("%+v", got)
			}
		})
	}
}
