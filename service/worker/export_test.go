package worker

import "context"

// CompareTwice compares a voucher as the drift watch does, without its repair: how
// many differences there are, and how many are certain.
func (r *Reconciler) CompareTwice(ctx context.Context, voucherID string) (found, certain int, err error) {
	before, _, err := r.drift.compare(ctx, voucherID, driftCheck{})
	if err != nil {
		return 0, 0, err
	}
	now, same, err := r.drift.compare(ctx, voucherID, before)
	return len(now.suspects), len(same), err
}
