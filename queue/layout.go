package queue

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"seckill/model"
)

// A message is JSON of the structs below: the library takes 2 µs an order to write and read it, less than a hundredth of
// what an order costs.

// version is that of the layout below. A message of a later version is left in the stream
// for a newer worker.
const version = 1

// errNewer says of a message that only a newer worker can read it.
var errNewer = errors.New("the message is of a later version")

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
	// Sequence is that of the message in which the order came, in one to which it was moved.
	Sequence uint64 `json:"sequence,omitempty"`
}

// encode makes a message of orders.
func encode(orders []order1) ([]byte, error) {
	body, err := json.Marshal(message1{Version: version, Orders: orders})
	if err != nil {
		return nil, fmt.Errorf("encode %d orders, the first %q: %w", len(orders), orders[0].ID, err)
	}
	if len(body) > maxMessage {
		return nil, fmt.Errorf("encode %d orders, the first %q: %d bytes, more than %d: %w", len(orders), orders[0].ID, len(body), maxMessage, nats.ErrMaxPayload)
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

// reservation checks the order and makes a reservation of it, which has the sequence of the
// message that carries it, or of the one in which it came.
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
