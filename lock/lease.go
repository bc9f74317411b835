package lock

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Lease is a lock that is held. It is safe for concurrent use.
type Lease struct {
	hold     held
	name     string
	life     context.Context //nolint:containedctx // what Context derives from, when it is asked for
	term     time.Duration
	watchdog bool

	mu       sync.Mutex
	ctx      context.Context //nolint:containedctx // made at the first call of Context, which is what leases are for
	cancel   context.CancelCauseFunc
	ended    error
	unlocked bool
	onEnd    func(cause error) // for a lease of several parts
}

// held is what a lease is made of: one store's holding, or several leases.
type held interface {
	unlock(ctx context.Context, l *Lease) error
	extend(ctx context.Context, l *Lease, d time.Duration) error
	// raise makes the token at least that, in the store too.
	raise(ctx context.Context, token int64) error
	token() int64
	validUntil() time.Time
}

// Context returns the context for the work the lock protects. Locking the same name with it re-enters. It has the
// values of the one given to Lock, but not its end: see While and Client.Do. It ends with the cause ErrLost at the
// latest a drift (1 % of the lease + 2 ms) before another owner can hold the lost lock; with ErrUnlocked after Unlock.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(l.life)
		if l.ended != nil {
			l.cancel(l.ended)
		}
	}
	return l.ctx
}

// Token returns the fencing token: greater than every earlier acquisition's, the same for a re-entry, 0 when the store
// keeps none. What the lock protects should refuse one below the greatest it has seen, in the transaction of the write.
func (l *Lease) Token() int64 { return l.hold.token() }

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.name }

// ValidUntil returns until when the lock can be relied on if it is not renewed, by the monotonic clock of this process.
func (l *Lease) ValidUntil() time.Time { return l.hold.validUntil() }

// Extend makes the lock last d from now, 10 ms at least. A lock that is renewed, or that its owner has re-entered,
// lasts at least as long as before; one with LeaseTime may be shortened. It returns ErrLost when the lock has been
// lost, ErrNotHeld after Unlock, else the store's own error; the lock then lasts for the shorter of the two terms.
func (l *Lease) Extend(ctx context.Context, d time.Duration) error {
	l.mu.Lock()
	done, ended := l.unlocked, l.ended
	l.mu.Unlock()
	switch {
	case done:
		return fmt.Errorf("extend the lock %s: %w", l.name, ErrNotHeld)
	case ended != nil:
		return fmt.Errorf("extend the lock %s: %w", l.name, ended)
	}
	return l.hold.extend(ctx, l, max(d, minLease))
}

// Unlock gives the lock back, or one hold of it after a re-entry, and wakes the next waiter. It uses its own context,
// as the work's may have ended, and takes 3 s at most (UnlockTimeout). It returns ErrLost when the lock had been lost,
// so that another owner may have been at work too; ErrNotHeld when this lease was unlocked already; else the store's
// error: the lock is then no longer renewed and ends with its lease.
func (l *Lease) Unlock() error { return l.UnlockContext(context.Background()) }

// UnlockContext is Unlock under a caller's context. When that ends first, the lock is given back in the background.
func (l *Lease) UnlockContext(ctx context.Context) error {
	l.mu.Lock()
	if l.unlocked {
		l.mu.Unlock()
		return fmt.Errorf("unlock %s: %w", l.name, ErrNotHeld)
	}
	l.unlocked = true
	l.mu.Unlock()
	if err := l.hold.unlock(ctx, l); err != nil {
		return fmt.Errorf("unlock %s: %w", l.name, err)
	}
	return nil
}

// end ends the lease's context, at once or when it is made. The first cause counts.
func (l *Lease) end(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return
	}
	l.ended = cause
	if l.cancel != nil {
		l.cancel(cause)
	}
	if l.onEnd != nil {
		l.onEnd(cause)
	}
}

// notify has f called once when the lease ends, at once if it has.
func (l *Lease) notify(f func(cause error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		f(l.ended)
		return
	}
	l.onEnd = f
}

// cause is what ended the lease; nil while it lasts.
func (l *Lease) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}
