package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"seckill/lock/driver"
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
// ctx bounds the acquisition alone; see While for a hold that ends with a context.
//
// ErrLost: the answer came too late for the lease, or a re-entry found the lock
// gone. ErrClosed: the client is closed. Every other error is the store's own.
// After an error nothing is left held: what the store may have done unseen is
// undone in the background.
func (m *Mutex) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.lock(ctx, newAttempt(m.client.set, opts))
}

// TryLock takes the lock if no other owner holds it and answers ErrHeld otherwise.
// It goes ahead of waiters that are there at the moment the lock is free. The
// option Wait has no effect.
//
// While another call of the same owner is asking for the lock or giving it back,
// it answers ErrHeld too; so does Lock with Wait(0), with ErrTimeout.
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
	ctx, own := withOwner(ctx)
	a.lease = c.set.bound(a.lease)
	s := own.slot(*m)
	lease, err := s.acquire(ctx, a)
	if err != nil {
		s.drop()
		return nil, err
	}
	return lease, nil
}

// acquire takes the lock for the owner, or re-enters. The slot's turn is held
// meanwhile: a second goroutine of the same owner waits and then re-enters.
func (s *slot) acquire(ctx context.Context, a attempt) (*Lease, error) {
	start := time.Now()
	name := s.lock.name
	if err := s.take(ctx, a); err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	defer s.give()

	l := &Lease{name: name, life: a.lifeOf(ctx, s.owner), term: a.lease, watchdog: a.watchdog}
	if s.held != nil {
		if ok, _ := s.held.state(); ok {
			return l, s.held.reenter(ctx, l)
		}
	}
	if !a.forever {
		a.wait = max(a.wait-time.Since(start), 0)
	}
	h, err := s.lock.client.acquire(ctx, s, a)
	if err != nil {
		return nil, err
	}
	l.hold = h
	s.held = h
	if !h.add(l) {
		h.undo(ErrLost)
		return nil, fmt.Errorf("lock %s: %w", name, ErrLost)
	}
	return l, nil
}

// errTurn is the answer to a TryLock while another call of its owner asks for the lock.
var errTurn = fmt.Errorf("%w: another call of its owner asks for it", ErrHeld)

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
			return errTurn
		}
		return ErrTimeout
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *slot) give() { <-s.turn }

func (h *holding) reenter(ctx context.Context, l *Lease) error {
	l.hold = h
	if _, err := h.confirm(ctx, h.request(h.count()+1, l.term), "re-enter"); err != nil {
		return err
	}
	if !h.add(l) {
		return fmt.Errorf("re-enter the lock %s: %w", h.name, ErrLost)
	}
	return nil
}

func (h *holding) raise(ctx context.Context, token int64) error {
	r := h.request(h.count(), h.first)
	r.Token = token
	token, err := h.confirm(ctx, r, "raise the token of")
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.number = max(h.number, token)
	h.mu.Unlock()
	return nil
}

// confirm asks once more for a lock that the owner holds, and returns its token.
func (h *holding) confirm(ctx context.Context, r driver.Request, to string) (int64, error) {
	grant, sent, err := h.ask(ctx, r)
	if err != nil {
		return 0, cutBy(ctx, err)
	}
	if grant.State != driver.StateHeld {
		return 0, h.gone(to)
	}
	h.prolong(sent, r.Lease)
	return grant.Token, nil
}

// gone loses a lock that the store does not have any more.
func (h *holding) gone(to string) error {
	h.lose("found gone, asked to " + to + " it")
	return fmt.Errorf("%s the lock %s: %w", to, h.name, ErrLost)
}

func (h *holding) extend(ctx context.Context, l *Lease, d time.Duration) error {
	if err := h.slot.take(ctx, attempt{forever: true}); err != nil { // nobody re-enters meanwhile
		return fmt.Errorf("extend the lock %s: %w: %w", h.name, ErrNotSent, err)
	}
	defer h.slot.give()
	d = h.client.set.bound(d)
	r := h.request(0, d)
	sent := time.Now()
	r.Exact = h.shorten(l, validUntil(sent, d))
	err := h.client.store.Renew(ctx, []driver.Request{r})[0]
	if r.Exact && (err != nil || time.Since(sent) >= swiftly) {
		h.limit(d)
	}
	switch {
	case isGone(err):
		return h.gone("extend")
	case err != nil:
		return fmt.Errorf("extend the lock %s: %w", h.name, err)
	}
	h.prolong(sent, d)
	if ok, cause := h.state(); !ok {
		return fmt.Errorf("extend the lock %s: %w", h.name, cause)
	}
	return nil
}

// unlock gives back one hold; the last one frees the lock. The context of the
// lease ends before the request leaves. unlockTimeout bounds all of it: the wait
// for the owner's turn, and a call that the store does not answer.
func (h *holding) unlock(ctx context.Context, l *Lease) error {
	c := h.client
	ctx, cancel := context.WithTimeout(ctx, c.set.unlockTimeout)
	defer cancel()
	l.end(ErrUnlocked)
	if held, _ := h.state(); held {
		select {
		case h.slot.turn <- struct{}{}:
		case <-ctx.Done():
			// A goroutine of the same owner is in the middle of a re-entry.
			c.spawn(func() { //nolint:contextcheck // the caller's has ended
				h.slot.turn <- struct{}{}
				defer h.slot.give()
				ctx, cancel := context.WithTimeout(c.base, c.set.unlockTimeout)
				defer cancel()
				_ = h.unlockNow(ctx, l)
			})
			return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
		}
		defer h.slot.give()
	}
	return h.unlockNow(ctx, l)
}

func (h *holding) unlockNow(ctx context.Context, l *Lease) error {
	c := h.client
	defer h.slot.drop()
	left, held := h.remove(l)
	if !c.enter() { // Close gives it back, if it was not lost before
		if _, cause := h.state(); cause != nil && !errors.Is(cause, ErrClosed) {
			return cause
		}
		return nil
	}
	defer c.underWay.Done()
	if left == 0 {
		h.end(ErrUnlocked)
	}
	_, cause := h.state()
	switch {
	case left > 0 && held:
		was, err := c.release(ctx, h.request(left, 0))
		if err == nil && !was {
			h.lose("found gone at an unlock")
			_, err = h.state()
		}
		return err
	case left > 0:
		return cause
	case errors.Is(cause, ErrClosed): // Close gives it back
		return nil
	}
	was, err := c.free(ctx, h)
	if err != nil {
		h.undo(err) // goes on in the background
	}
	if !held {
		return cause
	}
	if err == nil && !was {
		return fmt.Errorf("%w: found gone at an unlock", ErrLost)
	}
	return err
}
