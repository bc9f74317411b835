package lab

import (
	"context"
	"time"
)

// localMutex is a sync.Mutex, or Java's synchronized, in a service that runs
// twice. The lab starts two real processes.
//
// Why it breaks: the mutex lives in the memory of one process. Each of the two
// lets one worker in, and the account gets two at a time.
// Cured by a lock that both processes see: the Redis hash.
func localMutex() strategy {
	return strategy{
		name: "local mutex, 2 processes", group: groupBroken, defect: defectLost, on: onRedis,
		why:       "each process has a mutex of its own and lets one worker in",
		cure:      "redis hash",
		attacks:   []attack{overlap()},
		processes: true,
		open:      openLocked(func(setup) (locker, error) { return make(local, 1), nil }), ledger: openCells,
	}
}

// local is a mutex that can be waited for with a bound.
type local chan struct{}

func (l local) lock(ctx context.Context, wait time.Duration) (hold, error) {
	budget := time.NewTimer(wait)
	defer budget.Stop()
	select {
	case l <- struct{}{}:
		return localHold{l, ctx}, nil
	case <-budget.C:
		return nil, errStuck
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (local) close() error { return nil }

type localHold struct {
	lock local
	ctx  context.Context //nolint:containedctx // what a hold is asked for
}

func (h localHold) context() context.Context { return h.ctx }

func (h localHold) unlock(context.Context) error {
	<-h.lock
	return nil
}
