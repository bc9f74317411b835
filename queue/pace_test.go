package queue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// fed is a consumption without a server: its workers take a time for each call, and tell
// when it began with how many orders.
func fed(t *testing.T, takes time.Duration, play func(arrive func(orders int))) string {
	t.Helper()
	c := &consumption{
		options: ConsumeOptions{Workers: 2, MaxOrders: 500},
		wish:    make(chan struct{}), arrivals: make(chan *message), batches: make(chan []*message),
	}
	ctx, stop := context.WithCancel(t.Context())
	began := time.Now()
	var mu sync.Mutex
	var told []string
	var all sync.WaitGroup
	for range c.options.Workers {
		all.Go(func() {
			for batch := range c.batches {
				orders := 0
				for _, m := range batch {
					orders += len(m.orders)
				}
				mu.Lock()
				told = append(told, fmt.Sprintf("%d at %v", orders, time.Since(began)))
				mu.Unlock()
				<-time.After(takes)
			}
		})
	}
	all.Go(func() { c.feed(ctx) })
	play(func(orders int) { c.arrivals <- &message{orders: make([]model.Reservation, orders)} })
	<-time.After(time.Second)
	stop()
	close(c.arrivals)
	all.Wait()
	return strings.Join(told, ", ")
}

func TestCallsGatherWhileMessagesKeepComing(t *testing.T) {
	t.Parallel()
	const each = 3 * time.Millisecond
	for name, test := range map[string]struct {
		takes  time.Duration
		orders int // of a message
		want   string
	}{
		// The first leaves at once, and the others 100 ms after it, also behind a call that takes long.
		"quick": {5 * time.Millisecond, 1, "1 at 0s, 15 at 100ms"},
		"slow":  {200 * time.Millisecond, 1, "1 at 0s, 15 at 100ms"},
		// A full one waits for nothing.
		"full": {5 * time.Millisecond, 160, "160 at 0s, 480 at 12ms, 480 at 21ms, 480 at 30ms, 480 at 39ms, 480 at 139ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := fed(t, test.takes, func(arrive func(orders int)) {
					for range 16 {
						arrive(test.orders)
						synctest.Wait()
						<-time.After(each)
					}
				})
				check.Equal(t, "calls", got, test.want)
			})
		})
	}
}

func TestWhatComesAfterAQuietMomentDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := fed(t, 5*time.Millisecond, func(arrive func(orders int)) {
			for range 3 {
				arrive(1)
				<-time.After(gatherTime)
			}
		})
		check.Equal(t, "calls", got, "1 at 0s, 1 at 100ms, 1 at 200ms")
	})
}
