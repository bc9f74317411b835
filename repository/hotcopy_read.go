package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"seckill/model"
)

// versionShift leaves 2⁴⁰ changes to each epoch of a copy, for its version.
const versionShift = 40

// Read reads copies in one pipeline. One that is missing, or that another
// server was loaded with, is closed. What could be read is returned with the
// error that says what could not.
func (h *HotCopies) Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error) {
	copies := make(map[string]model.HotCopy, len(ids))
	var failed []error
	for part := range slices.Chunk(ids, copyOrders) {
		calls := make([]*copyCall, len(part))
		for i, id := range part {
			calls[i] = &copyCall{script: h.scripts.read, voucher: id}
		}
		h.run(ctx, calls...)
		for _, c := range calls {
			hot, err := c.hotCopy()
			if err != nil {
				failed = append(failed, err)
				continue
			}
			copies[c.voucher] = hot
		}
	}
	return copies, errors.Join(failed...)
}

// readWords is how many words read.lua replies.
const readWords = 13

// hotCopy reads the reply of read.lua.
func (c *copyCall) hotCopy() (model.HotCopy, error) {
	if err := c.fail("read the hot copy"); err != nil && !otherKind(c.err) {
		return model.HotCopy{}, err
	}
	// Its epoch changed twice while it was read, or it is no copy: a rebuild makes one.
	if len(c.words) == 0 {
		return model.HotCopy{State: model.CopyClosed, Epoch: c.head, Voucher: model.Voucher{ID: c.voucher}}, nil
	}
	if len(c.words) != readWords {
		return model.HotCopy{}, fmt.Errorf("read the hot copy of voucher %s: %w: %q", c.voucher, errCopyReply, c.words)
	}
	hot := model.HotCopy{
		State: model.CopyState(c.words[1]), Epoch: c.head,
		Buyers: number(c.words[2]), Reserved: number(c.words[3]),
	}
	v := model.Voucher{
		ID: c.voucher, Remaining: max(0, number(c.words[4])), Version: c.head<<versionShift + number(c.words[5]),
		Revision: number(c.words[6]), Stock: number(c.words[7]), Price: number(c.words[8]), Currency: c.words[9],
		BeginAt: microTime(c.words[10]), EndAt: microTime(c.words[11]), State: model.VoucherState(c.words[12]),
	}
	hot.Voucher = v.At(microTime(c.words[0]))
	return hot, nil
}

// Confirm tells of each reservation whether the copy that admitted it is still
// the open one. Asked after a publish, it tells that the message stands before
// whatever a rebuild lets count.
func (h *HotCopies) Confirm(ctx context.Context, reservations []model.Reservation) ([]bool, error) {
	var calls []*copyCall
	asked := make(map[string]*copyCall)
	for _, r := range reservations {
		if asked[r.VoucherID] == nil {
			asked[r.VoucherID] = &copyCall{script: h.scripts.confirm, voucher: r.VoucherID}
			calls = append(calls, asked[r.VoucherID])
		}
	}
	h.run(ctx, calls...)
	open := make([]bool, len(reservations))
	for i, r := range reservations {
		c := asked[r.VoucherID]
		open[i] = c.err == nil && c.verdict == copyDone && c.head == r.Epoch
	}
	for _, c := range calls {
		if err := c.fail("confirm the epoch"); err != nil {
			return open, err
		}
	}
	return open, nil
}
