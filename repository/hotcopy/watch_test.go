package hotcopy_test

import (
	"context"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/repository/hotcopy"
)

// A request that was given up, or a stop, does not keep the news of what it had committed back.
func TestNewsOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	url := testserver.SharedRedis(t)
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()

	t.Run("of a voucher", func(t *testing.T) {
		t.Parallel()
		changes, id := hotcopy.NewVoucherChanges(openRedis(t, url)), newID(t)
		told := listen(t, func(ctx context.Context, told func(string), ready func()) error {
			return changes.Watch(ctx, told, func(returned string) { told("a unit of " + returned) }, ready)
		})
		check.Must(t, changes.Announce(gone, id))
		told.await(t, id)
		check.Must(t, changes.AnnounceReturn(gone, id))
		told.await(t, "a unit of "+id)
	})
	t.Run("of a limit", func(t *testing.T) {
		t.Parallel()
		limits, deployment := hotcopy.NewLimits(openRedis(t, url)), newID(t)
		told := listen(t, limits.Watch)
		check.Must(t, limits.Announce(gone, deployment))
		told.await(t, deployment)
	})
}

// news is what a subscription was told, in order.
type news chan string

// listen watches until the end of the test, and returns once it is subscribed.
func listen(t *testing.T, watch func(ctx context.Context, told func(string), ready func()) error) news {
	t.Helper()
	told, ready, over := make(news, 1000), make(chan struct{}, 10), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { over <- watch(ctx, func(message string) { told <- message }, func() { ready <- struct{}{} }) }()
	t.Cleanup(func() {
		stop()
		check.Must(t, <-over)
	})
	<-ready
	return told
}

// await passes over what other tests announce.
func (n news) await(t *testing.T, message string) {
	t.Helper()
	for check.Receive(t, "news of "+message, n) != message {
		continue
	}
}
