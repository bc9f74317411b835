package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/lock"
)

// brokenLocks are the strategies of the tutorials. Tests have them, and the other broken ones, mended by hand, and want to
// hear that the defect does not show.
func brokenLocks(mended bool) []strategy {
	or := func(broken, mend opener) opener {
		if mended {
			return mend
		}
		return broken
	}
	right := openSpin(tryExpiring, freeOwn)
	// The lab starts two real processes, each with a mutex of its own.
	localMutex := brokenLock("local mutex, 2 processes", defectLost, overlap(),
		or(openLocked(func(setup) (locker, error) { return make(local, 1).lock, nil }), right),
		"each process has a mutex of its own and lets one worker in", "redis hash")
	localMutex.processes = true
	return []strategy{
		// The last unit of a stock goes the same way: both see it, both sell it. Where the
		// work allows it, the cheapest cure is a relative update under a constraint.
		brokenLock("no lock", defectLost, overlap(), or(openLocked(func(setup) (locker, error) { return noLock, nil }), right),
			"both read before either writes; the second write buries the first", "any real lock, or the database constraint"),
		localMutex,
		// SET NX checks and sets in one command.
		brokenLock("check-then-set", defectLost, overlap(), or(openSpin(getThenSet, freeOwn), right),
			"two find the lock free before either has set it", "setnx store"),
		// No process is left to delete the key. An expiry would end it, kept alive by a
		// watchdog while the holder lives.
		brokenLock("setnx, no expiry", defectDeadlock, crash(pointRead), or(openSpin(tryForever, freeAnybodys), right),
			"the holder is killed, and its key stays for ever", "setnx store"),
		// The same as no expiry at all, only rarer, and therefore found later.
		brokenLock("setnx, then expire", defectDeadlock, crash(pointHalf), or(openSpin(setThenExpire, freeOwn), openSpin(setExpiring, freeOwn)),
			"the holder is killed between SETNX and EXPIRE, and its key stays for ever", "setnx store"),
		// Comparing the owner and deleting must be one step.
		brokenLock("setnx, no owner check", defectLost, staleUnlock(pointWritten), or(openSpin(tryExpiring, freeAnybodys), right),
			"a slow holder deletes the lock of the one after it, and a third walks in", "setnx store"),
		brokenLock("setnx, GET then DEL", defectLost, staleUnlock(pointOwner), or(openSpin(tryExpiring, getThenDelete), openSpin(tryExpiring, freeOwnLate)),
			"the lease runs out between GET and DEL, and the DEL hits somebody else's lock", "setnx store"),
		// The holder is not told that its lease, guessed long before, is over. A watchdog
		// renews it, and a context ends when the lock is lost. Where a holder may be stopped
		// altogether, the cure is a fencing token checked in the transaction it protects.
		brokenLock("setnx, no watchdog", defectLost, outlive(), or(right, openWatched(renewOwn)),
			"the work outlives the lease, and the next one begins before it has written", "redis hash"),
		// SET NX does not know whose key it meets; an owner and a hold count do. The lab's
		// lease is longer than its wait: else the holder would wait until its own lock
		// expires and go on without it, which is worse.
		brokenLock("setnx, re-entered", defectDeadlock, reenter(), or(right, realLock("", onRedis, "", onOne(hashStore)).open),
			"the holder takes the lock again and waits for itself", "redis hash"),
		// At READ COMMITTED, as here and as in the product. (Under REPEATABLE READ with
		// innodb_snapshot_isolation, the default of MariaDB 11.6, the second one gets error
		// 1020.) A version to compare or a relative UPDATE cures it too.
		{
			name: "FOR UPDATE after the read", group: groupBroken, defect: defectLost, on: onMySQL,
			why:     "the row is locked after it was read: both write what they worked out before",
			cure:    "stock: pessimistic",
			attacks: []attack{overlap()},
			open:    openOnRow(sellForUpdateLate(mended)), ledger: openRow,
		},
	}
}

// brokenLock is one whose account is in Redis: the attack that breaks it, why it does,
// and the real row that does it right.
func brokenLock(name string, shows defect, by attack, open opener, why, cure string) strategy {
	return strategy{
		name: name, group: groupBroken, defect: shows, on: onRedis, why: why, cure: cure, attacks: []attack{by},
		open: open, ledger: openCells,
	}
}

// noLock is always free.
func noLock(ctx context.Context, _ time.Duration) (hold, error) {
	return hold{ctx, func(context.Context) error { return nil }}, nil
}

// local is a sync.Mutex, or Java's synchronized, that can be waited for with a bound.
type local chan struct{}

func (l local) lock(ctx context.Context, wait time.Duration) (hold, error) {
	budget, cancel := context.WithTimeoutCause(ctx, wait, lock.ErrTimeout)
	defer cancel()
	select {
	case l <- struct{}{}:
		return hold{ctx, func(context.Context) error { <-l; return nil }}, nil
	case <-budget.Done():
		return hold{}, context.Cause(budget)
	}
}

// getThenSet asks whether the key is there and sets it if not.
func getThenSet(ctx context.Context, s spin, owner string) (bool, error) {
	err := s.client.Get(ctx, s.key).Err()
	if !errors.Is(err, redis.Nil) {
		return false, err
	}
	if err := s.pause(ctx, pointChecked); err != nil {
		return false, err
	}
	return true, s.client.Set(ctx, s.key, owner, s.Lease).Err()
}

// setThenExpire is SETNX followed by EXPIRE.
func setThenExpire(ctx context.Context, s spin, owner string) (bool, error) {
	if ok, err := tryForever(ctx, s, owner); err != nil || !ok {
		return false, err
	}
	if err := s.pause(ctx, pointHalf); err != nil {
		return false, err
	}
	return true, s.client.PExpire(ctx, s.key, s.Lease).Err()
}

// getThenDelete compares the owner, then deletes.
func getThenDelete(ctx context.Context, s spin, owner string) (bool, error) {
	found, err := s.client.Get(ctx, s.key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, err
	}
	if found != owner {
		return false, nil
	}
	if err := s.pause(ctx, pointOwner); err != nil {
		return false, err
	}
	return true, s.client.Del(ctx, s.key).Err()
}

// setExpiring stands where setThenExpire does, and has set the expiry.
func setExpiring(ctx context.Context, s spin, owner string) (bool, error) {
	ok, err := tryExpiring(ctx, s, owner)
	if err == nil && ok {
		err = s.pause(ctx, pointHalf)
	}
	return ok, err
}

// freeOwnLate stands where getThenDelete does, and has not compared yet.
func freeOwnLate(ctx context.Context, s spin, owner string) (bool, error) {
	if err := s.pause(ctx, pointOwner); err != nil {
		return false, err
	}
	return freeOwn(ctx, s, owner)
}

// sellForUpdateLate locks the row with SELECT … FOR UPDATE, but only after it has
// read what it computes with.
func sellForUpdateLate(mended bool) func(ctx context.Context, r row, stand pause) (tally, error) {
	return func(ctx context.Context, r row, stand pause) (tally, error) {
		began := time.Now()
		tx, err := r.db.BeginTx(ctx, nil)
		if err != nil {
			return tally{}, fmt.Errorf("begin a transaction: %w", err)
		}
		defer func() { _ = tx.Rollback() }() // nothing after the commit
		found, err := r.readBy(ctx, tx, selectAccount)
		if err != nil {
			return tally{}, err
		}
		if err := stand(ctx, pointRead); err != nil {
			return tally{}, err
		}
		now, err := r.readBy(ctx, tx, selectAccount+" FOR UPDATE")
		if err != nil {
			return tally{}, err
		}
		if mended { // the mistake: what it answers now is not looked at
			found = now
		}
		sold := found.sell()
		err = r.write(ctx, tx, "UPDATE lab_accounts SET balance = ?, remaining = ? WHERE name = ?", found.Balance, found.Remaining)
		if err != nil {
			return tally{}, err
		}
		if err := tx.Commit(); err != nil {
			return tally{}, fmt.Errorf("commit: %w", err)
		}
		return done(began, sold), nil
	}
}
