package repository

import (
	"context"
	"slices"

	"seckill/model"
)

const (
	// loadEntries is how many orders one script call loads; it holds up everybody
	// else for some hundred microseconds.
	loadEntries = 500
	// closeTries bounds how often a close comes back with more keys: what the head
	// names changes only when others close it too.
	closeTries = 3
	// closeMore is close.lua's verdict that it wants the keys of more epochs.
	closeMore = 2
)

// Close closes a copy whatever it is, because it gets the epoch given. Of its
// earlier epochs it keeps the one that the database has opened last (0: none), for
// the rebuild, and frees the others. It is ErrSuperseded when the head's epoch is
// greater, or was opened already. What is no head at all goes.
func (h *HotCopies) Close(ctx context.Context, voucherID string, epoch, opened int64) error {
	c := &copyCall{
		script: h.scripts.closing, voucher: voucherID, epoch: epoch, args: []any{copyKept.Milliseconds(), opened},
	}
	for range closeTries {
		h.run(ctx, c)
		if otherKind(c.err) {
			h.free(ctx, copyHead(voucherID))
			h.run(ctx, c)
		}
		if c.err != nil || c.verdict != closeMore {
			break
		}
		for _, word := range c.words {
			c.keys = append(c.keys, copyKeys(voucherID, number(word))...)
			c.args = append(c.args, word)
		}
	}
	return c.done("close the hot copy", model.ErrSuperseded)
}

// free deletes keys without holding up anybody. Whether it could shows when they
// are used.
func (h *HotCopies) free(ctx context.Context, keys ...string) {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	_ = h.client.Unlink(ctx, keys...).Err()
}

// Abandon frees what was loaded of an epoch that was not opened, and never will be.
func (h *HotCopies) Abandon(ctx context.Context, voucherID string, epoch int64) {
	h.free(ctx, copyKeys(voucherID, epoch)...)
}

// Load loads a part of a closed copy: live orders, and reservations that are
// carried over and due at once, in any order. It may be repeated. A Load of
// nothing begins, and must come first. ErrSuperseded as for Close, when Redis is
// another server than at Close, and when something was lost since the load began.
func (h *HotCopies) Load(
	ctx context.Context, voucherID string, epoch int64, live []model.Order, carried []model.Reservation,
) error {
	var calls []*copyCall
	part := func(live []model.Order, carried []model.Reservation) {
		c := &copyCall{script: h.scripts.load, voucher: voucherID, epoch: epoch}
		c.args = append(make([]any, 0, 2+2*len(live)+3*len(carried)), copyLoading.Milliseconds(), len(live))
		for _, order := range live {
			c.args = append(c.args, order.UserID, order.ID)
		}
		for _, r := range carried {
			c.args = append(c.args, r.UserID, r.ID, writeEntry(r))
		}
		calls = append(calls, c)
	}
	if len(live)+len(carried) == 0 {
		part(nil, nil)
	}
	for some := range slices.Chunk(live, loadEntries) {
		part(some, nil)
	}
	for some := range slices.Chunk(carried, loadEntries) {
		part(nil, some)
	}
	for some := range slices.Chunk(calls, copyCalls) {
		h.run(ctx, some...)
		for _, c := range some {
			if err := c.done("load the hot copy", model.ErrSuperseded); err != nil {
				return err
			}
		}
	}
	return nil
}

// Open opens a loaded copy of the voucher, whose stock the database lacks so many
// units of, if nobody has begun another one: otherwise ErrSuperseded. It may be
// repeated. The keys of the previous epoch (0: none) are freed.
func (h *HotCopies) Open(ctx context.Context, v model.Voucher, epoch, missing, previous int64) error {
	c := &copyCall{script: h.scripts.open, voucher: v.ID, epoch: epoch, args: []any{
		missing, copyUntil(v), copyKept.Milliseconds(),
	}}
	c.args = append(c.args, copyFields(v)...)
	if previous != 0 && previous != epoch {
		c.keys = copyKeys(v.ID, previous)
	}
	h.run(ctx, c)
	return c.done("open the hot copy", model.ErrSuperseded)
}
