package testserver

import (
	"os"
	"path/filepath"
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
