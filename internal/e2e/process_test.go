package e2e_test

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
)

// process is the real program in a process of its own. Its addresses, and with
// them its *app, stay the same when it is started again.
type process struct {
	*app
	t        *testing.T
	path     string
	settings settings
	output   *output

	mu     sync.Mutex // held while it is started or killed
	cmd    *exec.Cmd
	exited <-chan struct{} // closed once it has been waited for
}

// output collects what a process says, for the failing test.
type output struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

// launch starts `seckill serve` and returns when it is ready. What is left of
// it is killed at the end of the test.
func launch(t *testing.T, s settings) *process {
	t.Helper()
	p := prepare(t, testserver.Program(t), s)
	p.start(t)
	p.awaitReady(t)
	return p
}

// prepare says how a program is to be started, and where.
func prepare(t *testing.T, path string, s settings) *process {
	t.Helper()
	main, ops := testserver.Address(t), testserver.Address(t)
	p := &process{
		t: t, app: newApp(t, "http://"+main, "http://"+ops), path: path, output: &output{},
		settings: s.with(settings{"SECKILL_HTTP_ADDR": main, "SECKILL_OPS_ADDR": ops}),
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the program said:\n%s", tail(p.output.String(), 50))
		}
	})
	return p
}

// start runs the program, with further settings for this time.
func (p *process) start(t *testing.T, more ...settings) {
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

// startup is how long a program may take until it is ready. It is no promise, and one that ends is seen at once: it is
// longer than twenty programs on two busy cores take for their migrations.
const startup = 2 * time.Minute

// awaitReady waits until the program says that it is ready.
func (p *process) awaitReady(t *testing.T) {
	t.Helper()
	until(t, startup, "the program is ready", func() bool {
		select {
		case <-p.exited:
			t.Fatalf("the program ended: %v\n%s", p.cmd.ProcessState, p.output)
		default:
		}
		got, err := send(p.client, http.MethodGet, p.url+"/readyz", "", nil)
		return err == nil && got.status == http.StatusOK
	})
}

// revive starts the program again if it has ended.
func (p *process) revive(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
		t.Logf("it had ended: %v", p.cmd.ProcessState)
		p.start(t)
	default:
	}
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
