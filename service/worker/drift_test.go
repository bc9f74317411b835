package worker_test

import (
	"testing"

	"seckill/internal/workshop/check"
	"seckill/service/worker"
)

// A voucher is compared again when its row has changed since, also when the database was restored from a backup, where the
// row has an earlier version. One that has not changed costs nothing.
func TestChangedVouchersAreComparedAgain(t *testing.T) {
	t.Parallel()
	for now, due := range map[int64]bool{8: true, 7: false, 3: true} {
		check.Equal(t, "compared again", worker.DriftDue(7, now), due)
	}
}
