package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
	// watchedLeases are those of a holder whose watchdog must keep it. A machine
	// may stall for longer than one, and then the holder is rightly refused: only
	// who loses all of them, each twice the one before, has no watchdog.
	watchedLease, watchedLeases = attackLease, 4
	// calmLease is the lease of all other actors: longer than any attack.
	calmLease = 30 * time.Second
	// absence is how long the lab watches for what must not happen. A broken
	// strategy shows it within a round trip.
	absence = 250 * time.Millisecond
	// certain is how long the lab waits for what must happen.
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

// clear ends the workers that an error left behind, and waits for them: what
// they hold and write must be over before the lab removes its keys.
func (a *arena) clear() {
	for _, w := range a.workers {
		w.kill()
		for !w.over {
			_, ok := <-w.points
			w.over = !ok
		}
	}
}

// forbidden is how long to wait for what only a broken strategy lets happen:
// it surely comes with those, and must not come with the others.
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

// crashAt starts a holder and kills it at a point. One that was refused before
// it got there, because its lease was too short for a stalling machine, is
// followed by another with a longer one.
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

// staleUnlock: A writes, its lease runs out before it unlocks, B takes the lock
// and reads; A unlocks; C tries. A stands still once it has written, or in the
// middle of its unlock, where it must get before its lease has run out.
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

// bothWait waits until two statements of this schema are stuck, or, where the
// database does not tell, for the time in which they surely are.
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
