package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// rebuilders work at once: each waits for servers most of the time, and
	// after the loss of a whole Redis there are many vouchers to load.
	rebuilders = 4
	// rebuildTimeout bounds one rebuild: it waits for what is queued, which is
	// minutes at the worst, and a wish that waits behind it must have its turn.
	rebuildTimeout = 10 * time.Minute
	// rebuildAbandoned is how long a rebuild must have been silent before
	// somebody else takes it over: five of its heartbeats.
	rebuildAbandoned = 5 * time.Second
	// Back-off after a rebuild that failed: soon, because the sale is closed,
	// and not more often than a server in trouble can bear.
	rebuildRetryFirst = 500 * time.Millisecond
	rebuildRetryMost  = 10 * time.Second
)

// anyEpoch is later than any epoch.
const anyEpoch = math.MaxInt64

// errRebuilding says that somebody else is at it.
var errRebuilding = errors.New("another instance rebuilds this voucher")

// Rebuilder makes hot copies anew from the database and the queue. Any instance
// may: the database's compare-and-set decides who does. In one process a voucher
// is rebuilt once at a time.
type Rebuilder struct {
	deps   RebuilderDeps
	ready  chan struct{}       // one for each that waits
	places *semaphore.Weighted // of those that Run serves

	mu       sync.Mutex
	queue    [urgencies][]string      // oldest first; each voucher is in one of them
	waiting  map[string]rebuildWish   // in the queue
	running  map[string]*rebuildRun   // under way here
	begun    map[string]int64         // epochs this process began and did not finish
	failures map[string]rebuildFailed // since the latest success
}

// RebuilderDeps is what a Rebuilder works with.
type RebuilderDeps struct {
	Store   CopyStore
	Copies  LoadedCopies
	Queue   BacklogReader
	Modes   ModeReader
	Metrics *telemetry.Worker
	Log     *slog.Logger
}

// rebuildRun is a rebuild under way, for those who want the same one.
type rebuildRun struct {
	wrong int64 // it replaces copies up to that epoch
	done  chan struct{}
	err   error // once done is closed
}

type rebuildFailed struct {
	times int
	until time.Time
}

// NewRebuilder makes a Rebuilder; Run serves what is asked of it.
func NewRebuilder(deps RebuilderDeps) *Rebuilder {
	return &Rebuilder{
		deps: deps, ready: make(chan struct{}, urgencies*maxRebuildQueue), places: semaphore.NewWeighted(rebuilders),
		waiting: map[string]rebuildWish{}, running: map[string]*rebuildRun{},
		begun: map[string]int64{}, failures: map[string]rebuildFailed{},
	}
}

// quiet reports whether a rebuild ended because it is somebody else's, or
// nobody's any more.
func quiet(err error) bool { return elsewhere(err) || errors.Is(err, errNotSelling) }

// elsewhere reports whether a rebuild ended because somebody else is at it.
func elsewhere(err error) bool {
	return errors.Is(err, errRebuilding) || errors.Is(err, model.ErrSuperseded)
}

// Rebuild makes a voucher's hot copy anew, whatever it looks like, and returns
// when it is open. While another instance is at it, that is left alone and
// Rebuild returns at once, without an error.
func (r *Rebuilder) Rebuild(ctx context.Context, voucherID string) error {
	err := r.rebuild(ctx, voucherID, anyEpoch, place{})
	if elsewhere(err) {
		return nil
	}
	return err
}

// ensure loads a voucher's hot copy unless there is one.
func (r *Rebuilder) ensure(ctx context.Context, voucherID string) error {
	return r.rebuild(ctx, voucherID, 0, place{})
}

// Begin closes a voucher's hot copy at once and leaves the rest to Run. It
// answers NOT_FOUND, CONFLICT in another order mode, or UNAVAILABLE.
func (r *Rebuilder) Begin(ctx context.Context, voucherID string) error {
	_, err := r.begin(ctx, voucherID, anyEpoch)
	if err != nil && !elsewhere(err) {
		return err
	}
	r.Demand(voucherID)
	return nil
}

// Retire closes the copy of a voucher that is not sold now, unless it is open: a
// rebuild that was under way opens nothing any more. False: it is open, or another
// instance is at it.
func (r *Rebuilder) Retire(ctx context.Context, voucherID string) (bool, error) {
	job, err := r.begin(ctx, voucherID, 0)
	if elsewhere(err) {
		return false, nil
	}
	return job != nil, err
}

// rebuild joins the rebuild of a voucher that is under way, or does one. One that
// may have found nothing to do is waited for and not joined.
func (r *Rebuilder) rebuild(ctx context.Context, voucherID string, wrong int64, at place) error {
	run, mine := r.enter(voucherID, wrong)
	for ; !mine; run, mine = r.enter(voucherID, wrong) {
		if err := at.without(ctx, run.await); err != nil {
			return err
		}
		// One that was replaced, maybe from here, leaves the copy closed.
		if !elsewhere(run.err) && (run.err != nil || run.wrong >= wrong) {
			return run.err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, rebuildTimeout)
	defer cancel()
	run.err = r.perform(ctx, voucherID, wrong, at)
	r.note(voucherID, run)
	close(run.done)
	return run.err
}

func (r *rebuildRun) await(ctx context.Context) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return model.Unavailable("The hot copy is being rebuilt.", ctx.Err())
	}
}

// enter begins a rebuild, or returns the one that is under way.
func (r *Rebuilder) enter(voucherID string, wrong int64) (run *rebuildRun, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if run, busy := r.running[voucherID]; busy {
		return run, false
	}
	run = &rebuildRun{wrong: wrong, done: make(chan struct{})}
	r.running[voucherID] = run
	return run, true
}

// note remembers how a rebuild ended.
func (r *Rebuilder) note(voucherID string, run *rebuildRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, voucherID)
	if run.err == nil || quiet(run.err) {
		delete(r.failures, voucherID)
		return
	}
	failed := r.failures[voucherID]
	pause := min(rebuildRetryFirst<<min(failed.times, 10), rebuildRetryMost)
	r.failures[voucherID] = rebuildFailed{times: failed.times + 1, until: time.Now().Add(pause)}
}

func (r *Rebuilder) perform(ctx context.Context, voucherID string, wrong int64, at place) error {
	job, err := r.begin(ctx, voucherID, wrong)
	if err != nil || job == nil {
		return err
	}
	job.place = at
	ended := r.deps.Metrics.RebuildBegan()
	err = job.finish(ctx)
	switch {
	case err == nil:
		ended("done")
	case errors.Is(err, model.ErrSuperseded):
		ended("superseded")
	default:
		ended("failed")
	}
	if err != nil {
		return fmt.Errorf("rebuild voucher %s, epoch %d: %w", voucherID, job.record.Epoch, err)
	}
	r.forget(voucherID)
	return nil
}

func (r *Rebuilder) remember(voucherID string, epoch int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun[voucherID] = epoch
}

func (r *Rebuilder) forget(voucherID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.begun, voucherID)
}

// mine reports whether this process began an epoch and gave up on it.
func (r *Rebuilder) mine(voucherID string, epoch int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	began, ok := r.begun[voucherID]
	return ok && began == epoch
}
