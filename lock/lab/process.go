package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// childCommand is the argument with which the program starts itself again.
const childCommand = "child"

// childMessage is what a child says on its standard output: the point at which it stands, or in the end what it did.
// Why it failed it says on its standard error.
type childMessage struct {
	Point point `json:"point,omitempty"`
	Tally tally `json:"tally,omitempty"`
}

// elsewhere is the work of a process of its own, which ends with ctx by SIGKILL, as by a power cut.
func (t terms) elsewhere(ctx context.Context, stand pause) (did tally) {
	cmd := exec.CommandContext(ctx, got(os.Executable())("find this program"), childCommand) //nolint:gosec // itself
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in := got(cmd.StdinPipe())("start a child process")
	out := got(cmd.StdoutPipe())("start a child process")
	must("start a child process", cmd.Start())
	err := try(func() { did = t.converse(ctx, in, out, stand) })
	if ctx.Err() != nil { // before the end of its input, which would let it give its lock back
		_ = cmd.Process.Kill()
	}
	_ = in.Close()
	if ended := cmd.Wait(); ended != nil {
		err = errors.Join(err, fmt.Errorf("child process: %w: %s", ended, strings.TrimSpace(stderr.String())))
	}
	stop(err)
	return did
}

// converse gives a child its terms first on its standard input, a stream of JSON. Every further value lets it go on by
// one step; the end of the input ends it, so that it never outlives its parent. It returns what the child did.
func (t terms) converse(ctx context.Context, in io.Writer, out io.Reader, stand pause) tally {
	tell, messages := json.NewEncoder(in), json.NewDecoder(out)
	must("give a child process its job", tell.Encode(t))
	for {
		var m childMessage
		must("a child process ended early", messages.Decode(&m))
		if m.Point == "" {
			return m.Tally
		}
		stand(ctx, m.Point)
		if !m.Point.passes() {
			_ = tell.Encode(struct{}{}) // a child that has died says so by its messages
		}
	}
}

var errParentGone = errors.New("the lab that started this process is gone")

// child is the whole life of a child process: a worker of an attack that is to be killed, or half of a free run whose
// lock ends with its process.
func child(ctx context.Context, in io.Reader, out io.Writer) {
	told := json.NewDecoder(in)
	var job terms
	err := told.Decode(&job)
	if errors.Is(err, io.EOF) {
		err = errParentGone
	}
	must("read the job", err)
	all := catalog() //nolint:contextcheck // nothing is opened yet
	if job.Mended {
		all = mended() //nolint:contextcheck // nothing is opened yet
	}
	s, found := named(all, job.Strategy)
	if !found {
		stop(fmt.Errorf("the lab has no strategy %q", job.Strategy))
	}
	client := newClient(job.Site.Redis)
	defer client.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	steps := make(chan struct{}, 1)
	go func() { // ends with the input, that is with the process
		for told.Decode(&struct{}{}) == nil {
			steps <- struct{}{}
		}
		cancel(errParentGone)
	}()
	messages, mu := json.NewEncoder(out), sync.Mutex{}
	say := func(m childMessage) {
		mu.Lock()
		defer mu.Unlock()
		if err := messages.Encode(m); err != nil {
			stop(fmt.Errorf("%w: %w", errParentGone, err))
		}
	}
	err = try(func() {
		say(childMessage{Tally: s.here(setup{terms: job, redis: client})(ctx, func(ctx context.Context, p point) {
			say(childMessage{Point: p})
			if !p.passes() {
				select {
				case <-steps:
				case <-ctx.Done():
				}
			}
			stop(context.Cause(ctx))
		})})
	})
	if err != nil {
		stop(errors.Join(err, context.Cause(ctx)))
	}
}
