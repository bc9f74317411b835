package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"seckill/model"
)

const (
	// sweepEvery is between two looks at every watched voucher. The looks in
	// between are at those with something to do, and notice a lost Redis.
	sweepEvery = 5 * time.Second
	// closerSweeps is in how many sweeps the copy of every quiet voucher is read:
	// otherwise it is only asked whether it is there and has nothing reserved.
	closerSweeps = 24
)

// watchlist is what the looks at hot copies remember.
type watchlist struct {
	incarnation string    // of Redis at the latest sweep
	swept       time.Time // when that was
	sweeps      int
	records     map[string]model.EpochRecord // of the latest sweep; not changed any more
	// busy are the vouchers to be looked at again at once: something is reserved,
	// their copies are not open, lack a change, or could not be read.
	busy map[string]bool
}

// watch compares what the database says about hot copies with what there is. Ten
// thousand quiet vouchers must cost next to nothing: they are swept every few
// seconds, and at once when Redis may have lost them.
func (r *Reconciler) watch(ctx context.Context) error {
	r.due.begin()
	incarnation, err := r.deps.Copies.Incarnation(ctx)
	lost := err == nil && incarnation != r.list.incarnation
	if !lost && time.Since(r.list.swept) < sweepEvery {
		return errors.Join(err, r.again(ctx))
	}
	records, failed := r.deps.Records.Watched(ctx)
	if failed != nil {
		return errors.Join(err, fmt.Errorf("read the watched vouchers: %w", failed))
	}
	left, failed := r.left(ctx, records)
	if failed != nil {
		return errors.Join(err, failed)
	}
	look := records
	if !lost {
		look = r.wake(ctx, records)
	}
	if err == nil {
		r.list.incarnation = incarnation
	}
	r.list.swept, r.list.busy = time.Now(), map[string]bool{}
	r.list.sweeps++
	r.list.records = make(map[string]model.EpochRecord, len(records))
	for _, record := range records {
		r.list.records[record.VoucherID] = record
	}
	r.drift.watched(r.list.records)
	return errors.Join(err, r.examine(ctx, slices.Concat(look, left)))
}

// left reads the busy vouchers that are watched no more, because their sale was put
// off or is long over: what is reserved in an open copy must be settled all the same.
func (r *Reconciler) left(ctx context.Context, watched []model.EpochRecord) ([]model.EpochRecord, error) {
	busy := maps.Clone(r.list.busy)
	for _, record := range watched {
		delete(busy, record.VoucherID)
	}
	var left []model.EpochRecord
	for ids := range chunks(slices.Collect(maps.Keys(busy)), findChunk) {
		found, err := r.deps.Records.Read(ctx, ids)
		if err != nil {
			return nil, fmt.Errorf("read %d vouchers that are watched no more: %w", len(ids), err)
		}
		for _, record := range found {
			if record.Open() {
				left = append(left, record)
			}
		}
	}
	return left, nil
}

// again looks at the busy vouchers.
func (r *Reconciler) again(ctx context.Context) error {
	var failed []error
	for ids := range chunks(slices.Collect(maps.Keys(r.list.busy)), findChunk) {
		found, err := r.deps.Records.Read(ctx, ids)
		if err != nil {
			failed = append(failed, fmt.Errorf("read %d watched vouchers: %w", len(ids), err))
			continue
		}
		failed = append(failed, r.examine(ctx, slices.Collect(maps.Values(found))))
	}
	return errors.Join(failed...)
}

// wake returns the vouchers to be looked at: all but those that are open, have not
// changed since the sweep before and are quiet. Of these a part has its turn.
func (r *Reconciler) wake(ctx context.Context, records []model.EpochRecord) []model.EpochRecord {
	quiet := r.deps.Copies.Quiet(ctx, records)
	var look []model.EpochRecord
	for i, record := range records {
		id := record.VoucherID
		before := r.list.records[id]
		same := before.Epoch == record.Epoch && before.Revision == record.Revision
		turn := (i+r.list.sweeps)%closerSweeps == 0
		if turn || !record.Open() || !same || !quiet[i] || r.list.busy[id] {
			look = append(look, record)
		}
	}
	return look
}

// examine looks at vouchers. A copy that cannot be asked holds up no other one: it
// may be the only one on its node of a Cluster.
func (r *Reconciler) examine(ctx context.Context, records []model.EpochRecord) error {
	var failed []error
	for part := range chunks(records, findChunk) {
		ids := make([]string, len(part))
		for i, record := range part {
			ids[i] = record.VoucherID
		}
		copies, err := r.deps.Copies.Read(ctx, ids)
		if err != nil {
			failed = append(failed, fmt.Errorf("read %d hot copies: %w", len(ids), err))
		}
		failed = append(failed, r.compare(ctx, part, copies))
		r.drift.read(copies)
	}
	return errors.Join(failed...)
}

// compare looks at the copies that could be read.
func (r *Reconciler) compare(ctx context.Context, records []model.EpochRecord, copies map[string]model.HotCopy) error {
	var stale []string
	var reserved []string
	for _, record := range records {
		id := record.VoucherID
		hot, known := copies[id]
		open := known && record.Open() && hot.State == model.CopyOpen && hot.Epoch == record.Epoch
		behind := open && hot.Voucher.Revision < record.Revision
		if r.list.busy[id] = !open || behind || hot.Reserved > 0; !r.list.busy[id] {
			delete(r.list.busy, id)
		}
		if known && !open {
			r.deps.Rebuilds.Found(id, record.OnSale) // who looks again before it begins
		}
		if behind {
			stale = append(stale, id)
		}
		if open && hot.Reserved > 0 {
			reserved = append(reserved, id)
		}
	}
	failed := []error{r.apply(ctx, stale)}
	for _, id := range reserved {
		failed = append(failed, r.due.reconcile(ctx, id))
	}
	return errors.Join(failed...)
}

// apply brings administrators' changes to copies that missed them.
func (r *Reconciler) apply(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	vouchers, err := r.deps.Vouchers.GetMany(ctx, ids)
	if err != nil {
		return fmt.Errorf("read %d changed vouchers: %w", len(ids), err)
	}
	var failed []error
	for id, v := range vouchers {
		applied, err := r.deps.Copies.Apply(ctx, v)
		if err != nil {
			failed = append(failed, fmt.Errorf("apply the changes of voucher %s: %w", id, err))
		} else if applied {
			r.deps.Metrics.Reconciled("applied", 1)
			r.deps.Log.InfoContext(ctx, "a hot copy had missed a change", slog.String("voucher_id", id), slog.Int64("revision", v.Revision))
		}
	}
	return errors.Join(failed...)
}
