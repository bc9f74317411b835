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
	arena  *arena
	name   string
	points chan point    // at which it stands; closed when the work is over
	let    chan struct{} // lets it go on
	cancel context.CancelFunc

	standing, over bool
	told           tally // when it is over
	err            error
	closed         bool // its story has ended
}

func (a *arena) worker(name string, change ...func(*setup)) *actor {
	ctx, cancel := context.WithCancel(a.ctx)
	w := &actor{arena: a, name: name, cancel: cancel, points: make(chan point), let: make(chan struct{}, 1)}
	a.workers = append(a.workers, w)
	with := a.setup
	with.at = w.stand
	for _, f := range change {
		f(&with)
	}
	w.note(pointBegun, false)
	go func() {
		defer close(w.points)
		w.err = try(func() { w.told = a.strategy.work(ctx, with) })
		if w.err != nil {
			w.told = tally{{End: pointFailed}}
		}
		w.note(w.told[len(w.told)-1].End, true)
	}()
	return w
}

func (w *actor) stand(ctx context.Context, p point) {
	w.note(p, false)
	if p == pointHeld || p == pointLost || p == pointGiven {
		return
	}
	select {
	case w.points <- p:
		select {
		case <-w.let:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	stop(context.Cause(ctx))
}

// note adds to the story. What comes behind a worker's end is of no worker any more.
func (w *actor) note(p point, last bool) {
	w.arena.mu.Lock()
	defer w.arena.mu.Unlock()
	if !w.closed {
		w.arena.story = append(w.arena.story, Moment{time.Since(w.arena.began), w.name, p})
	}
	w.closed = w.closed || last
}

// to lets the actor go on to one of the points. False when its work or the patience was over before.
func (w *actor) to(patience time.Duration, points ...point) bool {
	ctx, cancel := context.WithTimeout(w.arena.ctx, patience)
	defer cancel()
	for !w.over {
		if w.standing {
			w.standing = false
			w.let <- struct{}{}
		}
		select {
		case p, ok := <-w.points:
			w.standing, w.over = ok, !ok
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
func (w *actor) kill() {
	w.note(pointKilled, true) // unless its work is over
	w.cancel()
	for range w.points { // until it is closed
	}
	w.over = true
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
	unit     // what the workers have in common
	strategy strategy
	watched  time.Duration // the lease of a holder whose watchdog must keep it
	began    time.Time
	tally    tally
	workers  []*actor

	mu    sync.Mutex
	story []Moment
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

// forbidden is how long to wait for what only a broken strategy allows: with one until it comes, else a few leases.
func (a *arena) forbidden() time.Duration {
	if a.strategy.broken() {
		return certain
	}
	return deadLeases * a.watched
}

// lastWait sets how long a worker waits for a lock it must get: a few leases where a dead holder may keep it locked.
func (a *arena) lastWait(s *setup) {
	if a.strategy.broken() {
		s.Wait = deadLeases * a.watched
	}
}

func (a *arena) finish(workers ...*actor) {
	for _, w := range workers {
		w.to(rowBudget)
		if !w.over {
			w.kill()
			stop(fmt.Errorf("worker %s did not end: %w", w.name, context.Cause(a.ctx)))
		}
		w.cancel()
		must("worker "+w.name, w.err)
		a.tally = append(a.tally, w.told...)
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
		tx := got(a.db.SQL().BeginTx(a.ctx, nil))("begin a transaction")
		defer func() { _ = tx.Rollback() }()
		unit{setup: a.setup, ctx: a.ctx, tx: tx}.look("SELECT 0, 0, 0 FROM vouchers WHERE id = ? FOR UPDATE")
		a.worker("A")
		a.worker("B")
		poll.Pause(a.ctx, a.watched)
		must("let the row go", tx.Rollback())
		a.finish(a.workers...)
	}}
}
