package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"seckill/internal/poll"
)

// cleanup is what has to be undone, the last first.
type cleanup []func(context.Context)

func (c *cleanup) add(undo func(context.Context)) { *c = append(*c, undo) }

func (c *cleanup) closes(what io.Closer) { c.add(func(context.Context) { stop(what.Close()) }) }

// cleanUpBudget bounds the removal of what was made, on a context of its own: a run that was interrupted cleans up as
// well.
const cleanUpBudget = 20 * time.Second

func (c *cleanup) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpBudget)
	defer cancel()
	var errs []error
	for _, undo := range slices.Backward(*c) {
		errs = append(errs, try(func() { undo(ctx) }))
	}
	return errors.Join(errs...)
}

// dir makes a directory.
func (c *cleanup) dir() string {
	dir := got(os.MkdirTemp("", "lab-"))("make a directory") // short: a socket's path is bounded
	c.add(func(context.Context) { stop(os.RemoveAll(dir)) })
	return dir
}

// server is a process of the lab's own.
type server struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has
}

// start runs a server until it is undone.
func (c *cleanup) start(program string, args ...string) server {
	s := server{exec.Command(program, args...), make(chan struct{})} //nolint:gosec,noctx // of the system; ended by undo
	must("start "+program, s.cmd.Start())
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait()
	}()
	c.add(func(context.Context) {
		_ = s.cmd.Process.Kill() // its data go too
		<-s.ended
	})
	return s
}

// startPoll is between two looks at a server that starts.
const startPoll = 20 * time.Millisecond

// errServerEnded: another program may have taken its port meanwhile.
var errServerEnded = errors.New("the server has ended")

// ready waits until the server answers.
func (s server) ready(ctx context.Context, ask func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, rowBudget)
	defer cancel()
	var last error
	err := poll.Until(ctx, startPoll, func() (bool, error) {
		select {
		case <-s.ended:
			return false, errServerEnded
		default:
			last = ask(ctx)
			return last == nil, nil
		}
	})
	if err != nil {
		stop(fmt.Errorf("wait for %s: %w: %w", s.cmd.Path, err, cmp.Or(last, err)))
	}
}

// installed finds a program, also where only root looks.
func installed(name string) string {
	for _, place := range []string{name, filepath.Join("/usr/sbin", name)} {
		if path, err := exec.LookPath(place); err == nil {
			return path
		}
	}
	return ""
}
