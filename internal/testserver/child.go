package testserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// child is one running server process.
type child struct {
	process *os.Process
	done    chan struct{} // closed when the process has ended
}

// spawn starts a program whose output goes to the log file.
//
// The kernel kills the child when the thread that started it ends (Pdeathsig), so that no server outlives a
// test binary that was killed. That thread must therefore live as long as the child: a goroutine is locked
// to it and waits there.
func spawn(program string, args []string, dir, log string) (*child, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", program, err)
	}
	defer output.Close()

	//nolint:noctx // outlives every context on purpose: its end is a signal, chosen by the test
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = attributes()

	c := &child{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		c.process = cmd.Process
		started <- nil
		_ = cmd.Wait() // how it ended is in its log
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return c, nil
}

// signal sends a signal; one to a process that has ended is no error.
func (c *child) signal(sig os.Signal) error {
	if err := c.process.Signal(sig); err != nil && !c.ended() {
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

// kill ends the process as a power cut would and waits until it is gone.
func (c *child) kill() error {
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
