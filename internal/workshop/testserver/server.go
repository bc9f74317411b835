package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	program string   // looked up in PATH, unless it is a path
	apt     string   // the Debian package that holds it
	environ []string // what it needs beside the test's environment
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
			said, _ := os.ReadFile(s.log()) // one that is gone is empty
			KeepLog(t, fmt.Sprintf("%s-%d", filepath.Base(e.program), s.Port()), string(said))
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
	c, err := spawn(s.engine.program, s.engine.args(s), append(os.Environ(), s.engine.environ...), s.dir, s.log())
	if err != nil {
		return err
	}
	s.child = c
	if err := c.poll(ctx, func(ctx context.Context) error { return s.engine.ready(ctx, s) }); err != nil {
		return errors.Join(err, c.kill())
	}
	return nil
}

// emptyDirectory prepares the data of servers that make their files themselves.
func emptyDirectory(_ context.Context, data string) error { return os.MkdirAll(data, 0o700) }

// locked does something while nothing else is done to the process, and reports an error of it.
func (s *Server) locked(what string, do func() error) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := do(); err != nil {
		s.t.Errorf("testserver: %s %s: %v", what, s.engine.program, err)
	}
}

// discard kills the server and removes its files.
func (s *Server) discard() {
	s.t.Helper()
	s.locked("discard", func() error {
		err := s.child.kill()
		s.port.release()
		return errors.Join(err, os.RemoveAll(s.dir))
	})
}

// Kill ends the server with SIGKILL, as a crash would, and waits until it is gone.
func (s *Server) Kill() {
	s.t.Helper()
	s.locked("kill", func() error { return s.child.kill() })
}

// Stop ends the server in order (SIGTERM), also a paused one, and waits until it is gone.
func (s *Server) Stop() {
	s.t.Helper()
	s.locked("stop", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopBudget)
		defer cancel()
		if err := s.child.stop(ctx); err != nil {
			return errors.Join(err, s.child.kill())
		}
		return nil
	})
}

// Start runs a killed or stopped server again, on the same port and with the same data, and waits until it
// answers. A running one is left alone.
func (s *Server) Start() {
	s.t.Helper()
	s.locked("start again", func() error {
		if !s.child.ended() {
			return nil
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
			return fmt.Errorf("%w\n%s", err, s.logTail())
		}
		return nil
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
	s.replaceData("clear the data of", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), startBudget)
		defer cancel()
		return s.fill(ctx)
	})
}

// KeepData copies the data of the server as they are now, running or not: what a backup of the disk would
// hold. RestoreData brings them back.
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

// replaceData removes the data of a server that does not run and lets it be made anew.
func (s *Server) replaceData(what string, fill func() error) {
	s.t.Helper()
	s.locked(what, func() error {
		if !s.child.ended() {
			return errors.New("it is running: call Kill or Stop first")
		}
		return errors.Join(os.RemoveAll(s.data()), fill())
	})
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

func (s *Server) logTail() string { return tail(s.log()) }

// tail is the end of what a program wrote: the reason why it did not start is near it.
func tail(path string) string {
	const limit = 4 << 10 // bytes; a screen or two
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-limit):])
}

func (s *Server) kept() string { return filepath.Join(s.dir, "kept") }

// child is one running server process.
type child struct {
	process *os.Process
	done    <-chan struct{} // closed when the process has ended
}

// spawn starts a program whose output goes to the log file. Without an environment it has that of the test.
// No server outlives a test binary that was killed.
func spawn(program string, args, environ []string, dir, log string) (*child, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", program, err)
	}
	defer output.Close()

	//nolint:noctx // outlives every context on purpose: its end is a signal, chosen by the test
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = dir, environ
	cmd.Stdout, cmd.Stderr = output, output
	ended, err := StartTied(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return &child{process: cmd.Process, done: ended}, nil
}

// signal sends a signal; one to a process that has ended is no error.
func (c *child) signal(sig os.Signal) error {
	if err := c.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to process %d: %w", sig, c.process.Pid, err)
	}
	return nil
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// kill ends the process as a power cut would, with what it has started, and waits until it is gone.
func (c *child) kill() error {
	_ = syscall.Kill(-c.process.Pid, syscall.SIGKILL) // its group: the workers of nginx outlive their master
	err := c.signal(syscall.SIGKILL)
	if err == nil {
		<-c.done
	}
	return err
}

// stop asks the process to end, also a paused one, and waits for it.
func (c *child) stop(ctx context.Context) error {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := c.signal(sig); err != nil {
			return err
		}
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d did not end: %w", c.process.Pid, ctx.Err())
	}
}

// poll asks until the answer is nil, the child ended, or the context is over; it returns the last error.
func (c *child) poll(ctx context.Context, ask func(context.Context) error) error {
	// Often enough that a start costs no visible extra time.
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-c.done:
			return fmt.Errorf("ended instead of becoming ready: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("not ready in time: %w", err)
		case <-ticker.C:
		}
	}
}

// kind says how a shared server is found or made.
type kind struct {
	variable string // of the environment, with the address of the one that the run has
	url      string // as in engine
	launch   func() (*Server, error)
}

func sharedDatabase() kind { return kind{"TESTSERVER_DATABASE", "", launchSharedDatabase} }
func sharedRedis() kind    { return kind{"TESTSERVER_REDIS", redisURL, launchSharedRedis} }
func sharedNATS() kind     { return kind{"TESTSERVER_NATS", natsURL, launchSharedNATS} }

// shared is a server that many tests use. When the run has one, it is that one. Else this process starts one of its own
// when the first test asks.
type shared struct {
	once   sync.Once
	server *Server
	err    error
}

func (s *shared) get(t testing.TB, k kind) *Server {
	t.Helper()
	if err := s.open(k); err != nil {
		t.Fatalf("testserver: shared server: %v", err)
	}
	return s.server
}

func (s *shared) open(k kind) error {
	s.once.Do(func() {
		if addr := os.Getenv(k.variable); addr != "" {
			s.server, s.err = attach(addr, k.url)
			return
		}
		s.server, s.err = k.launch()
	})
	return s.err
}

// attach names a server that another process runs. Only where it is can be asked of it.
func attach(addr, url string) (*Server, error) {
	_, number, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address of a shared server: %w", err)
	}
	p, err := strconv.Atoi(number)
	if err != nil {
		return nil, fmt.Errorf("port of a shared server %s: %w", addr, err)
	}
	return &Server{engine: engine{url: url}, port: port{number: p}}, nil
}

// close stops a server that this process started.
func (s *shared) close() {
	if s.server != nil && s.server.child != nil {
		s.server.discard()
	}
}

// Share starts the servers that all test binaries of a run share, and builds the program for them, in a directory where
// they build it with further tags. environ tells the binaries where all this is, and end stops the servers.
func Share() (environ []string, end func() error, err error) {
	process.adopt()
	all := []struct {
		*shared
		kind
	}{{&process.database, sharedDatabase()}, {&process.redis, sharedRedis()}, {&process.nats, sharedNATS()}}
	programs, err := process.dir("programs")
	if err != nil {
		return nil, nil, err
	}
	var starting sync.WaitGroup
	errs := make([]error, len(all)+1)
	starting.Go(func() { _, errs[len(all)] = build(programs, "") })
	for i, one := range all {
		starting.Go(func() { errs[i] = one.open(one.kind) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, nil, errors.Join(err, process.close())
	}
	environ = append(environ, programsVariable+"="+programs)
	for _, one := range all {
		environ = append(environ, one.variable+"="+one.server.Addr())
	}
	return environ, process.close, nil
}

// StartTied starts a program that ends, on Linux, with the process that started it, and waits for the program in the
// caller's stead: when ended is closed, cmd.ProcessState says how it ended.
func StartTied(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	cmd.SysProcAttr = attributes()
	over := make(chan struct{})
	err = OnKeptThread(cmd.Start, func() {
		_ = cmd.Wait() // how it ended is in its ProcessState
		close(over)
	})
	return over, err
}

// OnKeptThread starts a child, returns how that went, and keeps the thread that started it until wait returns.
//
// The kernel kills a child that has a Pdeathsig when the thread ends that started it, not the process (prctl(2)).
// Threads do end: each that has hashed a password.
func OnKeptThread(start func() error, wait func()) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := start()
		started <- err
		if err == nil {
			wait()
		}
	}()
	return <-started
}
