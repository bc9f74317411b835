package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	loopback = "127.0.0.1"

	// startBudget bounds one start. A second is usual; recovery after a kill on a busy two-core machine
	// under the race detector takes longer, and a wrong guess here is a flaky test.
	startBudget = time.Minute
	// stopBudget bounds an orderly stop, for the same reason.
	stopBudget = 30 * time.Second
	// startTries is how often a server is started before the test fails: the port may be taken between
	// the look and the bind.
	startTries = 4
)

// engine is what one kind of server needs beyond being a process.
type engine struct {
	program string // looked up in PATH, unless it is a path
	apt     string // the Debian package that holds it
	// url is where clients find it, with %s for its address; empty when that is not said in a URL.
	url string
	// prepare fills an empty data directory.
	prepare func(ctx context.Context, data string) error
	// args is the command line.
	args func(s *Server) []string
	// ready asks the server whether it answers and is the process that was started.
	ready func(ctx context.Context, s *Server) error
}

// Server is one server process of a test. Its methods may be called from any goroutine; what goes wrong is
// reported as an error of the test.
type Server struct {
	t      reporter
	engine engine
	extra  []string
	dir    string

	mu    sync.Mutex // held through a whole start or stop
	port  port
	child *child
}

// reporter is the part of testing.TB that a server needs; shared servers, which outlive the test that
// started them, have another one.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// start runs a new server for one test.
func start(t testing.TB, e engine, extra []string) *Server {
	t.Helper()
	s, err := launch(t, e, extra)
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log of %s on %s:\n%s", e.program, s.Addr(), s.logTail())
		}
		s.discard()
	})
	return s
}

// launch starts a server on a port of its own, and on another one when that was taken meanwhile.
func launch(t reporter, e engine, extra []string) (*Server, error) {
	if _, err := exec.LookPath(e.program); err != nil {
		return nil, fmt.Errorf("%s is missing: install it with `apt-get install %s` (or run `make test`): %w", e.program, e.apt, err)
	}
	dir, err := process.dir(filepath.Base(e.program))
	if err != nil {
		return nil, err
	}
	s := &Server{t: t, engine: e, extra: extra, dir: dir}
	ctx, cancel := context.WithTimeout(context.Background(), startBudget)
	defer cancel()
	if err := s.fill(ctx); err != nil {
		return nil, err
	}
	var errs []error
	for range startTries {
		if s.port, err = takePort(); err != nil {
			return nil, err
		}
		if err = s.run(ctx); err == nil {
			return s, nil
		}
		errs = append(errs, err)
		s.port.release()
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("start %s: %w\n%s", e.program, errors.Join(errs...), s.logTail())
}

func (s *Server) fill(ctx context.Context) error {
	if err := s.engine.prepare(ctx, s.data()); err != nil {
		return fmt.Errorf("prepare the data of %s: %w", s.engine.program, err)
	}
	return nil
}

// run starts the process once on the port it has and waits until it answers.
func (s *Server) run(ctx context.Context) error {
	c, err := spawn(s.engine.program, s.engine.args(s), s.dir, s.log())
	if err != nil {
		return err
	}
	s.child = c
	if err := c.poll(ctx, func(ctx context.Context) error { return s.engine.ready(ctx, s) }); err != nil {
		return errors.Join(err, c.kill())
	}
	return nil
}

// discard kills the server and forgets its files.
func (s *Server) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.child.kill(); err != nil {
		s.t.Errorf("testserver: %v", err)
	}
	s.port.release()
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Errorf("testserver: remove %s: %v", s.dir, err)
	}
}

// Kill ends the server with SIGKILL, as a crash would, and waits until it is gone.
func (s *Server) Kill() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.child.kill(); err != nil {
		s.t.Errorf("testserver: kill %s: %v", s.engine.program, err)
	}
}

// Stop ends the server in order (SIGTERM), also a paused one, and waits until it is gone.
func (s *Server) Stop() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), stopBudget)
	defer cancel()
	if err := s.child.stop(ctx); err != nil {
		s.t.Errorf("testserver: stop %s: %v", s.engine.program, errors.Join(err, s.child.kill()))
	}
}

// Start runs a killed or stopped server again, on the same port and with the same data, and waits until it
// answers. A running one is left alone.
func (s *Server) Start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.child.ended() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), startBudget)
	defer cancel()
	var err error
	for range startTries {
		if err = s.run(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		s.t.Errorf("testserver: start %s again: %v\n%s", s.engine.program, err, s.logTail())
	}
}

// Pause stops the process in its tracks (SIGSTOP): connections stay open and nothing answers.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
}

// Resume lets a paused server go on.
func (s *Server) Resume() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
}

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.child.signal(sig); err != nil {
		s.t.Errorf("testserver: %s: %v", s.engine.program, err)
	}
}

// ClearData makes a killed or stopped server come back empty.
func (s *Server) ClearData() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.child.ended() {
		s.t.Errorf("testserver: ClearData while %s is running: call Kill or Stop first", s.engine.program)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), startBudget)
	defer cancel()
	if err := errors.Join(os.RemoveAll(s.data()), s.fill(ctx)); err != nil {
		s.t.Errorf("testserver: clear the data of %s: %v", s.engine.program, err)
	}
}

// Addr is the server's address, "127.0.0.1:port". It stays the same over restarts.
func (s *Server) Addr() string { return net.JoinHostPort(loopback, strconv.Itoa(s.port.number)) }

// URL is where clients find the server: redis://127.0.0.1:port/0, or nats://127.0.0.1:port. A MariaDB has a
// DSN instead.
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

// logTail is the end of what the server wrote: the reason why it did not start is near it.
func (s *Server) logTail() string {
	const limit = 4 << 10 // bytes; a screen or two
	text, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-limit):])
}
