package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Locker is what a Mutex, All and Majority have in common.
type Locker interface {
	// Name returns what the lock is called in messages.
	Name() string
	// Lock takes the lock, waiting for it as the options say.
	Lock(ctx context.Context, opts ...Option) (*Lease, error)
	// TryLock takes the lock if it is free, and answers ErrHeld if not.
	TryLock(ctx context.Context, opts ...Option) (*Lease, error)

	lock(ctx context.Context, a attempt) (*Lease, error)
	settings() settings
	key() string // what it is within this process
}

// Mutex is one named lock. It has no state of its own and is safe for
// concurrent use.
type Mutex struct {
	client *Client
	name   string
}

var _ Locker = (*Mutex)(nil)

// Name returns the lock's name in the store.
func (m *Mutex) Name() string { return m.name }

func (m *Mutex) settings() settings { return m.client.set }

func (m *Mutex) key() string { return m.client.id + "/" + m.name }

// Lock takes the lock. While another owner holds it, it waits: until the
// budget of the option Wait has passed (ErrTimeout), or until ctx ends (its
// cause). Waiters of one client are served in the order they came.
//
// If ctx is the context of a lease of this lock, or derived from one, the owner
// re-enters: the lock counts one more hold and needs one more Unlock. See
// Detach for the opposite.
//
// The watchdog renews the lock until it is unlocked or ctx ends, whichever is
// first. A lock that its holder forgot in a request that has ended is so freed
// within a lease. Work that goes on after its request needs a context that does.
//
// Every other error is the store's own. After an error nothing is left held:
// what the store may have done unseen is undone in the background.
func (m *Mutex) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.lock(ctx, newAttempt(m.client.set, opts))
}

// TryLock takes the lock if no other owner holds it and answers ErrHeld otherwise.
// It goes ahead of waiters that are there at the moment the lock is free.
func (m *Mutex) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.lock(ctx, newAttempt(m.client.set, opts).trying())
}

func (m *Mutex) lock(ctx context.Context, a attempt) (*Lease, error) {
	c := m.client
	if !c.enter() {
		return nil, fmt.Errorf("lock %s: %w", m.name, ErrClosed)
	}
	defer c.underWay.Done()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("lock %s: %w", m.name, context.Cause(ctx))
	}
	own, known := ownerOf(ctx)
	if !known {
		own = &owner{}
		ctx = context.WithValue(ctx, ownerKey{}, own)
	}
	key := slotKey{c, m.name}
	s := own.slot(key)
	lease, err := m.lockAs(ctx, own, s, a)
	if err != nil {
		own.drop(key, s)
		return nil, err
	}
	return lease, nil
}

// lockAs takes the lock for an owner, or re-enters. The slot's turn is held
// meanwhile: a second goroutine of the same owner waits and then re-enters.
func (m *Mutex) lockAs(ctx context.Context, own *owner, s *slot, a attempt) (*Lease, error) {
	start := time.Now()
	if err := s.take(ctx, a); err != nil {
		return nil, fmt.Errorf("lock %s: %w", m.name, err)
	}
	defer s.give()

	c := m.client
	parent := ctx //nolint:contextcheck // it is the caller's
	if a.parent != nil {
		parent = a.parent
	}
	l := &Lease{parent: parent, term: a.lease, watchdog: a.watchdog, unlockIn: c.set.unlockTimeout}
	if s.held != nil {
		if ok, _ := s.held.state(); ok {
			return l, m.reenter(ctx, own, s, l)
		}
	}
	if !a.forever {
		a.wait = max(a.wait-time.Since(start), 0)
	}
	h, err := c.acquire(ctx, m.name, a)
	if err != nil {
		return nil, err
	}
	l.hold = &entry{holding: h, slot: s, owner: own}
	s.held = h
	if !h.add(l) {
		h.undo(ErrLost)
		return nil, fmt.Errorf("lock %s: %w", m.name, ErrLost)
	}
	return l, nil
}

func (m *Mutex) reenter(ctx context.Context, own *owner, s *slot, l *Lease) error {
	h := s.held
	l.hold = &entry{holding: h, slot: s, owner: own}
	grant, sent, err := h.ask(ctx, h.request(h.count()+1, l.term))
	if err != nil {
		return err
	}
	if grant.State != StateHeld {
		h.lose("found gone at a re-entry")
		return fmt.Errorf("re-enter the lock %s: %w", m.name, ErrLost)
	}
	h.extend(sent, l.term)
	if !h.add(l) {
		return fmt.Errorf("re-enter the lock %s: %w", m.name, ErrLost)
	}
	return nil
}

// take waits for the slot's turn.
func (s *slot) take(ctx context.Context, a attempt) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-a.budget():
		if a.try {
			return ErrHeld
		}
		return ErrTimeout
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *slot) give() { <-s.turn }

// entry is a lease's place in the holding of one store.
type entry struct {
	*holding
	slot  *slot
	owner *owner
}

var _ held = (*entry)(nil)

func (e *entry) name() string { return e.holding.name }

func (e *entry) token() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holding.token
}

func (e *entry) validUntil() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.until
}

func (e *entry) extend(ctx context.Context, d time.Duration) error {
	h := e.holding
	sent := time.Now()
	there, err := h.client.store.Renew(ctx, []Request{h.request(0, d)})
	if err != nil {
		return fmt.Errorf("extend the lock %s: %w", h.name, err)
	}
	if !there[0] {
		h.lose("found gone at an extension")
		return fmt.Errorf("extend the lock %s: %w", h.name, ErrLost)
	}
	h.extend(sent, d)
	if ok, cause := h.state(); !ok {
		return fmt.Errorf("extend the lock %s: %w", h.name, cause)
	}
	return nil
}

func (e *entry) raise(ctx context.Context, token int64) error {
	h := e.holding
	r := h.request(h.count(), h.first)
	r.Token = token
	grant, sent, err := h.ask(ctx, r)
	if err != nil {
		return err
	}
	if grant.State != StateHeld {
		h.lose("found gone when its token was raised")
		return fmt.Errorf("raise the token of the lock %s: %w", h.name, ErrLost)
	}
	h.extend(sent, h.first)
	h.mu.Lock()
	h.token = max(h.token, grant.Token)
	h.mu.Unlock()
	return nil
}

// unlock gives back one hold; the last one frees the lock. The context of the
// lease ends before the request leaves.
func (e *entry) unlock(ctx context.Context, until time.Time, l *Lease) error {
	h := e.holding
	l.end(ErrUnlocked)
	if held, _ := h.state(); held {
		select {
		case e.slot.turn <- struct{}{}:
		case <-ctx.Done():
			// A goroutine of the same owner is in the middle of a re-entry.
			h.client.later(func(ctx context.Context) { //nolint:contextcheck // the caller's has ended
				e.slot.turn <- struct{}{}
				defer e.slot.give()
				_ = e.unlockNow(ctx, until, l)
			})
			return context.Cause(ctx)
		}
		defer e.slot.give()
	}
	return e.unlockNow(ctx, until, l)
}

func (e *entry) unlockNow(ctx context.Context, until time.Time, l *Lease) error {
	h := e.holding
	defer e.owner.drop(slotKey{h.client, h.name}, e.slot)
	left, held := h.remove(l)
	if !h.client.enter() { // Close gives it back, if it was not lost before
		if _, cause := h.state(); cause != nil && !errors.Is(cause, ErrClosed) {
			return cause
		}
		return nil
	}
	defer h.client.underWay.Done()
	if left == 0 {
		h.end(ErrUnlocked)
	}
	_, cause := h.state()
	switch {
	case left > 0 && held:
		return h.client.setHolds(ctx, until, h, left)
	case left > 0:
		return cause
	case errors.Is(cause, ErrClosed): // Close gives it back
		return nil
	}
	was, err := h.client.free(ctx, until, h)
	if err != nil {
		h.undo(err) // goes on in the background
	}
	if !held || err == nil && !was {
		return ErrLost
	}
	return err
}
