package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Spawn prepares a process that calls RunChild with its standard streams. It
// ends with ctx.
type Spawn func(ctx context.Context) *exec.Cmd

// process is a child process.
type process struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	messages *json.Decoder
	stderr   bytes.Buffer
	wait     func() error // once
	cancel   context.CancelFunc
}

// begin starts a child and gives it its job.
func (spawn Spawn) begin(ctx context.Context, job childJob) (*process, error) {
	text, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("write down a child's job: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &process{cmd: spawn(ctx), cancel: cancel}
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start a child process: %w", err)
	}
	p.messages = json.NewDecoder(out)
	p.wait = sync.OnceValue(p.cmd.Wait)
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		p.kill()
		return nil, fmt.Errorf("give a child process its job: %w", err)
	}
	return p, nil
}

// step lets the child go on. A child that has died says so by its messages.
func (p *process) step() { _, _ = p.in.Write([]byte{'\n'}) }

// next reads the child's next message.
func (p *process) next() (childMessage, error) {
	var m childMessage
	if err := p.messages.Decode(&m); err != nil {
		// What the process said last is the better reason.
		return m, errors.Join(fmt.Errorf("a child process ended early: %w", err), p.close())
	}
	if m.Error != "" {
		return m, errors.Join(errors.New(m.Error), p.close())
	}
	return m, nil
}

// kill ends the child with SIGKILL, as a power cut would, and waits for that.
func (p *process) kill() {
	p.cancel()
	_ = p.wait() // "signal: killed"
}

// close waits for the end of a child that has nothing left to do.
func (p *process) close() error {
	_ = p.in.Close()
	err := p.wait()
	p.cancel()
	if err != nil {
		return fmt.Errorf("child process: %w: %s", err, strings.TrimSpace(p.stderr.String()))
	}
	return nil
}

// actor starts a worker of an attack in a process of its own.
func (spawn Spawn) actor(ctx context.Context, name string, s strategy, with setup) *actor {
	return newActor(ctx, name, func(ctx context.Context, stand pause) (outcome, error) {
		p, err := spawn.begin(ctx, childJob{Strategy: s.name, Terms: with.terms})
		if err != nil {
			return outcome{}, err
		}
		for {
			m, err := p.next()
			if err != nil {
				return outcome{}, err
			}
			if m.Outcome != nil {
				return *m.Outcome, p.close()
			}
			if err := stand(ctx, m.Point); err != nil {
				p.kill()
				return outcome{}, err
			}
			p.step()
		}
	})
}

// crew starts a process of the free run and waits until it is ready.
func (spawn Spawn) crew(ctx context.Context, s strategy, with setup, l loadTerms) (crew, error) {
	p, err := spawn.begin(ctx, childJob{Strategy: s.name, Terms: with.terms, Load: &l})
	if err != nil {
		return crew{}, err
	}
	if m, err := p.next(); err != nil || !m.Ready {
		p.kill()
		return crew{}, errors.Join(errors.New("a child process did not get ready"), err)
	}
	return crew{close: p.close, run: func(context.Context) (tally, error) {
		p.step()
		m, err := p.next()
		if err != nil {
			return tally{}, err
		}
		if m.Tally == nil {
			return tally{}, errors.New("a child process did not report")
		}
		return *m.Tally, nil
	}}, nil
}

// childJob is what a child process is told on its standard input, as one line
// of JSON. Every further line lets it go on by one step; the end of the input
// ends it, so that it never outlives its parent.
type childJob struct {
	Strategy string     `json:"strategy"`
	Terms    terms      `json:"terms"`
	Load     *loadTerms `json:"load"` // nil: one unit of work that stops at every point
}

// childMessage is one line on a child's standard output.
type childMessage struct {
	Point   point    `json:"point,omitempty"` // stands there
	Ready   bool     `json:"ready,omitempty"` // waits for the start of the free run
	Outcome *outcome `json:"outcome,omitempty"`
	Tally   *tally   `json:"tally,omitempty"`
	Error   string   `json:"error,omitempty"`
}

var errParentGone = errors.New("the lab that started this process is gone")

// RunChild is the whole life of a child process: a worker of an attack that is
// to be killed, or half of a free run whose lock ends with its process.
func RunChild(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	first, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the job: %w", errParentGone)
	}
	var job childJob
	if err := json.Unmarshal(first, &job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	s, err := strategyNamed(job.Strategy)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	steps := make(chan struct{})
	go func() { // ends with the input, that is with the process
		for {
			if _, err := lines.ReadBytes('\n'); err != nil {
				cancel(errParentGone)
				return
			}
			select {
			case steps <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	messages := json.NewEncoder(out)
	say := func(m childMessage) error {
		if err := messages.Encode(m); err != nil {
			return fmt.Errorf("%w: %w", errParentGone, err)
		}
		return nil
	}
	wait := func(ctx context.Context) error {
		select {
		case <-steps:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := job.work(ctx, s, say, wait); err != nil {
		return errors.Join(err, say(childMessage{Error: err.Error()}))
	}
	return nil
}

func (job childJob) work(ctx context.Context, s strategy, say func(childMessage) error, wait func(context.Context) error) error {
	with := setup{terms: job.Terms}
	if job.Load == nil {
		with.pause = func(ctx context.Context, p point) error {
			if err := say(childMessage{Point: p}); err != nil {
				return err
			}
			return wait(ctx)
		}
		done, err := performOnce(ctx, s, with)
		if err != nil {
			return err
		}
		return say(childMessage{Outcome: &done})
	}
	with.pause = job.Load.thinker()
	worker, err := s.open(ctx, with)
	if err != nil {
		return err
	}
	if err := say(childMessage{Ready: true}); err != nil {
		return errors.Join(err, worker.close())
	}
	var total tally
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := wait(ctx); err != nil {
			return err
		}
		total, err = job.Load.run(ctx, worker)
		return err
	})
	if err := errors.Join(group.Wait(), worker.close()); err != nil {
		return err
	}
	return say(childMessage{Tally: &total})
}
