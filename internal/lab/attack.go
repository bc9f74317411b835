package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
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
	// unlockLease leaves a worker on a busy machine the time to get to its unlock.
	unlockLease = 4 * attackLease
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
	// deadlockAfter: three leases of a holder that is gone. An actor that has
	// waited that long will wait for ever.
	deadlockAfter = 3 * attackLease
)

// arena is one attack on one strategy, with an account and a stock of its own.
type arena struct {
	strategy strategy
	setup    setup
	start    func(ctx context.Context, name string, s strategy, with setup) *actor // in this process
	child    func(ctx context.Context, name string, s strategy, with setup) *actor // in another one
	watched  time.Duration                                                         // the lease of a holder whose watchdog must keep it
	tally    tally
	workers  []*actor
}

// worker starts a worker with the settings of the arena, changed by change.
func (a *arena) worker(ctx context.Context, name string, change func(*setup)) *actor {
	with := a.setup
	if change != nil {
		change(&with)
	}
	start := a.start
	if a.strategy.processes {
		start = a.child
	}
	return a.remember(start(ctx, name, a.strategy, with))
}

// victim starts a worker in a process of its own, to be killed.
func (a *arena) victim(ctx context.Context, name string, change func(*setup)) *actor {
	with := a.setup
	change(&with)
	return a.remember(a.child(ctx, name, a.strategy, with))
}

func (a *arena) remember(w *actor) *actor {
	a.workers = append(a.workers, w)
	return w
}

// clear ends the workers that an error left behind, and waits for them, because the
// lab then removes the keys that they hold and write.
func (a *arena) clear() {
	for _, w := range a.workers {
		w.kill()
		for !w.over {
			_, ok := <-w.points
			w.over = !ok
		}
	}
}

// forbidden is how long to wait for an event that only a broken strategy lets
// happen: until it comes with those, and for d with the others.
func (a *arena) forbidden(d time.Duration) time.Duration {
	if a.strategy.defect == defectLost {
		return certain
	}
	return d
}

// finish ends workers one after the other and counts what they did.
func (a *arena) finish(ctx context.Context, workers ...*actor) error {
	for _, w := range workers {
		done, err := w.finish(ctx)
		if err != nil {
			return err
		}
		a.tally.add(done)
	}
	return nil
}

// fixedLease is one that is never renewed.
func fixedLease(d time.Duration) func(*setup) {
	return func(s *setup) { s.Lease, s.Fixed = d, true }
}

// overlap: A and B both find the lock free, or are both inside, before either
// goes on.
func overlap() attack {
	return attack{name: "two at once", stock: 1, run: func(ctx context.Context, a *arena) error {
		first := a.worker(ctx, "A", nil)
		first.to(ctx, certain, pointChecked, pointRead)
		second := a.worker(ctx, "B", nil)
		second.to(ctx, a.forbidden(absence), pointChecked, pointRead)
		first.to(ctx, certain, pointRead)
		second.to(ctx, a.forbidden(absence), pointRead)
		return a.finish(ctx, first, second)
	}}
}

// crash: a process of its own is killed at a point; then B wants the lock.
func crash(at point) attack {
	return attack{name: "crashed holder", stock: 1, run: func(ctx context.Context, a *arena) error {
		if err := a.crashAt(ctx, at); err != nil {
			return err
		}
		return a.finish(ctx, a.worker(ctx, "B", func(s *setup) {
			if a.strategy.defect == defectDeadlock {
				s.Wait = deadlockAfter
			}
		}))
	}}
}

// crashAt starts a holder and kills it at a point. A holder that is refused before it
// gets there had too short a lease for a stalling machine; the next one has a longer
// lease.
func (a *arena) crashAt(ctx context.Context, at point) error {
	lease := attackLease
	for range watchedLeases {
		victim := a.victim(ctx, "A", func(s *setup) { s.Lease = lease })
		if victim.to(ctx, certain, at) {
			victim.kill()
			return nil
		}
		done, err := victim.finish(ctx)
		if err != nil {
			return err
		}
		if done.Result != resultRefused {
			return fmt.Errorf("the holder that was to be killed did not get to %q: %s", at, done.Result)
		}
		lease *= 2
	}
	return fmt.Errorf("the holder that was to be killed did not get to %q before its lease was over", at)
}

// staleUnlock: A writes, and its lease runs out before it unlocks. B takes the lock
// and reads. A unlocks. C tries. A stands still once it has written, or in the middle
// of its unlock, which it must reach before its lease has run out.
func staleUnlock(at point) attack {
	lease := attackLease
	if at == pointOwner {
		lease = unlockLease
	}
	return attack{name: "late unlock", stock: 2, lapses: true, run: func(ctx context.Context, a *arena) error {
		slow := a.worker(ctx, "A", fixedLease(lease))
		slow.to(ctx, certain, at)
		second := a.worker(ctx, "B", nil)
		second.to(ctx, certain, pointRead)
		if err := a.finish(ctx, slow); err != nil {
			return err
		}
		third := a.worker(ctx, "C", nil)
		third.to(ctx, a.forbidden(absence), pointRead)
		return a.finish(ctx, second, third)
	}}
}

// outlive: A is inside for three leases; B wants in.
func outlive() attack {
	return attack{name: "work longer than the lease", stock: 1, run: func(ctx context.Context, a *arena) error {
		slow := a.worker(ctx, "A", func(s *setup) { s.Lease = a.watched })
		slow.to(ctx, certain, pointRead)
		second := a.worker(ctx, "B", nil)
		second.to(ctx, a.forbidden(3*a.watched), pointRead)
		return a.finish(ctx, slow, second)
	}}
}

// reenter: the holder takes the lock once more.
func reenter() attack {
	return attack{name: "re-entry", stock: 1, run: func(ctx context.Context, a *arena) error {
		return a.finish(ctx, a.worker(ctx, "A", func(s *setup) {
			s.Reenter = true
			if a.strategy.defect == defectDeadlock {
				s.Wait = deadlockAfter
			}
		}))
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
	return attack{name: "two at once", stock: 1, run: func(ctx context.Context, a *arena) (err error) {
		tx, err := a.setup.db.SQL().BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("hold the row: %w", err)
		}
		defer func() {
			if rolled := tx.Rollback(); !errors.Is(rolled, sql.ErrTxDone) {
				err = errors.Join(err, rolled)
			}
		}()
		mysql := isMySQL(a.setup.db)
		if mysql {
			var id string
			if err := tx.QueryRowContext(ctx, "SELECT id FROM vouchers WHERE id = ? FOR UPDATE", a.setup.Name).Scan(&id); err != nil {
				return fmt.Errorf("hold the row: %w", err)
			}
		}
		first, second := a.worker(ctx, "A", nil), a.worker(ctx, "B", nil)
		if err := bothWait(ctx, a.setup.db.SQL(), mysql); err != nil {
			return err
		}
		if err := tx.Rollback(); err != nil {
			return fmt.Errorf("let go of the row: %w", err)
		}
		return a.finish(ctx, first, second)
	}}
}

// bothWait waits until two statements of this schema are stuck. Where the database
// does not tell, it waits for as long as that takes at the most.
func bothWait(ctx context.Context, db *sql.DB, tells bool) error {
	ctx, cancel := context.WithTimeout(ctx, absence)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !tells {
			continue
		}
		var running int
		err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.processlist"+
			" WHERE db = DATABASE() AND command = 'Query' AND id <> CONNECTION_ID()").Scan(&running)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("ask who waits: %w", err)
		}
		if running >= 2 {
			return nil
		}
	}
}

// actor is a worker of an attack. It does one unit of work and stops at every
// point until it is let go.
type actor struct {
	name    string
	points  <-chan point // closed when the work is over
	release func()       // lets it go on from the point at which it stands
	kill    func()       // ends it as a power cut would
	end     func() (outcome, error)

	standing bool
	over     bool
}

// to lets the actor go on until it stands at one of the points. False when it
// did not get there: its work is over, or the patience is.
func (a *actor) to(ctx context.Context, patience time.Duration, points ...point) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !a.over {
		a.next()
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

// next releases the actor if it stands.
func (a *actor) next() {
	if a.standing {
		a.standing = false
		a.release()
	}
}

// finish lets the actor end its work.
func (a *actor) finish(ctx context.Context) (outcome, error) {
	for !a.over {
		a.next()
		select {
		case _, ok := <-a.points:
			a.standing, a.over = ok, !ok
		case <-ctx.Done():
			a.kill()
			return outcome{}, fmt.Errorf("worker %s did not end: %w", a.name, context.Cause(ctx))
		}
	}
	done, err := a.end()
	if err != nil {
		return done, fmt.Errorf("worker %s: %w", a.name, err)
	}
	return done, nil
}

// newActor starts an actor. Its work calls stand at every point.
func newActor(ctx context.Context, name string, work func(ctx context.Context, stand pause) (outcome, error)) *actor {
	ctx, cancel := context.WithCancel(ctx)
	points, let := make(chan point), make(chan struct{})
	stand := func(ctx context.Context, p point) error {
		select {
		case points <- p:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-let:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	var done outcome
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(points)
		defer close(ended)
		done, failed = work(ctx, stand)
	}()
	return &actor{
		name: name, points: points,
		release: func() {
			select {
			case let <- struct{}{}:
			case <-ended:
			}
		},
		kill: func() {
			cancel()
			<-ended
		},
		end: func() (outcome, error) {
			<-ended
			cancel()
			return done, failed
		},
	}
}

// actHere starts an actor in this process.
func actHere(ctx context.Context, name string, s strategy, with setup) *actor {
	return newActor(ctx, name, func(ctx context.Context, stand pause) (outcome, error) {
		with.pause = stand
		return performOnce(ctx, s, with)
	})
}

// performOnce opens a performer for one unit of work.
func performOnce(ctx context.Context, s strategy, with setup) (done outcome, err error) {
	worker, err := s.open(ctx, with)
	if err != nil {
		return outcome{}, err
	}
	defer func() {
		if closed := worker.close(); err == nil {
			err = closed
		}
	}()
	return worker.perform(ctx)
}
