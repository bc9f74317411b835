package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
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
	points := make(chan point)
	p, err := spawn.begin(ctx, childJob{Strategy: s.name, Terms: with.terms})
	if err != nil {
		close(points)
		return &actor{name: name, points: points, kill: func() {}, end: func() (outcome, error) { return outcome{}, err }}
	}
	ctx, cancel := context.WithCancel(ctx)
	var done outcome
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(points)
		for {
			m, err := p.next()
			if err != nil {
				failed = err
				return
			}
			if m.Outcome != nil {
				done, failed = *m.Outcome, p.close()
				return
			}
			select {
			case points <- m.Point:
			case <-ctx.Done():
				failed = context.Cause(ctx)
				return
			}
		}
	}()
	return &actor{
		name: name, points: points, release: p.step,
		kill: func() {
			cancel()
			p.kill()
			<-ended
		},
		end: func() (outcome, error) {
			<-ended
			cancel()
			return done, failed
		},
	}
}

// crew starts a process of the free run and waits until it is ready.
func (spawn Spawn) crew(ctx context.Context, s strategy, with setup, l loadTerms) (crew, error) {
	p, err := spawn.begin(ctx, childJob{Strategy: s.name, Terms: with.terms, Load: &l})
	if err != nil {
		return nil, err
	}
	if m, err := p.next(); err != nil || !m.Ready {
		p.kill()
		return nil, errors.Join(errors.New("a child process did not get ready"), err)
	}
	return childCrew{p}, nil
}

type childCrew struct{ process *process }

func (c childCrew) run(context.Context) (tally, error) {
	c.process.step()
	m, err := c.process.next()
	if err != nil {
		return tally{}, err
	}
	if m.Tally == nil {
		return tally{}, errors.New("a child process did not report")
	}
	return *m.Tally, nil
}

func (c childCrew) close() error { return c.process.close() }
