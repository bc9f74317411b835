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

// locker takes a lock under test, as one process sees it; lock.ErrTimeout when it is
// not free within wait.
type locker = func(ctx context.Context, wait time.Duration) (hold, error)

// hold is a lock that is held.
type hold struct {
	ctx    context.Context //nolint:containedctx // for the work; it ends when the holder knows the lock is lost
	unlock func(ctx context.Context) error
}

// openLocked makes the opener of a strategy that is a lock.
func openLocked(open func(s setup) (locker, error)) opener {
	return func(s setup) (perform, error) {
		take, err := open(s)
		return locked{take, newCells(s), s}.perform, err
	}
}

// locked does the work under a lock: read, think, write.
type locked struct {
	take  locker
	cells cells
	setup setup
}

// perform turns the two errors that are findings into figures.
func (w locked) perform(ctx context.Context) (tally, error) {
	asked := time.Now()
	held, err := w.take(ctx, w.setup.Wait)
	told := answered(asked)
	if err == nil {
		held = w.setup.told(ctx, held)
		told.Sold, err = w.section(ctx, held)
		// Unlock also after a failure. The error of an unlock counts only beside that
		// failure: the figures tell whether it went well.
		if unlocked := held.unlock(context.WithoutCancel(ctx)); err != nil {
			err = errors.Join(err, unlocked)
		}
	}
	switch {
	case errors.Is(err, lock.ErrTimeout):
		told.Stuck = 1
	case errors.Is(err, errRefused):
		told.Refused = 1
	case err != nil:
		return tally{}, err
	default:
		told.Done = 1
	}
	return told, nil
}

// section is what happens inside the lock.
func (w locked) section(ctx context.Context, held hold) (sold int64, err error) {
	if w.setup.Reenter {
		inner, err := w.take(held.ctx, w.setup.Wait) //nolint:contextcheck // the owner travels in the context of what is held
		if err != nil {
			return 0, fmt.Errorf("lock once more inside the lock: %w", err)
		}
		defer func() { err = errors.Join(err, inner.unlock(context.WithoutCancel(ctx))) }()
	}
	found, err := w.cells.read(ctx)
	if err != nil {
		return 0, err
	}
	if err := w.setup.pause(ctx, pointRead); err != nil {
		return 0, err
	}
	if held.ctx.Err() != nil && ctx.Err() == nil {
		return 0, errRefused
	}
	sold = found.sell()
	if err := w.cells.write(ctx, found); err != nil {
		return 0, err
	}
	return sold, w.setup.pause(ctx, pointWritten)
}

// spinEvery is the pause between two tries, as the tutorials have it: a few
// milliseconds.
const spinEvery = 2 * time.Millisecond

// spin is the lock of the tutorials: try, pause, try again, until it works. Which
// worker comes next is luck, and every try is a command. The strategies differ in
// what try and free do.
type spin struct {
	setup
	client    *redis.Client
	key       string
	try, free step
}

// step takes or frees a spin's key for an owner, and says whether that worked.
type step = func(ctx context.Context, s spin, owner string) (bool, error)

func openSpin(try, free step) opener {
	return openLocked(func(s setup) (locker, error) {
		client, err := s.connect(s.Site.Redis)
		return spin{s, client, s.key("lock"), try, free}.lock, err
	})
}

func (s spin) lock(ctx context.Context, wait time.Duration) (hold, error) {
	owner := newID()
	budget, cancel := context.WithTimeoutCause(ctx, wait, lock.ErrTimeout)
	defer cancel()
	err := poll.Until(budget, spinEvery, func() (bool, error) { return s.try(ctx, s, owner) })
	if err != nil && errors.Is(err, budget.Err()) {
		err = context.Cause(budget)
	}
	return s.held(ctx, owner), err
}

// held is the owner's. The context is the caller's: these locks do not know when they are lost.
func (s spin) held(ctx context.Context, owner string) hold {
	return hold{ctx, func(ctx context.Context) error {
		_, err := s.free(ctx, s, owner)
		return err
	}}
}

// tryForever is SETNX without expiry.
func tryForever(ctx context.Context, s spin, owner string) (bool, error) {
	return s.client.SetNX(ctx, s.key, owner, 0).Result()
}

// tryExpiring is the one correct way to begin: value and expiry in one command.
func tryExpiring(ctx context.Context, s spin, owner string) (bool, error) {
	return s.client.SetNX(ctx, s.key, owner, s.Lease).Result()
}

// freeAnybodys deletes the key, whichever actor holds it by now.
func freeAnybodys(ctx context.Context, s spin, _ string) (bool, error) {
	return true, s.client.Del(ctx, s.key).Err()
}

// compareAndDelete deletes the key if it is still the owner's, in one step.
//
//	KEYS[1] the lock, ARGV[1] the owner; replies 1 deleted, 0 not the owner's
const compareAndDelete = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`

// freeOwn is the correct end of a SETNX lock.
func freeOwn(ctx context.Context, s spin, owner string) (bool, error) {
	return redis.NewScript(compareAndDelete).Run(ctx, s.client, []string{s.key}, owner).Bool()
}
