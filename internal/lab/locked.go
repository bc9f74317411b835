package lab

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// locker is a lock under test, as one process sees it.
type locker interface {
	// lock takes the lock; errStuck when it is not free within wait.
	lock(ctx context.Context, wait time.Duration) (hold, error)
	close() error
}

// hold is a lock that is held.
type hold interface {
	// context is for the work; it ends when the holder knows the lock is lost.
	context() context.Context
	unlock(ctx context.Context) error
}

// openLocked makes the open function of a strategy that is a lock.
func openLocked(open func(s setup) (locker, error)) func(context.Context, setup) (performer, error) {
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
	// Also after a failure, and then the failure is what counts. What an unlock
	// answers is of no interest: the figures tell whether it went well.
	unlocked := held.unlock(context.WithoutCancel(ctx))
	if err != nil {
		return given(errors.Join(err, unlocked), waited)
	}
	return outcome{Result: resultDone, Sold: sold, Waited: waited}, nil
}

// section is what happens inside the lock.
func (w *locked) section(ctx context.Context, held hold) (sold bool, err error) {
	if w.setup.Reenter {
		inner, err := w.locker.lock(held.context(), w.setup.Wait) //nolint:contextcheck // the owner travels in the context of what is held
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
	if held.context().Err() != nil && ctx.Err() == nil {
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
