package lock

import (
	"context"
	"time"
)

// Store takes, renews and gives back named locks. It makes one attempt per call; waiting, renewing and giving up are
// the Client's.
//
// Every method MUST return when its context ends, and in bounded time when that never ends, with an error that wraps
// ErrUnknown if the request may have been executed. Every method MUST be idempotent: a request that is executed twice
// has the effect of one, and gets the same answer.
//
// An error of Acquire that wraps ErrRefused or ErrNotSent says that nothing happened, and the client undoes nothing.
// After any other error, and after one that wraps ErrUnknown too, it calls Release with Abandon.
type Store interface {
	// Acquire takes the lock for r.Holder, or sets the hold count of a holder that has it already. It never shortens a
	// lease that runs. A count above one for a holder that is not there any more MUST NOT take the lock: its state is
	// Lost.
	Acquire(ctx context.Context, r Request) (Grant, error)

	// Renew makes the leases of all the requests last r.Lease from now, at least, or with r.Exact exactly so long. It
	// returns one error for each request: nil when it was renewed, ErrLost when the holder does not have the lock any
	// more, and another error when neither is known. The failure of one lock, or of one node of a Cluster, MUST NOT affect
	// the others.
	Renew(ctx context.Context, rs []Request) []error

	// Release sets the hold count; at zero it frees the lock and wakes its waiters. It returns false when the holder did
	// not have the lock. With r.Abandon the store MUST also refuse an Acquire of the same holder that arrives later.
	Release(ctx context.Context, r Request) (bool, error)

	// ForceRelease frees the lock, whichever owner holds it, wakes its waiters, and returns whether it was held.
	ForceRelease(ctx context.Context, name string) (bool, error)

	// Holder returns who has the lock, "" for none, and how long the lease still runs; below 0 without an end.
	Holder(ctx context.Context, name string) (holder string, left time.Duration, err error)

	// Watch calls wake, which does not block, each time the lock may have become free and each time the watch becomes live
	// or ceases to be. A store without messages returns nil, and the client asks at intervals.
	Watch(ctx context.Context, name string, wake func()) Watch

	// Close frees what the store itself holds (not the client or database it was made from). It is safe to call twice.
	Close() error
}

// Passer is a Store that can hand a lock from one holder to another one in one step. The client uses it between waiters
// of its own process. When a process elsewhere waits too, a store MUST release the lock instead and return Held false.
// After an error other than ErrUnknown the client calls Release.
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

	// Stray: the request was, or may have been, sent more than once, and a copy of it can still arrive and take the lock.
	// Who was refused and goes away must then give it back all the same.
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
