package testserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

// Command is a running program of one test, such as the service. What it says is in a file.
type Command struct {
	*child
	dir string
}

// Run starts a program with an environment of its own (nil: the test's) and kills it when the test is over.
func Run(t testing.TB, environ []string, program string, args ...string) *Command {
	t.Helper()
	dir, err := process.dir(filepath.Base(program))
	check.Must(t, err)
	c := &Command{dir: dir}
	c.child, err = spawn(program, args, environ, dir, c.log())
	check.Must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", program, tail(c.log()))
		}
		if err := c.kill(); err != nil {
			t.Errorf("testserver: %v", err)
		}
		_ = os.RemoveAll(dir) // again with the whole directory of the test binary
	})
	return c
}

// PID is the process id.
func (c *Command) PID() int { return c.process.Pid }

// Kill ends the program as a power cut would, and returns when it is gone.
func (c *Command) Kill() error { return c.kill() }

// Ended tells whether the program is gone.
func (c *Command) Ended() bool { return c.ended() }

func (c *Command) log() string { return filepath.Join(c.dir, "log") }

// isolatedVariable says in a test's own network that it is there.
const isolatedVariable = "TESTSERVER_ISOLATED"

// Isolated runs the test that calls it once more, alone, in a network and with mounts of its own, which a shell script prepares
// before it executes "$@". There it is true; the caller that hears false is done.
func Isolated(t *testing.T, prepare string) bool {
	t.Helper()
	if os.Getenv(isolatedVariable) != "" {
		return true
	}
	only := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	command := []string{"unshare", "--net", "--mount", "sh", "-euc", prepare, "sh", os.Args[0], "-test.count=1", "-test.v", "-test.run=" + only}
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
