package repository

import (
	"cmp"
	"time"

	"seckill/model"
)

// terms are what orders are made under.
type terms struct {
	window time.Duration   // for payment, unless the voucher says another
	mode   model.OrderMode // in which units may be taken
}

// windowOf is how long an order of a voucher made now stays unpaid.
func (t terms) windowOf(v voucherRow) time.Duration {
	return cmp.Or(time.Duration(v.PaymentWindow), t.window)
}

// ruling is what is to become of the orders of one voucher.
type ruling struct {
	outcomes  []model.Outcome // one for each order, in their order
	rows      []model.Order   // to be inserted
	units     int64           // to be taken, one for each live row
	exhausted bool            // an order was refused because nothing else remains
}

// judge decides about the orders of one voucher, one after the other.
type judge struct {
	terms   terms
	voucher *voucherRow // nil: there is none
	byID    map[string]*model.Order
	byUser  map[string]*model.Order // live ones
	ruling  ruling
}

// rule decides about the orders of one voucher. The existing orders must have
// been read after the voucher: the order that has taken its last unit is then
// among them.
func rule(orders []model.Reservation, voucher *voucherRow, existing []model.Order, terms terms) ruling {
	most := len(existing) + len(orders)
	j := judge{
		terms: terms, voucher: voucher,
		byID: make(map[string]*model.Order, most), byUser: make(map[string]*model.Order, most),
		// With room for all, so that no row moves while the maps point to it.
		ruling: ruling{outcomes: make([]model.Outcome, 0, len(orders)), rows: make([]model.Order, 0, len(orders))},
	}
	for i := range existing {
		row := &existing[i]
		j.byID[row.ID] = row
		if row.Live() && len(orders) > 0 && row.VoucherID == orders[0].VoucherID {
			j.byUser[row.UserID] = row
		}
	}
	for _, order := range orders {
		j.ruling.outcomes = append(j.ruling.outcomes, j.decide(order))
	}
	return j.ruling
}

// decide is the one place where the refusals and their precedence stand:
// existing id, NOT_FOUND, ENDED, PAUSED, NOT_STARTED, superseded,
// ALREADY_ORDERED, UNAVAILABLE, COOLING_DOWN, SOLD_OUT. A reservation was promised to become
// an order, so that its refusal is a row; a superseded one is UNAVAILABLE until it is known
// that no hot copy holds it.
func (j *judge) decide(order model.Reservation) model.Outcome {
	if row, ok := j.byID[order.ID]; ok {
		return j.existing(order, *row)
	}
	if j.voucher == nil {
		return model.Outcome{Err: model.NotFound("voucher")}
	}
	if order.CreatedAt.IsZero() {
		voucher := &j.voucher.Voucher
		if order.Early {
			voucher = new(voucher.ForEarly())
		}
		if refusal := voucher.Refusal(j.voucher.Now.Time); refusal != nil {
			return model.Outcome{Err: refusal}
		}
	}
	reserved := order.Epoch > 0
	if reserved && j.voucher.superseded(order) {
		if !j.voucher.dropped(order) {
			return model.Outcome{Err: model.Unavailable("The order's hot copy was replaced.", model.ErrCopyReplaced)}
		}
		return j.insert(order, model.ReasonSuperseded)
	}
	if other, ok := j.byUser[order.UserID]; ok {
		if reserved {
			return j.insert(order, model.ReasonAlreadyOrdered)
		}
		return model.Outcome{Err: model.AlreadyOrdered(*other)}
	}
	if j.voucher.OrderMode != j.terms.mode {
		return model.Outcome{Err: otherMode(j.voucher.OrderMode)}
	}
	if wait := j.voucher.cooling[order.UserID]; !reserved && wait.Until.After(j.voucher.Now.Time) {
		return model.Outcome{Err: model.CoolingDown(wait.Until.Time, j.voucher.Now.Time)}
	}
	if j.ruling.units >= j.voucher.Remaining {
		j.ruling.exhausted = true
		if reserved {
			return j.insert(order, model.ReasonSoldOut)
		}
		return model.Outcome{Err: model.SoldOut()}
	}
	return j.insert(order, "")
}

// existing answers with the row that has the order's id, whatever became of it.
func (j *judge) existing(order model.Reservation, row model.Order) model.Outcome {
	if row.VoucherID != order.VoucherID || row.UserID != order.UserID {
		return model.Outcome{Err: model.Conflict("The order's id belongs to another order.")}
	}
	return model.Outcome{Order: row}
}

// insert makes the order's row; with a reason it has failed.
func (j *judge) insert(order model.Reservation, reason string) model.Outcome {
	j.ruling.rows = append(j.ruling.rows, newRow(order, j.voucher, j.terms.windowOf(*j.voucher)))
	row := &j.ruling.rows[len(j.ruling.rows)-1]
	if reason != "" {
		fail(row, reason, j.voucher.Now.Time)
	} else {
		j.byUser[row.UserID] = row
		j.ruling.units++
	}
	j.byID[row.ID] = row
	return model.Outcome{Order: *row, Created: true}
}

// superseded says that the hot copy that admitted an order was replaced before
// the order was on its way. An epoch that the database has never heard of is
// that of one restored from a backup: its stock decides.
func (r *voucherRow) superseded(order model.Reservation) bool {
	switch {
	case order.Epoch >= r.CopyEpoch:
		return false
	case order.Epoch == r.CopyOpenEpoch:
		return r.CopyBarrier != nil && order.Sequence > uint64(*r.CopyBarrier) //nolint:gosec // stored by SetBarrier, never negative
	default:
		return true
	}
}

// dropped says that no later hot copy will hold a superseded order either: a rebuild
// carries reservations over from the copy that was opened last, and that one does not hold
// it. While nothing has answered for that copy, the order may still be carried over.
func (r *voucherRow) dropped(order model.Reservation) bool {
	return order.Absent != nil && *order.Absent == r.CopyOpenEpoch
}

// newRow is the row of an order that gets a unit. It became unpaid now, on the
// database's clock, whenever it was admitted. A hot copy has told a buyer its
// price; otherwise it is the voucher's.
func newRow(order model.Reservation, voucher *voucherRow, window time.Duration) model.Order {
	now := stored(voucher.Now.Time)
	expires := now.Add(window)
	row := model.Order{
		ID: order.ID, VoucherID: order.VoucherID, UserID: order.UserID,
		Status: model.OrderUnpaid, Price: voucher.Price, Currency: voucher.Currency,
		CreatedAt: now, UnpaidAt: &now, ExpiresAt: &expires,
	}
	if !order.CreatedAt.IsZero() {
		row.CreatedAt = stored(order.CreatedAt)
	}
	if order.Epoch > 0 && order.Currency != "" {
		row.Price, row.Currency = order.Price, order.Currency
	}
	return row
}

// fail makes a row that of an order that has failed now.
func fail(row *model.Order, reason string, now time.Time) {
	closed := stored(now)
	row.Status, row.Reason, row.ClosedAt = model.OrderFailed, reason, &closed
	row.UnpaidAt, row.ExpiresAt = nil, nil
}
