package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

const (
	loopback = "127.0.0.1"

	// startBudget is of a start or orderly stop: a second, but recovery under the race detector on two cores is longer.
	startBudget = time.Minute
	lookBudget  = time.Second // of one look whether a server is ready
	// startTries is a server's tries to start: its port, or its cluster node's beside it, may be taken before the bind.
	startTries = 4
)

// engine is what one kind of server needs beyond being a process.
type engine struct {
	program     string                                       // looked up in PATH, unless it is a path
	apt         string                                       // the Debian package that holds it
	environ     []string                                     // what it needs beside the test's environment
	url         string                                       // where clients find it, %s its address; empty: no URL
	prepare     func(ctx context.Context, data string) error // fills a new data directory; nil: the server does
	args        func(s *Server) []string                     // the command line
	ask, answer string                                       // once told ask, its first line has the word answer
	joined      func(ctx context.Context, s *Server) error   // whether a cluster's member takes part; nil: it is none
}

// Server is one server process of a test. Any goroutine may call it; what goes wrong is an error of the test.
type Server struct {
	t      testing.TB // nil for one that tests share, of which nothing but its address is asked
	engine engine
	extra  []string
	dir    string
	port   port
	known  string // where other servers and clients find it, when that is not its address

	mu    sync.Mutex // held through a whole start or stop
	child *Command
}

func start(t testing.TB, e engine, extra []string) *Server {
	t.Helper()
	s, err := launch(e, extra)
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	s.t = t
	t.Cleanup(func() {
		if t.Failed() {
			said, _ := os.ReadFile(s.log()) // one that is gone is empty
			KeepLog(t, fmt.Sprintf("%s-%d", filepath.Base(e.program), s.Port()), string(said))
		}
		s.locked("discard", s.discard)
	})
	return s
}

func launch(e engine, extra []string) (*Server, error) {
	if _, err := exec.LookPath(e.program); err != nil {
		return nil, fmt.Errorf("%s is missing: install it with `apt-get install %s` (or run `make test`): %w", e.program, e.apt, err)
	}
	dir, err := process.dir(filepath.Base(e.program))
	if err != nil {
		return nil, err
	}
	s := &Server{engine: e, extra: extra, dir: dir}
	if err := s.fill(); err != nil {
		return nil, err
	}
	for range startTries {
		s.child = nil // it has never run
		if s.port, err = takePort(); err != nil {
			return nil, err
		}
		if err = s.run(); err == nil {
			return s, nil
		}
		_ = s.port.release() // nobody uses it
	}
	return nil, err
}

func (s *Server) fill() error {
	if s.engine.prepare == nil {
		return os.MkdirAll(s.data(), 0o700)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startBudget)
	defer cancel()
	return s.engine.prepare(ctx, s.data())
}

func (s *Server) run() error {
	c, err := spawn(s.engine.program, s.engine.args(s), append(os.Environ(), s.engine.environ...), s.dir, s.log())
	if err != nil {
		return err
	}
	s.child = c
	ctx, cancel := context.WithTimeout(context.Background(), startBudget)
	defer cancel()
	for err = s.ready(ctx); err != nil && !c.Ended() && ctx.Err() == nil; err = s.ready(ctx) {
		c.awaitEnd(5 * time.Millisecond) // often enough that a start costs no visible extra time
	}
	if err != nil {
		return fmt.Errorf("start %s: %w\n%s", s.engine.program, errors.Join(err, c.Kill()), tail(s.log()))
	}
	return nil
}

func (s *Server) ready(ctx context.Context) error {
	look, cancel := context.WithTimeout(ctx, lookBudget)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(look, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(look, func() { _ = conn.Close() })()
	_, _ = io.WriteString(conn, s.engine.ask)
	said, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.Contains(said, s.engine.answer) {
		err = fmt.Errorf("it says %q", said)
	}
	if err != nil || s.engine.joined == nil {
		return err
	}
	return s.engine.joined(ctx, s)
}

// locked does something while nothing else is done to the process, and reports an error of it.
func (s *Server) locked(what string, do func() error) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := do(); err != nil {
		s.t.Errorf("testserver: %s %s: %v", what, s.engine.program, err)
	}
}

func (s *Server) discard() error {
	return errors.Join(s.child.Kill(), s.port.release(), os.RemoveAll(s.dir))
}

// Kill ends the server with SIGKILL, as a crash would, and waits until it is gone.
func (s *Server) Kill() {
	s.t.Helper()
	s.locked("kill", s.child.Kill)
}

// Stop ends the server in order (SIGTERM), also a paused one, and waits until it is gone.
func (s *Server) Stop() {
	s.t.Helper()
	s.locked("stop", func() error {
		err := errors.Join(s.child.signal(syscall.SIGTERM), s.child.signal(syscall.SIGCONT))
		if !s.child.awaitEnd(startBudget) {
			err = errors.Join(err, errors.New("it does not end"), s.child.Kill())
		}
		return err
	})
}

// Start runs a killed or stopped server again, on its port and data, and waits for its answer. A running one stays.
func (s *Server) Start() {
	s.t.Helper()
	s.locked("start again", func() error {
		if !s.child.Ended() {
			return nil
		}
		return s.run()
	})
}

// Pause stops the process in its tracks (SIGSTOP): connections stay open and nothing answers.
func (s *Server) Pause() {
	s.t.Helper()
	s.locked("pause", func() error { return s.child.signal(syscall.SIGSTOP) })
}

// Resume lets a paused server go on.
func (s *Server) Resume() {
	s.t.Helper()
	s.locked("resume", func() error { return s.child.signal(syscall.SIGCONT) })
}

// ClearData makes a killed or stopped server come back empty.
func (s *Server) ClearData() {
	s.t.Helper()
	s.replaceData("clear the data of", s.fill)
}

// KeepData copies the server's data as they are now, as a backup of the disk would. RestoreData brings them back.
func (s *Server) KeepData() {
	s.t.Helper()
	s.locked("keep the data of", func() error {
		return errors.Join(os.RemoveAll(s.kept()), os.CopyFS(s.kept(), os.DirFS(s.data())))
	})
}

// RestoreData makes a killed or stopped server come back with the data that were kept.
func (s *Server) RestoreData() {
	s.t.Helper()
	s.replaceData("restore the data of", func() error { return os.CopyFS(s.data(), os.DirFS(s.kept())) })
}

func (s *Server) replaceData(what string, fill func() error) {
	s.t.Helper()
	s.locked(what, func() error {
		if !s.child.Ended() {
			return errors.New("it is running: call Kill or Stop first")
		}
		return errors.Join(os.RemoveAll(s.data()), fill())
	})
}

// Addr is the server's address, "127.0.0.1:port". It stays the same over restarts.
func (s *Server) Addr() string { return s.port.addr() }

// URL is where clients find the server: redis://127.0.0.1:port/0 or nats://127.0.0.1:port. MariaDB has a DSN.
func (s *Server) URL() string { return fmt.Sprintf(s.engine.url, s.Addr()) }

// Port is the server's TCP port.
func (s *Server) Port() int { return s.port.number }

// PID is the process id of the server as it runs now (or last ran).
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.process.Pid
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }
func (s *Server) log() string  { return filepath.Join(s.dir, "log") }
func (s *Server) kept() string { return filepath.Join(s.dir, "kept") }

// tail is the end of what a program wrote: the reason why it did not start is near it.
func tail(path string) string {
	const limit = 4 << 10 // bytes; a screen or two
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-limit):])
}

// shared is a server of many tests: at the address in the run's variable (Share), or this process's own from first use.
type shared struct {
	variable string
	find     func() (*Server, error)
}

func share(variable, url string, launch func() (*Server, error)) shared {
	return shared{variable, sync.OnceValues(func() (*Server, error) {
		if addr := os.Getenv(variable); addr != "" {
			number, err := strconv.Atoi(strings.TrimPrefix(addr, loopback+":"))
			return &Server{engine: engine{url: url}, port: port{number: number}}, err // another process runs it
		}
		server, err := launch()
		if err == nil {
			process.ends(server.discard)
		}
		return server, err
	})}
}

func (s shared) get(t testing.TB) *Server {
	t.Helper()
	return check.Value(s.find())(t)
}

// Share starts the servers of a run and builds its program in a shared directory; environ names them, end stops them.
func Share() (environ []string, end func() error, err error) {
	process.adopt()
	programs, err := process.dir("programs")
	if err != nil {
		return nil, nil, err
	}
	all := []shared{sharedDatabase, sharedRedis, sharedNATS}
	environ = make([]string, len(all), len(all)+1)
	errs := make([]error, len(all)+1)
	var starting sync.WaitGroup
	starting.Go(func() { _, errs[len(all)] = build(programs, "") })
	for i, one := range all {
		starting.Go(func() {
			server, err := one.find()
			if errs[i] = err; err == nil {
				environ[i] = one.variable + "=" + server.Addr()
			}
		})
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, nil, errors.Join(err, process.close())
	}
	return append(environ, programsVariable+"="+programs), process.close, nil
}

// Adopt lets a program that is no test start servers until it calls end.
func Adopt() (end func() error) {
	process.adopt()
	return process.close
}
