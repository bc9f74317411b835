package lock

import (
	"errors"

	"seckill/lock/driver"
)

var (
	// ErrTimeout means that the lock was held by another owner until the wait budget
	// had passed. Nothing is left held.
	ErrTimeout = errors.New("lock: not free within the wait budget")

	// ErrHeld is what TryLock answers when another owner holds the lock.
	ErrHeld = errors.New("lock: held by somebody else")

	// ErrLost is the cause with which the context of a lease ends when the
	// lock is lost or can no longer be proven to be held, and what Unlock
	// and Extend answer then.
	ErrLost = driver.ErrLost

	// ErrNotHeld is what Unlock answers for a lease that was unlocked before.
	ErrNotHeld = errors.New("lock: not held")

	// ErrUnlocked is the cause with which the context of a lease ends when
	// it is unlocked.
	ErrUnlocked = errors.New("lock: unlocked")

	// ErrUnsynced means that fewer replicas have confirmed the acquisition in time than
	// the option Synced asks for. It is given back.
	ErrUnsynced = errors.New("lock: not confirmed by enough replicas")

	// ErrClosed means that the client has been closed.
	ErrClosed = errors.New("lock: client closed")

	// ErrUnknown means that the store did not answer in time. An acquisition that ended
	// like this is undone; its caller holds nothing.
	ErrUnknown = driver.ErrUnknown

	// ErrRefused means that the store cannot do this at all (a key of another type, no
	// permission) and changed nothing.
	ErrRefused = driver.ErrRefused

	// ErrNotSent means that the request did not leave this process, so nothing happened.
	ErrNotSent = driver.ErrNotSent

	// ErrOverloaded means that more calls wait for the store than it is willing to
	// queue. It comes wrapped with ErrNotSent.
	ErrOverloaded = errors.New("lock: too many calls are waiting for the store")
)

// isGone tells that a renewal found its lock gone. ErrUnknown outweighs ErrLost, which may be
// there as the cause of a context: that of another lock's lease.
func isGone(err error) bool { return errors.Is(err, ErrLost) && !errors.Is(err, ErrUnknown) }
