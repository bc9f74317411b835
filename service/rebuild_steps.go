package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"seckill/internal/failpoint"
	"seckill/model"
)

const (
	// floorPoll is how often the queue is asked how far its consumer has come:
	// the sale is closed meanwhile, and an answer takes a millisecond.
	floorPoll = 50 * time.Millisecond
	// heartbeat is how often a rebuild makes itself heard, in the database and
	// in the log.
	heartbeat = time.Second
)

// stageOpening is the stage in which a rebuild's epoch may be open already.
const stageOpening = "opening"

// errNotSelling says that the database is not sold from in the mode async now.
var errNotSelling = errors.New("the database is not sold from in the order mode async")

// rebuildJob is one rebuild: its record is that of the new epoch.
type rebuildJob struct {
	*Rebuilder

	place   place
	record  model.EpochRecord
	voucher model.Voucher
	stage   atomic.Pointer[string]
	loaded  atomic.Int64
	live    int // orders loaded
	carried int // reservations loaded; one that Redis showed twice counts twice
}

// begin takes the first two steps: the voucher is closed in the database and in
// Redis, under a new epoch. It returns nil when nothing needs to be done.
func (r *Rebuilder) begin(ctx context.Context, voucherID string, wrong int64) (*rebuildJob, error) {
	mode, err := r.deps.Modes.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the order mode: %w", err)
	}
	if !mode.Serves(model.ModeAsync) {
		return nil, &model.Error{
			Code: model.CodeConflict, Detail: "In this order mode there is no hot copy to rebuild.", Cause: errNotSelling,
		}
	}
	record, err := r.due(ctx, voucherID, wrong)
	if err != nil || record == nil {
		return nil, err
	}
	if _, err := r.deps.Queue.Backlog(ctx); err != nil {
		return nil, fmt.Errorf("look at the queue: %w", err) // close nothing that cannot be opened again
	}
	next, err := r.deps.Store.Close(ctx, voucherID, record.Epoch)
	if err != nil {
		return nil, fmt.Errorf("close voucher %s: %w", voucherID, err)
	}
	failpoint.Reach(failpoint.AfterCloseDatabase)
	r.remember(voucherID, next.Epoch)
	if err := r.deps.Copies.Close(ctx, voucherID, next.Epoch, next.OpenEpoch); err != nil {
		return nil, fmt.Errorf("close the hot copy of voucher %s: %w", voucherID, err)
	}
	failpoint.Reach(failpoint.AfterCloseCopy)
	return &rebuildJob{Rebuilder: r, record: next}, nil
}

// due reads what the database says of a voucher's copy; nil when nothing needs
// to be done, errRebuilding when somebody else does it. Copies of the epoch given,
// and of those before, are wrong whatever they look like.
func (r *Rebuilder) due(ctx context.Context, voucherID string, wrong int64) (*model.EpochRecord, error) {
	records, err := r.deps.Store.Read(ctx, []string{voucherID})
	if err != nil {
		return nil, fmt.Errorf("read the copy record of voucher %s: %w", voucherID, err)
	}
	record, ok := records[voucherID]
	if !ok {
		return nil, model.NotFound("voucher")
	}
	copies, err := r.deps.Copies.Read(ctx, []string{voucherID})
	if err != nil {
		return nil, fmt.Errorf("read the hot copy of voucher %s: %w", voucherID, err)
	}
	hot := copies[voucherID]
	healthy := record.Open() && hot.State == model.CopyOpen && hot.Epoch == record.Epoch
	if healthy && record.Epoch > wrong {
		r.forget(voucherID)
		return nil, nil //nolint:nilnil // nothing to do is no error
	}
	// Between the two openings the database says open and Redis does not yet.
	under := !record.Open() || (hot.State == model.CopyRebuilding && hot.Epoch == record.Epoch)
	if under && fresh(record) && !r.mine(voucherID, record.Epoch) {
		return nil, errRebuilding
	}
	return &record, nil
}

// fresh reports whether a rebuild was heard of a moment ago. What lies far ahead
// was written before the database's clock was set back.
func fresh(record model.EpochRecord) bool {
	return record.Progress != nil && record.Now.Sub(*record.Progress).Abs() < rebuildAbandoned
}

// finish takes the other steps.
func (j *rebuildJob) finish(ctx context.Context) error {
	began := time.Now()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	j.at("starting")
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.beat(ctx, stop)
	}()
	defer func() { stop(nil); <-done }()

	err := j.steps(ctx)
	if err != nil && *j.stage.Load() != stageOpening { // else it may be the epoch that counts
		j.deps.Copies.Abandon(context.WithoutCancel(ctx), j.record.VoucherID, j.record.Epoch)
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
	// The copy is closed: whatever is published from now on answers nobody 202.
	if err := j.deps.Store.SetBarrier(ctx, id, epoch, backlog.LastSequence); err != nil {
		return fmt.Errorf("store the barrier: %w", err)
	}
	failpoint.Reach(failpoint.AfterBarrier)
	if err := j.chunk(ctx, nil, nil); err != nil {
		return err
	}
	j.at("waiting for the queue")
	if j.record.OpenEpoch > 0 { // before the first copy nothing can have been queued
		if err := j.awaitOwn(ctx, backlog.LastSequence); err != nil {
			return err
		}
	}
	j.at("loading")
	if err := j.load(ctx); err != nil {
		return err
	}
	failpoint.Reach(failpoint.AfterLoad)
	j.at(stageOpening)
	if err := j.deps.Store.Open(ctx, id, epoch); err != nil {
		return fmt.Errorf("open in the database: %w", err)
	}
	failpoint.Reach(failpoint.AfterOpenDatabase)
	// An operator may have taken units out of the database: they are not for sale.
	missing := max(0, j.voucher.Stock-j.voucher.Remaining-int64(j.live))
	if err := j.deps.Copies.Open(ctx, j.voucher, epoch, missing, j.record.OpenEpoch); err != nil {
		return fmt.Errorf("open the hot copy: %w", err)
	}
	failpoint.Reach(failpoint.AfterOpenCopy)
	return nil
}

// awaitOwn waits for the voucher's own messages.
func (j *rebuildJob) awaitOwn(ctx context.Context, sequence uint64) error {
	return j.place.without(ctx, func(ctx context.Context) error {
		return awaitFloor(ctx, func(ctx context.Context) (model.Backlog, error) {
			return j.deps.Queue.BacklogOf(ctx, j.record.VoucherID)
		}, sequence)
	})
}

// awaitFloor waits until every message of a backlog up to a sequence was
// acknowledged: a voucher's own, because it must not wait for those of another
// one. One message being consumed proves nothing about those before it.
func awaitFloor(ctx context.Context, look func(context.Context) (model.Backlog, error), sequence uint64) error {
	ticker := time.NewTicker(floorPoll)
	defer ticker.Stop()
	for {
		backlog, err := look(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("look at the queue: %w", err)
		case backlog.LastSequence < sequence:
			return fmt.Errorf("the queue ends at %d and had %d: it is another one", backlog.LastSequence, sequence)
		case backlog.AckFloor >= sequence:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the queue: %w", context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// at says where the rebuild is.
func (j *rebuildJob) at(stage string) { j.stage.Store(&stage) }

// beat makes the rebuild heard until ctx ends, and stops it when it was
// superseded.
func (j *rebuildJob) beat(ctx context.Context, stop context.CancelCauseFunc) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		j.deps.Log.InfoContext(ctx, "rebuilding a hot copy",
			slog.String("voucher_id", j.record.VoucherID), slog.Int64("epoch", j.record.Epoch),
			slog.String("stage", *j.stage.Load()), slog.Int64("loaded", j.loaded.Load()))
		beatCtx, cancel := context.WithTimeout(ctx, heartbeat)
		err := j.deps.Store.Progress(beatCtx, j.record.VoucherID, j.record.Epoch)
		cancel()
		// Once the database has it open, there is no progress to be made known.
		if errors.Is(err, model.ErrSuperseded) && *j.stage.Load() != stageOpening {
			stop(err)
			return
		}
	}
}
