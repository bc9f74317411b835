package queue

import (
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

	"seckill/internal/ids"
	"seckill/model"
)

const (
	// MaxOrders is how many orders one message carries at most, so that one
	// transaction of the database takes it whole.
	MaxOrders = 500

	// publishBudget bounds a publish with all its repetitions. It must stay
	// well below the de-duplication window, in which a repetition is seen.
	publishBudget = 10 * time.Second
	// tryBudget is how long a try waits for its ack. A server that flushes each
	// message answers in milliseconds, and recognises a repetition.
	tryBudget = time.Second
	// publishers is how many messages of one call are on their way at once. The
	// server flushes them one after the other, and a disk that takes 10 ms must
	// acknowledge all of them within tryBudget.
	publishers = 32
	// tryPause is the wait after a try that failed at once (no connection, no
	// leader): short against the caller's patience, long against a busy loop.
	tryPause = 50 * time.Millisecond
)

// Publish stores the orders, those of one voucher in one message where they fit,
// and returns when the server has them on its disk. Every error wraps
// model.ErrUnknownOutcome: some of the orders may be stored, now or later. An order
// that cannot be encoded is a bug: the error names it, and the others are stored.
func (q *Queue) Publish(ctx context.Context, orders []model.Reservation) error {
	ctx, cancel := context.WithTimeout(ctx, publishBudget)
	defer cancel()
	action := fmt.Sprintf("publish %d orders", len(orders))
	messages, refused := q.messages(orders)
	var sending errgroup.Group // a message that fails does not stop the others
	sending.SetLimit(publishers)
	for _, m := range messages {
		sending.Go(func() error { return q.publish(ctx, m) })
	}
	if err := errors.Join(sending.Wait(), refused); err != nil {
		return unknown(action, err)
	}
	return nil
}

// messages encodes orders: each message carries those of one voucher, in their order.
// The error names the orders that no message carries. It refuses what decode would
// refuse, because then the buyer has already been told that the order is accepted.
func (q *Queue) messages(orders []model.Reservation) (messages []*nats.Msg, refused error) {
	own := make(map[string][]order1)
	for _, r := range orders {
		o := orderOf(r)
		if _, err := o.reservation(0); err != nil {
			refused = errors.Join(refused, fmt.Errorf("encode order %q: %w", r.ID, err))
			continue
		}
		voucherID, _ := model.VoucherOf(r.ID)
		own[voucherID] = append(own[voucherID], o)
	}
	for voucherID, orders := range own {
		for part := range slices.Chunk(orders, MaxOrders) {
			body, err := encode(part)
			if err != nil {
				refused = errors.Join(refused, err)
				continue
			}
			messages = append(messages, &nats.Msg{Subject: q.names.of(voucherID), Data: body})
		}
	}
	return messages, refused
}

// publish stores one message. A try without an answer is repeated under the same
// id until the server has refused or acknowledged it, or time is up.
func (q *Queue) publish(ctx context.Context, m *nats.Msg) error {
	id, err := ids.New()
	if err != nil {
		return fmt.Errorf("name a message: %w", err)
	}
	for {
		err := q.try(ctx, m.Subject, m.Data, jetstream.WithMsgID(id), jetstream.WithExpectStream(q.names.orders))
		if err == nil || definite(err) {
			return err
		}
		q.log.DebugContext(ctx, "a publish is repeated", slog.String("message", id), slog.Any("error", err))
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(tryPause):
		}
	}
}

// try sends a message once.
func (q *Queue) try(ctx context.Context, subject string, body []byte, options ...jetstream.PublishOpt) error {
	ctx, cancel := context.WithTimeout(ctx, tryBudget)
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

// definite tells whether the server has refused for a reason that lasts, such as a
// full stream: asking again within milliseconds would get the same answer.
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

// version is the version of the layout below. A message of a later version is left
// in the stream for a worker that knows it.
const version = 1

// errNewer says of a message that only a newer worker can read it.
var errNewer = fmt.Errorf("the message is of a later version: %w", model.ErrNotTried)

// message1 is the body of a message.
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
	// Trace is the traceparent under which the order is traced. A worker that does not know it passes it over, and an
	// order without it is complete: this is the same version.
	Trace string `json:"trace,omitempty"`
}

// usualOrder is how many bytes of a message an order takes, with ids of usual lengths.
const usualOrder = 180

// encode makes a message of orders.
func encode(orders []order1) ([]byte, error) {
	body, usual := appendMessage(make([]byte, 0, len(orders)*usualOrder), orders)
	if !usual {
		var err error
		if body, err = json.Marshal(message1{Version: version, Orders: orders}); err != nil {
			return nil, fmt.Errorf("encode %d orders, the first %q: %w", len(orders), orders[0].ID, err)
		}
	}
	if len(body) > maxMessage {
		return nil, fmt.Errorf("encode %d orders, the first %q: %d bytes, more than %d", len(orders), orders[0].ID, len(body), maxMessage)
	}
	return body, nil
}

// newer reports whether a message is of a later version.
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

// decode reads a message. It returns the orders that can be read, and a flaw for
// each of the others.
func decode(body []byte, sequence uint64) ([]model.Reservation, []flaw) {
	if len(body) > maxMessage {
		return nil, []flaw{{raw: body, reason: fmt.Sprintf("the message has %d bytes, more than %d", len(body), maxMessage)}}
	}
	if good, ok := decodeWhole(body, sequence); ok {
		return good, nil
	}
	return decodeEach(body, sequence)
}

// decodeWhole is the quick way, for a message without flaws.
func decodeWhole(body []byte, sequence uint64) ([]model.Reservation, bool) {
	read, usual := readMessage(string(body))
	if !usual {
		var m message1
		if err := json.Unmarshal(body, &m); err != nil || m.Version != version || len(m.Orders) == 0 {
			return nil, false
		}
		read = m.Orders
	}
	orders := make([]model.Reservation, len(read))
	for i, o := range read {
		r, err := o.reservation(sequence)
		if err != nil {
			return nil, false
		}
		orders[i] = r
	}
	return orders, true
}

// decodeEach reads every order by itself.
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
		return nil, []flaw{{raw: body, reason: fmt.Sprintf("the message has version %d, known is %d", m.Version, version)}}
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
	return order1{ID: r.ID, User: r.UserID, Epoch: r.Epoch, Created: r.CreatedAt.UnixMicro(), Price: r.Price, Currency: r.Currency, Trace: r.Trace}
}

// reservation checks the order and makes a reservation of it.
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
		Sequence: sequence,
	}, nil
}
