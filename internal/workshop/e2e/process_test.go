package e2e_test

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// process is the real program in a process of its own. Its addresses, and with
// them its *app, stay the same when it is started again.
type process struct {
	*app
	path     string
	settings settings
	output   *check.Log

	mu     sync.Mutex // held while it is started or killed
	cmd    *exec.Cmd
	exited <-chan struct{} // closed once it has been waited for
}

// launch starts `seckill serve` and returns when it is ready. What is left of
// it is killed at the end of the test.
func launch(t testing.TB, s settings) *process {
	t.Helper()
	p := prepare(t, testserver.Program(t), s)
	p.start(t)
	p.awaitReady(t)
	return p
}

// prepare says how a program is to be started, and where.
func prepare(t testing.TB, path string, s settings) *process {
	t.Helper()
	main, ops := testserver.Address(t), testserver.Address(t)
	p := &process{
		app: newApp(t, "http://"+main, "http://"+ops), path: path, output: &check.Log{},
		settings: s.with(settings{"SECKILL_HTTP_ADDR": main, "SECKILL_OPS_ADDR": ops}),
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			testserver.KeepLog(t, "seckill-"+p.settings["SECKILL_HTTP_ADDR"], p.output.String())
		}
	})
	return p
}

// start runs the program, with further settings for this time.
func (p *process) start(t testing.TB, more ...settings) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.settings
	for _, m := range more {
		s = s.with(m)
	}
	cmd := exec.Command(p.path, "serve")
	cmd.Env = append(os.Environ(), s.environ()...)
	cmd.Stdout, cmd.Stderr = p.output, p.output
	exited, err := testserver.StartTied(cmd)
	check.Must(t, err)
	p.cmd, p.exited = cmd, exited
}

// awaitReady waits until the program says that it is ready.
func (p *process) awaitReady(t testing.TB) {
	t.Helper()
	check.Patiently(t, "the program is ready", func() bool {
		if !p.alive() {
			t.Fatalf("the program ended: %v\n%s", p.cmd.ProcessState, p.output)
		}
		return p.Status("/readyz") == http.StatusOK
	})
}

// revive starts the program again if it has ended.
func (p *process) revive(t testing.TB) {
	t.Helper()
	if !p.alive() {
		t.Logf("it had ended: %v", p.cmd.ProcessState)
		p.start(t)
	}
}

// alive tells whether the program has not ended yet.
func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// ends waits until the program has ended by itself, and demands that it ended well.
func (p *process) ends(t testing.TB) {
	t.Helper()
	check.Receive(t, "the end of the program", p.exited)
	check.Equal(t, "its exit code", p.cmd.ProcessState.ExitCode(), 0)
}

// kill ends the program as a power cut would, and returns when it is gone.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // gone already is as good
	<-p.exited
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
