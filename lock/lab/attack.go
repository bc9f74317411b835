package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"seckill/internal/poll"
)

// attack is an interleaving of workers that breaks a broken strategy every
// time, and must not break a real one.
type attack struct {
	name  string
	stock int64 // units there are to sell; one less than the workers want, mostly
	// lapses: a lease is meant to end under its holder, who may be refused. Under
	// every other attack a lock that is lost is a defect, told or not.
	lapses bool
	run    func(ctx context.Context, a *arena) error
}

const (
	// attackLease is the lease of the worker that dies or is slow: long enough
	// for three renewals on a busy machine, short enough to wait for.
	attackLease = 400 * time.Millisecond
	// unlockLeases leave a worker on a busy machine the time to get to its unlock.
	unlockLeases = 4
	// watchedLease is the first lease of a holder whose watchdog must keep it. A
	// machine may stall for longer than a lease, and then the holder is rightly
	// refused. Only a holder that loses as many leases as watchedLeases, each
	// twice the one before, has no watchdog.
	watchedLease, watchedLeases = attackLease, 4
	// calmLease is the lease of all other actors: longer than any attack.
	calmLease = 30 * time.Second
	// absence is how long the lab watches for an event that must not happen. With
	// a broken strategy it happens within a round trip.
	absence = 250 * time.Millisecond
	// certain is how long the lab waits for an event that must happen.
	certain = 20 * time.Second
	// deadLeases is after how many leases of a holder that is gone a lock will never be free.
	deadLeases = 3
)

// arena is one attack, or the free run, on one strategy, with an account and a stock of
// its own.
type arena struct {
	strategy strategy
	setup    setup
	spawn    Spawn
	watched  time.Duration // the lease of a holder whose watchdog must keep it
	wait     time.Duration // see lastWait
	patience time.Duration // see forbidden
	began    time.Time
	tally    tally
	workers  []*actor
}

// worker starts a worker with the settings of the arena, changed by change.
func (a *arena) worker(ctx context.Context, name string, change ...func(*setup)) *actor {
	with := a.setup
	for _, f := range change {
		f(&with)
	}
	work := a.strategy.here(with)
	if with.ownProcess {
		work = a.spawn.work(a.strategy, with)
	}
	w := newActor(ctx, name, work)
	a.workers = append(a.workers, w)
	return w
}

// clear ends the workers that an error left behind, and waits for them, because the
// lab then removes the keys that they hold and write.
func (a *arena) clear() {
	for _, w := range a.workers {
		w.kill()
	}
}

// forbidden is how long to wait for an event that only a broken strategy allows. With a broken strategy that is until the
// event comes; with the others it is d, or the longer patience of a test.
func (a *arena) forbidden(d time.Duration) time.Duration {
	switch {
	case a.strategy.mended:
		return d
	case a.strategy.defect == defectLost || a.strategy.defect == defectOversold:
		return certain
	}
	return max(d, a.patience)
}

// lastWait is how long a worker may wait for the lock when it must get it. With a strategy that leaves the lock of a dead
// holder locked, that is a few leases: the lab then reports a deadlock. With any other strategy the worker gets the lock
// much earlier.
func (a *arena) lastWait() time.Duration {
	switch {
	case a.wait > 0:
		return a.wait
	case a.strategy.defect == defectDeadlock:
		return deadLeases * a.watched
	}
	return certain
}

// finish ends workers one after the other and counts what they did.
func (a *arena) finish(ctx context.Context, workers ...*actor) error {
	for _, w := range workers {
		told, err := w.finish(ctx)
		if err != nil {
			return err
		}
		a.tally.merge(told)
	}
	return nil
}

// all lets all workers go on at the same time until they stand at a point.
func (a *arena) all(ctx context.Context, at point) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, w := range a.workers {
		group.Go(func() error {
			switch {
			case w.to(ctx, rowBudget, at):
				return nil
			case w.over:
				return w.err
			}
			return context.Cause(ctx)
		})
	}
	return group.Wait()
}

// overlap: A and B both find the lock free, or are both inside, before either
// goes on.
func overlap() attack {
	return attack{name: "two at once", stock: 1, run: func(ctx context.Context, a *arena) error {
		first := a.worker(ctx, "A")
		first.to(ctx, certain, pointChecked, pointRead)
		second := a.worker(ctx, "B")
		second.to(ctx, a.forbidden(absence), pointChecked, pointRead)
		first.to(ctx, certain, pointRead)
		second.to(ctx, a.forbidden(absence), pointRead)
		return a.finish(ctx, first, second)
	}}
}

// crash: a process of its own is killed at a point; then B wants the lock. A holder
// that is refused before it gets there had too short a lease for a stalling machine.
func crash(at point) attack {
	return attack{name: "crashed holder", stock: 1, run: func(ctx context.Context, a *arena) error {
		victim := a.worker(ctx, "A", func(s *setup) { s.Lease, s.ownProcess = a.watched, true })
		if !victim.to(ctx, certain, at) {
			err := a.finish(ctx, victim)
			if err == nil && a.tally.Refused == 0 {
				err = fmt.Errorf("the holder that was to be killed did not get to %q: %+v", at, a.tally)
			}
			return err
		}
		victim.kill()
		return a.finish(ctx, a.worker(ctx, "B", func(s *setup) { s.Wait = a.lastWait() }))
	}}
}

// staleUnlock: A writes, and its lease runs out before it unlocks. B takes the lock
// and reads. A unlocks. C tries. A stands still once it has written, or in the middle
// of its unlock, which it must reach before its lease has run out.
func staleUnlock(at point) attack {
	return attack{name: "late unlock", stock: 2, lapses: true, run: func(ctx context.Context, a *arena) error {
		lease := a.watched
		if at == pointOwner {
			lease *= unlockLeases
		}
		slow := a.worker(ctx, "A", func(s *setup) { s.Lease, s.Fixed = lease, true })
		slow.to(ctx, certain, at)
		second := a.worker(ctx, "B")
		second.to(ctx, certain, pointRead)
		if err := a.finish(ctx, slow); err != nil {
			return err
		}
		third := a.worker(ctx, "C")
		third.to(ctx, a.forbidden(absence), pointRead)
		return a.finish(ctx, second, third)
	}}
}

// outlive: A is inside for three leases; B wants in.
func outlive() attack {
	return attack{name: "work longer than the lease", stock: 1, run: func(ctx context.Context, a *arena) error {
		slow := a.worker(ctx, "A", func(s *setup) { s.Lease = a.watched })
		slow.to(ctx, certain, pointRead)
		second := a.worker(ctx, "B")
		second.to(ctx, a.forbidden(3*a.watched), pointRead)
		return a.finish(ctx, slow, second)
	}}
}

// reenter: the holder takes the lock once more.
func reenter() attack {
	return attack{name: "re-entry", stock: 1, run: func(ctx context.Context, a *arena) error {
		return a.finish(ctx, a.worker(ctx, "A", func(s *setup) { s.Reenter, s.Wait = true, a.lastWait() }))
	}}
}

// lockAttacks are what every real lock has to survive.
func lockAttacks() []attack {
	return []attack{overlap(), crash(pointRead), staleUnlock(pointWritten), outlive(), reenter()}
}

// heldRow is "two at once" for strategies that live inside the database: a
// third transaction holds the row, or in SQLite the database, until A and B
// have both read what they may and stand before the same last unit.
func heldRow() attack {
	return attack{name: "two at once", stock: 1, run: func(ctx context.Context, a *arena) error {
		tx, err := a.setup.db.SQL().BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("hold the row: %w", err)
		}
		defer func() { _ = tx.Rollback() }() // nothing when it is over
		if a.setup.Site.DSN != "" {
			var id string
			if err := tx.QueryRowContext(ctx, "SELECT id FROM vouchers WHERE id = ? FOR UPDATE", a.setup.Name).Scan(&id); err != nil {
				return fmt.Errorf("hold the row: %w", err)
			}
		}
		first, second := a.worker(ctx, "A"), a.worker(ctx, "B")
		poll.Pause(ctx, absence)
		if err := tx.Rollback(); err != nil {
			return fmt.Errorf("let go of the row: %w", err)
		}
		return a.finish(ctx, first, second)
	}}
}

// actor is a worker of an attack or of a free run. It stops at every point until it
// is let go.
type actor struct {
	name   string
	points chan point    // at which it stands; closed when the work is over
	let    chan struct{} // lets it go on
	cancel context.CancelFunc

	standing, over bool
	told           tally // when it is over
	err            error
	diary          diary
}

// work is that of an actor. It calls stand at every point.
type work = func(ctx context.Context, stand pause) (tally, error)

func newActor(ctx context.Context, name string, work work) *actor {
	ctx, cancel := context.WithCancel(ctx)
	a := &actor{name: name, points: make(chan point), let: make(chan struct{}, 1), cancel: cancel}
	stand := func(ctx context.Context, p point) error {
		a.diary.note(p)
		if p.passes() {
			return nil
		}
		select {
		case a.points <- p:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-a.let:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	a.diary.note(pointBegun)
	go func() {
		defer close(a.points)
		a.told, a.err = work(ctx, stand)
		a.diary.end(a.told.outcome(a.err))
	}()
	return a
}

// to lets the actor go on until it stands at one of the points. False when it
// did not get there: its work is over, or the patience is.
func (a *actor) to(ctx context.Context, patience time.Duration, points ...point) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
	a.diary.end(pointKilled) // unless its work is over
	a.cancel()
	for range a.points { // until it is closed
	}
	a.over = true
}

// finish lets the actor end its work.
func (a *actor) finish(ctx context.Context) (tally, error) {
	a.to(ctx, rowBudget)
	if !a.over {
		a.kill()
		return tally{}, fmt.Errorf("worker %s did not end: %w", a.name, context.Cause(ctx))
	}
	a.cancel()
	if a.err != nil {
		return a.told, fmt.Errorf("worker %s: %w", a.name, a.err)
	}
	return a.told, nil
}
