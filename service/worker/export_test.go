package worker

import (
	"context"
	"time"

	"seckill/model"
)

// CompareTwice compares a voucher as the drift watch does, without its repair: how
// many differences there are, and how many are certain.
func (r *Reconciler) CompareTwice(ctx context.Context, voucherID string) (found, certain int, err error) {
	before, _, err := r.drift.compareTwice(ctx, voucherID, driftCheck{})
	if err != nil {
		return 0, 0, err
	}
	now, same, err := r.drift.compareTwice(ctx, voucherID, before)
	return len(now.suspects), len(same), err
}

// DriftDue tells whether a voucher is compared again long after a comparison, at which its row had another version than
// it has now.
func DriftDue(then, now int64) bool {
	const id = "v"
	d := newDriftWatch(nil)
	d.watched(map[string]model.EpochRecord{id: {VoucherID: id, Epoch: 1, OpenEpoch: 1, Version: now, Taken: 1}})
	d.checked[id] = driftCheck{at: time.Now().Add(-driftEvery), row: then}
	return len(d.due()) == 1
}
