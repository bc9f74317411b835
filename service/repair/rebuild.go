package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/model"
)

const (
	rebuilders   = 4                // work at once: each mostly waits, and a lost Redis means many vouchers to load
	shortestLook = budget.Blink / 5 // between the first looks at another's rebuild, doubling up to budget.Glance
	// maxWishes bounds the waiting wishes of the least urgent; others have as much more. The reconciler asks again.
	maxWishes = 1024
	maxAgain  = 10_000 // rebuilt vouchers are remembered; the others may be rebuilt again at once
)

// pauses between rebuilds of a voucher: none before the second, then long ones, which leave the servers to others.
func pauses() backoff.Policy {
	return backoff.Policy{Free: 1, First: 500 * time.Millisecond, Longest: 5 * time.Second, Forget: 10 * time.Second}
}

var errRebuilding = errors.New("another instance rebuilds this voucher")

// Rebuilder loads hot copies under new epochs. The database's compare-and-set picks the instance.
type Rebuilder struct {
	deps Deps

	places *semaphore.Weighted // of the rebuilds that Run has started

	again *backoff.Failures // counts rebuilds: how long those that were asked for have to wait

	running  sync.Map // *rebuildRun by voucher: rebuilds under way in this process
	begun    sync.Map // int64 by voucher: epochs that this process began and has not opened
	draining sync.Map // uint64 by voucher: the last messages of draws that wait for their orders

	wake   chan struct{} // holds one token: there is a new wish
	mu     sync.Mutex
	wishes map[string]rebuildWish // by voucher
	number int                    // of the latest wish
}

// rebuildRun is a rebuild under way. Calls that want the same rebuild wait for it.
type rebuildRun struct {
	wrong int64 // it replaces hot copies up to this epoch
	done  chan struct{}
	err   error // valid once done is closed
}

func newRebuilder(parts Deps) *Rebuilder {
	return &Rebuilder{
		deps: parts, places: semaphore.NewWeighted(rebuilders), wake: make(chan struct{}, 1),
		wishes: map[string]rebuildWish{}, again: backoff.New(pauses(), maxAgain, time.Now),
	}
}

// quiet reports whether a rebuild ended without a failure: another instance does it, or the order mode allows none.
func quiet(err error) bool { return elsewhere(err) || errors.Is(err, errNotSelling) }

// elsewhere reports whether a rebuild ended because another instance rebuilds.
func elsewhere(err error) bool {
	return errors.Is(err, errRebuilding) || errors.Is(err, model.ErrSuperseded)
}

// Do replaces a voucher's hot copy unless it is healthy and later than wrong (0: any; model.AnyEpoch: none), and
// returns when one is open, or ctx ends. Another instance's rebuild is as good.
func (r *Rebuilder) Do(ctx context.Context, voucherID string, wrong int64) error {
	return poll.Insist(ctx, shortestLook, budget.Glance, func() (done bool, err error) {
		if err = r.rebuild(ctx, voucherID, wrong, place{}); elsewhere(err) {
			wrong = 0
		}
		return !elsewhere(err), err
	})
}

// Retire closes a voucher's hot copy unless it is open, and voids a rebuild. False: open, or another instance rebuilds.
func (r *Rebuilder) Retire(ctx context.Context, voucherID string) (bool, error) {
	job, err := r.begin(ctx, voucherID, 0, "")
	if elsewhere(err) {
		return false, nil
	}
	return job != nil, err
}

// rebuild waits for this process' rebuild of the voucher, and does one unless that replaced the same epochs.
func (r *Rebuilder) rebuild(ctx context.Context, voucherID string, wrong int64, at place) error {
	mine := &rebuildRun{wrong: wrong, done: make(chan struct{})}
	for found, busy := r.running.LoadOrStore(voucherID, mine); busy; found, busy = r.running.LoadOrStore(voucherID, mine) {
		run, _ := found.(*rebuildRun)
		if err := at.without(ctx, run.await); err != nil {
			return err
		}
		// After a rebuild that was superseded, maybe by this process, the hot copy may be closed.
		if !elsewhere(run.err) && (run.err != nil || run.wrong >= mine.wrong) {
			return run.err
		}
		if elsewhere(run.err) && mine.wrong == model.AnyEpoch {
			mine.wrong = 0 // the rebuild of the other instance is as good as one's own
		}
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Late)
	defer cancel()
	mine.err = r.perform(ctx, voucherID, mine.wrong, at)
	r.running.Delete(voucherID)
	close(mine.done)
	return mine.err
}

func (r *rebuildRun) await(ctx context.Context) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return model.Unavailable("The hot copy is being rebuilt.", ctx.Err())
	}
}

func (r *Rebuilder) perform(ctx context.Context, voucherID string, wrong int64, at place) error {
	job, err := r.begin(ctx, voucherID, wrong, "")
	if job == nil && (err == nil || quiet(err)) {
		return err
	}
	defer r.again.Begin(voucherID)
	if err != nil || job.record.Draw { // it was closed, and stays so
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
	r.begun.Delete(voucherID)
	return nil
}

type urgency int

const (
	asked   urgency = iota // a request was refused, or an operator waits
	onSale                 // requests will come
	unasked                // the sale has not begun, or is over
	urgencies
)

type rebuildWish struct {
	urgency urgency
	wrong   int64     // also healthy hot copies up to this epoch are to be replaced
	closed  bool      // the hot copy was closed for it: it does not pause
	from    time.Time // its turn comes then, if its voucher was rebuilt a moment ago
	number  int       // the earlier of two that are as urgent comes first
}

// Ask asks for a rebuild in the background, if still needed in its turn: after a pause when the voucher was rebuilt
// twice a moment ago. Without room it is lost, and asked for again. It never blocks.
func (r *Rebuilder) Ask(voucherID string, wrong int64) {
	r.enqueue(voucherID, rebuildWish{urgency: asked, wrong: wrong})
}

// update brings vouchers of later revisions from the database to open hot copies, or has those rebuilt.
func (r *Rebuilder) update(ctx context.Context, after int64, ids ...string) (applied []model.Voucher, err error) {
	vouchers, err := r.deps.Database.GetMany(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read %d changed vouchers: %w", len(ids), err)
	}
	var failed []error
	for id, v := range vouchers {
		if v.Revision <= after {
			continue
		}
		done, err := r.refresh(ctx, v, func(wrong int64) error { r.Ask(id, wrong); return nil })
		if err != nil {
			failed = append(failed, fmt.Errorf("apply the changes of voucher %s: %w", id, err))
		} else if done {
			applied = append(applied, v)
		}
	}
	return applied, errors.Join(failed...)
}

// refresh brings a voucher to its hot copy, or has that rebuilt. It tells whether an open copy had missed the change.
func (r *Rebuilder) refresh(
	ctx context.Context, v model.Voucher, rebuild func(wrong int64) error,
) (applied bool, err error) {
	applied, err = r.deps.Hot.Apply(ctx, v)
	if outgrown, ok := errors.AsType[*model.OutgrownError](err); ok {
		return false, rebuild(outgrown.Epoch)
	}
	return applied, err
}

// open is Ask for a hot copy that was closed to be rebuilt.
func (r *Rebuilder) open(voucherID string) {
	r.enqueue(voucherID, rebuildWish{urgency: asked, wrong: model.AnyEpoch, closed: true})
}

// found is Ask for a copy found closed before a request was refused: behind those asked for, on sale first.
func (r *Rebuilder) found(voucherID string, selling bool) {
	wish := rebuildWish{urgency: unasked}
	if selling {
		wish.urgency = onSale
	}
	r.enqueue(voucherID, wish)
}

// enqueue merges the wishes for a voucher. Even a pause waits here: a closed hot copy must not depend on new requests.
func (r *Rebuilder) enqueue(voucherID string, wish rebuildWish) {
	if _, busy := r.running.Load(voucherID); busy && wish.wrong == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before, waits := r.wishes[voucherID]
	if !waits && len(r.wishes) >= maxWishes*int(urgencies-wish.urgency) {
		return
	}
	r.number++
	wish.number, wish.from = r.number, time.Now().Add(r.again.Wait(voucherID))
	if waits {
		wish.wrong, wish.closed, wish.from = max(wish.wrong, before.wrong), wish.closed || before.closed, before.from
	}
	if waits && wish.urgency >= before.urgency {
		wish.urgency, wish.number = before.urgency, before.number
	}
	r.wishes[voucherID] = wish
	poll.Wake(r.wake)
}

// next takes the most urgent wish whose turn has come. Without one it says after how long it does, zero for never.
func (r *Rebuilder) next() (voucherID string, wrong int64, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var first rebuildWish
	for id, wish := range r.wishes {
		wait := time.Until(wish.from)
		switch {
		case wait > 0 && !wish.closed:
			pause = min(cmp.Or(pause, wait), wait)
		case voucherID == "" || cmp.Or(cmp.Compare(wish.urgency, first.urgency),
			cmp.Compare(wish.number, first.number)) < 0:
			voucherID, first = id, wish
		}
	}
	delete(r.wishes, voucherID)
	return voucherID, first.wrong, pause
}

// place is what a rebuild of Run occupies while it works. The zero place, of a waiting caller's, is not counted.
type place struct{ of *semaphore.Weighted }

// without gives the place up during a wait, mostly for messages: waiting rebuilds must not keep others closed.
func (p place) without(ctx context.Context, wait func(context.Context) error) error {
	if p.of == nil {
		return wait(ctx)
	}
	p.of.Release(1)
	err := wait(ctx)
	// Also when ctx has ended: the rebuilds that have places work, and end soon.
	_ = p.of.Acquire(context.WithoutCancel(ctx), 1)
	return err
}

// Run rebuilds what was asked for until ctx ends: when a place is free, the most urgent by then.
func (r *Rebuilder) Run(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	for r.places.Acquire(ctx, 1) == nil {
		id, wrong, pause := r.next()
		for ; id == "" && ctx.Err() == nil; id, wrong, pause = r.next() {
			var turn <-chan time.Time
			if pause > 0 {
				turn = time.After(pause)
			}
			select {
			case <-ctx.Done():
			case <-r.wake:
			case <-turn:
			}
		}
		if id == "" {
			r.places.Release(1)
			return
		}
		serving.Go(func() {
			defer r.places.Release(1)
			r.serve(ctx, id, wrong)
		})
	}
}

func (r *Rebuilder) serve(ctx context.Context, voucherID string, wrong int64) {
	err := r.rebuild(ctx, voucherID, wrong, place{r.places})
	if err != nil && !quiet(err) && ctx.Err() == nil {
		r.deps.Log.WarnContext(ctx, "a rebuild failed and will be tried again",
			slog.String("voucher_id", voucherID), slog.Any("error", err))
	}
}
