package lab

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// brokenLock is a strategy of the tutorials: the account in Redis, the attack that
// breaks it, why it does, and the real row that does it right.
func brokenLock(name string, shows defect, by attack, open opener, why, cure string) strategy {
	return strategy{
		name: name, group: groupBroken, defect: shows, on: onRedis, why: why, cure: cure, attacks: []attack{by},
		open: open, ledger: openCells,
	}
}

// noLock is no lock at all.
//
// Why it breaks: two workers read the same balance, both add one to it, and the
// second write buries the first. The same with the last unit of a stock: both
// see it, both sell it.
// Cured by every real row; cheapest by a relative update under a constraint of
// the database, where the work allows it.
func noLock() strategy {
	return brokenLock("no lock", defectLost, overlap(), openLocked(func(setup) (locker, error) { return free{}, nil }),
		"both read before either writes; the second write buries the first",
		"any real lock, or the database constraint")
}

// free is a lock that is always free.
type free struct{}

func (free) lock(ctx context.Context, _ time.Duration) (hold, error) {
	return hold{ctx, func(context.Context) error { return nil }}, nil
}

func (free) close() error { return nil }

// localMutex is a sync.Mutex, or Java's synchronized, in a service that runs
// twice. The lab starts two real processes.
//
// Why it breaks: the mutex lives in the memory of one process. Each of the two
// lets one worker in, and the account gets two at a time.
// Cured by a lock that both processes see: the Redis hash.
func localMutex() strategy {
	s := brokenLock("local mutex, 2 processes", defectLost, overlap(), openLocked(func(setup) (locker, error) { return make(local, 1), nil }),
		"each process has a mutex of its own and lets one worker in",
		"redis hash")
	s.processes = true
	return s
}

// local is a mutex that can be waited for with a bound.
type local chan struct{}

func (l local) lock(ctx context.Context, wait time.Duration) (hold, error) {
	budget := time.NewTimer(wait)
	defer budget.Stop()
	select {
	case l <- struct{}{}:
		return hold{ctx, func(context.Context) error { <-l; return nil }}, nil
	case <-budget.C:
		return hold{}, errStuck
	case <-ctx.Done():
		return hold{}, context.Cause(ctx)
	}
}

func (local) close() error { return nil }

// checkThenSet asks whether the key is there and sets it if not.
//
// Why it breaks: two commands are not one. Between the GET that finds the lock
// free and the SET that takes it another worker's GET finds it free too.
// Cured by SET NX, which checks and sets in one command: the setnx store.
func checkThenSet() strategy {
	try := func(ctx context.Context, s *spin, owner string) (bool, error) {
		err := s.client.Get(ctx, s.key).Err()
		if err == nil {
			return false, nil
		}
		if !errors.Is(err, redis.Nil) {
			return false, err
		}
		if err := s.setup.pause(ctx, pointChecked); err != nil {
			return false, err
		}
		return true, s.client.Set(ctx, s.key, owner, s.setup.Lease).Err()
	}
	return brokenLock("check-then-set", defectLost, overlap(), openSpin(try, freeOwn),
		"two find the lock free before either has set it",
		"setnx store")
}

// setNXForever is SETNX without expiry, and DEL at the end.
//
// Why it breaks: the holder dies (killed, power cut, panic before the DEL), and
// no process is left to delete the key. All others wait for ever.
// Cured by an expiry set in the same command, kept alive by a watchdog while
// the holder lives: the setnx store, the Redis hash.
func setNXForever() strategy {
	try := func(ctx context.Context, s *spin, owner string) (bool, error) {
		return s.setNX(ctx, owner, 0)
	}
	return brokenLock("setnx, no expiry", defectDeadlock, crash(pointRead), openSpin(try, freeAnybodys),
		"the holder is killed, and its key stays for ever",
		"setnx store")
}

// setNXThenExpire is SETNX followed by EXPIRE.
//
// Why it breaks: the holder dies between the two commands, and the key has no
// expiry. The same as no expiry at all, only rarer, and therefore found later.
// Cured by SET NX PX, one command: the setnx store.
func setNXThenExpire() strategy {
	try := func(ctx context.Context, s *spin, owner string) (bool, error) {
		ok, err := s.setNX(ctx, owner, 0)
		if err != nil || !ok {
			return false, err
		}
		if err := s.setup.pause(ctx, pointHalf); err != nil {
			return false, err
		}
		return true, s.client.PExpire(ctx, s.key, s.setup.Lease).Err()
	}
	return brokenLock("setnx, then expire", defectDeadlock, crash(pointHalf), openSpin(try, freeOwn),
		"the holder is killed between SETNX and EXPIRE, and its key stays for ever",
		"setnx store")
}

// noWatchdog is a correct SETNX lock, SET NX PX and compare-and-delete, that
// is never renewed.
//
// Why it breaks: the work takes longer than the lease, which was guessed long
// before. The lock ends under its holder, which does not know, and the next one
// begins while the first has yet to write.
// Cured by a watchdog that renews while the holder lives, and a context that
// ends when the lock is lost: the Redis hash. Where a holder may be stopped
// altogether, by a fencing token checked in the transaction it protects.
func noWatchdog() strategy {
	return brokenLock("setnx, no watchdog", defectLost, outlive(), openSpin(tryExpiring, freeOwn),
		"the work outlives the lease, and the next one begins before it has written",
		"redis hash")
}

// noReentry is the same lock, taken again by its own holder: a method that
// locks calls another one that locks.
//
// Why it breaks: SET NX does not know whose key it meets. The holder waits for
// itself. (With a lease and no watchdog it waits until its own lock expires,
// and then goes on without it, which is worse; the lab's lease is longer than
// its wait.)
// Cured by an owner and a hold count: the Redis hash, and every store of the
// lock package.
func noReentry() strategy {
	return brokenLock("setnx, re-entered", defectDeadlock, reenter(), openSpin(tryExpiring, freeOwn),
		"the holder takes the lock again and waits for itself",
		"redis hash")
}

// noOwnerCheck is SET NX PX, and a plain DEL at the end.
//
// Why it breaks: a slow holder (a long pause after its write) outlives its
// lease. The next one takes the lock; then the slow one wakes up and deletes
// it, a lock that is not its own, and a third one walks in beside the second.
// Cured by comparing the owner before deleting, in one step: the setnx store.
func noOwnerCheck() strategy {
	return brokenLock("setnx, no owner check", defectLost, staleUnlock(pointWritten), openSpin(tryExpiring, freeAnybodys),
		"a slow holder deletes the lock of the one after it, and a third walks in",
		"setnx store")
}

// getThenDelete compares the owner, then deletes.
//
// Why it breaks: two commands are not one. The lease runs out between the GET
// that says "mine" and the DEL, another one takes the lock, and the DEL deletes
// theirs.
// Cured by a script that compares and deletes in one step: the setnx store.
func getThenDelete() strategy {
	release := func(ctx context.Context, s *spin, owner string) error {
		found, err := s.client.Get(ctx, s.key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if found != owner {
			return nil
		}
		if err := s.setup.pause(ctx, pointOwner); err != nil {
			return err
		}
		return s.client.Del(ctx, s.key).Err()
	}
	return brokenLock("setnx, GET then DEL", defectLost, staleUnlock(pointOwner), openSpin(tryExpiring, release),
		"the lease runs out between GET and DEL, and the DEL hits somebody else's lock",
		"setnx store")
}

// forUpdateLate locks the row with SELECT … FOR UPDATE, but only after it has
// read what it computes with.
//
// Why it breaks: the lock is real, and too late. Two transactions read the same
// balance without a lock; then they take turns at the row, and each writes the
// sum it had worked out before its turn. (Under REPEATABLE READ of a database
// with innodb_snapshot_isolation, the default of MariaDB 11.6, the second one
// gets error 1020 instead; at READ COMMITTED, as here and as in the product, it
// does not.)
// Cured by reading with FOR UPDATE in the first place, the stock strategy
// `pessimistic`; by comparing a version, `optimistic`; or by a relative UPDATE
// that states what it relies on, `conditional`.
func forUpdateLate() strategy {
	return strategy{
		name: "FOR UPDATE after the read", group: groupBroken, defect: defectLost, on: onMySQL,
		why:     "the row is locked after it was read: both write what they worked out before",
		cure:    "stock: pessimistic",
		attacks: []attack{overlap()},
		open:    openOnRow(sellForUpdateLate), ledger: openRow,
	}
}

func sellForUpdateLate(ctx context.Context, w onRow) (_ outcome, err error) {
	began := time.Now()
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return outcome{}, fmt.Errorf("begin a transaction: %w", err)
	}
	defer func() {
		if rolled := tx.Rollback(); !errors.Is(rolled, sql.ErrTxDone) {
			err = errors.Join(err, rolled)
		}
	}()
	found, err := w.readBy(ctx, tx, "SELECT balance, remaining FROM lab_accounts WHERE name = ?")
	if err != nil {
		return outcome{}, err
	}
	if err := w.setup.pause(ctx, pointRead); err != nil {
		return outcome{}, err
	}
	// The mistake: what it answers now is not looked at.
	if _, err := w.readBy(ctx, tx, "SELECT balance, remaining FROM lab_accounts WHERE name = ? FOR UPDATE"); err != nil {
		return outcome{}, err
	}
	sold := found.Remaining > 0
	if sold {
		found.Remaining--
	}
	err = w.write(ctx, tx, "UPDATE lab_accounts SET balance = ?, remaining = ? WHERE name = ?", found.Balance+1, found.Remaining)
	if err != nil {
		return outcome{}, err
	}
	if err := tx.Commit(); err != nil {
		return outcome{}, fmt.Errorf("commit: %w", err)
	}
	return outcome{Result: resultDone, Sold: sold, Waited: time.Since(began)}, nil
}
