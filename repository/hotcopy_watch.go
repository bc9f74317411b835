package repository

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// settledChannel carries ids of orders that are not pending any more, with
// spaces between them.
const settledChannel = "seckill:v1:settled-orders"

// Watch calls settled for orders that were settled, released or corrected by
// any instance, and missed whenever the subscription was made anew, because
// messages may have been lost before. It returns when ctx ends; a lost
// connection is made again by the client.
func (h *HotCopies) Watch(ctx context.Context, settled func(orderIDs []string), missed func()) error {
	subscription := h.client.Subscribe(ctx, settledChannel)
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
				settled(strings.Split(message.Payload, " "))
			}
		}
	}
}
