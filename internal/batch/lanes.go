package batch

import (
	"context"
	"sync"
)

// Lanes is a Group for each lane, so that what holds one of them up holds up nothing
// else. There are few lanes, such as the servers that items go to, and none is given up
// before Close. It is safe for concurrent use.
type Lanes[In, Out any] struct {
	of  func(In) string
	run Run[In, Out]
	set Options

	mu     sync.Mutex
	groups map[string]*Group[In, Out]
	closed bool
}

// NewLanes makes groups, each with writers and a queue of its own. Of tells an item's lane.
func NewLanes[In, Out any](of func(In) string, run Run[In, Out], opts Options) *Lanes[In, Out] {
	return &Lanes[In, Out]{of: of, run: run, set: opts, groups: map[string]*Group[In, Out]{}}
}

// Submit queues one item, as Group.Submit does.
func (l *Lanes[In, Out]) Submit(ctx context.Context, item In) (*Ticket[In, Out], error) {
	group, err := l.lane(l.of(item)) //nolint:contextcheck // a lane outlives the item that made it
	if err != nil {
		return nil, err
	}
	return group.Submit(ctx, item)
}

// Do submits one item and waits for its answer.
func (l *Lanes[In, Out]) Do(ctx context.Context, item In) (Out, error) {
	ticket, err := l.Submit(ctx, item)
	if err != nil {
		return *new(Out), err
	}
	return ticket.Wait(ctx)
}

func (l *Lanes[In, Out]) lane(name string) (*Group[In, Out], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	group := l.groups[name]
	if group == nil {
		group = New(l.run, l.set)
		l.groups[name] = group
	}
	return group, nil
}

// Close closes every group, as Group.Close does.
func (l *Lanes[In, Out]) Close(ctx context.Context) {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	for _, group := range l.groups { // not changed any more
		group.Close(ctx)
	}
}
