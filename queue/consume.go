package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"seckill/model"
)

const (
	// fetchMessages and fetchBytes bound one fetch; the next one begins when
	// less than a full call of persist is left of it. In hand are thus at most
	// one fetch (1 MiB of text, or the server's max_payload if that is more),
	// one call that waits to be taken, and one for each worker: a few MiB, and
	// never more than some 2,000 messages.
	fetchMessages = 500
	fetchBytes    = 1 << 20
	// fetchSlack is for the subjects and headers of a message of max_payload.
	fetchSlack = 4 << 10
	// fetchBudget is how long a fetch waits for its messages. They come through
	// as they arrive; this is how long an orderly stop may wait for the fetch
	// to end, whose messages would otherwise lie until ackWait.
	fetchBudget = time.Second
	// stopBudget is how long calls under way may go on after the end was asked
	// for: longer than a transaction, shorter than a call that has to look for
	// what cannot be stored. What is cut off comes again.
	stopBudget = 6 * time.Second
	// repairPause and longestRepairPause are the waits between two tries to
	// reach the server again, growing.
	repairPause        = 100 * time.Millisecond
	longestRepairPause = 2 * time.Second

	defaultWorkers = 2 // one waits for the database while another computes
)

// Persist stores orders and answers for each: nil when its fate is decided and
// it must not come again. It is called by several workers at once.
type Persist = func(ctx context.Context, orders []model.Reservation) []error

// Delivery is what became of one call of persist, for metrics.
type Delivery struct {
	Orders   int           // that were handed out
	Messages int           // that carried them
	Again    int           // of the messages: delivered before
	Acked    int           // messages that are done
	Delayed  int           // messages that come again
	Buried   int           // orders, or whole messages, that could not be read
	Took     time.Duration // by persist
}

// ConsumeOptions bound the consuming.
type ConsumeOptions struct {
	Workers   int // calls at once; 0 is 2
	MaxOrders int // in one call; 0 is 500
	Observe   func(Delivery)
}

// Consume hands the queue's orders to persist until ctx ends; then the calls
// under way may finish, what was not begun is given back, and it returns nil.
// It survives the loss of the server, of the consumer and of the stream, and
// fails only when the Queue is closed under it.
func (q *Queue) Consume(ctx context.Context, persist Persist, o ConsumeOptions) error {
	if o.Workers <= 0 {
		o.Workers = defaultWorkers
	}
	if o.MaxOrders <= 0 {
		o.MaxOrders = MaxOrders
	}
	if o.Observe == nil {
		o.Observe = func(Delivery) {}
	}
	c := &consumption{
		queue: q, persist: persist, options: o, hand: newHand(q.wanted.worker.AckWait),
		wish: make(chan struct{}), arrivals: make(chan *message), batches: make(chan []*message),
	}
	return c.run(ctx)
}

// consumption is one run of Consume: a fetcher, a feeder that puts what was
// fetched in line, and the workers that are fed. All channels hand over
// directly; what waits, waits in the line.
type consumption struct {
	queue   *Queue
	persist Persist
	options ConsumeOptions
	hand    *hand

	wish     chan struct{}   // feeder to fetcher: another fetch is welcome
	arrivals chan *message   // fetcher to feeder
	batches  chan []*message // feeder to workers

	lastDone    atomic.Int64 // Unix time (ns) at which a message was done with
	newerWarned atomic.Int64 // likewise: the last warning of a later version
}

func (c *consumption) run(ctx context.Context) error {
	// Calls go on for a while after ctx has ended, but not for ever.
	working, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	defer context.AfterFunc(ctx, func() {
		late := time.NewTimer(stopBudget)
		defer late.Stop()
		select {
		case <-late.C:
			abort()
		case <-working.Done():
		}
	})()

	var heart, workers sync.WaitGroup
	heart.Go(func() { c.hand.beat(working) })
	for range c.options.Workers {
		workers.Go(func() { c.work(ctx, working) })
	}
	workers.Go(func() { c.feed(ctx) })
	err := c.fetchAll(ctx)
	close(c.arrivals)
	workers.Wait()
	abort()
	heart.Wait()
	return err
}

// feed keeps the line: what has arrived and waits for a worker. A fetch is
// welcome while the line is too short for a full call.
func (c *consumption) feed(ctx context.Context) {
	defer close(c.batches)
	line := newLine(c.options.MaxOrders)
	over := ctx.Done()
	for stopping := false; ; {
		var wish chan<- struct{}
		var batches chan<- []*message
		next := line.next()
		if !stopping && !line.full() {
			wish = c.wish
		}
		if !stopping && len(next) > 0 {
			batches = c.batches
		}
		select {
		case m, more := <-c.arrivals:
			if !more {
				c.giveBack(ctx, line.all())
				return
			}
			line.add(m)
		case wish <- struct{}{}:
		case batches <- next:
			line.take()
		case <-over:
			stopping, over = true, nil
		}
	}
}
