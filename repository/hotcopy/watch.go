package hotcopy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/poll"
)

// listener is called by a subscription, from one goroutine.
type listener struct {
	told func(payload string)
	// missed says that messages may have been lost before: the subscription was made, or made anew.
	missed func()
	// deaf says that messages are being lost, from now until missed is called.
	deaf func()
}

// watch tells a listener what it hears of a channel. It returns when ctx ends.
func watch(ctx context.Context, client redis.UniversalClient, channel string, listener listener) {
	for ctx.Err() == nil {
		listener.deaf()
		hear(ctx, client.Subscribe(ctx, channel), listener)
		poll.Pause(ctx, budget.Blink)
	}
}

// hear listens until the subscription fails, is silent, or ctx ends, and closes it.
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

// announce publishes what has been committed, also after ctx has ended: a client that
// hangs up, or a stop, undoes no commit, and does not keep the news of it back.
func announce(ctx context.Context, client redis.UniversalClient, channel, message string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget.Brief)
	defer cancel()
	return client.Publish(ctx, channel, message).Err()
}

// settledChannel carries ids of orders that are not pending any more, with spaces between them.
const settledChannel = "seckill:v1:settled-orders"

// Watch calls settled for orders that were settled or released by any
// instance, and missed whenever messages may have been lost before. It returns when ctx ends.
func (s *Store) Watch(ctx context.Context, settled func(orderIDs []string), missed func()) {
	told := func(ids string) { settled(strings.Split(ids, " ")) }
	watch(ctx, s.client, settledChannel, listener{told: told, missed: missed, deaf: func() {}})
}

// changeChannel carries the ids of vouchers that were changed, and with returnedPrefix those of which a unit came back.
const (
	changeChannel  = "seckill:v1:voucher-changes"
	returnedPrefix = "returned "
)

// VoucherChanges tells every instance which vouchers were changed. Messages
// may be lost: they make cache entries younger, and the age of those bounds the harm.
type VoucherChanges struct{ client redis.UniversalClient }

// NewVoucherChanges announces and watches over the client given.
func NewVoucherChanges(client redis.UniversalClient) *VoucherChanges {
	return &VoucherChanges{client: client}
}

// Announce tells every instance that a voucher was changed.
func (c *VoucherChanges) Announce(ctx context.Context, voucherID string) error {
	return c.publish(ctx, voucherID, voucherID)
}

// AnnounceReturn tells every instance that a unit of a voucher came back. A hot copy sends the same by itself; of a
// Cluster's nodes, which may not have found each other again, this asks the one that the instances listen to.
func (c *VoucherChanges) AnnounceReturn(ctx context.Context, voucherID string) error {
	return c.publish(ctx, voucherID, returnedPrefix+voucherID)
}

func (c *VoucherChanges) publish(ctx context.Context, voucherID, message string) error {
	if err := announce(ctx, c.client, changeChannel, message); err != nil {
		return fmt.Errorf("announce a change of voucher %s: %w", voucherID, err)
	}
	return nil
}

// Watch calls changed and returned for what was announced, and otherwise as Store.Watch does. Deaf says that messages
// are being lost, from now until missed is called.
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
