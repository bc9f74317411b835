package model

import (
	"context"
	"errors"
	"time"
)

// ErrLockBusy says that another holder kept a lock for the whole wait.
var ErrLockBusy = errors.New("the user's lock is busy")

// UserLock is the name under which other programs find a user's lock, in Redis and
// wherever else locks are kept; it is part of the public contract.
func UserLock(userID string) string { return "lock:order:" + userID }

// Locker takes locks that all instances share, in whatever lock mode they run.
type Locker interface {
	// Lock waits for the named lock, at most for the wait budget (zero: one
	// try). It MUST return ErrLockBusy when another holder kept the lock for
	// that long, ctx's error when ctx ended, and any other error when the
	// truth could not be learnt; in all three cases nothing is left held. The
	// lease MUST last until Unlock, beyond the end of ctx: an order is decided
	// behind a client that has hung up.
	Lock(ctx context.Context, name string, wait time.Duration) (Lease, error)
}

// Lease is a lock that is held.
type Lease interface {
	// Context ends when the lock is lost.
	Context() context.Context
	// Unlock gives the lock back. It MUST bound its own time, because it is
	// also called when the request's context has ended.
	Unlock() error
}
