// Package batch lets concurrent callers share one expensive call: a group
// commit. Callers submit one item each; a few writers take the items
// that have gathered meanwhile and run them as one batch. A writer does not wait
// for a batch to fill: while one runs, the next one gathers by itself.
package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

var (
	// ErrFull refuses an item because the queue is at its bound. Nothing was done.
	ErrFull = errors.New("batch: the queue is full")
	// ErrClosed refuses an item after Close. Nothing was done.
	ErrClosed = errors.New("batch: the group is closed")
	// ErrNotRun says that the submitter's context ended while its item was
	// still queued, and that the item was dropped. Nothing was done.
	ErrNotRun = errors.New("batch: the item was dropped before it ran")
)

// Run handles one batch and answers every item, in order. A whole batch that
// fails answers with an error instead.
type Run[In, Out any] func(ctx context.Context, items []In) ([]Out, error)

// Options bound a group.
type Options struct {
	Writers  int           // batches that run at once
	MaxBatch int           // items in one batch
	MaxQueue int           // items that wait; more are refused with ErrFull
	Timeout  time.Duration // for one run
	Observe  func(items int)
}

// runner runs batches.
type runner[In, Out any] struct {
	run     Run[In, Out]
	opts    Options
	writers sync.WaitGroup
	limit   func() (context.Context, context.CancelFunc) // makes the context of a run
	hurry   context.CancelFunc                           // ends the runs under way
}

func newRunner[In, Out any](run Run[In, Out], opts Options) *runner[In, Out] {
	if opts.Observe == nil {
		opts.Observe = func(int) {}
	}
	running, hurry := context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	return &runner[In, Out]{
		run: run, opts: opts, hurry: hurry,
		limit: func() (context.Context, context.CancelFunc) { return context.WithTimeout(running, opts.Timeout) },
	}
}

// Group shares runs between callers. It is safe for concurrent use.
type Group[In, Out any] struct {
	*runner[In, Out]

	queue chan *Ticket[In, Out]

	mu     sync.RWMutex // held for reading while an item is being queued
	closed bool
}

// New starts the writers of a group; Close ends them.
func New[In, Out any](run Run[In, Out], opts Options) *Group[In, Out] {
	g := &Group[In, Out]{runner: newRunner(run, opts), queue: make(chan *Ticket[In, Out], opts.MaxQueue)}
	for range opts.Writers {
		g.writers.Go(g.write)
	}
	return g
}

// Submit queues one item. When ctx ends before a writer takes the item, the
// item is dropped; once taken it runs to its end, also when ctx ends.
func (g *Group[In, Out]) Submit(ctx context.Context, item In) (*Ticket[In, Out], error) {
	ticket := &Ticket[In, Out]{item: item, abandoned: ctx.Done(), done: make(chan struct{})}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return nil, ErrClosed
	}
	select {
	case g.queue <- ticket:
		return ticket, nil
	default:
		return nil, ErrFull
	}
}

// Do submits one item and waits for its answer.
func (g *Group[In, Out]) Do(ctx context.Context, item In) (Out, error) {
	ticket, err := g.Submit(ctx, item)
	if err != nil {
		var none Out
		return none, err
	}
	return ticket.Wait(ctx)
}

// Ticket stands for one submitted item.
type Ticket[In, Out any] struct {
	item      In
	abandoned <-chan struct{} // the submitter's context
	done      chan struct{}
	answer    Out
	err       error
}

// Wait returns the item's answer, or ctx's error when that ends first; the
// item may then still run, and Wait may be called again.
func (t *Ticket[In, Out]) Wait(ctx context.Context) (Out, error) {
	select {
	case <-t.done:
		return t.answer, t.err
	default:
	}
	select {
	case <-t.done:
		return t.answer, t.err
	case <-ctx.Done():
		var none Out
		return none, ctx.Err()
	}
}

// dropped drops the item if its submitter has left.
func (t *Ticket[In, Out]) dropped() bool {
	select {
	case <-t.abandoned:
		t.finish(*new(Out), ErrNotRun)
		return true
	default:
		return false
	}
}

func (t *Ticket[In, Out]) finish(answer Out, err error) {
	t.answer, t.err = answer, err
	close(t.done)
}

// Close refuses further items, lets the queued ones run, and returns when the
// writers have ended. When ctx ends first, the contexts of the runs under way
// are canceled. It is safe to call twice.
func (g *Group[In, Out]) Close(ctx context.Context) {
	g.mu.Lock()
	first := !g.closed
	if first {
		g.closed = true
		close(g.queue)
	}
	g.mu.Unlock()
	if first {
		defer g.hurry()
		defer context.AfterFunc(ctx, g.hurry)()
	}
	g.writers.Wait()
}

func (g *Group[In, Out]) write() {
	for first := range g.queue {
		g.runBatch(g.gather(first))
	}
}

// gather takes what has queued up behind the first ticket, without waiting,
// and drops the tickets whose submitters have left.
func (g *Group[In, Out]) gather(first *Ticket[In, Out]) []*Ticket[In, Out] {
	var batch []*Ticket[In, Out]
	for ticket, ok := first, true; ok && ticket != nil; {
		if !ticket.dropped() {
			batch = append(batch, ticket)
		}
		if len(batch) >= g.opts.MaxBatch {
			break
		}
		select {
		case ticket, ok = <-g.queue:
		default:
			ok = false
		}
	}
	return batch
}

func (r *runner[In, Out]) runBatch(batch []*Ticket[In, Out]) {
	if len(batch) == 0 {
		return
	}
	r.opts.Observe(len(batch))
	items := make([]In, len(batch))
	for i, ticket := range batch {
		items[i] = ticket.item
	}
	ctx, cancel := r.limit()
	defer cancel()
	answers, err := r.runSafely(ctx, items)
	for i, ticket := range batch {
		if err != nil {
			ticket.finish(*new(Out), err)
			continue
		}
		ticket.finish(answers[i], nil)
	}
}

// runSafely turns a panic into the error of this one batch: the writers serve
// all callers, and one bad batch must not end them.
func (r *runner[In, Out]) runSafely(ctx context.Context, items []In) (answers []Out, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("batch: panic: %v\n%s", p, debug.Stack())
		}
	}()
	answers, err = r.run(ctx, items)
	if err == nil && len(answers) != len(items) {
		err = fmt.Errorf("batch: %d answers for %d items", len(answers), len(items))
	}
	return answers, err
}
