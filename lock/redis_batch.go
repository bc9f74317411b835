package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// defaultPipelines: see Pipelines.
	defaultPipelines = 2
	// maxPipelineCalls keeps a pipeline's replies within one read buffer and
	// its last caller from waiting long for the first.
	maxPipelineCalls = 128
	// maxQueuedCalls bounds the callers that wait for a place in a pipeline;
	// more could not be served within any sensible deadline.
	maxQueuedCalls = 16_384
	// overdueAfter is when a pipeline without an answer no longer counts
	// against the number under way, so that one dead connection does not
	// hold up all callers: many times a slow answer.
	overdueAfter = 250 * time.Millisecond
	// maxOverdue bounds the connections that may be stuck like this.
	maxOverdue = 8
	// pipelineSweep is how exactly calls and pipelines are timed.
	pipelineSweep = 100 * time.Millisecond
	// defaultCallTimeout bounds one call: a lock that takes longer to be
	// asked for is of no use to an interactive caller.
	defaultCallTimeout = 2 * time.Second
	// soloTimeout is how long a caller may be unable to leave a call that it
	// makes itself; it only does so while answers come swiftly.
	soloTimeout = 20 * time.Millisecond
	// closeTimeout bounds waiting for pipelines at the end.
	closeTimeout = 2 * time.Second
	// forgetAtOnce latches that are done with are worth a command in the
	// next pipeline; fewer wait for the sweeper. maxForgotten bounds them.
	forgetAtOnce = 64
	maxForgotten = 1024
)

// batcher gathers the calls of concurrent callers into pipelines. A caller
// leaves when its context ends, and at the latest after the call timeout,
// whatever the connection does; it is then told whether its call was sent.
type batcher struct {
	client    redis.UniversalClient
	pipelines int
	timeout   time.Duration
	spread    bool // the keys of two locks may be on different servers

	replicas *replicas // that are to confirm what is written; nil: none

	solo bool // the client minds the deadlines of contexts

	mu      sync.Mutex
	swift   bool // the last answer was, so the next one may well be
	pending []*call
	running map[*pipeline]struct{}
	active  int // of running, those that count against pipelines
	sweeper *time.Timer
	watched bool // sweeper is set
	forgot  []string
	lanes   map[string]*batcher // of a Cluster's nodes, by address
	closed  bool
	work    sync.WaitGroup
}

// pipeline is one goroutine that carries out pipelines, one after the other.
type pipeline struct {
	began   time.Time
	calls   []*call
	overdue bool // does not count any more
}

func newBatcher(client redis.UniversalClient) *batcher {
	b := &batcher{client: client, pipelines: defaultPipelines, timeout: defaultCallTimeout, running: make(map[*pipeline]struct{})}
	switch c := client.(type) {
	case *redis.Client:
		b.solo = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		b.spread = true
	}
	b.sweeper = time.AfterFunc(time.Hour, b.sweep)
	b.sweeper.Stop()
	return b
}

// do makes one call; its answer is in the call.
func (b *batcher) do(ctx context.Context, c *call) {
	c.done = make(chan struct{})
	c.queued = time.Now()
	b.mu.Lock()
	switch {
	case b.closed:
		b.abort(c, ErrClosed)
	case len(b.pending) >= maxQueuedCalls:
		b.abort(c, ErrOverloaded)
	}
	if c.finished {
		b.mu.Unlock()
		return
	}
	if b.solo && b.swift && b.active == 0 {
		b.active++
		c.sent = true
		b.mu.Unlock()
		if b.alone(ctx, c) {
			return
		}
		b.mu.Lock()
	}
	b.pending = append(b.pending, c)
	b.start() //nolint:contextcheck // a pipeline serves many callers and outlives each
	b.mu.Unlock()

	select {
	case <-c.done:
	case <-ctx.Done():
		b.mu.Lock()
		b.abort(c, context.Cause(ctx))
		if i := slices.Index(b.pending, c); i >= 0 {
			b.pending = slices.Delete(b.pending, i, i+1)
		}
		b.mu.Unlock()
	}
}

// alone makes a call in the caller's own goroutine, when no other is under way:
// that saves the way to another one and back, a third of the time. A caller
// could not leave such a call, so it is given up soon, for the queue (false);
// it does no harm that it may then be carried out twice.
func (b *batcher) alone(ctx context.Context, c *call) bool {
	soon, cancel := context.WithTimeout(ctx, soloTimeout)
	defer cancel()
	a := b.exec(soon, []*call{c}, nil)[0]
	// The connection's deadline may fire a moment before that of the context.
	gaveUp := (errors.Is(a.err, ErrUnknown) || errors.Is(a.err, ErrNotSent)) && (soon.Err() != nil || errors.Is(a.err, os.ErrDeadlineExceeded))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active--
	b.start() //nolint:contextcheck // a pipeline serves many callers and outlives each
	took := time.Since(c.queued)
	b.swift = took < swiftly
	if gaveUp {
		c.alone = true
		return false
	}
	b.finish(c, a, took)
	return true
}

// abort ends a call that has no answer. Under b.mu.
func (b *batcher) abort(c *call, why error) {
	outcome := ErrUnknown
	if !c.sent {
		outcome = ErrNotSent
	}
	b.finish(c, answer{err: fmt.Errorf("%w: %w", outcome, why)}, 0)
}

// finish gives a call its answer; the first one counts. Under b.mu.
func (b *batcher) finish(c *call, a answer, took time.Duration) {
	if !c.finished {
		c.finished, c.answer, c.took = true, a, took
		close(c.done)
	}
}

// direct makes calls in a pipeline of their own, past the queue: renewals must
// not wait behind acquisitions.
func (b *batcher) direct(ctx context.Context, calls []*call) error {
	var answers []answer
	err := b.aside(ctx, func(ctx context.Context) { answers = b.exec(ctx, calls, nil) })
	if err != nil {
		return err
	}
	for i, a := range answers {
		calls[i].answer = a
	}
	return nil
}

// aside does something in a goroutine of its own, which its caller leaves when ctx has
// ended or the call timeout has passed. Only after nil is it done.
func (b *batcher) aside(ctx context.Context, do func(context.Context)) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return fmt.Errorf("%w: %w", ErrNotSent, ErrClosed)
	}
	done := make(chan struct{})
	b.work.Go(func() {
		defer close(done)
		do(ctx)
	})
	b.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
}

// start starts a pipeline if there is work and a free place. Under b.mu.
func (b *batcher) start() {
	if b.active >= b.pipelines || len(b.pending) == 0 {
		return
	}
	p := &pipeline{}
	b.running[p] = struct{}{}
	b.active++
	b.work.Go(func() { b.carry(p) })
	b.guard()
}

// carry carries out what is pending until nothing is.
func (b *batcher) carry(p *pipeline) {
	var answers []answer
	for {
		b.mu.Lock()
		if len(p.calls) > 0 {
			b.swift = time.Since(p.began) < swiftly
		}
		for i, c := range p.calls {
			b.finish(c, answers[i], time.Since(p.began))
		}
		n := min(len(b.pending), maxPipelineCalls)
		if n == 0 || p.overdue {
			if !p.overdue {
				b.active--
			}
			delete(b.running, p)
			b.mu.Unlock()
			return
		}
		p.began = time.Now()
		p.calls = append(p.calls[:0], b.pending[:n]...)
		b.pending = slices.Delete(b.pending, 0, n)
		for _, c := range p.calls {
			c.sent = true
		}
		var forgot []string
		if len(b.forgot) >= forgetAtOnce {
			forgot, b.forgot = b.forgot, nil
		}
		b.mu.Unlock()
		answers = b.exec(context.Background(), p.calls, forgot)
	}
}

// guard sees to it that sweep runs while there is something to look after. One
// timer for all: a timer per call would cost more than the call. Under b.mu.
func (b *batcher) guard() {
	if !b.watched && !b.closed {
		b.watched = true
		b.sweeper.Reset(pipelineSweep)
	}
}

// sweep ends the calls that have waited too long, gives the places of stuck
// pipelines to new ones, and deletes latches that are done with.
func (b *batcher) sweep() {
	b.mu.Lock()
	b.watched = false
	now := time.Now()
	tooOld := func(c *call) bool { return now.Sub(c.queued) >= b.timeout }
	b.pending = slices.DeleteFunc(b.pending, func(c *call) bool {
		if tooOld(c) {
			b.abort(c, context.DeadlineExceeded)
			return true
		}
		return false
	})
	for p := range b.running {
		if p.began.IsZero() || now.Sub(p.began) < overdueAfter {
			continue
		}
		for _, c := range p.calls {
			if tooOld(c) {
				b.abort(c, context.DeadlineExceeded)
			}
		}
		if !p.overdue && len(b.running) < b.pipelines+maxOverdue {
			p.overdue = true
			b.active--
			b.start()
		}
	}
	forgot := b.forgot
	b.forgot = nil
	if len(b.running) > 0 || len(b.pending) > 0 {
		b.guard()
	}
	if len(forgot) > 0 {
		b.work.Go(func() { b.unlink(forgot) })
	}
	b.mu.Unlock()
}

// forget deletes a latch some time, along with other calls.
func (b *batcher) forget(latch string) {
	if b.spread {
		return // keys of different slots cannot go together; they expire
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && len(b.forgot) < maxForgotten {
		b.forgot = append(b.forgot, latch)
		b.guard()
	}
}

func (b *batcher) unlink(latches []string) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	_ = b.client.Unlink(ctx, latches...).Err() // they expire anyway
}

// close refuses further calls and waits for those under way, as long as they
// are not stuck.
func (b *batcher) close() {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.sweeper.Stop()
	forgot := b.forgot
	b.forgot = nil
	lanes := b.lanes // not changed any more
	b.mu.Unlock()
	if !first {
		return
	}
	for _, lane := range lanes {
		b.work.Go(lane.close)
	}
	if len(forgot) > 0 {
		b.unlink(forgot)
	}
	select {
	case <-finished(&b.work):
	case <-time.After(closeTimeout):
	}
}
