package batch

import (
	"context"
	"slices"
	"sync"
)

// Keyed is a group for each key: items of one key share runs, one run at a time, and no
// key waits for another. A key costs nothing while none of its items is there. It is
// safe for concurrent use.
type Keyed[In, Out any] struct {
	*runner[In, Out]

	mu     sync.Mutex
	queues map[string][]*Ticket[In, Out] // of the keys that have a writer
	closed bool
}

// NewKeyed makes groups, each with one writer and a queue of its own.
func NewKeyed[In, Out any](run Run[In, Out], opts Options) *Keyed[In, Out] {
	return &Keyed[In, Out]{runner: newRunner(run, opts), queues: map[string][]*Ticket[In, Out]{}}
}

// Do submits one item of a key and waits for its answer, as Group.Do does.
func (k *Keyed[In, Out]) Do(ctx context.Context, key string, item In) (Out, error) {
	ticket := &Ticket[In, Out]{item: item, abandoned: ctx.Done(), done: make(chan struct{})}
	if err := k.submit(key, ticket); err != nil {
		return *new(Out), err
	}
	return ticket.Wait(ctx)
}

func (k *Keyed[In, Out]) submit(key string, ticket *Ticket[In, Out]) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	queue, served := k.queues[key]
	switch {
	case k.closed:
		return ErrClosed
	case len(queue) >= k.opts.MaxQueue:
		return ErrFull
	}
	k.queues[key] = append(queue, ticket)
	if !served {
		k.writers.Go(func() { k.serve(key) })
	}
	return nil
}

// serve runs what is queued of a key until nothing is.
func (k *Keyed[In, Out]) serve(key string) {
	for batch := k.gather(key); batch != nil; batch = k.gather(key) {
		k.runBatch(slices.DeleteFunc(batch, (*Ticket[In, Out]).dropped))
	}
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
