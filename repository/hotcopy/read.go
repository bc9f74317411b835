package hotcopy

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"seckill/internal/redisdb"
	"seckill/model"
)

// versionShift leaves 2⁴⁰ changes to each epoch of a copy, for its version.
const versionShift = 40

// Read reads copies in one pipeline. One that is missing, or that another server was loaded with, is closed. What could
// be read is returned with the error that says what could not.
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
const readWords = 15

// hotCopy reads the reply of read.lua.
func (c *call) hotCopy() (model.HotCopy, error) {
	if err := c.fail("read the hot copy"); err != nil {
		return model.HotCopy{}, err
	}
	// The epoch changed twice while it was read, or something else lies under its keys: a rebuild repairs both.
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
		ID: c.voucher, Version: c.head<<versionShift + number(c.words[5]), Revision: number(c.words[6]),
		VoucherFields: model.VoucherFields{
			Remaining: max(0, number(c.words[4])), Stock: number(c.words[7]), Price: number(c.words[8]), Currency: c.words[9],
			BeginAt: microTime(c.words[10]), EndAt: microTime(c.words[11]), State: model.VoucherState(c.words[12]),
		},
	}
	if text := c.words[14]; text != "" {
		var r rules
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return model.HotCopy{}, c.strange("read the hot copy's rules")
		}
		v.Groups, v.Early, v.Cooldown, v.Waitlist = r.Groups, r.Early, r.Cooldown, r.Waitlist
	}
	hot.Voucher = v.At(microTime(c.words[0]))
	return hot, nil
}

// quietCopies are asked for in one pipeline.
const quietCopies = 1000

// Incarnation is another word whenever Redis may have lost what it had, see redisdb.Incarnation.
func (s *Store) Incarnation(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+s.options.Slack)
	defer cancel()
	return redisdb.Incarnation(ctx, s.client, s.options.Identity)
}

// Quiet tells of each copy whether it is loaded in the epoch of its record, has nothing reserved, and knows as many
// buyers as units are taken. False says nothing: Redis may not have answered.
func (s *Store) Quiet(ctx context.Context, records []model.EpochRecord) []bool {
	quiet := make([]bool, 0, len(records))
	for some := range slices.Chunk(records, quietCopies) {
		quiet = append(quiet, s.quiet(ctx, some)...)
	}
	return quiet
}

func (s *Store) quiet(ctx context.Context, records []model.EpochRecord) []bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+s.options.Slack)
	defer cancel()
	pipe := s.client.Pipeline()
	pending, due, buyers := make([]*redis.IntCmd, len(records)), make([]*redis.IntCmd, len(records)), make([]*redis.IntCmd, len(records))
	for i, r := range records {
		pending[i] = pipe.HLen(ctx, pendingKey(r.VoucherID, r.Epoch))
		due[i] = pipe.ZCard(ctx, dueKey(r.VoucherID, r.Epoch))
		buyers[i] = pipe.HLen(ctx, buyersKey(r.VoucherID, r.Epoch))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	quiet := make([]bool, len(records))
	for i, r := range records { // each key has a sentinel
		quiet[i] = pending[i].Val() == 1 && due[i].Val() == 1 && buyers[i].Val() == r.Taken+1
	}
	return quiet
}
