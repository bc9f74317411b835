// Package testserver runs real MariaDB, Redis and NATS processes for tests: on free ports of 127.0.0.1, each
// with directories of its own, configured by the very files in deployments/ that production uses, and gone
// when the test is over, also when it was killed.
//
// A package that uses it calls Main from its TestMain. Tests that only need a database or a Redis take Schema,
// SharedRedis and SharedNATS, which name the servers that all tests of a run share (Share); tests that kill, stop or
// pause a server, or change or measure it as a whole, take MariaDB, Redis and NATS, which start one of their own.
//
// A missing server program fails the test and names the package to install. Nothing is ever skipped.
package testserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"seckill/internal/workshop/check"
)

// Main runs the tests of a package, stops the servers they shared, and fails the run when a goroutine is
// left over. It does not return. Every package that uses this one calls it:
//
//	func TestMain(m *testing.M) { testserver.Main(m) }
//
// The options name goroutines of libraries that are known to stay.
func Main(m *testing.M, opts ...goleak.Option) {
	process.adopt()
	logging.Disable() // go-redis tells of the connections that tests break on purpose
	code := m.Run()
	err := process.close()
	if err == nil && code == 0 { // a failed test leaves goroutines that say nothing new
		err = leftOver(opts)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "testserver: at the end: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// leftOver describes the goroutines that do not end. Some end a while after what they belong to: go-redis notices
// only once a second that a pool which looks for a dead node was closed (ConnPool.tryDial), and connections time out.
func leftOver(opts []goleak.Option) (err error) {
	for range 12 {
		if err = goleak.Find(opts...); err == nil { // it looks for some 400 ms
			return nil
		}
	}
	return fmt.Errorf("goroutines are left over: %w", err)
}

// process is what the tests of one binary share. It is package state because Schema(t) and SharedRedis(t)
// are called from everywhere with nothing but the test in hand. Main creates and clears it.
var process home

// abandoned is the age from which a dead test binary's directory is removed, long after its creation and lock.
const abandoned = time.Minute

const homePrefix = "seckill-test-"

// template is a fresh data directory of MariaDB, made once per test binary (0.6 s) and copied for each server (0.1 s).
var template = sync.OnceValues(install)

// programs is the directory of the programs that this test binary builds, or that of the run (Share).
var programs = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(programsVariable); dir != "" {
		return dir, nil
	}
	return process.dir("programs")
})

var (
	natsProgram    = sync.OnceValues(buildNATS)
	sharedDatabase = share("TESTSERVER_DATABASE", "", launchSharedDatabase)
	sharedRedis    = share("TESTSERVER_REDIS", redisURL, launchSharedRedis)
	sharedNATS     = share("TESTSERVER_NATS", natsURL, launchSharedNATS)
)

// home is the directory and the shared servers of one test binary.
type home struct {
	adopted atomic.Bool // Main was called, and will clean up
	serial  atomic.Int64

	dirOnce sync.Once
	path    string
	claim   *os.File
	dirErr  error

	mu    sync.Mutex
	ended []func() error // what ends the shared servers
}

// ends has something done at the end.
func (h *home) ends(end func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = append(h.ended, end)
}

func (h *home) adopt() { h.adopted.Store(true) }

// dir returns a new empty directory inside the directory of this test binary. The path is short: a Unix
// socket's may have 107 bytes, which t.TempDir easily passes.
func (h *home) dir(name string) (string, error) {
	if !h.adopted.Load() {
		return "", errors.New("the package has no TestMain that calls testserver.Main")
	}
	h.dirOnce.Do(h.open)
	if h.dirErr != nil {
		return "", h.dirErr
	}
	dir := filepath.Join(h.path, name+"-"+strconv.FormatInt(h.serial.Add(1), 10))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("create a server's directory: %w", err)
	}
	return dir, nil
}

func (h *home) open() {
	sweep(os.TempDir())
	if h.path, h.dirErr = os.MkdirTemp("", homePrefix); h.dirErr != nil {
		return
	}
	h.claim, h.dirErr = claim(filepath.Join(h.path, "claim"))
}

// close stops the shared servers and removes everything.
func (h *home) close() error {
	var errs []error
	for _, end := range h.ended {
		errs = append(errs, end())
	}
	if h.claim != nil {
		errs = append(errs, h.claim.Close(), os.RemoveAll(h.path))
	}
	return errors.Join(errs...)
}

// sweep removes the directories of test binaries that were killed or ran into their timeout: their claim is free
// again. It drops errors, because the next run tries again.
func sweep(root string) {
	dirs, _ := filepath.Glob(filepath.Join(root, homePrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < abandoned {
			continue
		}
		file, err := claim(filepath.Join(dir, "claim"))
		if err != nil {
			continue // in use
		}
		_ = os.RemoveAll(dir)
		_ = file.Close()
	}
}

// Ports are taken from below the range in which the kernel picks ports for outgoing connections (32768 and
// up). From inside it, a client that connects again and again to a killed server would sooner or later be
// given the server's own port, connect to itself, and block the restart.
const (
	firstPort = 18000
	lastPort  = 31999
)

// port is held by no other test binary of this machine, also while the server that it belongs to is down.
type port struct {
	number int
	claim  *os.File
}

// takePort finds a free port.
func takePort() (port, error) {
	root := filepath.Join(os.TempDir(), "seckill-ports")
	// Open to every user, as /tmp itself: tests of several users may run on one machine.
	if err := os.MkdirAll(root, 0o777); err != nil {
		return port{}, fmt.Errorf("create the directory of claimed ports: %w", err)
	}
	for range 1000 {
		number := firstPort + rand.IntN(lastPort-firstPort+1)
		file, err := claim(filepath.Join(root, strconv.Itoa(number)))
		if err != nil {
			continue
		}
		if p := (port{number, file}); p.bindable() {
			return p, nil
		}
		_ = file.Close()
	}
	return port{}, errors.New("no free port found in 1000 tries")
}

func (p port) release() error {
	if p.claim == nil {
		return nil
	}
	return p.claim.Close()
}

func (p port) addr() string { return net.JoinHostPort(loopback, strconv.Itoa(p.number)) }

func (p port) bindable() bool {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", p.addr())
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

// claim locks a file until it is closed or this process ends. It fails when another process holds the lock.
func claim(path string) (*os.File, error) { return lock(path, syscall.LOCK_NB) }

// await locks a file as claim does, and waits while another process holds the lock.
func await(path string) (*os.File, error) { return lock(path, 0) }

func lock(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|how); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return file, nil
}

// takePorts takes ports for the time of a test. No other test binary takes one before the test ends, so that a program
// that is killed can be started there again.
func takePorts(t testing.TB, n int) (ports []port) {
	t.Helper()
	for range n {
		p := check.Value(takePort())(t)
		t.Cleanup(func() { _ = p.release() })
		ports = append(ports, p)
	}
	return ports
}

// Address is a free address of this machine, "127.0.0.1:port", for the time of a test.
func Address(t testing.TB) string {
	t.Helper()
	return takePorts(t, 1)[0].addr()
}

// configFile is the path of a file in deployments/. A wrong path fails at the server's start, which names the file.
func configFile(name string) string { return filepath.Join(moduleRoot(), "deployments", name) }

// moduleRoot is the directory of the service's module, which has deployments/. A test runs in the directory of its
// package, also one of a module inside, so the root is above; it is looked up then and not at compile time, so that
// -trimpath works.
func moduleRoot() string {
	dir, _ := os.Getwd()
	for missing := os.ErrNotExist; missing != nil && dir != "/"; {
		if _, missing = os.Stat(filepath.Join(dir, "deployments")); missing != nil {
			dir = filepath.Dir(dir)
		}
	}
	return dir
}

// KeepLog keeps what a program of a failed test said in a file under bin/logs, and tells the test only the file's name:
// the output of a test is read by people.
func KeepLog(t testing.TB, program, text string) {
	t.Helper()
	// A test's name has slashes and spaces.
	name := strings.NewReplacer("/", "-", `\`, "-", " ", "-", ":", "-").Replace(t.Name() + "-" + program)
	dir := filepath.Join(moduleRoot(), "bin", "logs")
	path, err := filepath.Join(dir, name+".log"), os.MkdirAll(dir, 0o750)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Logf("the log of %s could not be kept: %v\n%s", program, err, text)
		return
	}
	t.Logf("the log of %s is %s", program, path)
}
