package repair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/poll"
	"seckill/model"
)

const (
	stageWaiting = "waiting for the queue" // may last for minutes
	stageOpening = "opening"               // the epoch may be open already
)

var errNotSelling = errors.New("the database is not sold from in the order mode async")

type rebuildJob struct {
	*Rebuilder

	place   place
	record  model.EpochRecord // of the new epoch
	voucher model.Voucher     // as of the snapshot
	stage   atomic.Pointer[string]
	loaded  atomic.Int64 // orders and reservations, for the log
	waited  uint         // heartbeats while it waited for the queue
	live    int          // orders loaded
	carried int          // reservations loaded; one that Redis showed twice counts twice
}

// begin starts the next epoch in the database and closes the hot copy; nil: no need. No adminID: no administrator asks.
func (r *Rebuilder) begin(ctx context.Context, voucherID string, wrong int64, adminID string) (*rebuildJob, error) {
	mode, err := r.deps.Mode(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the order mode: %w", err)
	}
	if mode.Mode != model.ModeAsync {
		return nil, &model.Error{
			Code: model.CodeConflict, Detail: "In this order mode there is no hot copy to rebuild.",
			Cause: errNotSelling,
		}
	}
	record, err := r.outdated(ctx, voucherID, wrong)
	if err != nil || record == nil {
		return nil, err
	}
	if _, err := r.deps.Queue.Backlog(ctx); err != nil { // a sale that is closed now could not be opened again
		return nil, fmt.Errorf("look at the queue: %w", err)
	}
	next, err := r.deps.Epochs.Close(ctx, voucherID, record.Epoch, adminID)
	if err != nil {
		return nil, fmt.Errorf("close voucher %s: %w", voucherID, err)
	}
	failpoint.Reach(failpoint.AfterCloseDatabase)
	r.begun.Store(voucherID, next.Epoch)
	if err := r.deps.Hot.Close(ctx, next); err != nil {
		return nil, fmt.Errorf("close the hot copy of voucher %s: %w", voucherID, err)
	}
	failpoint.Reach(failpoint.AfterCloseCopy)
	return &rebuildJob{Rebuilder: r, record: next}, nil
}

// outdated returns the latest epoch if it is to be replaced, as a draw's open one; nil when the hot copy is healthy and
// later than wrong. errRebuilding: another instance rebuilds it.
func (r *Rebuilder) outdated(ctx context.Context, voucherID string, wrong int64) (*model.EpochRecord, error) {
	epochs, err := r.deps.Epochs.Read(ctx, []string{voucherID})
	if err != nil {
		return nil, fmt.Errorf("read the copy record of voucher %s: %w", voucherID, err)
	}
	latest, ok := epochs[voucherID]
	if !ok {
		return nil, model.NotFound("voucher")
	}
	if latest.Draw && latest.Epoch == 0 {
		return nil, nil //nolint:nilnil // nothing to do is no error
	}
	found, err := r.deps.Hot.Read(ctx, []string{voucherID})
	if err != nil {
		return nil, fmt.Errorf("read the hot copy of voucher %s: %w", voucherID, err)
	}
	hot := found[voucherID]
	if latest.Draw && hot.State != model.CopyOpen {
		return nil, nil //nolint:nilnil // likewise
	}
	healthy := fits(latest, hot) && !latest.Draw
	if healthy && latest.Epoch > wrong {
		r.begun.Delete(voucherID)
		return nil, nil //nolint:nilnil // nothing to do is no error
	}
	// A rebuild opens the epoch in the database first, and in Redis a moment later.
	rebuilding := !latest.Open() || (hot.State == model.CopyRebuilding && hot.Epoch == latest.Epoch)
	if begun, ok := r.begun.Load(voucherID); rebuilding && alive(latest) && (!ok || begun != latest.Epoch) {
		return nil, errRebuilding
	}
	return &latest, nil
}

// fits reports whether a hot copy is the one that the database holds for open.
func fits(latest model.EpochRecord, hot model.HotCopy) bool {
	return latest.Open() && hot.State == model.CopyOpen && hot.Epoch == latest.Epoch
}

// alive reports whether a rebuild gave a recent sign of life. A far future one is of a clock set back.
func alive(epoch model.EpochRecord) bool {
	return epoch.Progress != nil && epoch.Now.Sub(*epoch.Progress).Abs() < budget.Answer
}

func (j *rebuildJob) finish(ctx context.Context) error {
	began := time.Now()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	j.at("starting")
	var beating sync.WaitGroup
	beating.Go(func() { poll.Every(ctx, budget.Look, func() { j.beat(ctx, stop) }) })
	defer func() { stop(nil); beating.Wait() }()

	err := j.steps(ctx)
	if err != nil && *j.stage.Load() != stageOpening { // later the epoch may be the one that counts
		j.deps.Hot.Abandon(context.WithoutCancel(ctx), j.record)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil && errors.Is(cause, model.ErrSuperseded) {
		return cause
	}
	if err == nil {
		j.deps.Log.InfoContext(ctx, "a hot copy is open",
			slog.String("voucher_id", j.record.VoucherID), slog.Int64("epoch", j.record.Epoch),
			slog.Int("orders", j.live), slog.Int("reserved", j.carried), slog.Duration("took", time.Since(began)))
	}
	return err
}

func (j *rebuildJob) steps(ctx context.Context) error {
	id, epoch := j.record.VoucherID, j.record.Epoch
	backlog, err := j.deps.Queue.Backlog(ctx)
	if err != nil {
		return fmt.Errorf("look at the queue: %w", err)
	}
	// The hot copy is closed: an order that is published from now on is answered 503.
	if err := j.deps.Epochs.SetBarrier(ctx, id, epoch, backlog.LastSequence); err != nil {
		return fmt.Errorf("store the barrier: %w", err)
	}
	failpoint.Reach(failpoint.AfterBarrier)
	if err := j.chunk(ctx, nil, nil); err != nil {
		return err
	}
	j.at(stageWaiting)
	if j.record.OpenEpoch > 0 { // otherwise no order can have been queued yet
		own := func(ctx context.Context) error { return j.deps.Backlog.Await(ctx, id, backlog.LastSequence) }
		if err := j.place.without(ctx, own); err != nil { // it must not stay closed for messages of another voucher
			return err
		}
	}
	j.at("loading")
	if err := j.load(ctx); err != nil {
		return err
	}
	failpoint.Reach(failpoint.AfterLoad)
	j.at(stageOpening)
	if err := j.deps.Epochs.Open(ctx, id, epoch); err != nil {
		return fmt.Errorf("open in the database: %w", err)
	}
	failpoint.Reach(failpoint.AfterOpenDatabase)
	// Units that an operator has taken out of the database are not for sale.
	missing := max(0, j.voucher.Stock-j.voucher.Remaining-int64(j.live))
	if err := j.deps.Hot.Open(ctx, j.record, j.voucher, missing); err != nil {
		return fmt.Errorf("open the hot copy: %w", err)
	}
	failpoint.Reach(failpoint.AfterOpenCopy)
	// What was committed behind the snapshot, before the copy opened.
	if _, err := j.update(ctx, j.voucher.Revision, id); err != nil {
		j.deps.Log.WarnContext(ctx, "it is not known whether a new hot copy lacks a change; the reconciler brings it",
			slog.String("voucher_id", id), slog.Any("error", err))
	}
	return nil
}

func (j *rebuildJob) at(stage string) { j.stage.Store(&stage) }

// beat notes that the rebuild is alive, in a long wait ever less often, and stops it when another superseded it.
func (j *rebuildJob) beat(ctx context.Context, stop context.CancelCauseFunc) {
	stage := *j.stage.Load()
	if stage == stageWaiting {
		j.waited++
	}
	if stage != stageWaiting || bits.OnesCount(j.waited) == 1 {
		j.deps.Log.InfoContext(ctx, "rebuilding a hot copy",
			slog.String("voucher_id", j.record.VoucherID), slog.Int64("epoch", j.record.Epoch),
			slog.String("stage", stage), slog.Int64("loaded", j.loaded.Load()))
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Look)
	defer cancel()
	err := j.deps.Epochs.Progress(ctx, j.record.VoucherID, j.record.Epoch)
	// An epoch that the database has just opened takes no progress either.
	if errors.Is(err, model.ErrSuperseded) && *j.stage.Load() != stageOpening {
		stop(err)
	}
}

const (
	carryChunk = 1000 // looked up in the database at once: few round trips, a small statement
	loadAhead  = 2    // may wait to be loaded while the next one is read
)

// load fills the new epoch: first with reservations without a row, then with live orders of one snapshot. None is
// missed, as a row is committed before its reservation goes. Of both, the live order gets the mark.
func (j *rebuildJob) load(ctx context.Context) error {
	err := overlap(ctx, j.survivors, func(ctx context.Context, carried []model.Reservation) error {
		j.carried += len(carried)
		return j.chunk(ctx, nil, carried)
	})
	if err != nil {
		return fmt.Errorf("carry the reservations of epoch %d over: %w", j.record.OpenEpoch, err)
	}
	err = j.deps.Epochs.Snapshot(ctx, j.record.VoucherID, j.record.Epoch, func(snapshot model.Snapshot) error {
		j.voucher = snapshot.Voucher
		err := overlap(ctx, snapshot.Live, func(ctx context.Context, orders []model.Order) error {
			j.live += len(orders)
			return j.chunk(ctx, orders, nil)
		})
		if err != nil || snapshot.Voucher.Cooldown == 0 {
			return err
		}
		return overlap(ctx, snapshot.Cooling, func(ctx context.Context, users []model.Cooling) error {
			if err := j.deps.Hot.LoadCooling(ctx, j.record, users); err != nil {
				return fmt.Errorf("load %d users who wait: %w", len(users), err)
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("load the snapshot: %w", err)
	}
	return nil
}

// survivors yields the closed epoch's reservations without a row, up to a thousand at once. None are added.
func (j *rebuildJob) survivors(ctx context.Context, yield func([]model.Reservation) error) error {
	if j.record.OpenEpoch == 0 {
		return nil
	}
	return overlap(ctx, j.pendings, func(ctx context.Context, reservations []model.Reservation) error {
		_, carried, err := j.deps.splitByRow(ctx, reservations)
		if err != nil || len(carried) == 0 {
			return err // to load an empty chunk would begin the loading anew
		}
		for i := range carried {
			carried[i].Epoch = j.record.Epoch
		}
		return yield(carried)
	})
}

func (j *rebuildJob) pendings(ctx context.Context, yield func([]model.Reservation) error) error {
	var part []model.Reservation
	pass := func() error {
		full := part
		part = make([]model.Reservation, 0, carryChunk)
		return yield(full)
	}
	err := j.deps.Hot.Pendings(ctx, j.record.VoucherID, j.record.OpenEpoch, func(r model.Reservation) error {
		if part = append(part, r); len(part) < carryChunk {
			return nil
		}
		return pass()
	})
	if err != nil || len(part) == 0 {
		return err
	}
	return pass()
}

func (j *rebuildJob) chunk(ctx context.Context, live []model.Order, carried []model.Reservation) error {
	if err := j.deps.Hot.Load(ctx, j.record, live, carried); err != nil {
		return fmt.Errorf("load %d orders and %d reservations: %w", len(live), len(carried), err)
	}
	j.loaded.Add(int64(len(live) + len(carried)))
	return nil
}

// overlap reads and writes chunks at the same time, with a few chunks in between. The first error ends both.
func overlap[T any](
	ctx context.Context, read func(context.Context, func(T) error) error, write func(context.Context, T) error,
) error {
	group, ctx := errgroup.WithContext(ctx)
	chunks := make(chan T, loadAhead)
	group.Go(func() error {
		defer close(chunks)
		return read(ctx, func(chunk T) error {
			select {
			case chunks <- chunk:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	group.Go(func() error {
		for chunk := range chunks {
			if err := write(ctx, chunk); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}
