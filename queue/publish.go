package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"seckill/internal/budget"
	"seckill/internal/ids"
	"seckill/internal/lane"
	"seckill/internal/poll"
	"seckill/model"
)

const (
	// MaxOrders is how many orders one message carries at most, so that one transaction of the database takes it whole.
	MaxOrders = 500

	// publishers is how many of a call's messages are under way at once: flushed in turn, at 10 ms, in budget.Look.
	publishers = 32
)

// Publish stores orders of any vouchers, in one message if they fit, and returns when the server has them on its disk.
// Every error wraps model.ErrUnknownOutcome. The error names an order that cannot be encoded, a bug; others are stored.
func (q *Queue) Publish(ctx context.Context, orders []model.Reservation) (err error) {
	ctx, traced := q.trace.Reservations(ctx, "publish", orders)
	defer func() { traced.End(err, nil) }()
	usable, refused := q.readable(traced.Next(orders))
	if err := errors.Join(q.publishAll(ctx, map[string][]order1{q.names.subject: usable}), refused); err != nil {
		return unknown(fmt.Sprintf("publish %d orders", len(orders)), err)
	}
	return nil
}

// readable encodes orders. It refuses what decode would: by then the buyer has been told that the order is accepted.
func (*Queue) readable(orders []model.Reservation) (all []order1, refused error) {
	all = make([]order1, 0, len(orders))
	for _, r := range orders {
		o := orderOf(r)
		if _, err := o.reservation(0); err != nil {
			refused = errors.Join(refused, fmt.Errorf("encode order %q: %w", r.ID, err))
			continue
		}
		all = append(all, o)
	}
	return all, refused
}

// publishAll stores orders on subjects. Those of a subject share messages. A failed message stops no others.
func (q *Queue) publishAll(ctx context.Context, orders map[string][]order1) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Step+q.slack)
	defer cancel()
	var sending errgroup.Group
	sending.SetLimit(publishers)
	for subject, all := range orders {
		for part := range slices.Chunk(all, MaxOrders) {
			sending.Go(func() error {
				return lane.Halve(part, tooLarge, func(some []order1) error { return q.publish(ctx, subject, some) })
			})
		}
	}
	return sending.Wait()
}

// publish stores one message. A try without an answer is repeated under its id until it is decided or time is up.
func (q *Queue) publish(ctx context.Context, subject string, orders []order1) error {
	body, err := encode(orders)
	if err != nil {
		return err
	}
	id, err := ids.New()
	if err != nil {
		return fmt.Errorf("name a message: %w", err)
	}
	for {
		began := time.Now()
		err := q.try(ctx, subject, body, jetstream.WithMsgID(id), jetstream.WithExpectStream(q.names.orders))
		if tooLarge(err) {
			return fmt.Errorf("publish %d orders together, the first %q: %w", len(orders), orders[0].ID, err)
		}
		final := err == nil || definite(err)
		if final || time.Since(began) >= budget.Look { // a server whose disk is full may also say nothing
			q.confirmed(ctx, err)
		}
		if final {
			return err
		}
		q.log.DebugContext(ctx, "a publish is repeated", slog.String("message", id), slog.Any("error", err))
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(budget.Blink):
		}
	}
}

// confirmed remembers whether the server stores messages, and says it when it does not.
func (q *Queue) confirmed(ctx context.Context, err error) {
	if err == nil {
		q.refused.Forget()
		return
	}
	q.refused.Note(err, func() {
		q.log.ErrorContext(ctx, "the order queue stores no orders; its disk or its bounds may be full",
			slog.Any("error", err))
	})
}

func (q *Queue) try(ctx context.Context, subject string, body []byte, options ...jetstream.PublishOpt) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Look)
	defer cancel()
	// publish repeats, within its budget; the library must not.
	options = append(options, jetstream.WithRetryAttempts(0))
	_, err := leaving(ctx, func(ctx context.Context) (*jetstream.PubAck, error) {
		return q.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: body}, options...)
	})
	return err
}

// Answers of a server that cannot say at the moment; see its errors.json.
const (
	codeClusterNotAvailable jetstream.ErrorCode = 10008
	codeClusterNotLeader    jetstream.ErrorCode = 10009
	codeStreamOffline       jetstream.ErrorCode = 10118
	codeDuplicateConflict   jetstream.ErrorCode = 10158 // an earlier try is still being replicated
)

// codeMessageTooLarge is the answer of a stream whose max_msg_size is less than the server's max_payload.
const codeMessageTooLarge jetstream.ErrorCode = 10054

// tooLarge tells whether a message is larger than the server, which tells its limit, or the stream takes.
func tooLarge(err error) bool {
	refusal, ok := errors.AsType[*jetstream.APIError](err)
	return errors.Is(err, nats.ErrMaxPayload) || ok && refusal.ErrorCode == codeMessageTooLarge
}

// definite tells whether the server refused for a lasting reason, such as a full stream.
func definite(err error) bool {
	refusal, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrMaxPayload)
	}
	switch refusal.ErrorCode { //nolint:exhaustive // some hundred codes, of which these pass by themselves
	case codeClusterNotAvailable, codeClusterNotLeader, codeStreamOffline, codeDuplicateConflict:
		return false
	default:
		return true
	}
}

// A message is JSON of the structs below: 2 µs an order to write and read, below a hundredth of an order's cost.

// version is that of the layout below. A message of a later version is left in the stream for a newer worker.
const version = 1

// errNewer says of a message that only a newer worker can read it.
var errNewer = errors.New("the message is of a later version")

type message1 struct {
	Version int      `json:"v"`
	Orders  []order1 `json:"orders"`
}

// order1 is one order in it. The voucher is part of the order's id.
type order1 struct {
	ID       string `json:"id"`
	User     string `json:"user"`
	Epoch    int64  `json:"epoch"`
	Created  int64  `json:"created"` // µs since 1970
	Price    int64  `json:"price"`
	Currency string `json:"currency"`
	// Trace is the order's traceparent. A worker may pass it over, and an order without it is complete.
	Trace string `json:"trace,omitempty"`
	// Sequence is that of the message in which the order came, in one to which it was moved.
	Sequence uint64 `json:"sequence,omitempty"`
}

func encode(orders []order1) ([]byte, error) {
	body, err := json.Marshal(message1{Version: version, Orders: orders})
	if err != nil {
		return nil, fmt.Errorf("encode %d orders, the first %q: %w", len(orders), orders[0].ID, err)
	}
	if len(body) > maxMessage {
		return nil, fmt.Errorf("encode %d orders, the first %q: %d bytes, more than %d: %w", len(orders), orders[0].ID,
			len(body), maxMessage, nats.ErrMaxPayload)
	}
	return body, nil
}

func newer(body []byte) bool {
	var m struct {
		Version int `json:"v"`
	}
	return json.Unmarshal(body, &m) == nil && m.Version > version
}

// flaw is a part of a message that cannot be read: one order, or all of it.
type flaw struct {
	raw    []byte
	reason string
}

// decode reads a message. It returns the orders that can be read, and a flaw for each of the others.
func decode(body []byte, sequence uint64) ([]model.Reservation, []flaw) {
	if len(body) > maxMessage {
		return nil, []flaw{{raw: body, reason: fmt.Sprintf("the message has %d bytes, more than %d", len(body),
			maxMessage)}}
	}
	if good, ok := decodeWhole(body, sequence); ok {
		return good, nil
	}
	return decodeEach(body, sequence)
}

func decodeWhole(body []byte, sequence uint64) ([]model.Reservation, bool) {
	var m message1
	if err := json.Unmarshal(body, &m); err != nil || m.Version != version || len(m.Orders) == 0 {
		return nil, false
	}
	orders := make([]model.Reservation, len(m.Orders))
	for i, o := range m.Orders {
		r, err := o.reservation(sequence)
		if err != nil {
			return nil, false
		}
		orders[i] = r
	}
	return orders, true
}

func decodeEach(body []byte, sequence uint64) (good []model.Reservation, bad []flaw) {
	var m struct {
		Version int               `json:"v"`
		Orders  []json.RawMessage `json:"orders"`
	}
	err := json.Unmarshal(body, &m)
	switch {
	case err != nil:
		return nil, []flaw{{raw: body, reason: fmt.Sprintf("the message cannot be read: %v", err)}}
	case m.Version != version:
		return nil, []flaw{{raw: body, reason: fmt.Sprintf("the message has version %d, known is %d", m.Version,
			version)}}
	case len(m.Orders) == 0:
		return nil, []flaw{{raw: body, reason: "the message holds no orders"}}
	}
	for _, raw := range m.Orders {
		var o order1
		if err := json.Unmarshal(raw, &o); err != nil {
			bad = append(bad, flaw{raw: raw, reason: fmt.Sprintf("the order cannot be read: %v", err)})
			continue
		}
		r, err := o.reservation(sequence)
		if err != nil {
			bad = append(bad, flaw{raw: raw, reason: err.Error()})
			continue
		}
		good = append(good, r)
	}
	return good, bad
}

func orderOf(r model.Reservation) order1 {
	return order1{
		ID: r.ID, User: r.UserID, Epoch: r.Epoch, Created: r.CreatedAt.UnixMicro(), Price: r.Price,
		Currency: r.Currency, Trace: r.Trace,
	}
}

// reservation checks the order and makes a reservation of it, with the sequence of the message that carries it.
func (o order1) reservation(sequence uint64) (model.Reservation, error) {
	voucherID, ok := model.VoucherOf(o.ID)
	switch {
	case !ok:
		return model.Reservation{}, errors.New("the order's id names no voucher")
	case !model.ValidUserID(o.User):
		return model.Reservation{}, errors.New("the order's user cannot exist")
	case o.Epoch < 0 || o.Created <= 0 || o.Price < 0 || o.Currency == "":
		return model.Reservation{}, errors.New("the order lacks its epoch, time, price or currency")
	}
	return model.Reservation{
		Order: model.Order{
			ID: o.ID, VoucherID: voucherID, UserID: o.User, Status: model.OrderProcessing,
			Price: o.Price, Currency: o.Currency, CreatedAt: time.UnixMicro(o.Created).UTC(), Trace: o.Trace,
		},
		Epoch:    o.Epoch,
		Sequence: cmp.Or(o.Sequence, sequence),
	}, nil
}

// release notes that a message is not in the hand of this instance any more.
func (c *consumption) release(m *message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.inHand, m)
}

// beat shows the server every third of its wait, until ctx ends, that messages in hand are worked on. One may be lost.
func (c *consumption) beat(ctx context.Context) {
	wait := c.queue.wanted.worker.AckWait
	// Twice as often as a sign is due, so that none is late by more than half.
	poll.Every(ctx, wait/6, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for m, last := range c.inHand {
			if time.Since(last) >= wait/3 && m.InProgress() == nil { // else it is down: at the next tick
				c.inHand[m] = time.Now()
			}
		}
	})
}

// gatherTime is between the beginnings of calls of persist that are not full: orders share a transaction while messages
// keep coming. What follows a quiet moment does not wait, and nothing waits for a longer call.
const gatherTime = 2 * budget.Blink

// feed keeps the line of messages for the workers. It asks for a fetch while the line is too short.
func (c *consumption) feed(ctx context.Context) {
	defer close(c.batches)
	var line []*message
	var latest time.Time // when the latest call began
	again := time.NewTimer(0)
	defer again.Stop()
	over := ctx.Done()
	for stopping := false; ; {
		var wish chan<- struct{}
		var batches chan<- []*message
		n, full := nextCall(line, c.options.MaxOrders)
		if !stopping && !full {
			wish = c.wish
		}
		if !stopping && n > 0 {
			if wait := gatherTime - time.Since(latest); full || wait <= 0 {
				batches = c.batches
			} else {
				again.Reset(wait)
			}
		}
		select {
		case m, more := <-c.arrivals:
			if !more {
				for _, m := range line { // the server delivers them to other instances at once
					c.answered(ctx, m, "nak", m.Nak())
					c.release(m)
				}
				return
			}
			line = append(line, m)
		case wish <- struct{}{}:
		case batches <- line[:n:n]:
			line = line[n:]
			latest = time.Now()
		case <-again.C:
		case <-over:
			stopping, over = true, nil
		}
	}
}

// nextCall counts the messages that make the next call: those that fit, at least one. Full: no further one could join.
func nextCall(line []*message, limit int) (n int, full bool) {
	orders := 0
	for _, m := range line {
		if n > 0 && orders+len(m.orders) > limit {
			return n, true
		}
		n++
		if orders += len(m.orders); orders >= limit {
			return n, true
		}
	}
	return n, false
}
