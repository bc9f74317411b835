package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// locker is a lock under test, as one process sees it.
type locker interface {
	// lock takes the lock; errStuck when it is not free within wait.
	lock(ctx context.Context, wait time.Duration) (hold, error)
	close() error
}

// hold is a lock that is held.
type hold struct {
	ctx    context.Context //nolint:containedctx // for the work; it ends when the holder knows the lock is lost
	unlock func(ctx context.Context) error
}

// openLocked makes the open function of a strategy that is a lock.
func openLocked(open func(s setup) (locker, error)) opener {
	return func(_ context.Context, s setup) (performer, error) {
		l, err := open(s)
		if err != nil {
			return nil, err
		}
		cells, err := newCells(s)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		return &locked{locker: l, cells: cells, setup: s}, nil
	}
}

// locked does the work under a lock: read, think, write.
type locked struct {
	locker locker
	cells  *cells
	setup  setup
}

func (w *locked) close() error { return errors.Join(w.locker.close(), w.cells.close()) }

func (w *locked) perform(ctx context.Context) (outcome, error) {
	asked := time.Now()
	held, err := w.locker.lock(ctx, w.setup.Wait)
	waited := time.Since(asked)
	if err != nil {
		return given(err, waited)
	}
	sold, err := w.section(ctx, held)
	// Unlock also after a failure. The error of an unlock counts only beside that
	// failure: the figures tell whether it went well.
	unlocked := held.unlock(context.WithoutCancel(ctx))
	if err != nil {
		return given(errors.Join(err, unlocked), waited)
	}
	return outcome{Result: resultDone, Sold: sold, Waited: waited}, nil
}

// section is what happens inside the lock.
func (w *locked) section(ctx context.Context, held hold) (sold bool, err error) {
	if w.setup.Reenter {
		inner, err := w.locker.lock(held.ctx, w.setup.Wait) //nolint:contextcheck // the owner travels in the context of what is held
		if err != nil {
			return false, fmt.Errorf("lock once more inside the lock: %w", err)
		}
		defer func() { err = errors.Join(err, inner.unlock(context.WithoutCancel(ctx))) }()
	}
	found, err := w.cells.read(ctx)
	if err != nil {
		return false, err
	}
	if err := w.setup.pause(ctx, pointRead); err != nil {
		return false, err
	}
	if held.ctx.Err() != nil && ctx.Err() == nil {
		return false, errRefused
	}
	found.Balance++
	if sold = found.Remaining > 0; sold {
		found.Remaining--
	}
	if err := w.cells.write(ctx, found); err != nil {
		return false, err
	}
	return sold, w.setup.pause(ctx, pointWritten)
}

// given turns the two errors that are findings into outcomes.
func given(err error, waited time.Duration) (outcome, error) {
	switch {
	case errors.Is(err, errStuck):
		return outcome{Result: resultStuck, Waited: waited}, nil
	case errors.Is(err, errRefused):
		return outcome{Result: resultRefused, Waited: waited}, nil
	}
	return outcome{}, err
}

// spinEvery is the pause between two tries, as the tutorials have it: a few
// milliseconds.
const spinEvery = 2 * time.Millisecond

// spin is the lock of the tutorials: try, pause, try again, until it works. Which
// worker comes next is luck, and every try is a command. The strategies differ in
// what try and free do.
type spin struct {
	client *redis.Client
	key    string
	setup  setup
	try    func(ctx context.Context, s *spin, owner string) (bool, error)
	free   func(ctx context.Context, s *spin, owner string) error
}

func openSpin(
	try func(ctx context.Context, s *spin, owner string) (bool, error),
	free func(ctx context.Context, s *spin, owner string) error,
) opener {
	return openLocked(func(s setup) (locker, error) {
		client, err := newClient(s.Site.Redis, s.commands)
		if err != nil {
			return nil, err
		}
		return &spin{client: client, key: lockName(s), setup: s, try: try, free: free}, nil
	})
}

func (s *spin) lock(ctx context.Context, wait time.Duration) (hold, error) {
	owner := newID()
	budget := time.NewTimer(wait)
	defer budget.Stop()
	again := time.NewTicker(spinEvery)
	defer again.Stop()
	for {
		ok, err := s.try(ctx, s, owner)
		if err != nil {
			return hold{}, err
		}
		if ok {
			// The caller's context: these locks do not know when they are lost.
			return hold{ctx, func(ctx context.Context) error { return s.free(ctx, s, owner) }}, nil
		}
		select {
		case <-again.C:
		case <-budget.C:
			return hold{}, errStuck
		case <-ctx.Done():
			return hold{}, context.Cause(ctx)
		}
	}
}

func (s *spin) close() error { return s.client.Close() }

// setNX is SET key owner NX, with an expiry unless it is 0.
func (s *spin) setNX(ctx context.Context, owner string, expiry time.Duration) (bool, error) {
	err := s.client.SetArgs(ctx, s.key, owner, redis.SetArgs{Mode: "NX", TTL: expiry}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

// tryExpiring is the one correct way to begin: value and expiry in one command.
func tryExpiring(ctx context.Context, s *spin, owner string) (bool, error) {
	return s.setNX(ctx, owner, s.setup.Lease)
}

// freeAnybodys deletes the key, whichever actor holds it by now.
func freeAnybodys(ctx context.Context, s *spin, _ string) error {
	return s.client.Del(ctx, s.key).Err()
}

// compareAndDelete deletes the key if it is still the owner's, in one step.
//
//	KEYS[1] the lock, ARGV[1] the owner; replies 1 deleted, 0 not the owner's
const compareAndDelete = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`

// freeOwn is the correct end of a SETNX lock.
func freeOwn(ctx context.Context, s *spin, owner string) error {
	return redis.NewScript(compareAndDelete).Run(ctx, s.client, []string{s.key}, owner).Err()
}
