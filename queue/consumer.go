package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"seckill/internal/failpoint"
	"seckill/model"
)

const (
	// callBudget bounds a call of persist. The longest transaction gives up
	// after seconds, and bisecting a poisoned call takes some of them; a call
	// that hangs must not keep its orders from another instance for ever.
	callBudget = time.Minute
	// firstDelay and longestDelay are the waits before a message comes again
	// whose orders could not be persisted now: growing, so that a database that
	// is down is not asked by the whole backlog, and short, because buyers wait
	// for what comes as soon as it is well.
	firstDelay   = 100 * time.Millisecond
	longestDelay = 2 * time.Second
	// helplessDelay is the wait for what time alone does not heal: a bug, or a
	// message that only a newer worker can read.
	helplessDelay = 5 * time.Second
	// longestRest is the longest wait of a worker that could persist nothing. It
	// is short, because what comes next may be of a voucher that is well.
	longestRest = 500 * time.Millisecond
	// newerAgain is between two warnings of messages that nobody here can read.
	newerAgain = time.Minute
)

// outcome is what became of a batch.
type outcome int

const (
	someDone outcome = iota // at least one message is done with
	noneDone                // some were tried, and all in vain
	notTried                // nothing was tried
)

// work persists one batch after another. It rests while nothing can be
// persisted, so that a database that is down is not asked all the time: no longer
// than nothing was persisted by any worker, because then the trouble is that of
// single vouchers, and no other one may wait for it. What was not tried has cost
// the database nothing, and is no reason to rest.
func (c *consumption) work(ctx, working context.Context) {
	failures := 0
	for batch := range c.batches {
		switch c.handle(working, batch) {
		case someDone:
			failures = 0
			c.lastDone.Store(time.Now().UnixNano())
		case notTried:
		case noneDone:
			failures++
			idle := time.Since(time.Unix(0, c.lastDone.Load()))
			select {
			case <-ctx.Done():
			case <-time.After(min(growing(firstDelay, longestRest, failures), idle)):
			}
		}
	}
}

// handle persists a batch and answers its messages.
func (c *consumption) handle(ctx context.Context, batch []*message) outcome {
	ctx, cancel := context.WithTimeout(ctx, callBudget)
	defer cancel()
	var orders []model.Reservation
	for _, m := range batch {
		orders = append(orders, m.orders...)
	}
	report := Delivery{Orders: len(orders), Messages: len(batch)}
	begun := time.Now()
	verdicts := c.call(ctx, orders)
	report.Took = time.Since(begun)
	became := notTried
	for _, m := range batch {
		verdict := worst(verdicts[:len(m.orders)])
		verdicts = verdicts[len(m.orders):]
		if m.delivered > 1 {
			report.Again++
		}
		buried, err := c.bury(ctx, m)
		report.Buried += buried
		if m.newer {
			err = errNewer
		}
		verdict = worst([]error{verdict, err})
		if !errors.Is(verdict, model.ErrNotTried) {
			became = noneDone
		}
		if c.settle(ctx, m, verdict) {
			report.Acked++
		} else {
			report.Delayed++
		}
		c.hand.release(m)
	}
	if report.Acked > 0 {
		became = someDone
		c.flush(ctx)
		failpoint.Reach(failpoint.AfterAck)
	}
	c.options.Observe(report)
	return became
}

// call hands the orders to persist: in one call, or in several when a single
// message holds more than one call takes. There is a verdict for every order.
func (c *consumption) call(ctx context.Context, orders []model.Reservation) []error {
	verdicts := make([]error, 0, len(orders))
	for part := range slices.Chunk(orders, c.options.MaxOrders) {
		verdicts = append(verdicts, c.callSafely(ctx, part)...)
	}
	return verdicts
}

// callSafely turns a panic, or an answer that makes no sense, into a verdict on
// these orders: the worker serves everybody.
func (c *consumption) callSafely(ctx context.Context, orders []model.Reservation) (verdicts []error) {
	defer func() {
		if p := recover(); p != nil {
			verdicts = slices.Repeat([]error{fmt.Errorf("persist: panic: %v\n%s", p, debug.Stack())}, len(orders))
		}
	}()
	verdicts = c.persist(ctx, orders)
	if len(verdicts) != len(orders) {
		return slices.Repeat([]error{fmt.Errorf("persist: %d verdicts on %d orders", len(verdicts), len(orders))}, len(orders))
	}
	return verdicts
}

// settle answers a message: the one place where an error becomes ack or nak. It
// reports whether the message is done with.
//
// An ack is not waited for. What relies on it is the ack floor, and that rises
// only with acks that have arrived: a lost one makes a rebuild wait until the
// message was delivered again and recognised, and nothing worse.
func (c *consumption) settle(ctx context.Context, m *message, verdict error) bool {
	switch {
	case verdict == nil:
		failpoint.Reach(failpoint.BeforeAck)
		c.answered(ctx, m, "ack", m.Ack())
		return true
	case passing(verdict):
		c.queue.log.DebugContext(ctx, "a message comes again", slog.Uint64("sequence", m.sequence), slog.Any("error", verdict))
		c.answered(ctx, m, "nak", m.NakWithDelay(growing(firstDelay, longestDelay, int(min(m.delivered, 64)))))
	case errors.Is(verdict, errNewer):
		c.warnOfNewer(ctx, m)
		c.answered(ctx, m, "nak", m.NakWithDelay(helplessDelay))
	default: // a bug, which must not cost anybody an accepted order
		c.queue.log.ErrorContext(ctx, "a message cannot be persisted and comes again", slog.Uint64("sequence", m.sequence),
			slog.Uint64("delivered", m.delivered), slog.Any("error", verdict))
		c.answered(ctx, m, "nak", m.NakWithDelay(helplessDelay))
	}
	return false
}

// warnOfNewer says now and then that messages wait for a newer worker.
func (c *consumption) warnOfNewer(ctx context.Context, m *message) {
	last, now := c.newerWarned.Load(), time.Now().UnixNano()
	if now-last < int64(newerAgain) || !c.newerWarned.CompareAndSwap(last, now) {
		return
	}
	c.queue.log.WarnContext(ctx, "messages of a later version wait for a worker that can read them",
		slog.Uint64("sequence", m.sequence), slog.Int("known_version", version))
}

// passing tells what time heals: the database or the queue is away, or did not
// say what became of the orders.
func passing(err error) bool {
	return model.CodeOf(err) == model.CodeUnavailable || errors.Is(err, model.ErrUnknownOutcome) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// worst picks the verdict that decides about a whole message: a bug is reported
// also when another order only has to wait.
func worst(verdicts []error) error {
	var found error
	for _, err := range verdicts {
		if err != nil && (found == nil || passing(found) && !passing(err)) {
			found = err
		}
	}
	return found
}

// bury puts what cannot be read of a message among the dead letters, under a
// name that is the same when the message comes again.
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

// giveBack returns messages that nobody has begun with to the other instances.
func (c *consumption) giveBack(ctx context.Context, messages []*message) {
	for _, m := range messages {
		c.answered(ctx, m, "nak", m.Nak())
		c.hand.release(m)
	}
}

func (c *consumption) answered(ctx context.Context, m *message, what string, err error) {
	if err != nil { // the connection is down; the message comes again by itself
		c.queue.log.DebugContext(ctx, "an answer to the queue was not sent", slog.String("answer", what),
			slog.Uint64("sequence", m.sequence), slog.Any("error", err))
	}
}

// flush pushes a call's acks out at once; the next fetch would do it too late
// for whoever waits for the ack floor.
func (c *consumption) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askBudget)
	defer cancel()
	if err := c.queue.conn.FlushWithContext(ctx); err != nil {
		c.queue.log.DebugContext(ctx, "acks may be lost with the connection", slog.Any("error", err))
	}
}
