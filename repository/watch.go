package repository

import (
	"context"

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
