package e2e_test

import (
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/overlay"
)

// publishUndoes gives units back after a publish that failed, although the message may be in the queue.
func publishUndoes() overlay.Change {
	const failed = "\t\ts.async.Admission.Unpublished(len(reservations))\n"
	return overlay.Change{File: "service/sale/order_async.go", Old: failed, New: failed + `
		for _, r := range reservations {
			undo, done := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			_, _ = s.async.Hot.Release(undo, model.Release{OrderID: r.ID, VoucherID: r.VoucherID, UserID: r.UserID})
			done()
		}
`}
}

// missingIsSoldOut takes a hot copy that is not loaded for an empty one.
func missingIsSoldOut() overlay.Change {
	return overlay.Change{
		File: "service/sale/order_async.go",
		Old:  `return model.Unavailable("The sale is being loaded.", model.ErrCopyClosed)`, New: `return model.SoldOut()`,
	}
}

// The faults build the program with these defects; that their texts still stand in the product is looked at always.
func TestDefectsFitTheProduct(t *testing.T) {
	t.Parallel()
	for _, defect := range []overlay.Change{publishUndoes(), missingIsSoldOut()} {
		check.Must(t, check.ErrorOf(defect.Text("../../..")))
	}
}
