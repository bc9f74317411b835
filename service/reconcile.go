package service

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// reconcileEvery is the pause between two looks: a lost Redis is noticed
	// within it, and a look at a quiet system takes a millisecond.
	reconcileEvery = 500 * time.Millisecond
	// reconcileTimeout bounds one part of a look, so that a server that hangs
	// holds up the other parts for no longer than the lock's lease.
	reconcileTimeout = 10 * time.Second
	// electionWait is how long one attempt to be elected waits.
	electionWait = 2 * time.Second
	// electionPause is between two attempts while the lock cannot be asked for,
	// or kept.
	electionPause = time.Second
	// findChunk is how many rows are read by id, or copies, at once.
	findChunk = 500
)

// WatchedCopies are the records of vouchers that are worth looking at.
type WatchedCopies interface {
	// Watched lists those whose copies must be there, those on sale first.
	Watched(ctx context.Context) ([]model.EpochRecord, error)
	Read(ctx context.Context, ids []string) (map[string]model.EpochRecord, error)
}

// CopyKeeper is what the reconciler asks of rebuilds.
type CopyKeeper interface {
	CopyDoctor
	// Found is Request for a copy that nobody has asked for.
	Found(voucherID string, selling bool)
	// Retire closes a copy that is not needed now, unless it is open: false.
	Retire(ctx context.Context, voucherID string) (bool, error)
}

// Reconciler puts right what dead processes and lost copies have left behind.
// One instance does it; two at once only do the same work twice.
type Reconciler struct {
	deps  ReconcilerDeps
	name  string
	relay *relay
	due   *overdue
	drift *driftWatch
	list  watchlist

	mu       sync.Mutex
	troubled map[string]bool // parts that failed at the latest look
}

// ReconcilerDeps is what a Reconciler works with.
type ReconcilerDeps struct {
	Locks      Locker
	Deployment string // of the database, so that deployments sharing a lock server are not rivals
	Mode       ModeWatch
	Releases   ReleaseStore
	Records    WatchedCopies
	Vouchers   VoucherReader
	Rows       RowFinder
	Copies     ReconciledCopies
	Intents    StockIntents
	Queue      RepublishQueue
	Settler    *Settler
	Rebuilds   CopyKeeper
	Auditor    *Auditor
	Metrics    *telemetry.Worker
	Log        *slog.Logger
}

// ReconciledCopies is what the reconciler asks of hot copies.
type ReconciledCopies interface {
	AppliedCopies
	// Incarnation is another word whenever a Redis may have lost what it had.
	Incarnation(ctx context.Context) (string, error)
	// Quiet tells of each copy whether it is loaded and has nothing reserved.
	Quiet(ctx context.Context, records []model.EpochRecord) []bool
	Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error)
	// Due lists reservations of the open epoch that are older, by Redis' clock.
	Due(ctx context.Context, voucherID string, olderThan time.Duration, limit int) ([]model.Reservation, error)
	// Touch makes reservations young again.
	Touch(ctx context.Context, reservations []model.Reservation) error
}

// NewReconciler makes a Reconciler.
func NewReconciler(deps ReconcilerDeps) *Reconciler {
	return &Reconciler{
		deps: deps, name: "seckill:reconciler:" + deps.Deployment,
		relay: &relay{
			store: deps.Releases, rows: deps.Rows, vouchers: deps.Vouchers, rebuilds: deps.Rebuilds, settler: deps.Settler,
			metrics: deps.Metrics,
		},
		due: &overdue{
			rows: deps.Rows, copies: deps.Copies, queue: deps.Queue, settler: deps.Settler,
			metrics: deps.Metrics, log: deps.Log,
		},
		drift:    newDriftWatch(deps.Auditor, deps.Settler, deps.Rebuilds, deps.Metrics, deps.Log),
		troubled: map[string]bool{},
	}
}

// Run reconciles while this instance is elected, until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	for ctx.Err() == nil {
		lease, err := r.deps.Locks.Lock(ctx, r.name, electionWait)
		r.report(ctx, "election", err, errors.Is(err, ErrLockBusy))
		if err != nil {
			if !errors.Is(err, ErrLockBusy) {
				pause(ctx, electionPause)
			}
			continue
		}
		r.reign(ctx, lease)
		pause(ctx, electionPause)
	}
}

// reign reconciles until the lock is lost or ctx ends.
func (r *Reconciler) reign(ctx context.Context, lease Lease) {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(lease.Context(), cancel)() //nolint:contextcheck // the lock has a life of its own
	r.deps.Metrics.Elected(true)
	r.deps.Log.InfoContext(ctx, "this instance reconciles")
	r.list = watchlist{} // whatever was known is old
	var drifting sync.WaitGroup
	drifting.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			r.part(ctx, "drift", r.lookForDrift)
			pause(ctx, driftRest(time.Since(began)))
		}
	})
	for ctx.Err() == nil {
		r.look(ctx)
		pause(ctx, reconcileEvery)
	}
	cancel()
	drifting.Wait()
	r.deps.Metrics.Elected(false)
	if err := lease.Unlock(); err != nil {
		r.deps.Log.WarnContext(ctx, "the reconciler's lock was not given back and ends by itself", slog.Any("error", err))
	}
}

// look takes one look at everything.
func (r *Reconciler) look(ctx context.Context) {
	if r.deps.Mode.Selling() != nil {
		return // closed on purpose: what is left is done when it opens
	}
	r.part(ctx, "returned units", r.relay.pass)
	r.part(ctx, "stock intents", r.dropIntents)
	r.part(ctx, "hot copies", r.watch)
}

// part runs one part of a look; the others do not depend on it.
func (r *Reconciler) part(ctx context.Context, name string, do func(context.Context) error) {
	if ctx.Err() != nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	err := do(limited)
	r.report(ctx, name, err, ctx.Err() != nil)
}

// report says once that a part is in trouble, and once that it no longer is.
func (r *Reconciler) report(ctx context.Context, name string, err error, expected bool) {
	if expected {
		return
	}
	r.mu.Lock()
	before := r.troubled[name]
	r.troubled[name] = err != nil
	r.mu.Unlock()
	switch {
	case err != nil && !before:
		r.deps.Log.WarnContext(ctx, "the reconciler is in trouble and goes on trying",
			slog.String("part", name), slog.Any("error", err))
	case err == nil && before:
		r.deps.Log.InfoContext(ctx, "the reconciler is out of trouble", slog.String("part", name))
	}
}

func (r *Reconciler) lookForDrift(ctx context.Context) error {
	if selling := r.deps.Mode.Selling() == nil; !selling {
		return nil
	}
	return r.drift.look(ctx)
}

// pause waits, but not beyond the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// chunks yields a slice in parts.
func chunks[T any](all []T, size int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(all) > 0 {
			part := all[:min(len(all), size)]
			all = all[len(part):]
			if !yield(part) {
				return
			}
		}
	}
}
