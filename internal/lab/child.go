package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"
)

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
