package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/poll"
	"seckill/lock"
)

// brokenHolds are the mistakes of who holds a lock in Redis, or thinks so.
func brokenHolds(mended bool) []strategy {
	renew, stamp, unlock := renewAnybodys, []step{tryStamped, freeStamped}, freeAnybodys
	if mended {
		renew, stamp, unlock = renewOwn, []step{tryExpiring, freeOwn}, nil
	}
	return []strategy{
		brokenLock("watchdog, no owner check", defectDeadlock, renewedByOther(), openWatched(renew),
			"who lost the lock renews the key of the one after it, also when that is dead", "redis hash"),
		brokenLock("value is a time", defectLost, staleUnlock(pointWritten), openSpin(stamp[0], stamp[1]),
			"the lock knows until when it is held and not by whom: a slow holder frees that of the one after it", "setnx store"),
		brokenLock("finally without the lock", defectLost, freedByLoser(), openTry(unlock, true),
			"who did not get the lock frees it all the same", "redis hash"),
		brokenLock("gives up at once", defectUnserved, turnedAway(), openTry(nil, mended),
			"who finds the lock held is told no, although there are units left", "redis hash"),
	}
}

const (
	// renewAnybodys and renewOwn prolong a key. KEYS[1] the lock, ARGV[1] the owner, ARGV[2] ms.
	renewAnybodys = `return redis.call('pexpire', KEYS[1], ARGV[2])`
	renewOwn      = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`
)

// openWatched is a SETNX lock with a watchdog. A worker stands between taking the lock and starting that.
func openWatched(renew string) opener {
	return openLocked(func(s setup) (locker, error) {
		client, err := s.connect(s.Site.Redis)
		return func(ctx context.Context, wait time.Duration) (hold, error) {
			watching, stop := context.WithCancel(context.WithoutCancel(ctx))
			key := spin{s, client, s.key("lock"), nil, nil}
			key.try = func(ctx context.Context, s spin, owner string) (bool, error) {
				if ok, err := tryExpiring(ctx, s, owner); err != nil || !ok {
					return false, err
				}
				if err := s.pause(ctx, pointHalf); err != nil {
					return false, err
				}
				go poll.Every(watching, s.Lease/renewals, func() {
					_ = redis.NewScript(renew).Run(watching, client, []string{s.key}, owner, s.Lease.Milliseconds()).Err()
				})
				return true, nil
			}
			key.free = func(ctx context.Context, s spin, owner string) (bool, error) {
				stop()
				return freeOwn(ctx, s, owner)
			}
			held, err := key.lock(ctx, wait)
			if err != nil {
				stop()
			}
			return held, err
		}, err
	})
}

// renewals in a lease: one may fail.
const renewals = 3

// renewedByOther: A's lock runs out before its watchdog begins. B takes it, and is killed after
// A's watchdog has begun. C wants it.
func renewedByOther() attack {
	return attack{name: "renewed by another", stock: 1, lapses: true, run: func(ctx context.Context, a *arena) error {
		watched := func(s *setup) { s.Lease = a.watched }
		slow := a.worker(ctx, "A", watched)
		slow.to(ctx, certain, pointHalf)
		victim := a.worker(ctx, "B", watched, func(s *setup) { s.ownProcess = true })
		if !victim.to(ctx, certain, pointRead) {
			return fmt.Errorf("the holder that was to be killed did not get the lock: %w", victim.err)
		}
		slow.to(ctx, certain, pointRead)
		victim.kill()
		third := a.worker(ctx, "C", func(s *setup) { s.Wait = a.lastWait() })
		return errors.Join(a.finish(ctx, third), a.finish(ctx, slow))
	}}
}

// tryStamped is the lock of old tutorials: the value says until when it is held, and who finds that past takes over.
func tryStamped(ctx context.Context, s spin, _ string) (bool, error) {
	until := time.Now().Add(s.Lease).UnixMilli()
	if ok, err := s.client.SetNX(ctx, s.key, until, 0).Result(); err != nil || ok {
		return ok, err
	}
	found, err := s.client.Get(ctx, s.key).Int64()
	if err != nil || found > time.Now().UnixMilli() {
		return false, ignoreNil(err)
	}
	before, err := s.client.SetArgs(ctx, s.key, until, redis.SetArgs{Get: true}).Result()
	return before == fmt.Sprint(found), ignoreNil(err)
}

// freeStamped frees the lock if it has not run out. Whose it is the value does not say.
func freeStamped(ctx context.Context, s spin, _ string) (bool, error) {
	until, err := s.client.Get(ctx, s.key).Int64()
	if err != nil || until <= time.Now().UnixMilli() {
		return false, ignoreNil(err)
	}
	return true, s.client.Del(ctx, s.key).Err()
}

func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// openTry is a lock that is tried, or waited for. Who does not get it is refused, after the step of its finally.
func openTry(finally step, waits bool) opener {
	return openLocked(func(s setup) (locker, error) {
		client, err := s.connect(s.Site.Redis)
		key := spin{s, client, s.key("lock"), tryExpiring, freeOwn}
		return func(ctx context.Context, wait time.Duration) (hold, error) {
			if !waits {
				owner := newID()
				ok, err := tryExpiring(ctx, key, owner)
				if err == nil && !ok {
					err = errRefused
				}
				return key.held(ctx, owner), err
			}
			held, err := key.lock(ctx, wait)
			if !errors.Is(err, lock.ErrTimeout) {
				return held, err
			}
			if finally != nil {
				_ = s.pause(ctx, pointGiven)
				_, err = finally(ctx, key, "")
			}
			return hold{}, errors.Join(errRefused, err)
		}, err
	})
}

// tryOnce is over before A goes on.
const tryOnce = spinEvery / 2

// freedByLoser: B does not get A's lock and goes. C wants in.
func freedByLoser() attack {
	return attack{name: "unlocked by who had not locked", stock: 1, lapses: true, run: func(ctx context.Context, a *arena) error {
		first := a.worker(ctx, "A")
		first.to(ctx, certain, pointRead)
		if err := a.finish(ctx, a.worker(ctx, "B", func(s *setup) { s.Wait = tryOnce })); err != nil {
			return err
		}
		third := a.worker(ctx, "C")
		third.to(ctx, a.forbidden(absence), pointRead)
		return a.finish(ctx, first, third)
	}}
}

// turnedAway: B wants the lock while A has it; there is a unit for each.
func turnedAway() attack {
	return attack{name: "asked while it is held", stock: 2, run: func(ctx context.Context, a *arena) error {
		first := a.worker(ctx, "A")
		first.to(ctx, certain, pointRead)
		second := a.worker(ctx, "B")
		second.to(ctx, a.forbidden(absence), pointRead)
		return a.finish(ctx, first, second)
	}}
}
