package repair

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// electionWait is how long one attempt to be elected waits.
	electionWait = 2 * time.Second
	// electionPause is between two attempts while the lock cannot be asked for,
	// or kept.
	electionPause = time.Second
	// electionTerm is how long work that may be done without an election is done before
	// the lock is asked for again: what it cuts off has to be begun anew.
	electionTerm = 30 * time.Second
)

// election is for work that one instance does at a time, for the sake of economy: two
// that do it at once, because a lock was lost, only do the same work twice.
type election struct {
	locks model.Locker
	name  string // of the lock; other deployments on the same lock server have other names
	log   *slog.Logger
	// alone says that the work cannot wait for the lock server: while nobody can be
	// elected, every instance does it.
	alone   bool
	trouble telemetry.Trouble
}

// run works while this instance is elected, until ctx ends. The context of the work ends
// when the lock is lost.
func (e *election) run(ctx context.Context, work func(ctx context.Context)) {
	for ctx.Err() == nil {
		lease, err := e.locks.Lock(ctx, e.name, electionWait)
		if errors.Is(err, model.ErrLockBusy) {
			continue // another instance does it
		}
		if ctx.Err() == nil {
			e.trouble.Note(ctx, e.log, err, "the lock of exclusive work cannot be asked for; it is tried again",
				"the lock of exclusive work can be asked for again", slog.String("lock", e.name))
		}
		if err == nil {
			e.elected(ctx, lease, work)
		} else if e.alone {
			term, cancel := context.WithTimeout(ctx, electionTerm)
			work(term)
			cancel()
		}
		poll.Pause(ctx, electionPause)
	}
}

func (e *election) elected(ctx context.Context, lease model.Lease, work func(ctx context.Context)) {
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(lease.Context(), cancel)() //nolint:contextcheck // the lock has a life of its own
	work(working)
	if err := lease.Unlock(); err != nil {
		e.log.WarnContext(ctx, "a lock of exclusive work was not given back and ends by itself",
			slog.String("lock", e.name), slog.Any("error", err))
	}
}
