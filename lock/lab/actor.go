package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// actor is a worker of an attack or of a free run. It stops at every point until it is let go.
type actor struct {
	ctx    context.Context //nolint:containedctx // of the attack
	name   string
	points chan point    // at which it stands; closed when the work is over
	let    chan struct{} // lets it go on
	cancel context.CancelFunc

	standing, over bool
	told           tally // when it is over
	err            error

	began  time.Time // of the attack
	mu     sync.Mutex
	did    []Moment
	closed bool // it is over: what comes late is of no worker any more
}

func newActor(ctx context.Context, name string, began time.Time, does work) *actor {
	working, cancel := context.WithCancel(ctx)
	a := &actor{ctx: ctx, name: name, cancel: cancel, began: began, points: make(chan point), let: make(chan struct{}, 1)}
	a.note(pointBegun, false)
	go func() {
		defer close(a.points)
		a.err = try(func() { a.told = does(working, a.stand) })
		if a.err != nil {
			a.told = tally{{End: pointFailed}}
		}
		a.note(a.told[len(a.told)-1].End, true)
	}()
	return a
}

func (a *actor) stand(ctx context.Context, p point) {
	a.note(p, false)
	if p.passes() {
		return
	}
	select {
	case a.points <- p:
		select {
		case <-a.let:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	stop(context.Cause(ctx))
}

func (a *actor) note(p point, last bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.did = append(a.did, Moment{p, time.Since(a.began)})
	}
	a.closed = a.closed || last
}

// to lets the actor go on until it stands at one of the points. False when it did not get there: its work is over, or
// the patience is.
func (a *actor) to(patience time.Duration, points ...point) bool {
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	for !a.over {
		if a.standing {
			a.standing = false
			a.let <- struct{}{}
		}
		select {
		case p, ok := <-a.points:
			a.standing, a.over = ok, !ok
			if ok && slices.Contains(points, p) {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// kill ends the actor as a power cut would.
func (a *actor) kill() {
	a.note(pointKilled, true) // unless its work is over
	a.cancel()
	for range a.points { // until it is closed
	}
	a.over = true
}

// finish lets the actor end its work.
func (a *actor) finish() tally {
	a.to(rowBudget)
	if !a.over {
		a.kill()
		stop(fmt.Errorf("worker %s did not end: %w", a.name, context.Cause(a.ctx)))
	}
	a.cancel()
	must("worker "+a.name, a.err)
	return a.told
}

// Hold is what one worker did under an attack, and when. Times are since the attack began.
type Hold struct {
	Holder   string        // A, B or C
	Locked   bool          // or there is no lock to have, and it worked with what it had read
	From, To time.Duration // with the lock, or between its read and its end; both 0: it never got so far
	Did      []Moment
}

// Moment is one thing that a worker did.
type Moment struct {
	What point
	At   time.Duration
}

func (h Hold) Begins() time.Duration { return h.Did[0].At }
func (h Hold) Ends() time.Duration   { return h.Did[len(h.Did)-1].At }

func (a *actor) hold() Hold {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := Hold{Holder: a.name, Did: slices.Clone(a.did)}
	for i, m := range h.Did {
		if h.From == 0 && slices.Contains([]point{pointHalf, pointHeld, pointRead}, m.What) {
			h.From, h.Locked = m.At, m.What != pointRead
		}
		if h.From != 0 && (m.What == pointLost || m.What == pointGiven || i == len(h.Did)-1) {
			h.To = cmp.Or(h.To, m.At)
		}
	}
	return h
}

// with is the time in which both workers had the lock; none where to is not after from.
func (h Hold) with(other Hold) (from, to time.Duration) {
	if !h.Locked || !other.Locked || h.Holder == other.Holder {
		return 0, 0
	}
	return max(h.From, other.From), min(h.To, other.To)
}

// Together is the longest time in which two workers had the lock.
func (a Attack) Together() (longest time.Duration) {
	for _, h := range a.Holds {
		for _, other := range a.Holds {
			from, to := h.with(other)
			longest = max(longest, to-from)
		}
	}
	return longest
}
