package lock

import "errors"

var (
	// ErrTimeout means that the lock was held by another owner until the wait budget
	// had passed. Nothing is left held.
	ErrTimeout = errors.New("lock: not free within the wait budget")

	// ErrHeld is what TryLock answers when another owner holds the lock.
	ErrHeld = errors.New("lock: held by somebody else")

	// ErrLost is the cause with which the context of a lease ends when the
	// lock is lost or can no longer be proven to be held, and what Unlock
	// and Extend answer then.
	ErrLost = errors.New("lock: lost")

	// ErrNotHeld is what Unlock answers for a lease that was unlocked before.
	ErrNotHeld = errors.New("lock: not held")

	// ErrUnlocked is the cause with which the context of a lease ends when
	// it is unlocked.
	ErrUnlocked = errors.New("lock: unlocked")

	// ErrClosed means that the client has been closed.
	ErrClosed = errors.New("lock: client closed")

	// ErrUnknown means that the store did not answer in time, so it may or may not have
	// done what it was asked to. The client undoes an acquisition that ended
	// like this; its caller holds nothing.
	ErrUnknown = errors.New("lock: the store did not answer, the outcome is unknown")

	// ErrRefused means that the store answered that it cannot do this at all (a key of
	// another type, no permission) and changed nothing.
	ErrRefused = errors.New("lock: refused by the store")

	// ErrNotSent means that the request did not leave this process, so nothing happened.
	ErrNotSent = errors.New("lock: the request was not sent")

	// ErrOverloaded means that more calls wait for the store than it is willing to
	// queue. It comes wrapped with ErrNotSent.
	ErrOverloaded = errors.New("lock: too many calls are waiting for the store")
)

// isGone tells that a renewal found its lock gone. ErrUnknown outweighs ErrLost, which may be
// there as the cause of a context: that of another lock's lease.
func isGone(err error) bool { return errors.Is(err, ErrLost) && !errors.Is(err, ErrUnknown) }
