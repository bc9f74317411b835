package repository

import (
	"context"
	"slices"

	"seckill/model"
)

// loadEntries is how many marks or pending entries one script call loads; it
// holds up everybody else for some hundred microseconds.
const loadEntries = 500

// Close closes a copy whatever it is, because it gets the epoch given. It is
// ErrSuperseded when the head's is greater, or was opened already. What is no head
// at all goes.
func (h *HotCopies) Close(ctx context.Context, voucherID string, epoch int64) error {
	c := &copyCall{script: h.scripts.closing, voucher: voucherID, epoch: epoch, args: []any{copyKept.Milliseconds()}}
	h.run(ctx, c)
	if otherKind(c.err) {
		h.remove(ctx, copyHead(voucherID))
		h.run(ctx, c)
	}
	return c.done("close the hot copy", model.ErrSuperseded)
}

// remove deletes a key; whether it could shows when the key is used.
func (h *HotCopies) remove(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	_ = h.client.Del(ctx, key).Err()
}

// Rebuilding says that the closed copy of an epoch is being loaded.
func (h *HotCopies) Rebuilding(ctx context.Context, voucherID string, epoch int64) error {
	return h.one(ctx, "begin the load of the hot copy", model.ErrSuperseded,
		&copyCall{script: h.scripts.rebuilding, voucher: voucherID, epoch: epoch})
}

// Invalidate closes a copy that was found to be wrong, if it is still the open
// one.
func (h *HotCopies) Invalidate(ctx context.Context, voucherID string, epoch int64) error {
	c := &copyCall{script: h.scripts.invalidate, voucher: voucherID, epoch: epoch}
	h.run(ctx, c)
	return c.fail("invalidate the hot copy")
}

// Load loads a part of a closed copy: the marks of users with a live or pending
// order, and pending entries, which are due at once. It may be repeated. It has
// to be called, also if there is nothing to load. ErrSuperseded as for Close,
// and when Redis is another server than at Close.
func (h *HotCopies) Load(
	ctx context.Context, voucherID string, epoch int64, marks []model.Release, pending []model.Reservation,
) error {
	var calls []*copyCall
	part := func(marks []model.Release, pending []model.Reservation) {
		c := &copyCall{script: h.scripts.load, voucher: voucherID, epoch: epoch, args: []any{copyLeft.Milliseconds(), len(marks)}}
		for _, m := range marks {
			c.args = append(c.args, m.UserID, m.OrderID)
		}
		for _, r := range pending {
			c.args = append(c.args, r.ID, writeEntry(r), r.CreatedAt.UnixMilli())
		}
		calls = append(calls, c)
	}
	if len(marks)+len(pending) == 0 {
		part(nil, nil) // the sentinels, which every part makes
	}
	for some := range slices.Chunk(marks, loadEntries) {
		part(some, nil)
	}
	for some := range slices.Chunk(pending, loadEntries) {
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

// Open opens a loaded copy of the voucher, if so many marks and pending entries
// are there, and nobody has begun another one: otherwise ErrSuperseded. It may be
// repeated. The keys of the previous epoch (0: none) go after a while.
func (h *HotCopies) Open(ctx context.Context, v model.Voucher, epoch int64, marks, pending int, previous int64) error {
	c := &copyCall{script: h.scripts.open, voucher: v.ID, epoch: epoch, args: []any{
		marks, pending, copyUntil(v), copyKept.Milliseconds(), copyLeft.Milliseconds(),
	}}
	c.args = append(c.args, copyFields(v)...)
	if previous != 0 && previous != epoch {
		c.keys = copyKeys(v.ID, previous)
	}
	return h.one(ctx, "open the hot copy", model.ErrSuperseded, c)
}

// one makes one call, whose script has the error given when it did nothing.
func (h *HotCopies) one(ctx context.Context, action string, otherwise error, c *copyCall) error {
	h.run(ctx, c)
	return c.done(action, otherwise)
}
