// Package testserver runs real MariaDB, Redis and NATS processes for tests: on free ports of 127.0.0.1, in their own
// directories, configured by the files in deployments/ that production uses, and gone with the test, even a killed one.
//
// A package that uses it calls Main from its TestMain. Tests that only need a server take Schema, SharedRedis or
// SharedNATS, which a run shares (Share); those that kill, stop, pause, change or measure one start their own.
//
// A missing server program fails the test and names the package to install. Nothing is ever skipped.
package testserver

import (
	"cmp"
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
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"seckill/internal/workshop/check"
)

// Main runs a package's tests, stops the servers they shared, fails the run when a goroutine is left over, and does not
// return: func TestMain(m *testing.M) { testserver.Main(m) }. The options name goroutines of libraries that stay.
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

// leftOver describes goroutines that do not end. Some end late: go-redis looks once a second if its pool is closed.
func leftOver(opts []goleak.Option) (err error) {
	for range 12 {
		if err = goleak.Find(opts...); err == nil { // it looks for some 400 ms
			return nil
		}
	}
	return fmt.Errorf("goroutines are left over: %w", err)
}

// process is what the tests of a binary share: Schema(t) and the like have nothing but the test in hand. Main makes it.
var process = home{missing: errors.New("the package has no TestMain that calls testserver.Main")}

const abandoned = time.Minute // age at which a dead test binary's directory goes, long after its creation and lock

const homePrefix = "seckill-test-"

var template = sync.OnceValues(install) // MariaDB's fresh data directory: made once a binary (0.6 s), copied (0.1 s)

// programs is the directory of the programs that this test binary builds, or that of the run (Share).
var programs = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(programsVariable); dir != "" {
		return dir, nil
	}
	return process.dir("programs")
})

var (
	natsProgram = sync.OnceValues(func() (string, error) {
		program := filepath.Join(moduleRoot(), "bin", "nats-server") // make's
		return program, compile(program, "github.com/nats-io/nats-server/v2")
	})
	sharedDatabase = share("TESTSERVER_DATABASE", "", launchSharedDatabase)
	sharedNATS     = share("TESTSERVER_NATS", natsURL, launchSharedNATS)
	// One without an append-only file, and thus without a disk: no test kills it.
	sharedRedis = share("TESTSERVER_REDIS", redisURL, func() (*Server, error) {
		return launch(Home("").redis("redis.conf"), []string{"--appendonly", "no"})
	})
)

type home struct {
	serial  atomic.Int64
	path    string
	claim   *flock.Flock
	missing error // why there is no path

	mu    sync.Mutex
	ended []func() error // what ends the shared servers
}

// adopt makes the directory, which close removes.
func (h *home) adopt() {
	sweep(os.TempDir())
	if h.path, h.missing = os.MkdirTemp("", homePrefix); h.missing == nil {
		h.claim, h.missing = claim(filepath.Join(h.path, "claim"))
	}
}

// dir returns a new empty directory of this test binary, by a short path: a Unix socket's may have 107 bytes only.
func (h *home) dir(name string) (string, error) {
	if h.missing != nil {
		return "", h.missing
	}
	dir := filepath.Join(h.path, name+"-"+strconv.FormatInt(h.serial.Add(1), 10))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("create a server's directory: %w", err)
	}
	return dir, nil
}

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

// sweep removes directories of dead test binaries, whose claim is free again. It drops errors: the next run retries.
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

// Ports are below those that the kernel picks for outgoing connections (32768 and up). From one of these a client that
// connects again and again to a killed server would one day connect to itself, and block the restart.
const (
	firstPort = 18000
	lastPort  = 31999
)

// port is held by no other test binary of this machine, also while the server that it belongs to is down.
type port struct {
	number int
	claim  *flock.Flock
}

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
		p := port{number, file}
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", p.addr())
		if err == nil && listener.Close() == nil {
			return p, nil
		}
		_ = p.release()
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

// claim locks a file until it is closed or this process ends. It fails when another process holds the lock.
func claim(path string) (*flock.Flock, error) {
	file := flock.New(path)
	if free, err := file.TryLock(); err != nil || !free {
		return nil, fmt.Errorf("lock %s: %w", path, cmp.Or(err, os.ErrExist))
	}
	return file, nil
}

// takePorts takes ports for the time of a test: a killed program can be started there again, as nobody else takes one.
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

// moduleRoot is the directory of the service's module, with deployments/. A test runs in its package's directory, in a
// nested module too, so the root is above; it is looked up at run time so that -trimpath works.
func moduleRoot() string {
	dir, _ := os.Getwd()
	for missing := os.ErrNotExist; missing != nil && dir != "/"; {
		if _, missing = os.Stat(filepath.Join(dir, "deployments")); missing != nil {
			dir = filepath.Dir(dir)
		}
	}
	return dir
}

// KeepLog keeps a failed test's program output in a file under bin/logs and logs its name only: people read the log.
func KeepLog(t testing.TB, program, text string) {
	t.Helper()
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
