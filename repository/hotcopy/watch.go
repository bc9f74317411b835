package hotcopy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// watch calls told with every message of a channel, and missed whenever the
// subscription was made anew, because messages may have been lost before. It
// returns when ctx ends; a lost connection is made again by the client.
func watch(ctx context.Context, client redis.UniversalClient, channel string, told func(payload string), missed func()) error {
	subscription := client.Subscribe(ctx, channel)
	messages := subscription.ChannelWithSubscriptions()
	for {
		select {
		case <-ctx.Done():
			return subscription.Close()
		case message, ok := <-messages:
			if !ok {
				return nil
			}
			switch message := message.(type) {
			case *redis.Subscription:
				missed()
			case *redis.Message:
				told(message.Payload)
			}
		}
	}
}

// announceTimeout bounds an announcement. One that is lost does little harm: what
// instances remember is refreshed by its age.
const announceTimeout = 500 * time.Millisecond

// announce publishes what has been committed, also after ctx has ended: a client that
// hangs up, or a stop, undoes no commit, and does not keep the news of it back.
func announce(ctx context.Context, client redis.UniversalClient, channel, message string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
	defer cancel()
	return client.Publish(ctx, channel, message).Err()
}

// settledChannel carries ids of orders that are not pending any more, with
// spaces between them.
const settledChannel = "seckill:v1:settled-orders"

// Watch calls settled for orders that were settled or released by any
// instance, and missed whenever the subscription was made anew: see watch.
func (s *Store) Watch(ctx context.Context, settled func(orderIDs []string), missed func()) error {
	return watch(ctx, s.client, settledChannel, func(ids string) { settled(strings.Split(ids, " ")) }, missed)
}

// changeChannel carries the ids of vouchers that were changed, and with returnedPrefix
// those of which a unit came back.
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

// AnnounceReturn tells every instance that a unit of a voucher came back.
func (c *VoucherChanges) AnnounceReturn(ctx context.Context, voucherID string) error {
	return c.publish(ctx, voucherID, returnedPrefix+voucherID)
}

func (c *VoucherChanges) publish(ctx context.Context, voucherID, message string) error {
	if err := announce(ctx, c.client, changeChannel, message); err != nil {
		return fmt.Errorf("announce a change of voucher %s: %w", voucherID, err)
	}
	return nil
}

// Watch calls changed and returned for what was announced; otherwise it is Store.Watch.
func (c *VoucherChanges) Watch(ctx context.Context, changed, returned func(voucherID string), missed func()) error {
	return watch(ctx, c.client, changeChannel, func(message string) {
		if voucherID, ok := strings.CutPrefix(message, returnedPrefix); ok {
			returned(voucherID)
			return
		}
		changed(message)
	}, missed)
}
