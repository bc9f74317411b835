package lock

import (
	"context"
	"time"
)

// Store takes, renews and gives back named locks, in one attempt per call; the Client waits, renews and gives up.
//
// Every method MUST return when its context ends, and in bounded time when that never ends, with an error that wraps
// ErrUnknown if the request may have been executed. Every method MUST be idempotent: a request executed twice has the
// effect and the answer of one. After an error of Acquire that wraps ErrRefused or ErrNotSent, and not ErrUnknown,
// nothing happened, and the client undoes nothing. After any other error it calls Release with Abandon.
type Store interface {
	// Acquire takes the lock for r.Holder, or sets the hold count of a holder that has it. It never shortens a lease. A
	// count above one for a holder that is not there any more MUST NOT take the lock: its state is Lost.
	Acquire(ctx context.Context, r Request) (Grant, error)

	// Renew makes all leases last r.Lease from now, at least, or with r.Exact exactly so long. It returns one error for
	// each: nil when renewed, ErrLost when the holder does not have the lock any more, another when neither is known.
	// The failure of one lock, or of one node of a Cluster, MUST NOT affect the others.
	Renew(ctx context.Context, rs []Request) []error

	// Release sets the hold count; at zero it frees the lock and wakes its waiters. It returns false when the holder
	// did not have it. With r.Abandon the store MUST also refuse an Acquire of the same holder that arrives later.
	Release(ctx context.Context, r Request) (bool, error)

	// ForceRelease frees the lock, whichever owner holds it, wakes its waiters, and returns whether it was held.
	ForceRelease(ctx context.Context, name string) (bool, error)

	// Holder returns who has the lock, "" for none, and how long the lease still runs; below 0 without an end.
	Holder(ctx context.Context, name string) (holder string, left time.Duration, err error)

	// Watch calls wake, which does not block, each time the lock may have become free and each time the watch becomes
	// live or ceases to be. A store without messages returns nil, and the client asks at intervals.
	Watch(ctx context.Context, name string, wake func()) Watch

	// Close frees what the store itself holds (not the client or database it was made from). It is safe to call twice.
	Close() error
}

// Passer is a Store that can hand a lock on in one step, used between waiters of one process. When another process
// waits too, it MUST release the lock and return Held false. After an error but ErrUnknown the client calls Release.
type Passer interface {
	Pass(ctx context.Context, from, to Request) (Passed, error)
}

// Watch is a subscription to one lock.
type Watch interface {
	// Live reports whether messages arrive at present.
	Live() bool
	// Stop ends the watch; wake is not called after it returned, except by a call that had begun before.
	Stop()
}

// Request names a lock and a holder.
type Request struct {
	Name   string        // of the lock
	Holder string        // unique for each outermost acquisition: "<uuid>:<integer>"
	Holds  int           // Acquire, Release: the hold count afterwards
	Lease  time.Duration // Acquire, Renew: how long the lock lasts unless it is renewed
	Token  int64         // Acquire: the token is to be at least this; 0 for no matter

	// Exact is set on a Renew that may shorten the lease.
	Exact bool

	// Once is set on a Release or Pass when the store said so in the Grant.
	Once bool

	// Abandon is set on the Release of an acquisition whose outcome is unknown.
	Abandon bool
}

// State is what an Acquire found.
type State int

// The answers to an Acquire.
const (
	StateBusy State = iota // somebody else holds it
	StateHeld              // the holder of the request holds it
	StateLost              // the holder of the request had it or gave it up, and cannot have it any more
)

// Grant is the answer to an Acquire.
type Grant struct {
	State     State
	Token     int64         // StateHeld: the fencing token, 0 if the store keeps none
	Remaining time.Duration // StateBusy: of the lease in the way; 0 when not known

	// Once: the request was surely sent only once, so that no copy can arrive after the holder's Release.
	Once bool

	// Stray: a copy of the request may still arrive and take the lock. Who was refused and leaves must give it back.
	Stray bool

	// Unsynced, with StateHeld: fewer replicas have it than were to be waited for. The client gives it back.
	Unsynced bool
}

// Passed is the answer to a Pass.
type Passed struct {
	Was   bool  // the first holder was still there
	Held  bool  // the second one holds the lock now; else it is free
	Token int64 // of the second holder
	Once  bool  // as in Grant, for the second holder, as is Unsynced

	Unsynced bool
}
