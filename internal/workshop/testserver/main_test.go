package testserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// TestMain runs the tests, or, started again by one of them with a role as last argument, plays a package
// whose tests go wrong in the way of that role.
func TestMain(m *testing.M) {
	switch os.Args[len(os.Args)-1] {
	case roleForgetful:
		os.Exit(m.Run())
	case roleLeaky:
		go func() { select {} }()
		testserver.Impatient()
	}
	testserver.Main(m)
}

const (
	roleForgetful = "role=forgetful" // has a TestMain that does not call Main
	roleLeaky     = "role=leaky"     // leaves a goroutine behind
	roleVictim    = "role=victim"    // is killed while its servers run
	roleBare      = "role=bare"      // runs where no server is installed
)

// again prepares a second run of this test binary, of TestOneServer alone.
func again(t *testing.T, role string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOneServer$", "-test.v", role)
	cmd.Env = os.Environ()
	return cmd
}

// TestOneServer is what the runs under a role do.
func TestOneServer(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	if os.Args[len(os.Args)-1] != roleVictim {
		return
	}
	fmt.Fprintf(os.Stdout, "\npid %d\n", server.PID())
	<-t.Context().Done() // never: the test is killed here
}

func TestMistakesFailTheRun(t *testing.T) {
	t.Parallel()
	tests := []struct {
		role, want string
		env        []string
	}{
		{role: roleForgetful, want: "no TestMain that calls testserver.Main"},
		{role: roleLeaky, want: "goroutines are left over"},
		{role: roleBare, want: "apt-get install redis-server", env: []string{"PATH=/nowhere"}},
	}
	for _, test := range tests {
		t.Run(test.role, func(t *testing.T) {
			t.Parallel()
			cmd := again(t, test.role)
			cmd.Env = append(cmd.Env, test.env...)
			out, err := cmd.CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
				t.Fatalf("run ended with %v, want exit code 1\n%s", err, out)
			}
			if !strings.Contains(string(out), test.want) {
				t.Fatalf("output lacks %q:\n%s", test.want, out)
			}
		})
	}
}

func TestServersDieWithTheTest(t *testing.T) {
	t.Parallel()
	cmd := again(t, roleVictim)
	stdout, err := cmd.StdoutPipe()
	check.Must(t, err)
	check.Must(t, cmd.Start())
	pid := 0
	for lines := bufio.NewScanner(stdout); pid == 0 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			if pid, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	check.Must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if pid == 0 {
		t.Fatal("the run named no server")
	}

	check.Eventually(t, "the server dies with its test", func() bool { return !alive(pid) })
}

// alive says whether the process runs. A zombie, which waits for a parent that may never ask, does not.
func alive(pid int) bool {
	if err := syscall.Kill(pid, 0); err != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
