//go:build failpoint

package sale

import (
	"context"

	"seckill/internal/failpoint"
	"seckill/model"
)

// defectAfterPublish gives units back after a publish that failed: a mistake that
// the tests build in to prove that they would notice.
func (s *asyncSeller) defectAfterPublish(ctx context.Context, reservations []model.Reservation) {
	if !failpoint.Has(failpoint.PublishUndoes) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	for _, r := range reservations {
		_, _ = s.Hot.Release(ctx, model.Release{OrderID: r.ID, VoucherID: r.VoucherID, UserID: r.UserID})
	}
}

// withDefect answers SOLD_OUT for a hot copy that is closed: another such mistake.
func withDefect(err error) error {
	if failpoint.Has(failpoint.MissingIsSoldOut) {
		return model.SoldOut()
	}
	return err
}
