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
			_, _ = s.async.Hot.ReleaseAll(undo, r.VoucherID, []model.Release{{OrderID: r.ID, VoucherID: r.VoucherID, UserID: r.UserID}})
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

// lastIsFirst changes the places of who waits first and of who waits last before a unit is handed over.
func lastIsFirst() overlay.Change {
	const reads = "\theirs := make([]model.Order, len(first))\n"
	return overlay.Change{File: "repository/waitlist.go", Old: reads, New: `
		if len(first) == 1 {
			var last waitlistRow
			tx.Where("voucher_id = ? AND place > ?", voucherID, v.PlacesServed).Order("place DESC").Limit(1).Find(&last)
			for _, swap := range []waitlistRow{{Place: first[0].Place, UserID: "nobody"}, {Place: last.Place, UserID: first[0].UserID}, {Place: first[0].Place, UserID: last.UserID}} {
				if err := tx.Exec("UPDATE waitlist SET user_id = ? WHERE voucher_id = ? AND place = ?", swap.UserID, voucherID, swap.Place).Error; err != nil {
					return err
				}
			}
			first[0].UserID = last.UserID
		}
` + reads}
}

// handedToAnybody frees a unit in the hot copy that is an order of who waited for it.
func handedToAnybody() overlay.Change {
	return overlay.Change{File: "repository/hotcopy/lua/handover.lua", Old: "    if heir ~= '' then after[heirUser] = heir end\n", New: ""}
}

// cooledBefore decides for ten seconds by what a look at a user's cool-down has found.
func cooledBefore() overlay.Change {
	const look = "  local till = waits and tonumber(tombs[waits + i] or '')\n"
	return overlay.Change{File: "repository/hotcopy/lua/reserve.lua", Old: look, New: look + `  if waits then
    local known = KEYS[2] .. ':' .. user
    redis.call('set', known, text(till or 0), 'NX', 'PX', '10000')
    till = tonumber(redis.call('get', known))
  end
`}
}

// The faults build the program with these defects; that their texts still stand in the product is looked at always.
func TestDefectsFitTheProduct(t *testing.T) {
	t.Parallel()
	for _, defect := range []overlay.Change{publishUndoes(), missingIsSoldOut(), cooledBefore(), lastIsFirst(), handedToAnybody()} {
		check.Must(t, check.ErrorOf(defect.Text("../../..")))
	}
}
