package e2e_test

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"seckill/internal/testserver"
)

// process is the real program in a process of its own.
type process struct {
	*app
	cmd    *exec.Cmd
	exited chan struct{} // closed once it has been waited for
	output *output
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

// freeAddress is an address nobody listens on now.
func freeAddress(t *testing.T) string {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	return socket.Addr().String()
}

// launch starts `seckill serve` and returns when it is ready. What is left of
// it is killed at the end of the test.
func launch(t *testing.T, s settings) *process {
	t.Helper()
	main, ops := freeAddress(t), freeAddress(t)
	p := &process{
		app:    newApp(t, "http://"+main, "http://"+ops),
		cmd:    exec.Command(testserver.Program(t), "serve"),
		exited: make(chan struct{}),
		output: &output{},
	}
	p.cmd.Env = append(os.Environ(), s.with(settings{"SECKILL_HTTP_ADDR": main, "SECKILL_OPS_ADDR": ops}).environ()...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // the exit code is in ProcessState
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the program said:\n%s", tail(p.output.String(), 50))
		}
	})
	until(t, 20*time.Second, "the program is ready", func() bool {
		select {
		case <-p.exited:
			t.Fatalf("the program ended: %v\n%s", p.cmd.ProcessState, p.output)
		default:
		}
		got, err := send(p.client, http.MethodGet, p.url+"/readyz", "", nil)
		return err == nil && got.status == http.StatusOK
	})
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // gone already is as good
	<-p.exited
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
