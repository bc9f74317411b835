package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

// Command is a running program of one test, such as the service, or a server.
type Command struct {
	process *os.Process
	done    <-chan struct{} // closed when the process has ended
}

// spawn starts a program whose output goes to the log file. No server outlives a killed test binary.
func spawn(program string, args, environ []string, dir, log string) (*Command, error) {
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
	return &Command{process: cmd.Process, done: ended}, nil
}

func (c *Command) signal(sig os.Signal) error {
	if err := c.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to process %d: %w", sig, c.process.Pid, err)
	}
	return nil
}

// Ended tells whether the program is gone.
func (c *Command) Ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *Command) awaitEnd(most time.Duration) bool {
	select {
	case <-c.done:
		return true
	case <-time.After(most):
		return false
	}
}

// Kill ends the process as a power cut would, with what it has started, and waits until it is gone.
func (c *Command) Kill() error {
	_ = syscall.Kill(-c.process.Pid, syscall.SIGKILL) // its group: the workers of nginx outlive their master
	err := c.signal(syscall.SIGKILL)
	if err == nil {
		<-c.done
	}
	return err
}

// PID is the process id.
func (c *Command) PID() int { return c.process.Pid }

// Run starts a program with an environment of its own (nil: the test's) and kills it when the test is over.
func Run(t testing.TB, environ []string, program string, args ...string) *Command {
	t.Helper()
	dir := check.Value(process.dir(filepath.Base(program)))(t)
	log := filepath.Join(dir, "log")
	c := check.Value(spawn(program, args, environ, dir, log))(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", program, tail(log))
		}
		check.Must(t, c.Kill())
		_ = os.RemoveAll(dir) // again with the whole directory of the test binary
	})
	return c
}

// StartTied starts a program that on Linux ends with its starter. When ended is closed, cmd.ProcessState says how.
func StartTied(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	cmd.SysProcAttr = attributes()
	over := make(chan struct{})
	err = OnKeptThread(cmd.Start, func() {
		_ = cmd.Wait() // how it ended is in its ProcessState
		close(over)
	})
	return over, err
}

// OnKeptThread starts a child and keeps the starting thread until wait returns: the kernel kills a child with a
// Pdeathsig when that thread ends, not the process (prctl(2)), and each thread that has hashed a password ends.
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

const isolatedVariable = "TESTSERVER_ISOLATED" // says in a test's own network that it is there

// Isolated reruns its test alone, in a network and mounts a script prepares before "$@": true there; on false, return.
func Isolated(t *testing.T, prepare string) bool {
	t.Helper()
	if os.Getenv(isolatedVariable) != "" {
		return true
	}
	only := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	command := []string{
		"unshare", "--net", "--mount", "sh", "-euc", prepare, "sh", os.Args[0], "-test.count=1",
		"-test.v", "-test.run=" + only,
	}
	if os.Geteuid() != 0 {
		command = append([]string{"sudo", "-n", "-E"}, command...)
	}
	said := &check.Log{}
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // it ends with this process
	cmd.Stdout, cmd.Stderr = said, said
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "TESTSERVER_") { // the shared servers are in the other network
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, isolatedVariable+"=yes")
	<-check.Value(StartTied(cmd))(t)
	t.Logf("%s", said)
	check.That(t, cmd.ProcessState.Success(), "in a network of its own: %v", cmd.ProcessState)
	return false
}

const buildBudget = 10 * time.Minute // of one compilation: two seconds with a warm cache, minutes with an empty one

const programsVariable = "TESTSERVER_PROGRAMS" // the directory of the programs that a run's test binaries share (Share)

// Program returns the path of the shipped program, or of one with further tags, built once for a run.
func Program(t testing.TB, tags ...string) string {
	t.Helper()
	return check.Value(build(check.Value(programs())(t), strings.Join(tags, ",")))(t)
}

// Built builds the program with flags of go build. Each call builds it again.
func Built(t testing.TB, flags ...string) string {
	t.Helper()
	path := filepath.Join(check.Value(process.dir("built"))(t), "seckill")
	check.Must(t, compile(path, "seckill", flags...))
	return path
}

func build(dir, tags string) (string, error) {
	place := filepath.Join(dir, "tags-"+tags)
	if err := os.MkdirAll(place, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of a program: %w", err)
	}
	turn, err := await(place + ".lock")
	if err != nil {
		return "", fmt.Errorf("wait for another build of the program: %w", err)
	}
	defer turn.Close() // and with it the lock
	path := filepath.Join(place, "seckill")
	if _, err := os.Stat(path); err == nil {
		return path, nil // another test binary has built it
	}
	if err := compile(path+".new", "seckill", "-tags", tags); err != nil {
		return "", err
	}
	return path, os.Rename(path+".new", path) // never half a program
}

// compile builds a program as it is released, the same whether the tests run with the race detector or not.
func compile(path, program string, flags ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), buildBudget)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-trimpath", "-o", path}, flags,
		[]string{program})...)
	cmd.Dir, cmd.Env = moduleRoot(), append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build %s with %q: %w\n%s", program, flags, err, out)
	}
	return nil
}

// CPU is what a process has computed since its start, in all threads, ended ones too, in ticks of 10 ms.
func CPU(t testing.TB, pid int) time.Duration {
	t.Helper()
	stat := string(check.Value(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t))
	// Behind the name, which is in parentheses: 11 fields, utime and stime.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const tick = time.Second / 100 // on every Linux
	user := check.Value(strconv.ParseInt(fields[11], 10, 64))(t)
	system := check.Value(strconv.ParseInt(fields[12], 10, 64))(t)
	return time.Duration(user+system) * tick
}

// PeakMemory is the most memory that a process has had since it was started, or since ForgetPeak, in bytes.
func PeakMemory(t testing.TB, pid int) int64 {
	t.Helper()
	status := check.Value(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	line := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	check.Need(t, line != nil, "no VmHWM in %s", status)
	return check.Value(strconv.ParseInt(string(line[1]), 10, 64))(t) << 10
}

// ForgetPeak lets the kernel count PeakMemory of a process from now on.
func ForgetPeak(t testing.TB, pid int) {
	t.Helper()
	check.Must(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o600))
}
