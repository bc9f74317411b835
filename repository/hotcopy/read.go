package hotcopy

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"seckill/model"
)

// versionShift leaves 2⁴⁰ changes to each epoch of a copy, for its version.
const versionShift = 40

// Read reads copies in one pipeline. One that is missing, or that another
// server was loaded with, is closed. What could be read is returned with the
// error that says what could not.
func (s *Store) Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error) {
	return s.readAll(ctx, ids, whole)
}

// Look is Read for requests that want to buy. Of a divided copy some parts may not answer:
// it is open as far as the others are, and not sold out, with the version -1 and at least
// one unit left.
func (s *Store) Look(ctx context.Context, ids []string) (map[string]model.HotCopy, error) {
	divided := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return s.known(id).shards == 1 })
	if len(divided) == 0 || !IsCluster(s.client) {
		return s.readAll(ctx, ids, whole)
	}
	others := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(divided, id) })
	// A node that hangs holds up neither what can be told without it nor the other vouchers.
	var copies map[string]model.HotCopy
	var failed error
	var reading sync.WaitGroup
	reading.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, balancePatience+s.options.Slack)
		defer cancel()
		copies, failed = s.readAll(ctx, divided, some)
	})
	all, err := s.readAll(ctx, others, whole)
	reading.Wait()
	maps.Copy(all, copies)
	return all, errors.Join(err, failed)
}

// some is whole of the parts that have answered.
func some(parts []*call) (model.HotCopy, error) {
	answered := slices.DeleteFunc(slices.Clone(parts), func(c *call) bool { return c.err != nil })
	if len(answered) == 0 || len(answered) == len(parts) {
		return whole(parts)
	}
	hot, err := whole(answered)
	hot.Voucher.Version, hot.Voucher.Remaining = -1, max(hot.Voucher.Remaining, 1)
	hot.Voucher = hot.Voucher.At(hot.Voucher.ServerTime)
	return hot, err
}

// readAll reads copies, whose parts are put together by a function.
func (s *Store) readAll(
	ctx context.Context, ids []string, whole func([]*call) (model.HotCopy, error),
) (map[string]model.HotCopy, error) {
	copies := make(map[string]model.HotCopy, len(ids))
	moved, err := s.read(ctx, ids, copies, whole)
	if len(moved) > 0 {
		_, again := s.read(ctx, moved, copies, whole) // what moves twice is read as closed
		err = errors.Join(err, again)
	}
	return copies, err
}

// read reads copies, and returns those that are divided otherwise than was thought.
func (s *Store) read(
	ctx context.Context, ids []string, copies map[string]model.HotCopy, whole func([]*call) (model.HotCopy, error),
) (moved []string, err error) {
	var calls []*call
	for _, id := range ids {
		calls = append(calls, s.parts(s.scripts.read, id, s.known(id).shards)...)
	}
	for some := range slices.Chunk(calls, callOrders) {
		s.run(ctx, some...)
	}
	var failed []error
	for len(calls) > 0 {
		id := calls[0].voucher
		parts := calls[:calls[0].of]
		calls = calls[len(parts):]
		hot, err := whole(parts)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		copies[id] = hot
		if slices.ContainsFunc(parts, func(c *call) bool { return c.moved }) {
			moved = append(moved, id)
		}
	}
	return moved, errors.Join(failed...)
}

// whole puts the parts of a copy together. It is open when all of them are, and being
// rebuilt when some part still is. The units are those of no single instant; but such as
// change parts meanwhile count once.
func whole(parts []*call) (model.HotCopy, error) {
	all, err := parts[0].hotCopy()
	free := all.Voucher.Remaining
	for _, part := range parts[1:] {
		hot, failed := part.hotCopy()
		err = errors.Join(err, failed)
		switch {
		case hot.Epoch != all.Epoch || hot.State == model.CopyClosed:
			all.State = model.CopyClosed
		case hot.State == model.CopyRebuilding && all.State == model.CopyOpen:
			all.State = model.CopyRebuilding
		}
		all.Buyers += hot.Buyers
		all.Reserved += hot.Reserved
		all.Due += hot.Due
		free += hot.Voucher.Remaining
		all.Voucher.Version += hot.Voucher.Version & (1<<versionShift - 1)
		all.Voucher.Revision = min(all.Voucher.Revision, hot.Voucher.Revision)
	}
	all.Voucher.Remaining = max(0, free)
	if all.State != model.CopyOpen {
		all.Voucher.Remaining = 0
	}
	all.Voucher = all.Voucher.At(all.Voucher.ServerTime) // the phase of part 0 is not that of all
	return all, err
}

// readWords is how many words read.lua replies.
const readWords = 16

// hotCopy reads the reply of read.lua about one part. The units that it has given away and
// those that others have given it are left out of what remains; see whole.
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
		State: model.CopyState(c.words[1]), Epoch: c.head, Shards: c.shards,
		Buyers: number(c.words[2]), Reserved: number(c.words[3]), Due: number(c.words[15]),
	}
	given, got := c.moves()
	v := model.Voucher{
		ID: c.voucher, Remaining: number(c.words[4]) + given - got, Version: c.head<<versionShift + number(c.words[5]),
		Revision: number(c.words[6]), Stock: number(c.words[7]), Price: number(c.words[8]), Currency: c.words[9],
		BeginAt: microTime(c.words[10]), EndAt: microTime(c.words[11]), State: model.VoucherState(c.words[12]),
	}
	hot.Voucher = v.At(microTime(c.words[0]))
	return hot, nil
}

// moves reads in a whole reply of read.lua how many units a part has given to others, and
// got from them.
func (c *call) moves() (given, got int64) { return number(c.words[13]), number(c.words[14]) }

// Confirm tells of each reservation whether the copy that admitted it is still
// the open one. If it is so after a publish, the message stands before the barrier
// of the next rebuild, and counts.
func (s *Store) Confirm(ctx context.Context, reservations []model.Reservation) ([]bool, error) {
	places := make([]int, len(reservations))
	for i := range places {
		places[i] = i
	}
	open := make([]bool, len(reservations))
	var failed error
	all := lot{max(len(places), 1), max(len(places), 1)} // a part is asked once, and all in one pipeline
	runSplit(ctx, s, all, places, func(i int) model.Buyer { return ownerOf(reservations[i]) },
		func(some *group[int]) *call { return some.call(s.scripts.confirm) },
		func(some *group[int], c *call) {
			for _, place := range some.things {
				open[place] = c.err == nil && c.verdict == verdictDone && c.head == reservations[place].Epoch
			}
			failed = cmp.Or(failed, c.fail("confirm the epoch"))
		})
	return open, failed
}
