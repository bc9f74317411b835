package hotcopy

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"seckill/model"
)

// versionShift leaves 2⁴⁰ changes to each epoch of a copy, for its version.
const versionShift = 40

// Read reads copies in one pipeline. One that is missing, or that another
// server was loaded with, is closed. What could be read is returned with the
// error that says what could not.
func (s *Store) Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error) {
	copies := make(map[string]model.HotCopy, len(ids))
	var failed []error
	for some := range slices.Chunk(ids, callOrders) {
		calls := make([]*call, len(some))
		for i, id := range some {
			calls[i] = &call{script: s.scripts.read, voucher: id}
		}
		s.run(ctx, calls...)
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
const readWords = 14

// hotCopy reads the reply of read.lua.
func (c *call) hotCopy() (model.HotCopy, error) {
	if err := c.fail("read the hot copy"); err != nil {
		return model.HotCopy{}, err
	}
	// The epoch changed twice while it was read, or something else lies under its keys: a
	// rebuild repairs both.
	if len(c.words) == 0 {
		return model.HotCopy{State: model.CopyClosed, Epoch: c.head, Voucher: model.Voucher{ID: c.voucher}}, nil
	}
	if len(c.words) != readWords {
		return model.HotCopy{}, c.strange("read the hot copy")
	}
	hot := model.HotCopy{
		State: model.CopyState(c.words[1]), Epoch: c.head,
		Buyers: number(c.words[2]), Reserved: number(c.words[3]), Due: number(c.words[13]),
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
// the open one. If it is so after a publish, the message stands before the barrier
// of the next rebuild, and counts.
func (s *Store) Confirm(ctx context.Context, reservations []model.Reservation) ([]bool, error) {
	groups := split(len(reservations), len(reservations), func(place int) string { return reservations[place].VoucherID })
	calls := make([]*call, len(groups))
	for i, some := range groups {
		calls[i] = &call{script: s.scripts.confirm, voucher: reservations[some[0]].VoucherID}
	}
	s.run(ctx, calls...)
	open := make([]bool, len(reservations))
	var failed error
	for i, c := range calls {
		for _, place := range groups[i] {
			open[place] = c.err == nil && c.verdict == verdictDone && c.head == reservations[place].Epoch
		}
		failed = cmp.Or(failed, c.fail("confirm the epoch"))
	}
	return open, failed
}
