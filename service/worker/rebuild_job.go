package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

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
	mode, err := r.Mode(ctx)
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
	if _, err := r.Queue.Backlog(ctx); err != nil {
		return nil, fmt.Errorf("look at the queue: %w", err) // close nothing that cannot be opened again
	}
	next, err := r.Epochs.Close(ctx, voucherID, record.Epoch)
	if err != nil {
		return nil, fmt.Errorf("close voucher %s: %w", voucherID, err)
	}
	failpoint.Reach(failpoint.AfterCloseDatabase)
	r.remember(voucherID, next.Epoch)
	if err := r.Hot.Close(ctx, voucherID, next.Epoch, next.OpenEpoch); err != nil {
		return nil, fmt.Errorf("close the hot copy of voucher %s: %w", voucherID, err)
	}
	failpoint.Reach(failpoint.AfterCloseCopy)
	return &rebuildJob{Rebuilder: r, record: next}, nil
}

// due reads what the database says of a voucher's copy; nil when nothing needs
// to be done, errRebuilding when another instance does it. Copies of the epoch given,
// and of those before, are wrong whatever they look like.
func (r *Rebuilder) due(ctx context.Context, voucherID string, wrong int64) (*model.EpochRecord, error) {
	records, err := r.Epochs.Read(ctx, []string{voucherID})
	if err != nil {
		return nil, fmt.Errorf("read the copy record of voucher %s: %w", voucherID, err)
	}
	record, ok := records[voucherID]
	if !ok {
		return nil, model.NotFound("voucher")
	}
	copies, err := r.Hot.Read(ctx, []string{voucherID})
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
		j.Hot.Abandon(context.WithoutCancel(ctx), j.record.VoucherID, j.record.Epoch)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil && errors.Is(cause, model.ErrSuperseded) {
		return cause
	}
	if err == nil {
		j.Log.InfoContext(ctx, "a hot copy is open",
			slog.String("voucher_id", j.record.VoucherID), slog.Int64("epoch", j.record.Epoch),
			slog.Int("orders", j.live), slog.Int("reserved", j.carried), slog.Duration("took", time.Since(began)))
	}
	return err
}

func (j *rebuildJob) steps(ctx context.Context) error {
	id, epoch := j.record.VoucherID, j.record.Epoch
	backlog, err := j.Queue.Backlog(ctx)
	if err != nil {
		return fmt.Errorf("look at the queue: %w", err)
	}
	// The copy is closed: what is published from now on is answered 503.
	if err := j.Epochs.SetBarrier(ctx, id, epoch, backlog.LastSequence); err != nil {
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
	if err := j.Epochs.Open(ctx, id, epoch); err != nil {
		return fmt.Errorf("open in the database: %w", err)
	}
	failpoint.Reach(failpoint.AfterOpenDatabase)
	// An operator may have taken units out of the database: they are not for sale.
	missing := max(0, j.voucher.Stock-j.voucher.Remaining-int64(j.live))
	if err := j.Hot.Open(ctx, j.voucher, epoch, missing, j.record.OpenEpoch); err != nil {
		return fmt.Errorf("open the hot copy: %w", err)
	}
	failpoint.Reach(failpoint.AfterOpenCopy)
	return nil
}

// awaitOwn waits for the voucher's own messages.
func (j *rebuildJob) awaitOwn(ctx context.Context, sequence uint64) error {
	return j.place.without(ctx, func(ctx context.Context) error {
		return awaitFloor(ctx, func(ctx context.Context) (model.Backlog, error) {
			return j.Queue.BacklogOf(ctx, j.record.VoucherID)
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
		j.Log.InfoContext(ctx, "rebuilding a hot copy",
			slog.String("voucher_id", j.record.VoucherID), slog.Int64("epoch", j.record.Epoch),
			slog.String("stage", *j.stage.Load()), slog.Int64("loaded", j.loaded.Load()))
		beatCtx, cancel := context.WithTimeout(ctx, heartbeat)
		err := j.Epochs.Progress(beatCtx, j.record.VoucherID, j.record.Epoch)
		cancel()
		// Once the database has it open, there is no progress to be made known.
		if errors.Is(err, model.ErrSuperseded) && *j.stage.Load() != stageOpening {
			stop(err)
			return
		}
	}
}

const (
	// carryChunk is how many reservations are looked for in the database at once:
	// so many that round trips do not count, and a statement stays small.
	carryChunk = 1000
	// loadAhead is how many chunks wait to be loaded while the next one is read.
	loadAhead = 2
)

// load fills the new epoch's keys: with the reservations of the closed epoch that
// have no row, and then with the live orders of one consistent snapshot. In this
// order none can be missed: a reservation leaves the closed epoch when its row is
// committed, and what was committed before the snapshot is in it. Where a user has
// both, the live order has the mark: one mark, one unit. (A reservation that is
// carried and gets a closed row meanwhile is released as any other, once the new
// copy is open.)
func (j *rebuildJob) load(ctx context.Context) error {
	err := overlap(ctx, j.survivors, func(ctx context.Context, carried []model.Reservation) error {
		j.carried += len(carried)
		return j.chunk(ctx, nil, carried)
	})
	if err != nil {
		return fmt.Errorf("carry the reservations of epoch %d over: %w", j.record.OpenEpoch, err)
	}
	err = j.Epochs.Snapshot(ctx, j.record.VoucherID, j.record.Epoch, func(snapshot model.Snapshot) error {
		j.voucher = snapshot.Voucher
		return overlap(ctx, snapshot.Live, func(ctx context.Context, orders []model.Order) error {
			j.live += len(orders)
			return j.chunk(ctx, orders, nil)
		})
	})
	if err != nil {
		return fmt.Errorf("load the snapshot: %w", err)
	}
	return nil
}

// survivors yields the reservations of the epoch that was open and have no row, up
// to a thousand at once. It can take in no more of them.
func (j *rebuildJob) survivors(ctx context.Context, yield func([]model.Reservation) error) error {
	if j.record.OpenEpoch == 0 {
		return nil
	}
	part := make([]model.Reservation, 0, carryChunk)
	pass := func() error {
		carried, err := j.rowless(ctx, part)
		if part = part[:0]; err != nil || len(carried) == 0 {
			return err // a Load of nothing would begin anew
		}
		return yield(carried)
	}
	err := j.Hot.Pendings(ctx, j.record.VoucherID, j.record.OpenEpoch, func(r model.Reservation) error {
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

// rowless returns those reservations that have no row, for the new epoch.
func (j *rebuildJob) rowless(ctx context.Context, reservations []model.Reservation) ([]model.Reservation, error) {
	ids := make([]string, len(reservations))
	for i, r := range reservations {
		ids[i] = r.ID
	}
	known, err := j.Epochs.Known(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("look for the rows of %d reservations: %w", len(ids), err)
	}
	var carried []model.Reservation
	for _, r := range reservations {
		if !known[r.ID] {
			r.Epoch = j.record.Epoch
			carried = append(carried, r)
		}
	}
	return carried, nil
}

func (j *rebuildJob) chunk(ctx context.Context, live []model.Order, carried []model.Reservation) error {
	if err := j.Hot.Load(ctx, j.record.VoucherID, j.record.Epoch, live, carried); err != nil {
		return fmt.Errorf("load %d orders and %d reservations: %w", len(live), len(carried), err)
	}
	j.loaded.Add(int64(len(live) + len(carried)))
	return nil
}

// overlap reads and writes at the same time, chunk by chunk, with a few chunks in
// between. The first error ends both.
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
