package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"seckill/internal/poll"
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

func newActor(ctx context.Context, on *arena, name string, with setup) *actor {
	ctx, cancel := context.WithCancel(ctx)
	a := &actor{
		ctx: on.ctx, name: name, cancel: cancel, began: on.began, points: make(chan point),
		let: make(chan struct{}, 1),
	}
	with.at = a.stand
	a.note(pointBegun, false)
	go func() {
		defer close(a.points)
		a.err = try(func() { a.told = on.strategy.work(ctx, with) })
		if a.err != nil {
			a.told = tally{{End: pointFailed}}
		}
		a.note(a.told[len(a.told)-1].End, true)
	}()
	return a
}

func (a *actor) stand(ctx context.Context, p point) {
	a.note(p, false)
	if p == pointHeld || p == pointLost || p == pointGiven {
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

// to lets the actor go on to one of the points. False when its work or the patience was over before.
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

// kill ends the actor as a power cut would: its connections first, so that it gives nothing back (see strategy.work).
func (a *actor) kill() {
	a.note(pointKilled, true) // unless its work is over
	a.cancel()
	for range a.points { // until it is closed
	}
	a.over = true
}

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

// Twice are the times in which another worker had the lock too.
func (a Attack) Twice(h Hold) (all []Hold) {
	for _, other := range a.Holds {
		from, to := max(h.From, other.From), min(h.To, other.To)
		if h.Locked && other.Locked && h.Holder != other.Holder && from < to {
			all = append(all, Hold{From: from, To: to})
		}
	}
	return all
}

func (a Attack) Together() (longest time.Duration) {
	for _, h := range a.Holds {
		for _, both := range a.Twice(h) {
			longest = max(longest, both.To-both.From)
		}
	}
	return longest
}

// attack is an interleaving of workers that breaks a broken strategy every time, and must not break a real one.
type attack struct {
	name  string
	stock int64 // units there are to sell; one less than the workers want, mostly
	// lapses: a lease is meant to end under its holder, who may be refused. Otherwise a lost lock is a defect.
	lapses bool
	run    func(a *arena)
}

const (
	// watchedLease is the first lease of a holder that dies, is slow, or has a watchdog; three renewals fit in. As
	// machines stall, only a holder that loses watchedLeases, each twice the one before, counts as without a watchdog.
	watchedLease, watchedLeases = 400 * time.Millisecond, 4
	calmLease                   = 30 * time.Second // of all other actors: longer than any attack
	unlockLeases                = 4                // leave a worker on a busy machine the time to get to its unlock
	deadLeases                  = 3                // after these a lock whose holder is gone will never be free
	certain                     = 20 * time.Second // is how long the lab waits for an event that must happen
)

// arena is one attack, or the free run, on one strategy, with an account and a stock of its own.
type arena struct {
	ctx      context.Context //nolint:containedctx // of the row
	strategy strategy
	setup    setup
	watched  time.Duration // the lease of a holder whose watchdog must keep it
	wait     time.Duration // see lastWait
	patience time.Duration // see forbidden
	began    time.Time
	tally    tally
	workers  []*actor
}

func (a *arena) worker(name string, change ...func(*setup)) *actor {
	with := a.setup
	for _, f := range change {
		f(&with)
	}
	w := newActor(a.ctx, a, name, with)
	a.workers = append(a.workers, w)
	return w
}

func (a *arena) stands(name string, at []point, change ...func(*setup)) *actor {
	w := a.worker(name, change...)
	w.to(certain, at...)
	return w
}

// wants starts a worker that wants what only a broken strategy lets it have.
func (a *arena) wants(name string) *actor {
	w := a.worker(name)
	w.to(a.forbidden(), pointChecked, pointRead)
	return w
}

func (a *arena) shortLease(s *setup) { s.Lease = a.watched }

// clear ends the workers that an error left behind, before the lab removes the keys that they hold and write.
func (a *arena) clear() {
	for _, w := range a.workers {
		w.kill()
	}
}

// forbidden is how long to wait for what only a broken strategy allows: with one until it comes, else a few leases.
func (a *arena) forbidden() time.Duration {
	if lost := a.strategy.defect == defectLost || a.strategy.defect == defectOversold; lost && !a.strategy.mended {
		return certain
	}
	return max(deadLeases*a.watched, a.patience)
}

// lastWait sets how long a worker waits for a lock it must get: a few leases where a dead holder may keep it locked.
func (a *arena) lastWait(s *setup) {
	if a.strategy.defect == defectDeadlock {
		s.Wait = deadLeases * a.watched
	}
	if a.wait > 0 {
		s.Wait = a.wait
	}
}

func (a *arena) finish(workers ...*actor) {
	for _, w := range workers {
		a.tally = append(a.tally, w.finish()...)
	}
}

// meet: A stands at one of the points. B wants in before A goes on. A's lease is that, or the short one.
func meet(name string, lease time.Duration, at ...point) attack {
	return attack{name: name, stock: 1, run: func(a *arena) {
		first := a.stands("A", at, func(s *setup) { s.Lease = cmp.Or(lease, a.watched) })
		second := a.wants("B")
		first.to(certain, pointRead)
		second.to(a.forbidden(), pointRead)
		a.finish(first, second)
	}}
}

// overlap: A and B both find the lock free, or are both inside, before either goes on.
func overlap() attack { return meet("two at once", calmLease, pointChecked, pointRead) }

// outlive: A is inside for three leases; B wants in.
func outlive() attack { return meet("work longer than the lease", 0, pointRead) }

// crash: a holder dies at a point; then B wants the lock. One refused before had too short a lease.
func crash(at point) attack {
	return attack{name: "crashed holder", stock: 1, run: func(a *arena) {
		victim := a.worker("A", a.shortLease)
		if victim.to(certain, at) {
			victim.kill()
			a.finish(a.worker("B", a.lastWait))
			return
		}
		a.finish(victim)
		if a.tally.count(pointRefused) == 0 {
			stop(fmt.Errorf("the holder that was to be killed did not get to %q: %+v", at, a.tally))
		}
	}}
}

// staleUnlock: A stands after its write, or within its unlock, until its lease is over. B locks, A unlocks, C tries.
func staleUnlock(at point) attack {
	return attack{name: "late unlock", stock: 2, lapses: true, run: func(a *arena) {
		slow := a.stands("A", []point{at}, a.shortLease, func(s *setup) {
			s.Fixed = true
			if at == pointOwner {
				s.Lease *= unlockLeases
			}
		})
		second := a.stands("B", []point{pointRead})
		a.finish(slow)
		third := a.wants("C")
		a.finish(second, third)
	}}
}

func reenter() attack {
	return attack{name: "re-entry", stock: 1, run: func(a *arena) {
		a.finish(a.worker("A", a.lastWait, func(s *setup) { s.Reenter = true }))
	}}
}

// renewedByOther: A's lock runs out before its watchdog begins. B takes it, and dies after that. C wants it.
func renewedByOther() attack {
	return attack{name: "renewed by another", stock: 1, lapses: true, run: func(a *arena) {
		slow := a.stands("A", []point{pointHalf}, a.shortLease)
		victim := a.worker("B", a.shortLease)
		if !victim.to(certain, pointRead) {
			stop(fmt.Errorf("the holder that was to be killed did not get the lock: %w", victim.err))
		}
		slow.to(certain, pointRead)
		victim.kill()
		a.finish(a.worker("C", a.lastWait), slow)
	}}
}

// heldRow is "two at once" inside the database: a third transaction holds the row until A and B want its last unit.
func heldRow() attack {
	return attack{name: "two at once", stock: 1, run: func(a *arena) {
		transacted(func(u unit) answer {
			u.look("SELECT 0, 0, 0 FROM vouchers WHERE id = ? FOR UPDATE")
			a.worker("A")
			a.worker("B")
			poll.Pause(u.ctx, a.watched)
			return answer{}
		})(unit{setup: a.setup, ctx: a.ctx})
		a.finish(a.workers...)
	}}
}
