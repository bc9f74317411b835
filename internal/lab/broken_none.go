package lab

import (
	"context"
	"time"
)

// noLock is no lock at all.
//
// Why it breaks: two workers read the same balance, both add one to it, and the
// second write buries the first. The same with the last unit of a stock: both
// see it, both sell it.
// Cured by every real row; cheapest by a relative update under a constraint of
// the database, where the work allows it.
func noLock() strategy {
	return strategy{
		name: "no lock", group: groupBroken, defect: defectLost, on: onRedis,
		why:     "both read before either writes; the second write buries the first",
		cure:    "any real lock, or the database constraint",
		attacks: []attack{overlap()},
		open:    openLocked(func(setup) (locker, error) { return free{}, nil }), ledger: openCells,
	}
}

// free is a lock that is always free.
type free struct{}

func (free) lock(ctx context.Context, _ time.Duration) (hold, error) { return freeHold{ctx}, nil }
func (free) close() error                                            { return nil }

type freeHold struct {
	ctx context.Context //nolint:containedctx // what a hold is asked for
}

func (h freeHold) context() context.Context   { return h.ctx }
func (freeHold) unlock(context.Context) error { return nil }
