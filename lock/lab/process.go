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

// Spawn prepares a process that calls RunChild with its standard streams. It
// ends with ctx.
type Spawn func(ctx context.Context) *exec.Cmd

// childCommand is the argument with which the program calls RunChild.
const childCommand = "child"

// Itself has the program start itself again.
func Itself() (Spawn, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to start it again as a child: %w", err)
	}
	return func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, program, childCommand) }, nil
}

// childJob is what a child process is told first on its standard input, a stream of
// JSON. Every further value lets it go on by one step; the end of the input ends it,
// so that it never outlives its parent.
type childJob struct {
	Strategy string `json:"strategy"`
	Mended   bool   `json:"mended,omitempty"`
	Terms    terms  `json:"terms"`
	Load     *Load  `json:"load"` // nil: one unit of work
}

// childMessage is what a child says on its standard output: the point at which it
// stands, or in the end what it did or why it failed.
type childMessage struct {
	Point point  `json:"point,omitempty"`
	Tally *tally `json:"tally,omitempty"`
	Error string `json:"error,omitempty"`
}

// work is done in a process of its own, which ends with ctx by SIGKILL, as by a power cut.
func (spawn Spawn) work(s strategy, with setup) work {
	return func(ctx context.Context, stand pause) (_ tally, err error) {
		cmd := spawn(ctx)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		in, err := cmd.StdinPipe()
		var out io.ReadCloser
		if err == nil {
			out, err = cmd.StdoutPipe()
		}
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return tally{}, fmt.Errorf("start a child process: %w", err)
		}
		defer func() {
			if ctx.Err() != nil { // before the end of its input, which would let it give its lock back
				_ = cmd.Process.Kill()
			}
			_ = in.Close()
			if ended := cmd.Wait(); ended != nil { // what the process said last is the better reason
				err = errors.Join(err, fmt.Errorf("child process: %w: %s", ended, strings.TrimSpace(stderr.String())))
			}
		}()
		return converse(ctx, in, out, childJob{Strategy: s.name, Mended: s.mended, Terms: with.terms, Load: with.load}, stand)
	}
}

// converse gives a child its job, lets it stand at its points, and returns what it did.
func converse(ctx context.Context, in io.Writer, out io.Reader, job childJob, stand pause) (tally, error) {
	tell, messages := json.NewEncoder(in), json.NewDecoder(out)
	if err := tell.Encode(job); err != nil {
		return tally{}, fmt.Errorf("give a child process its job: %w", err)
	}
	for {
		var m childMessage
		if err := messages.Decode(&m); err != nil {
			return tally{}, fmt.Errorf("a child process ended early: %w", err)
		}
		switch {
		case m.Error != "":
			return tally{}, errors.New(m.Error)
		case m.Tally != nil:
			return *m.Tally, nil
		}
		if err := stand(ctx, m.Point); err != nil {
			return tally{}, err
		}
		if m.Point.passes() {
			continue
		}
		_ = tell.Encode(struct{}{}) // a child that has died says so by its messages
	}
}

var errParentGone = errors.New("the lab that started this process is gone")

// RunChild is the whole life of a child process: a worker of an attack that is
// to be killed, or half of a free run whose lock ends with its process.
func RunChild(ctx context.Context, in io.Reader, out io.Writer) error {
	told := json.NewDecoder(in)
	var job childJob
	if err := told.Decode(&job); err != nil {
		if errors.Is(err, io.EOF) {
			err = errParentGone
		}
		return fmt.Errorf("read the job: %w", err)
	}
	s := named(catalogOf(job.Mended), job.Strategy)
	if s.name == "" {
		return fmt.Errorf("the lab has no strategy %q", job.Strategy)
	}
	client, err := newClient(job.Terms.Site.Redis, nil)
	if err != nil {
		return err
	}
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
	say := func(m childMessage) error {
		mu.Lock()
		defer mu.Unlock()
		if err := messages.Encode(m); err != nil {
			return fmt.Errorf("%w: %w", errParentGone, err)
		}
		return nil
	}
	stand := func(ctx context.Context, p point) error {
		if err := say(childMessage{Point: p}); err != nil || p.passes() {
			return err
		}
		select {
		case <-steps:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	done, err := s.here(setup{terms: job.Terms, load: job.Load, redis: client})(ctx, stand)
	if err != nil {
		return errors.Join(err, say(childMessage{Error: err.Error()}))
	}
	return say(childMessage{Tally: &done})
}
