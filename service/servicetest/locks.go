package servicetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"seckill/model"
)

// Locks are locks of one process; a test can make them slow, busy or lost.
type Locks struct {
	mu       sync.Mutex
	Held     map[string]bool
	Took     time.Duration
	Err      error
	Lost     bool
	Busy     string               // the name of a lock another process holds
	Left     func() time.Duration // of the lease of that one; nil: it was just renewed
	renewed  time.Duration
	Tried    atomic.Int64
	Taken    atomic.Int64
	Released atomic.Int64
}

// NewLocks are free.
func NewLocks() *Locks { return &Locks{Held: map[string]bool{}} }

// Lock implements model.Locker.
func (l *Locks) Lock(ctx context.Context, name string, wait time.Duration) (model.Lease, error) {
	l.Tried.Add(1)
	l.mu.Lock()
	took := l.Took
	if name == l.Busy {
		took += wait
	}
	l.mu.Unlock()
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Err != nil {
		return nil, l.Err
	}
	if name == l.Busy {
		return nil, model.ErrLockBusy
	}
	l.Taken.Add(1)
	l.Held[name] = true
	lease := &lease{locks: l, name: name, ctx: context.Background()}
	if l.Lost {
		var cancel context.CancelFunc
		lease.ctx, cancel = context.WithCancel(lease.ctx)
		cancel()
	}
	return lease, nil
}

// Holder tells who has a lock.
func (l *Locks) Holder(_ context.Context, name string) (string, time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case name == l.Busy && l.Left != nil:
		return "another", l.Left(), nil
	case name == l.Busy:
		l.renewed++
		return "another", l.renewed, nil
	}
	return "", 0, nil
}

// ForceUnlock frees a lock.
func (l *Locks) ForceUnlock(_ context.Context, name string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := name == l.Busy
	if was {
		l.Busy = ""
	}
	return was, nil
}

// With changes the locks while they are in use.
func (l *Locks) With(change func(l *Locks)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// Holds reports whether a user's lock is held.
func (l *Locks) Holds(userID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Held["lock:order:"+userID]
}

type lease struct {
	locks *Locks
	name  string
	ctx   context.Context
}

func (l *lease) Context() context.Context { return l.ctx }

func (l *lease) Unlock() error {
	l.locks.mu.Lock()
	defer l.locks.mu.Unlock()
	delete(l.locks.Held, l.name)
	l.locks.Released.Add(1)
	return nil
}
