// Package batch lets concurrent callers share one expensive call: a group
// commit. Callers submit one item each; a writer takes the items that have gathered
// meanwhile and runs them as one batch.
//
// A batch waits for nothing but the processor: a lone item leaves at once, and while a
// batch runs the next one gathers by itself. As long as one writer keeps up there is
// only one, because two would share the same items in batches half as large. See
// Options.Writers and Patience for when another one begins.
package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
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
	Writers  int           // batches that run at once, where one after the other is too slow; of Keyed those of all keys, 0 for any number
	MaxBatch int           // items in one batch
	MaxQueue int           // items that wait; more are refused with ErrFull
	Timeout  time.Duration // for one run
	Observe  func(items int)
}

// Patience is how long a batch may run before another writer takes the items that wait
// behind it, because what holds this batch up may not concern them. Calls to a healthy
// server take a few milliseconds, also when its disk is busy.
const Patience = 50 * time.Millisecond

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

	mu     sync.Mutex
	queue  []*Ticket[In, Out]
	active int // writers
	late   int // of them: those whose batch has run for longer than Patience
	closed bool
}

// New makes a group; Close ends it.
func New[In, Out any](run Run[In, Out], opts Options) *Group[In, Out] {
	return &Group[In, Out]{runner: newRunner(run, opts)}
}

// Submit queues one item. When ctx ends before a writer takes the item, the
// item is dropped; once taken it runs to its end, also when ctx ends.
func (g *Group[In, Out]) Submit(ctx context.Context, item In) (*Ticket[In, Out], error) {
	ticket := &Ticket[In, Out]{item: item, abandoned: ctx.Done(), done: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return nil, ErrClosed
	case len(g.queue) >= g.opts.MaxQueue:
		return nil, ErrFull
	}
	g.queue = append(g.queue, ticket)
	g.relieve()
	return ticket, nil
}

// relieve begins a writer when none is about to take the items that wait, or when they
// fill a batch. The caller holds the lock.
func (g *Group[In, Out]) relieve() {
	waiting := len(g.queue)
	idle := g.active == g.late
	if waiting > 0 && g.active < g.opts.Writers && (idle || waiting >= g.opts.MaxBatch) {
		g.active++
		g.writers.Go(g.write)
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
	g.closed = true
	g.mu.Unlock()
	defer g.hurry()
	defer context.AfterFunc(ctx, g.hurry)()
	g.writers.Wait()
}

// write runs one batch after the other until nothing is queued.
func (g *Group[In, Out]) write() {
	for {
		// Callers that are about to submit go first: where the processors are busy their
		// items join this batch, and where they are not this takes no time.
		runtime.Gosched()
		batch := g.gather()
		if batch == nil {
			return
		}
		ended := g.watch()
		g.runBatch(slices.DeleteFunc(batch, (*Ticket[In, Out]).dropped))
		ended()
	}
}

// gather takes what is queued. It returns nil, and the writer ends, when that is nothing,
// or when another writer is about to take it and it fills no batch.
func (g *Group[In, Out]) gather() []*Ticket[In, Out] {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.queue), g.opts.MaxBatch)
	if n == 0 || n < g.opts.MaxBatch && g.active-g.late > 1 {
		g.active--
		return nil
	}
	batch := g.queue[:n:n]
	if g.queue = g.queue[n:]; len(g.queue) == 0 {
		g.queue = nil // what is answered is not kept
	}
	return batch
}

// watch lets another writer begin when the run that begins now takes long. The function
// ends the watch.
func (g *Group[In, Out]) watch() (ended func()) {
	if g.opts.Writers == 1 {
		return func() {}
	}
	late, over := 0, false
	watch := time.AfterFunc(Patience, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !over {
			late = 1
			g.late++
			g.relieve()
		}
	})
	return func() {
		watch.Stop()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.late -= late
		over = true
	}
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
