package repository

import (
	"context"
	"fmt"

	"seckill/model"
)

// Verdicts of lower.lua.
const (
	lowerTaken = 2
	lowerNewer = 3
)

// Apply brings a voucher as the database has it to its copy: window, price,
// state and stock, if the copy does not have a newer revision. False when the
// copy is closed, which will be opened with what the database has then.
func (h *HotCopies) Apply(ctx context.Context, v model.Voucher) (applied bool, err error) {
	c := &copyCall{script: h.scripts.apply, voucher: v.ID, args: []any{v.Revision, copyUntil(v), copyKept.Milliseconds()}}
	c.args = append(c.args, copyFields(v)...)
	h.run(ctx, c)
	return c.verdict == copyDone, c.fail("apply a change")
}

// Lower lowers the stock before the database does, so that nothing is admitted
// that could not be kept: CONFLICT when more is taken already. The revision is
// that of the voucher with the intent, so that a change older than that is not
// applied later; ErrSuperseded says that a newer one was applied.
func (h *HotCopies) Lower(ctx context.Context, voucherID string, stock, revision int64) error {
	c := &copyCall{script: h.scripts.lower, voucher: voucherID, args: []any{stock, revision}}
	h.run(ctx, c)
	const action = "lower the stock"
	switch {
	case c.err == nil && c.verdict == lowerTaken:
		return model.Conflict("More than that is sold or reserved already.")
	case c.err == nil && c.verdict == lowerNewer:
		return fmt.Errorf("%s of voucher %s: %w", action, voucherID, model.ErrSuperseded)
	}
	return c.closed(action)
}
