package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"seckill/model"
)

// version is that of the layout below. A message of a later one is left for a
// worker that knows it.
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
}

// encode makes a message of orders. What decode would refuse is refused here:
// it would only be found when the buyer has been told that all is well.
func encode(orders []model.Reservation) ([]byte, error) {
	m := message1{Version: version, Orders: make([]order1, len(orders))}
	for i, r := range orders {
		m.Orders[i] = order1{
			ID: r.ID, User: r.UserID, Epoch: r.Epoch, Created: r.CreatedAt.UnixMicro(), Price: r.Price, Currency: r.Currency,
		}
		if _, err := m.Orders[i].reservation(0); err != nil {
			return nil, fmt.Errorf("encode order %q: %w", r.ID, err)
		}
	}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %d orders: %w", len(orders), err)
	}
	if len(body) > maxMessage {
		return nil, fmt.Errorf("encode %d orders: %d bytes, more than %d", len(orders), len(body), maxMessage)
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

// decode reads a message. What can be read of it is returned even when the
// rest cannot: one bad order takes no other down.
func decode(body []byte, sequence uint64) ([]model.Reservation, []flaw) {
	if len(body) > maxMessage {
		return nil, []flaw{{raw: body, reason: fmt.Sprintf("the message has %d bytes, more than %d", len(body), maxMessage)}}
	}
	if good, ok := decodeWhole(body, sequence); ok {
		return good, nil
	}
	return decodeEach(body, sequence)
}

// decodeWhole is the quick way, for a message in which everything is as it
// should be.
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

// decodeEach looks at every order by itself, because the whole does not fit.
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

// reservation is what the order says, if it makes sense.
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
			Price: o.Price, Currency: o.Currency, CreatedAt: time.UnixMicro(o.Created).UTC(),
		},
		Epoch:    o.Epoch,
		Sequence: sequence,
	}, nil
}
