// Package lane lets concurrent callers share expensive calls: a group commit. Callers submit an item each; a writer
// runs those that have gathered as one batch. A Group shares runs between all items. Keyed is a group for each key. A
// Lane is both: all keys share runs, and one that spoils or delays a run is isolated, so that it costs the others a
// bounded time, once. Read group.go first, then lane.go.
package lane

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/budget"
)

var (
	// ErrFull refuses an item because the queue is at its bound. Nothing was done.
	ErrFull = errors.New("lane: the queue is full")
	// ErrClosed refuses an item after Close. Nothing was done.
	ErrClosed = errors.New("lane: closed")
	// ErrNotRun says that the submitter's context ended while its item was queued. It was dropped; nothing was done.
	ErrNotRun = errors.New("lane: the item was dropped before it ran")
)

// Run handles one batch and answers every item, in order. A whole batch that fails answers with an error instead.
type Run[In, Out any] func(ctx context.Context, items []In) ([]Out, error)

// Options bound a group.
type Options struct {
	Writers  int           // batches of a group that run at once, where one after the other is too slow; 0 is one
	Total    int           // of Keyed: batches of all keys that run at once; 0 for any number
	MaxBatch int           // items in one batch
	MaxQueue int           // items of a group that wait; more are refused with ErrFull
	Timeout  time.Duration // for one run
	Observe  func(items int)
}

// runner is what the groups of one Group, Keyed or Lane have in common.
type runner[In, Out any] struct {
	opts    Options
	run     Run[In, Out]
	add     func(*Ticket[In, Out]) error                        // queues a ticket
	handle  func(ctx context.Context, batch []*Ticket[In, Out]) // answers each ticket, now or later
	chain   func(answer Out, finish func())                     // see Chain; nil: answers go out at once
	turns   chan struct{}                                       // has room for Options.Total; nil: no bound
	writers sync.WaitGroup
	running context.Context //nolint:containedctx // of the runs under way; it is no caller's
	hurry   context.CancelFunc

	door    sync.RWMutex // is shut by Close and passed by each item
	shut    bool
	closing chan struct{} // is closed by Close
}

func newRunner[In, Out any](run Run[In, Out], opts Options) *runner[In, Out] {
	if opts.Observe == nil {
		opts.Observe = func(int) {}
	}
	opts.Writers = max(opts.Writers, 1)
	r := &runner[In, Out]{opts: opts, run: run, closing: make(chan struct{})}
	r.handle = r.together
	if opts.Total > 0 {
		r.turns = make(chan struct{}, opts.Total)
	}
	r.running, r.hurry = context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	return r
}

// Close refuses items, runs those queued, and returns when writers have ended; ctx's end cancels runs. Twice is safe.
func (r *runner[In, Out]) Close(ctx context.Context) {
	r.door.Lock()
	if !r.shut {
		r.shut = true
		close(r.closing)
	}
	r.door.Unlock()
	defer r.hurry()
	defer context.AfterFunc(ctx, r.hurry)()
	r.writers.Wait()
}

// enter queues by add unless the door is shut. What is queued later was there before Close, or comes from a writer.
func (r *runner[In, Out]) enter(add func() error) error {
	r.door.RLock()
	defer r.door.RUnlock()
	if r.shut {
		return ErrClosed
	}
	return add()
}

// Submit queues one item. An item is dropped if ctx ends before a writer takes it; once taken it runs to its end.
func (r *runner[In, Out]) Submit(ctx context.Context, item In) (*Ticket[In, Out], error) {
	ticket := newTicket[In, Out](ctx, item)
	return ticket, r.enter(func() error { return r.add(ticket) })
}

// Do submits one item and waits for its answer.
func (r *runner[In, Out]) Do(ctx context.Context, item In) (Out, error) {
	ticket, err := r.Submit(ctx, item)
	if err != nil {
		return *new(Out), err
	}
	return ticket.Wait(ctx)
}

func (r *runner[In, Out]) together(ctx context.Context, batch []*Ticket[In, Out]) {
	answers, err := r.try(ctx, batch)
	if err != nil || r.chain == nil {
		settle(batch, answers, err)
		return
	}
	for i, ticket := range batch {
		ticket.answer = answers[i]
		r.chain(answers[i], ticket.end)
	}
}

func settle[In, Out any](batch []*Ticket[In, Out], answers []Out, err error) {
	for i, ticket := range batch {
		if err != nil {
			ticket.finish(*new(Out), err)
		} else {
			ticket.finish(answers[i], nil)
		}
	}
}

// try runs a batch once. A panic is this lane's error: the writers serve all callers, and must not end with a batch.
func (r *runner[In, Out]) try(ctx context.Context, batch []*Ticket[In, Out]) (answers []Out, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("lane: panic: %v\n%s", p, debug.Stack())
		}
	}()
	items := make([]In, len(batch))
	for i, ticket := range batch {
		items[i] = ticket.item
	}
	answers, err = r.run(ctx, items)
	if err == nil && len(answers) != len(items) {
		err = fmt.Errorf("lane: %d answers for %d items", len(answers), len(items))
	}
	return answers, err
}

// Group shares runs between callers. It is safe for concurrent use. A lone item leaves at once, and while a batch runs
// the next one gathers. One writer is enough as long as it keeps up: two would halve the batches. See Options.Writers
// and budget.Blink for when another one begins.
type Group[In, Out any] struct {
	*runner[In, Out]

	rest func() time.Duration // until the next batch may run
	idle func()               // when the last writer has ended; nil: nothing
	// slow is told of a batch that runs for longer than budget.Blink, and returns what to do at its end; nil: nothing.
	slow func(batch []*Ticket[In, Out]) (ended func())

	mu     sync.Mutex
	queue  []*Ticket[In, Out]
	active int // writers
	late   int // of them: those whose batch has run for longer than budget.Blink
}

// New makes a group; Close ends it.
func New[In, Out any](run Run[In, Out], opts Options) *Group[In, Out] {
	g := &Group[In, Out]{runner: newRunner(run, opts), rest: func() time.Duration { return 0 }}
	g.add = func(ticket *Ticket[In, Out]) error { return g.join(ticket) }
	return g
}

func (g *Group[In, Out]) join(tickets ...*Ticket[In, Out]) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue)+len(tickets) > g.opts.MaxQueue {
		return ErrFull
	}
	g.queue = append(g.queue, tickets...)
	g.relieve()
	return nil
}

// relieve starts writers while none is about to take the waiting items. The caller holds the lock.
func (g *Group[In, Out]) relieve() {
	for waiting := len(g.queue); waiting > 0 && g.active < g.opts.Writers; waiting -= g.opts.MaxBatch {
		if g.active > g.late && waiting < g.opts.MaxBatch {
			return
		}
		g.active++
		turn := false // who came first takes one, not whom the scheduler lets run first
		if g.turns != nil && g.rest() <= 0 {
			select {
			case g.turns <- struct{}{}:
				turn = true
			default:
			}
		}
		g.writers.Go(func() { g.write(turn) })
	}
}

// write runs one batch after the other until nothing is queued.
func (g *Group[In, Out]) write(turn bool) {
	for ; g.writeOne(turn); turn = false {
	}
	if g.idle != nil {
		g.idle()
	}
}

func (g *Group[In, Out]) writeOne(turn bool) bool {
	if rest := g.rest(); rest > 0 && !turn {
		select {
		case <-time.After(rest):
		case <-g.closing:
		}
	}
	if g.turns != nil {
		if !turn {
			g.turns <- struct{}{}
		}
		defer func() { <-g.turns }()
	}
	// Callers about to submit go first: on busy processors their items join this batch; on others it takes no time.
	runtime.Gosched()
	batch := g.gather()
	if batch == nil {
		return false
	}
	if batch = slices.DeleteFunc(batch, (*Ticket[In, Out]).dropped); len(batch) == 0 {
		return true
	}
	defer g.watch(batch)()
	g.opts.Observe(len(batch))
	ctx, cancel := context.WithTimeout(g.running, g.opts.Timeout)
	defer cancel()
	g.handle(ctx, batch)
	return true
}

// gather takes what is queued; nil ends the writer: nothing is left, or another one takes it and no batch is full.
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

// watch lets another writer begin when the run that begins now takes long. The function ends the watch.
func (g *Group[In, Out]) watch(batch []*Ticket[In, Out]) (end func()) {
	if g.opts.Writers == 1 {
		return func() {}
	}
	over, late, ended := false, 0, func() {}
	watch := time.AfterFunc(budget.Blink, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if over {
			return
		}
		if g.slow != nil {
			ended = g.slow(batch)
		}
		late = 1
		g.late++
		g.relieve()
	})
	return func() {
		watch.Stop()
		g.mu.Lock()
		over = true
		g.late -= late
		g.mu.Unlock()
		ended()
	}
}

// Ticket stands for one submitted item.
type Ticket[In, Out any] struct {
	item      In
	abandoned <-chan struct{} // the submitter's context
	done      chan struct{}
	then      atomic.Pointer[func()] // what Then has left; ended: done is closed
	ended     func()                 // is nobody's, and never called
	answer    Out
	err       error
}

func newTicket[In, Out any](ctx context.Context, item In) *Ticket[In, Out] {
	return &Ticket[In, Out]{item: item, abandoned: ctx.Done(), done: make(chan struct{})}
}

// Wait returns the item's answer, or ctx's error if that ends first; the item may still run, and Wait be repeated.
func (t *Ticket[In, Out]) Wait(ctx context.Context) (Out, error) {
	select {
	case <-t.done:
	case <-ctx.Done():
		select {
		case <-t.done:
		default:
			return *new(Out), ctx.Err()
		}
	}
	return t.answer, t.err
}

// Done is closed when the item has its answer.
func (t *Ticket[In, Out]) Done() <-chan struct{} { return t.done }

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
	t.end()
}

func (t *Ticket[In, Out]) end() {
	close(t.done)
	if then := t.then.Swap(&t.ended); then != nil {
		(*then)()
	}
}

// Then has f called once, by whoever answers the item, or now if it has its answer. A ticket takes one f.
func (t *Ticket[In, Out]) Then(f func()) {
	if !t.then.CompareAndSwap(nil, &f) {
		f()
	}
}

// Keyed is a group for each key, which costs nothing idle. Options.Total bounds all runs. Safe for concurrent use.
type Keyed[In, Out any] struct {
	*runner[In, Out]

	of   func(In) string
	rest func(key string) time.Duration // until a key's next batch may run

	mu     sync.Mutex
	groups map[string]*Group[In, Out] // of the keys that have a writer
}

// NewKeyed makes groups, each with writers and a queue of its own. Of tells an item's key.
func NewKeyed[In, Out any](of func(In) string, run Run[In, Out], opts Options) *Keyed[In, Out] {
	k := &Keyed[In, Out]{runner: newRunner(run, opts), of: of, groups: map[string]*Group[In, Out]{}}
	k.add, k.rest = k.join, func(string) time.Duration { return 0 }
	return k
}

// Chain makes the lane the first of several: f is given each answer and calls finish when a later one is done with the
// item, so that who waits is woken once. It is set before the first item.
func (k *Keyed[In, Out]) Chain(f func(answer Out, finish func())) { k.chain = f }

func (k *Keyed[In, Out]) join(ticket *Ticket[In, Out]) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := k.of(ticket.item)
	group := k.groups[key]
	if group == nil {
		group = &Group[In, Out]{runner: k.runner}
		group.idle = func() { k.drop(key, group) }
		group.rest = func() time.Duration { return k.rest(key) }
		k.groups[key] = group
	}
	return group.join(ticket)
}

func (k *Keyed[In, Out]) drop(key string, group *Group[In, Out]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	group.mu.Lock()
	defer group.mu.Unlock()
	if group.active == 0 && k.groups[key] == group {
		delete(k.groups, key)
	}
}
