package hotcopy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/internal/redisdb"
	"seckill/model"
)

type listener struct {
	told func(payload string)
	// missed says that messages may have been lost before: the subscription was made, or made anew.
	missed func()
	// deaf says that messages are being lost, from now until missed is called.
	deaf func()
}

// watch passes the messages of a channel to a listener until ctx ends.
func watch(ctx context.Context, client redis.UniversalClient, channel string, listener listener) {
	for ctx.Err() == nil {
		listener.deaf()
		hear(ctx, client.Subscribe(ctx, channel), listener)
		poll.Pause(ctx, budget.Blink)
	}
}

func hear(ctx context.Context, subscription *redis.PubSub, listener listener) {
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })()
	for asked := false; ; {
		message, err := subscription.ReceiveTimeout(ctx, budget.Glance)
		switch message := message.(type) {
		case *redis.Subscription:
			listener.missed()
		case *redis.Message:
			listener.told(message.Payload)
		}
		switch {
		case err == nil:
			asked = false
		case errors.Is(err, os.ErrDeadlineExceeded) && !asked && subscription.Ping(ctx) == nil:
			asked = true
		default:
			return
		}
	}
}

// announce publishes what has been committed, also after ctx's end: neither hang-up nor stop undoes a commit.
func announce(ctx context.Context, client redis.UniversalClient, channel, message string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget.Brief)
	defer cancel()
	return client.Publish(ctx, channel, message).Err()
}

// settledChannel carries ids of orders that are not pending any more, with spaces between them.
const settledChannel = "seckill:v1:settled-orders"

// Watch calls settled for orders settled or released anywhere, missed after possible losses, until ctx ends.
func (s *Store) Watch(ctx context.Context, settled func(orderIDs []string), missed func()) {
	told := func(ids string) { settled(strings.Split(ids, " ")) }
	watch(ctx, s.client, settledChannel, listener{told: told, missed: missed, deaf: func() {}})
}

// changeChannel carries the ids of vouchers that were changed, and with returnedPrefix those of which a unit came back.
const (
	changeChannel  = "seckill:v1:voucher-changes"
	returnedPrefix = "returned "
)

// VoucherChanges tells every instance which vouchers changed. A lost message is bounded by the cache's age.
type VoucherChanges struct{ client redis.UniversalClient }

// NewVoucherChanges announces and watches over the client given.
func NewVoucherChanges(client redis.UniversalClient) *VoucherChanges {
	return &VoucherChanges{client: client}
}

// Announce tells every instance that a voucher was changed.
func (c *VoucherChanges) Announce(ctx context.Context, voucherID string) error {
	return c.publish(ctx, voucherID, voucherID)
}

// AnnounceReturn announces a returned unit at the node that instances listen to; the copy's own may be cut off.
func (c *VoucherChanges) AnnounceReturn(ctx context.Context, voucherID string) error {
	return c.publish(ctx, voucherID, returnedPrefix+voucherID)
}

func (c *VoucherChanges) publish(ctx context.Context, voucherID, message string) error {
	if err := announce(ctx, c.client, changeChannel, message); err != nil {
		return fmt.Errorf("announce a change of voucher %s: %w", voucherID, err)
	}
	return nil
}

// Watch calls changed and returned for announcements, as Store.Watch does. Deaf: messages are lost until missed.
func (c *VoucherChanges) Watch(ctx context.Context, changed, returned func(voucherID string), missed, deaf func()) {
	told := func(message string) {
		if voucherID, ok := strings.CutPrefix(message, returnedPrefix); ok {
			returned(voucherID)
			return
		}
		changed(message)
	}
	watch(ctx, c.client, changeChannel, listener{told: told, missed: missed, deaf: deaf})
}

// versionShift leaves 2⁴⁰ changes to each epoch of a copy, for its version.
const versionShift = 40

// Read reads copies in one pipeline. Missing ones are closed. It returns what it read beside the error.
func (s *Store) Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error) {
	copies := make(map[string]model.HotCopy, len(ids))
	var failed []error
	for some := range slices.Chunk(ids, callOrders) {
		calls := make([]*call, len(some))
		for i, id := range some {
			calls[i] = &call{script: "read", voucher: id}
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
			Remaining: max(0, number(c.words[4])), Stock: number(c.words[7]), Price: number(c.words[8]),
			Currency: c.words[9],
			BeginAt:  microTime(c.words[10]), EndAt: microTime(c.words[11]), State: model.VoucherState(c.words[12]),
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
	ctx, cancel := s.limited(ctx)
	defer cancel()
	return redisdb.Incarnation(ctx, s.client, s.options.Identity)
}

// Quiet tells of each copy whether it is loaded in the epoch of its record, has nothing reserved, and knows as many
// buyers as units are taken. False says nothing: Redis may not have answered.
func (s *Store) Quiet(ctx context.Context, records []model.EpochRecord) []bool {
	quiet := make([]bool, 0, len(records))
	for some := range slices.Chunk(records, quietCopies) {
		limited, cancel := s.limited(ctx)
		pipe, counts := s.client.Pipeline(), make([][3]*redis.IntCmd, len(some))
		for i, r := range some {
			counts[i] = [3]*redis.IntCmd{
				pipe.HLen(limited, pendingKey(r.VoucherID, r.Epoch)), pipe.ZCard(limited, dueKey(r.VoucherID, r.Epoch)),
				pipe.HLen(limited, buyersKey(r.VoucherID, r.Epoch)),
			}
		}
		_, _ = pipe.Exec(limited) // each command has its own error
		cancel()
		for i, r := range some { // each key has a sentinel
			quiet = append(quiet, counts[i][0].Val() == 1 && counts[i][1].Val() == 1 && counts[i][2].Val() == r.Taken+1)
		}
	}
	return quiet
}
