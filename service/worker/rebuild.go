package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"seckill/internal/poll"
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
	// another instance takes it over: five of its heartbeats.
	rebuildAbandoned = 5 * time.Second
	// Back-off after a rebuild that failed: soon, because the sale is closed,
	// and not more often than a server in trouble can bear.
	rebuildRetryFirst = 500 * time.Millisecond
	rebuildRetryMost  = 10 * time.Second
	// maxRebuildQueue bounds the wishes of each urgency that wait; what is left out
	// the reconciler's next look asks for again.
	maxRebuildQueue = 1024
)

// anyEpoch is later than any epoch.
const anyEpoch = math.MaxInt64

// errRebuilding says that another instance is at it.
var errRebuilding = errors.New("another instance rebuilds this voucher")

// Rebuilder makes hot copies anew from the database and the queue. Any instance
// may: the database's compare-and-set decides who does. In one process a voucher
// is rebuilt once at a time.
type Rebuilder struct {
	Parts

	ready  chan struct{}       // one for each that waits
	places *semaphore.Weighted // of those that Run serves

	mu       sync.Mutex
	queue    [urgencies][]string      // oldest first; each voucher is in one of them
	waiting  map[string]rebuildWish   // in the queue
	running  map[string]*rebuildRun   // under way here
	begun    map[string]int64         // epochs this process began and did not finish
	failures map[string]rebuildFailed // since the latest success
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

func newRebuilder(parts Parts) *Rebuilder {
	return &Rebuilder{
		Parts: parts, ready: make(chan struct{}, urgencies*maxRebuildQueue), places: semaphore.NewWeighted(rebuilders),
		waiting: map[string]rebuildWish{}, running: map[string]*rebuildRun{},
		begun: map[string]int64{}, failures: map[string]rebuildFailed{},
	}
}

// quiet reports whether a rebuild ended because another instance does it, or
// because none may.
func quiet(err error) bool { return elsewhere(err) || errors.Is(err, errNotSelling) }

// elsewhere reports whether a rebuild ended because another instance is at it.
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

// Load loads a voucher's hot copy unless there is one. While another instance is at
// it, Load looks again after each pause, until ctx ends.
func (r *Rebuilder) Load(ctx context.Context, voucherID string, pause time.Duration) error {
	err := r.rebuild(ctx, voucherID, 0, place{})
	for elsewhere(err) && ctx.Err() == nil {
		poll.Pause(ctx, pause)
		err = r.rebuild(ctx, voucherID, 0, place{})
	}
	return err
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
	ended := r.Metrics.RebuildBegan()
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

// urgency orders the rebuilds after a loss.
type urgency int

const (
	asked  urgency = iota // a request was refused, or an operator waits
	onSale                // requests will come
	unasked
	urgencies
)

// rebuildWish is a wish that waits.
type rebuildWish struct {
	urgency urgency
	wrong   int64 // copies up to that epoch are wrong, whatever they look like
}

// Request asks for a rebuild behind the caller's back, if one is needed by the
// time it comes to its turn. What cannot be queued, or failed a moment ago, is
// left to the reconciler, which asks again.
func (r *Rebuilder) Request(voucherID string) { r.enqueue(voucherID, rebuildWish{urgency: asked}) }

// Replace is Request when the copy of an epoch is wrong, however it looks. A later
// finding of the same epoch causes no further rebuild.
func (r *Rebuilder) Replace(voucherID string, epoch int64) {
	r.enqueue(voucherID, rebuildWish{urgency: asked, wrong: epoch})
}

// Demand is Request whatever the copy looks like.
func (r *Rebuilder) Demand(voucherID string) { r.Replace(voucherID, anyEpoch) }

// Found is Request for a hot copy that no request was refused for: those come after
// the others, those on sale first.
func (r *Rebuilder) Found(voucherID string, selling bool) {
	wish := rebuildWish{urgency: unasked}
	if selling {
		wish.urgency = onSale
	}
	r.enqueue(voucherID, wish)
}

func (r *Rebuilder) enqueue(voucherID string, wish rebuildWish) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, busy := r.running[voucherID]; busy && wish.wrong == 0 {
		return
	}
	before, waits := r.waiting[voucherID]
	wish.wrong = max(wish.wrong, before.wrong)
	switch {
	case waits && wish.urgency >= before.urgency, waits && r.full(wish.urgency):
		r.waiting[voucherID] = rebuildWish{before.urgency, wish.wrong}
		return
	case !waits && (r.full(wish.urgency) || time.Now().Before(r.failures[voucherID].until)):
		return
	case !waits:
		r.ready <- struct{}{} // has room: fewer wait than it holds
	default: // one that is left in the queue would keep others out of it
		from := before.urgency
		r.queue[from] = slices.DeleteFunc(r.queue[from], func(id string) bool { return id == voucherID })
	}
	r.queue[wish.urgency] = append(r.queue[wish.urgency], voucherID)
	r.waiting[voucherID] = wish
}

func (r *Rebuilder) full(u urgency) bool { return len(r.queue[u]) >= maxRebuildQueue }

// next takes the most urgent wish; there is one.
func (r *Rebuilder) next() (voucherID string, wrong int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for u := range r.queue {
		if len(r.queue[u]) > 0 {
			id := r.queue[u][0]
			r.queue[u] = r.queue[u][1:]
			wish := r.waiting[id]
			delete(r.waiting, id)
			return id, wish.wrong
		}
	}
	return "", 0
}

// place is one of those at which rebuilds work; the zero place is that of a caller
// who waits for the one rebuild.
type place struct{ of *semaphore.Weighted }

// without waits for something with the place given up: what only waits, for its
// voucher's messages above all, must not keep other vouchers closed.
func (p place) without(ctx context.Context, wait func(context.Context) error) error {
	if p.of == nil {
		return wait(ctx)
	}
	p.of.Release(1)
	err := wait(ctx)
	// Also when the wait was canceled: whatever has a place works, and ends soon.
	_ = p.of.Acquire(context.WithoutCancel(ctx), 1)
	return err
}

// Run serves requests until ctx ends. A wish is picked when a place is free, so
// that what is most urgent by then comes first.
func (r *Rebuilder) Run(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	for r.places.Acquire(ctx, 1) == nil {
		select {
		case <-ctx.Done():
			r.places.Release(1)
			return
		case <-r.ready:
			id, wrong := r.next()
			serving.Go(func() {
				defer r.places.Release(1)
				r.serve(ctx, id, wrong)
			})
		}
	}
}

func (r *Rebuilder) serve(ctx context.Context, voucherID string, wrong int64) {
	err := r.rebuild(ctx, voucherID, wrong, place{r.places})
	if err != nil && !quiet(err) && ctx.Err() == nil {
		r.Log.WarnContext(ctx, "a rebuild failed and will be tried again",
			slog.String("voucher_id", voucherID), slog.Any("error", err))
	}
}
