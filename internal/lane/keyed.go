package lane

import (
	"context"
	"sync"
)

// Keyed is a group for each key: items of one key share runs, and no key waits for
// another, unless Options.Total bounds the runs of all keys. A key costs nothing while
// none of its items is there. It is safe for concurrent use.
type Keyed[In, Out any] struct {
	*runner[In, Out]

	of    func(In) string
	ready func(key string) // waits until a key's next batch may run; nil: at once

	mu     sync.Mutex
	groups map[string]*Group[In, Out] // of the keys that have a writer
}

// NewKeyed makes groups, each with writers and a queue of its own. Of tells an item's key.
func NewKeyed[In, Out any](of func(In) string, run Run[In, Out], opts Options) *Keyed[In, Out] {
	return &Keyed[In, Out]{runner: newRunner(run, opts), of: of, groups: map[string]*Group[In, Out]{}}
}

// Submit queues one item, as Group.Submit does.
func (k *Keyed[In, Out]) Submit(ctx context.Context, item In) (*Ticket[In, Out], error) {
	ticket := newTicket[In, Out](ctx, item)
	return ticket, k.enter(func() error { return k.add(ticket) })
}

// Do submits one item and waits for its answer.
func (k *Keyed[In, Out]) Do(ctx context.Context, item In) (Out, error) {
	ticket, err := k.Submit(ctx, item)
	if err != nil {
		return *new(Out), err
	}
	return ticket.Wait(ctx)
}

func (k *Keyed[In, Out]) add(ticket *Ticket[In, Out]) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := k.of(ticket.item)
	group := k.groups[key]
	if group == nil {
		group = &Group[In, Out]{runner: k.runner}
		group.idle = func() { k.drop(key, group) }
		if k.ready != nil {
			group.ready = func() { k.ready(key) }
		}
		k.groups[key] = group
	}
	return group.add(ticket)
}

// drop forgets a group that has nothing to do.
func (k *Keyed[In, Out]) drop(key string, group *Group[In, Out]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	group.mu.Lock()
	defer group.mu.Unlock()
	if group.active == 0 && k.groups[key] == group {
		delete(k.groups, key)
	}
}
