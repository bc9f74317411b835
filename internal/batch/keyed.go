package batch

import (
	"context"
	"slices"
	"sync"
)

// Keyed is a group for each key: items of one key share runs, one run at a time, and no
// key waits for another, unless Options.Writers bounds the runs of all keys. A key costs
// nothing while none of its items is there. It is safe for concurrent use.
type Keyed[In, Out any] struct {
	*runner[In, Out]

	turns chan struct{} // has room for as many as there are runs at once; nil: no bound

	mu     sync.Mutex
	queues map[string][]*Ticket[In, Out] // of the keys that have a writer
	closed bool
}

// NewKeyed makes groups, each with one writer and a queue of its own.
func NewKeyed[In, Out any](run Run[In, Out], opts Options) *Keyed[In, Out] {
	k := &Keyed[In, Out]{runner: newRunner(run, opts), queues: map[string][]*Ticket[In, Out]{}}
	if opts.Writers > 0 {
		k.turns = make(chan struct{}, opts.Writers)
	}
	return k
}

// Do submits one item of a key and waits for its answer, as Group.Do does.
func (k *Keyed[In, Out]) Do(ctx context.Context, key string, item In) (Out, error) {
	ticket, err := k.Submit(ctx, key, item)
	if err != nil {
		return *new(Out), err
	}
	return ticket.Wait(ctx)
}

// Submit queues one item of a key, as Group.Submit does.
func (k *Keyed[In, Out]) Submit(ctx context.Context, key string, item In) (*Ticket[In, Out], error) {
	ticket := &Ticket[In, Out]{item: item, abandoned: ctx.Done(), done: make(chan struct{})}
	k.mu.Lock()
	defer k.mu.Unlock()
	queue, served := k.queues[key]
	switch {
	case k.closed:
		return nil, ErrClosed
	case len(queue) >= k.opts.MaxQueue:
		return nil, ErrFull
	}
	k.queues[key] = append(queue, ticket)
	if !served {
		k.writers.Go(func() {
			for k.serve(key) {
			}
		})
	}
	return ticket, nil
}

// serve runs what is queued of a key when it is its turn. It reports false when nothing was.
func (k *Keyed[In, Out]) serve(key string) bool {
	if k.turns != nil {
		k.turns <- struct{}{}
		defer func() { <-k.turns }()
	}
	batch := k.gather(key)
	k.runBatch(slices.DeleteFunc(batch, (*Ticket[In, Out]).dropped))
	return batch != nil
}

// gather takes what is queued of a key. When that is nothing it returns nil, and the key
// has no writer any more.
func (k *Keyed[In, Out]) gather(key string) []*Ticket[In, Out] {
	k.mu.Lock()
	defer k.mu.Unlock()
	queue := k.queues[key]
	if len(queue) == 0 {
		delete(k.queues, key)
		return nil
	}
	n := min(len(queue), k.opts.MaxBatch)
	k.queues[key] = queue[n:]
	return slices.Clone(queue[:n])
}

// Close refuses further items, lets the queued ones run, and returns when the writers
// have ended. When ctx ends first, the contexts of the runs under way are canceled. It
// is safe to call twice.
func (k *Keyed[In, Out]) Close(ctx context.Context) {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	defer k.hurry()
	defer context.AfterFunc(ctx, k.hurry)()
	k.writers.Wait()
}
