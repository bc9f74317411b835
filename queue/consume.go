package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/poll"
	"seckill/model"
)

const (
	// fetchMessages bounds a fetch; the next begins when less than a full call of persist is left. A message has at
	// most 500 orders of some 130 bytes: an instance has a few MiB in hand.
	//
	// No bytes bound it: a consumer with replicas says 409 Batch Completed before it sends the orders, the client takes
	// the fetch for ended, and they come again after ackWait, for ever (nats-server 2.15, nats.go 1.55).
	fetchMessages = 64
	// stopBudget, for calls at the end, exceeds a transaction, not a bisecting call; messages cut off come again.
	stopBudget = budget.Answer + budget.Look

	defaultWorkers = 2 // where one after the other is too slow
)

// Persist stores orders and answers for each: nil when its fate is decided. Several workers call it at once.
type Persist = func(ctx context.Context, orders []model.Reservation) []error

// Delivery is what became of one call of persist, for metrics.
type Delivery struct {
	Orders   int           // that were handed out
	Messages int           // that carried them
	Again    int           // of the messages: delivered before
	Acked    int           // messages that are done
	Moved    int           // messages whose orders wait in others now
	Delayed  int           // messages that come again
	Buried   int           // orders, or whole messages, that could not be read
	Took     time.Duration // by persist
}

// ConsumeOptions bound the consuming.
type ConsumeOptions struct {
	Workers   int // calls at once; 0 is 2
	MaxOrders int // in one call; 0 is 500
	Observe   func(Delivery)
	// Rest says that another instance fetches, so that this one need not; nil: it always fetches.
	Rest func() bool
}

// Consume hands the queue's orders to persist until ctx ends. It then lets calls finish, gives other messages back, and
// returns nil. It survives a lost server, consumer or stream, and fails only if the Queue is closed under it.
func (q *Queue) Consume(ctx context.Context, persist Persist, o ConsumeOptions) error {
	o.Workers, o.MaxOrders = cmp.Or(o.Workers, defaultWorkers), cmp.Or(o.MaxOrders, MaxOrders)
	if o.Observe == nil {
		o.Observe = func(Delivery) {}
	}
	if o.Rest == nil {
		o.Rest = func() bool { return false }
	}
	c := &consumption{
		queue: q, persist: q.traced(persist), options: o, inHand: map[*message]time.Time{},
		wish: make(chan struct{}), arrivals: make(chan *message), batches: make(chan []*message),
	}
	return c.run(ctx)
}

// traced records what becomes of the orders of one call, from the queue to the settling.
func (q *Queue) traced(persist Persist) Persist {
	return func(ctx context.Context, orders []model.Reservation) []error {
		ctx, group := q.trace.Reservations(ctx, "persist", orders)
		verdicts := persist(ctx, group.Next(orders))
		if len(verdicts) == len(orders) { // else it is a bug, and the whole call comes again
			group.End(nil, func(i int) error { return verdicts[i] })
		}
		return verdicts
	}
}

// consumption is one run of Consume: a fetcher, a feeder with the line of messages, the only buffer, and its workers.
type consumption struct {
	queue   *Queue
	persist Persist
	options ConsumeOptions

	wish     chan struct{}   // feeder to fetcher: another fetch is welcome
	arrivals chan *message   // fetcher to feeder
	batches  chan []*message // feeder to workers

	lastDone atomic.Pointer[time.Time] // when a message was done with; nil: not yet

	mu     sync.Mutex
	inHand map[*message]time.Time // not answered yet, and when the server last heard of it
	warned time.Time              // of a later version
}

func (c *consumption) run(ctx context.Context) error {
	// Calls go on for a while after ctx has ended, but not for ever.
	working, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	defer context.AfterFunc(ctx, func() {
		late := time.NewTimer(stopBudget + c.queue.slack)
		defer late.Stop()
		select {
		case <-late.C:
			abort()
		case <-working.Done():
		}
	})()

	var heart, workers sync.WaitGroup
	heart.Go(func() { c.beat(working) })
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

type message struct {
	jetstream.Msg
	sequence  uint64
	delivered uint64 // how often, this time included
	isolated  bool   // on the subject of its voucher
	orders    []model.Reservation
	flaws     []flaw
	newer     bool    // of a later version: what it says is not known
	verdicts  []error // on its orders
	trouble   error   // of the message itself
	moved     bool    // what was not done is in other messages
}

func (c *consumption) receive(raw jetstream.Msg) *message {
	m := &message{Msg: raw}
	if about, err := raw.Metadata(); err == nil { // the server's own words: it never fails
		m.sequence, m.delivered = about.Sequence.Stream, about.NumDelivered
	}
	voucherID, _ := c.queue.names.voucher(raw.Subject())
	m.isolated = voucherID != model.AnyVoucher
	m.orders, m.flaws = decode(raw.Data(), m.sequence)
	if len(m.flaws) > 0 && newer(raw.Data()) {
		m.newer, m.flaws = true, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inHand[m] = time.Now() // of this instance, until release
	return m
}

// firstDelay is the first wait before unpersisted orders' messages come again, short as buyers wait. It grows up to
// budget.Call, so that the whole backlog does not ask a database that is down.
const firstDelay = 2 * budget.Blink

// work persists batch after batch. After a failure it rests, as the database may be down, but no longer than since any
// worker has persisted something. Trouble of single vouchers is no reason to rest: others must not wait.
func (c *consumption) work(ctx, working context.Context) {
	failures := 0
	for batch := range c.batches {
		switch done, vain := c.handle(working, batch); {
		case done:
			failures = 0
			c.lastDone.Store(new(time.Now()))
		case vain:
			failures++
			rest := backoff.Doubled(firstDelay, budget.Brief, failures-1)
			if last := c.lastDone.Load(); last != nil {
				rest = min(rest, time.Since(*last))
			}
			poll.Pause(ctx, rest)
		}
	}
}

// handle persists a batch and answers its messages. Done: at least one. Vain: some not, for want of servers.
func (c *consumption) handle(ctx context.Context, batch []*message) (done, vain bool) {
	ctx, cancel := context.WithTimeout(ctx, budget.Survey+c.queue.slack)
	defer cancel()
	count := 0
	for _, m := range batch {
		count += len(m.orders)
	}
	orders := make([]model.Reservation, 0, count)
	for _, m := range batch {
		orders = append(orders, m.orders...)
	}
	report := Delivery{Orders: len(orders), Messages: len(batch)}
	begun := time.Now()
	verdicts := c.call(ctx, orders)
	report.Took = time.Since(begun)
	undone := false
	for _, m := range batch {
		m.verdicts, verdicts = verdicts[:len(m.orders)], verdicts[len(m.orders):]
		var buried int
		buried, m.trouble = c.bury(ctx, m)
		report.Buried += buried
		if m.newer {
			m.trouble = errNewer
		}
		undone = undone || m.verdict() != nil
	}
	if undone {
		c.moveAll(ctx, batch)
	}
	for _, m := range batch {
		vain = vain || m.vain()
		if m.delivered > 1 {
			report.Again++
		}
		c.settle(ctx, m, m.verdict(), &report)
		c.release(m)
	}
	if report.Acked+report.Moved > 0 {
		c.flush(ctx)
		failpoint.Reach(failpoint.AfterAck)
	}
	c.options.Observe(report)
	return report.Acked > 0, vain
}

// call hands the orders to persist in one call, or several for a large message. Every order gets a verdict.
func (c *consumption) call(ctx context.Context, orders []model.Reservation) []error {
	verdicts := make([]error, 0, len(orders))
	for part := range slices.Chunk(orders, c.options.MaxOrders) {
		verdicts = append(verdicts, c.callSafely(ctx, part)...)
	}
	return verdicts
}

// callSafely turns a panic, or a wrong number of verdicts, into a verdict on these orders alone.
func (c *consumption) callSafely(ctx context.Context, orders []model.Reservation) (verdicts []error) {
	var bug any = "a wrong number of verdicts"
	defer func() {
		if p := recover(); p != nil {
			bug = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
		}
		if len(verdicts) != len(orders) {
			verdicts = slices.Repeat([]error{fmt.Errorf("%w: persist: %v", model.ErrOutage, bug)}, len(orders))
		}
	}()
	return c.persist(ctx, orders)
}

// settle answers a message, and counts it: the one place where an error becomes ack or nak. It waits for no
// confirmation: only the ack floor needs acks. After a lost one a rebuild waits until the message has come again.
func (c *consumption) settle(ctx context.Context, m *message, verdict error, report *Delivery) {
	delay := budget.Answer
	switch {
	case verdict == nil, m.moved:
		failpoint.Reach(failpoint.BeforeAck)
		c.answered(ctx, m, "ack", m.Ack())
		if m.moved {
			report.Moved++
		} else {
			report.Acked++
		}
		return
	case passing(verdict):
		c.queue.log.DebugContext(ctx, "a message comes again", slog.Uint64("sequence", m.sequence),
			slog.Any("error", verdict))
		longest := budget.Call
		if m.isolated {
			longest = budget.Answer
		}
		delay = backoff.Doubled(firstDelay, longest, int(min(m.delivered, 64))-1)
	case errors.Is(verdict, errNewer):
		c.mu.Lock()
		if time.Since(c.warned) >= budget.Survey {
			c.warned = time.Now()
			c.queue.log.WarnContext(ctx, "messages of a later version wait for a worker that can read them",
				slog.Uint64("sequence", m.sequence), slog.Int("known_version", version))
		}
		c.mu.Unlock()
	default: // a bug, for which no accepted order may be lost
		c.queue.log.ErrorContext(ctx, "a message cannot be persisted and comes again",
			slog.Uint64("sequence", m.sequence), slog.Uint64("delivered", m.delivered), slog.Any("error", verdict))
	}
	report.Delayed++
	c.answered(ctx, m, "nak", m.NakWithDelay(delay))
}

// passing tells whether an error passes by itself: database or queue are away, or left the outcome unknown.
func passing(err error) bool {
	return model.CodeOf(err) == model.CodeUnavailable || errors.Is(err, model.ErrUnknownOutcome) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// verdict is what decides about a whole message: that of a bug before that of an order that only has to wait.
func (m *message) verdict() error {
	found := m.trouble
	for _, err := range m.verdicts {
		if err != nil && (found == nil || passing(found) && !passing(err)) {
			found = err
		}
	}
	return found
}

// vain reports whether the database, or the queue, is the reason why a message is not done with.
func (m *message) vain() bool {
	return m.trouble != nil && !m.newer ||
		slices.ContainsFunc(m.verdicts, func(err error) bool { return errors.Is(err, model.ErrOutage) })
}

// bury puts the flaws of a message among the dead letters, under names that are the same when the message comes again.
func (c *consumption) bury(ctx context.Context, m *message) (int, error) {
	for i, f := range m.flaws {
		name := fmt.Sprintf("message.%d.%d", m.sequence, i)
		err := c.queue.bury(ctx, name, model.DeadLetter{Reason: f.reason, Raw: f.raw})
		if err != nil {
			return i, err
		}
		c.queue.log.ErrorContext(ctx, "what cannot be read of a message was put among the dead letters",
			slog.Uint64("sequence", m.sequence), slog.String("reason", f.reason))
	}
	return len(m.flaws), nil
}

func (c *consumption) answered(ctx context.Context, m *message, what string, err error) {
	if err != nil { // the connection is down; the server delivers the message again
		c.queue.log.DebugContext(ctx, "an answer to the queue was not sent", slog.String("answer", what),
			slog.Uint64("sequence", m.sequence), slog.Any("error", err))
	}
}

// flush sends a call's acks at once: the next fetch would be too late for a rebuild that waits for the floor.
func (c *consumption) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, budget.Call+c.queue.slack)
	defer cancel()
	if err := c.queue.conn.FlushWithContext(ctx); err != nil {
		c.queue.log.DebugContext(ctx, "acks may be lost with the connection", slog.Any("error", err))
	}
}

func (c *consumption) fetchAll(ctx context.Context) error {
	var worker jetstream.Consumer
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wish:
		}
		if poll.Until(ctx, budget.Blink, func() (bool, error) { return !c.options.Rest(), nil }) != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		var err error
		if worker == nil {
			worker, err = c.find(ctx, failures)
		}
		if err == nil {
			err = c.fetch(worker)
		}
		switch {
		case err == nil:
			if failures > 0 {
				c.queue.log.InfoContext(ctx, "orders are fetched again", slog.Int("failures", failures))
			}
			failures = 0
		case errors.Is(err, nats.ErrConnectionClosed):
			return unavailable("consume the orders", err)
		default:
			if failures++; failures == 1 && ctx.Err() == nil {
				c.queue.log.WarnContext(ctx, "orders cannot be fetched", slog.Any("error", err))
			}
			worker = nil
		}
	}
}

// find looks the consumer up. After a failure it waits first, and restores consumer and stream if they are gone.
func (c *consumption) find(ctx context.Context, failures int) (jetstream.Consumer, error) {
	if failures > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(backoff.Doubled(budget.Blink, budget.Call, failures-1)):
		}
		ctx, cancel := context.WithTimeout(ctx, budget.Settled+c.queue.slack)
		defer cancel()
		var created bool
		err := patiently(ctx, func(ctx context.Context) error {
			made, err := c.queue.prepare(ctx)
			created = created || made
			return err
		})
		if created {
			c.queue.log.ErrorContext(ctx,
				"the stream of orders was gone: what waited in it comes again only from the reservations")
		}
		if err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Call+c.queue.slack)
	defer cancel()
	worker, err := c.queue.js.Consumer(ctx, c.queue.names.orders, workerName)
	if err != nil {
		return nil, fmt.Errorf("look the consumer up: %w", err)
	}
	return worker, nil
}

// fetch makes one fetch and passes its messages on. Cut short, messages would stay unacknowledged until ackWait.
func (c *consumption) fetch(worker jetstream.Consumer) error {
	batch, err := worker.Fetch(fetchMessages, jetstream.FetchMaxWait(budget.Look))
	if err != nil {
		return fmt.Errorf("fetch orders: %w", err)
	}
	for raw := range batch.Messages() {
		c.arrivals <- c.receive(raw)
	}
	if err := batch.Error(); err != nil {
		return fmt.Errorf("fetch orders: %w", err)
	}
	return nil
}
