package hotcopy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/ratelimit"
	"seckill/model"
)

const (
	// loadEntries is how many orders one script call loads; it holds up other calls for some hundred microseconds.
	loadEntries = 500
	// closeTries bounds how often a close finds more keys: only another instance's close changes a head's epochs.
	closeTries = 3
	closeMore  = 2
	// Verdicts of lower.lua.
	lowerTaken, lowerNewer = 2, 3
)

// Close closes a copy in any state, and sets the record's epoch. Of earlier ones it keeps that which the database
// opened last, for the rebuild. ErrSuperseded: the head's is greater, or this was open. A head of another kind goes.
func (s *Store) Close(ctx context.Context, record model.EpochRecord) error {
	id := record.VoucherID
	c := &call{
		script: "close", voucher: id, epoch: record.Epoch, args: []any{budget.Week.Milliseconds(), record.OpenEpoch},
	}
	for try := 0; try < closeTries && (try == 0 || c.spoiled || c.err == nil && c.verdict == closeMore); try++ {
		if c.spoiled {
			// Its epoch is unknown: the one before may be there, if the opened one is so in the database alone.
			s.free(ctx, append(epochKeys(id, record.OpenEpoch-1), headKey(id))...)
		}
		for _, word := range c.words {
			c.keys = append(c.keys, epochKeys(id, number(word))...)
			c.args = append(c.args, word)
		}
		s.run(ctx, c)
	}
	return c.done("close the hot copy", model.ErrSuperseded)
}

// free deletes keys of one slot in the background. A failure is not reported: the next call meets it.
func (s *Store) free(ctx context.Context, keys ...string) {
	ctx, cancel := s.limited(ctx)
	defer cancel()
	_ = s.client.Unlink(ctx, keys...).Err()
}

// Abandon frees what was loaded of an epoch that was not opened, and never will be.
func (s *Store) Abandon(ctx context.Context, record model.EpochRecord) {
	s.free(ctx, epochKeys(record.VoucherID, record.Epoch)...)
}

// Load loads a part of a closed copy, in any order: live orders, and reservations carried over, due at once. A Load of
// nothing comes first. It may be repeated. ErrSuperseded as for Close, on another Redis than then, or after a loss.
func (s *Store) Load(
	ctx context.Context, record model.EpochRecord, live []model.Order, carried []model.Reservation,
) (err error) {
	ctx, end := s.options.Trace.Work(ctx, "load", len(live)+len(carried))
	defer func() { end(err) }()
	var calls []*call
	if len(live)+len(carried) == 0 {
		calls = append(calls, loadCall(record, nil, nil, nil))
	}
	for some := range slices.Chunk(live, loadEntries) {
		calls = append(calls, loadCall(record, some, nil, nil))
	}
	for some := range slices.Chunk(carried, loadEntries) {
		calls = append(calls, loadCall(record, nil, some, nil))
	}
	return s.loadAll(ctx, calls)
}

// LoadCooling loads users who wait before another order, as Load does orders.
func (s *Store) LoadCooling(ctx context.Context, record model.EpochRecord, cooling []model.Cooling) (err error) {
	ctx, end := s.options.Trace.Work(ctx, "load", len(cooling))
	defer func() { end(err) }()
	var calls []*call
	for some := range slices.Chunk(cooling, loadEntries) {
		calls = append(calls, loadCall(record, nil, nil, some))
	}
	return s.loadAll(ctx, calls)
}

func (s *Store) loadAll(ctx context.Context, calls []*call) error {
	for some := range slices.Chunk(calls, pipelineCalls) {
		s.run(ctx, some...)
		for _, c := range some {
			if err := c.done("load the hot copy", model.ErrSuperseded); err != nil {
				return err
			}
		}
	}
	return nil
}

func loadCall(
	record model.EpochRecord, live []model.Order, carried []model.Reservation, cooling []model.Cooling,
) *call {
	c := &call{script: "load", voucher: record.VoucherID, epoch: record.Epoch}
	c.args = make([]any, 0, 3+2*len(live)+3*len(carried)+2*len(cooling))
	c.args = append(c.args, budget.Hour.Milliseconds(), len(live), len(carried))
	for _, order := range live {
		c.args = append(c.args, order.UserID, order.ID)
	}
	for _, r := range carried {
		c.args = append(c.args, r.UserID)
	}
	for _, r := range carried {
		c.args = append(c.args, r.ID, writeEntry(r))
	}
	for _, user := range cooling {
		c.args = append(c.args, user.Until.UnixMilli(), "/"+user.UserID)
	}
	return c
}

// Open opens a loaded copy of the voucher, whose stock the database lacks so many units of, if no other epoch was
// begun: otherwise ErrSuperseded. It may be repeated. The keys of the epoch that was open before are freed.
func (s *Store) Open(ctx context.Context, record model.EpochRecord, v model.Voucher, missing int64) error {
	c := &call{
		script: "open", voucher: v.ID, epoch: record.Epoch,
		args: append([]any{missing, keptUntil(v), budget.Week.Milliseconds(), "off", v.WrittenOff}, voucherFields(v)...),
	}
	if record.OpenEpoch != 0 && record.OpenEpoch != record.Epoch {
		c.keys = epochKeys(v.ID, record.OpenEpoch)
	}
	s.run(ctx, c)
	return c.done("open the hot copy", model.ErrSuperseded)
}

// Apply brings a voucher of the database to its copy (window, price, state, stock) unless that has a newer revision.
// False: it is closed, and its rebuild will load that. *model.OutgrownError: it must be rebuilt for that.
func (s *Store) Apply(ctx context.Context, v model.Voucher) (applied bool, err error) {
	args := append([]any{v.Revision, keptUntil(v), budget.Week.Milliseconds()}, voucherFields(v)...)
	c := s.do(ctx, "apply", v.ID, args...)
	if c.err == nil && c.verdict == verdictWaitlist {
		return false, &model.OutgrownError{VoucherID: v.ID, Epoch: c.head}
	}
	return c.verdict == verdictDone, c.fail("apply a change")
}

// Lower lowers the stock before the database does, so that no order is admitted in vain: CONFLICT if more is taken. The
// revision is the voucher's with the intent: no older change is applied later. ErrSuperseded: a newer one was.
func (s *Store) Lower(ctx context.Context, voucherID string, stock, revision int64) error {
	c, otherwise := s.do(ctx, "lower", voucherID, stock, revision), model.ErrCopyClosed
	if c.err == nil && c.verdict == lowerTaken {
		return model.Conflict("More than that is sold or reserved already.")
	}
	if c.verdict == lowerNewer {
		otherwise = model.ErrSuperseded
	}
	return c.done("lower the stock", otherwise)
}

// limitKey begins the names of quotas. Each expires when it is whole again.
const limitKey = "seckill:v1:limit:"

// Limits keeps the rate limits that the instances share.
type Limits struct {
	client redis.UniversalClient
	script *redis.Script
}

// NewLimits keeps limits over the client given.
func NewLimits(client redis.UniversalClient) *Limits {
	return &Limits{client: client, script: redis.NewScript(luaFile("limit"))}
}

// Take answers asks in order, in one round trip. When one of them failed all have: the caller then limits by itself.
func (l *Limits) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Verdict, error) {
	commands := make([]*redis.Cmd, len(asks))
	send := func(run func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) error {
		pipe := l.client.Pipeline()
		for i, ask := range asks {
			key := []string{limitKey + ask.Key}
			commands[i] = run(ctx, pipe, key, micros(ask.Emission), micros(ask.Capacity), ask.Used)
		}
		_, err := pipe.Exec(ctx)
		return err
	}
	err := send(l.script.EvalSha)
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // none was carried out; in a Cluster some may have been, and count twice
		err = send(l.script.Eval)
	}
	if err != nil {
		return nil, fmt.Errorf("ask for %d rate limits: %w", len(asks), err)
	}
	verdicts := make([]ratelimit.Verdict, len(asks))
	for i, command := range commands {
		numbers, err := command.Int64Slice()
		if err != nil || len(numbers) != 2 {
			return nil, fmt.Errorf("ask for a rate limit: %w", errors.Join(errReply, err))
		}
		verdicts[i] = ratelimit.Verdict{Wait: time.Duration(numbers[0]) * time.Microsecond, Left: numbers[1]}
	}
	return verdicts, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// limitChannel carries the deployments whose rate limits were changed.
const limitChannel = "seckill:v1:limit-changes"

// Announce tells every instance that limits were changed. The message may be lost.
func (l *Limits) Announce(ctx context.Context, deployment string) error {
	if err := announce(ctx, l.client, limitChannel, deployment); err != nil {
		return fmt.Errorf("announce new rate limits: %w", err)
	}
	return nil
}

// Watch calls changed for every announcement; otherwise it is Store.Watch.
func (l *Limits) Watch(ctx context.Context, changed func(deployment string), missed func()) {
	watch(ctx, l.client, limitChannel, listener{told: changed, missed: missed, deaf: func() {}})
}
