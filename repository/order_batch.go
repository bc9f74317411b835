package repository

import (
	"cmp"
	"slices"
	"time"

	"seckill/model"
)

// batch is what one call of CreateOrders works on.
type batch struct {
	orders   []model.Order
	refused  map[int]error    // by index: orders that cannot be stored at all
	vouchers []string         // sorted: the order in which they are locked
	members  map[string][]int // voucher → indexes into orders, in their order
	// doubtful orders went out with a COMMIT that was not answered, each with
	// the instant it was admitted at. Their window was open, and whether they
	// exist only inserting them again can tell.
	doubtful map[string]time.Time
}

func newBatch(orders []model.Order) *batch {
	b := &batch{
		orders:   orders,
		refused:  map[int]error{},
		members:  map[string][]int{},
		doubtful: map[string]time.Time{},
	}
	for i, order := range orders {
		// One order that the columns would refuse must not take the others down.
		switch {
		case !model.ValidID(order.ID):
			b.refused[i] = model.Invalid("order.id", "is not an id")
		case !model.ValidUserID(order.UserID):
			b.refused[i] = model.Invalid("order.user_id", "is not a user's id")
		case !model.ValidID(order.VoucherID):
			b.refused[i] = model.NotFound("voucher")
		default:
			b.members[order.VoucherID] = append(b.members[order.VoucherID], i)
		}
	}
	for id := range b.members {
		b.vouchers = append(b.vouchers, id)
	}
	slices.Sort(b.vouchers)
	return b
}

// of gives the orders of one voucher, with the admission of doubtful ones.
func (b *batch) of(voucherID string) []model.Order {
	members := make([]model.Order, 0, len(b.members[voucherID]))
	for _, i := range b.members[voucherID] {
		order := b.orders[i]
		if at, ok := b.doubtful[order.ID]; ok {
			order.CreatedAt = at
		}
		members = append(members, order)
	}
	return members
}

// doubt remembers what went out with a COMMIT that was not answered.
func (b *batch) doubt(rows []model.Order) {
	for _, row := range rows {
		b.doubtful[row.ID] = row.CreatedAt
	}
}

// ruling is what is to become of the orders of one voucher.
type ruling struct {
	outcomes  []model.Outcome // one for each order, in their order
	rows      []model.Order   // to be inserted: as many units to take
	exhausted bool            // somebody was refused because nothing else remains
}

// rule decides about the orders of one voucher. It is the one place where the
// refusals and their precedence stand: existing id, NOT_FOUND, ENDED, PAUSED,
// NOT_STARTED, ALREADY_ORDERED, SOLD_OUT. The existing orders must have been
// read after the voucher: who has taken its last unit is then among them.
func rule(orders []model.Order, voucher *voucherRow, existing []model.Order, window time.Duration) ruling {
	byID := make(map[string]model.Order, len(existing))
	byUser := make(map[string]model.Order, len(existing))
	for _, row := range existing {
		byID[row.ID] = row
		if row.Live() {
			byUser[row.UserID] = row
		}
	}
	var r ruling
	for _, order := range orders {
		outcome := func() model.Outcome {
			if row, ok := byID[order.ID]; ok {
				if row.VoucherID != order.VoucherID || row.UserID != order.UserID {
					return model.Outcome{Err: model.Conflict("The order's id belongs to another order.")}
				}
				return model.Outcome{Order: row}
			}
			if voucher == nil {
				return model.Outcome{Err: model.NotFound("voucher")}
			}
			if order.CreatedAt.IsZero() {
				if refusal := voucher.Refusal(voucher.Now.Time); refusal != nil {
					return model.Outcome{Err: refusal}
				}
			}
			if row, ok := byUser[order.UserID]; ok && row.VoucherID == order.VoucherID {
				return model.Outcome{Err: model.AlreadyOrdered(row)}
			}
			if int64(len(r.rows)) >= voucher.Remaining {
				r.exhausted = true
				return model.Outcome{Err: model.SoldOut()}
			}
			row := newRow(order, voucher, window)
			byID[row.ID], byUser[row.UserID] = row, row
			r.rows = append(r.rows, row)
			return model.Outcome{Order: row, Created: true}
		}()
		r.outcomes = append(r.outcomes, outcome)
	}
	return r
}

// newRow is the row of an order that gets a unit. It became unpaid now, on the
// database's clock, whenever it was admitted.
func newRow(order model.Order, voucher *voucherRow, window time.Duration) model.Order {
	now := stored(voucher.Now.Time)
	created := now
	if !order.CreatedAt.IsZero() {
		created = stored(order.CreatedAt)
	}
	expires := now.Add(window)
	return model.Order{
		ID: order.ID, VoucherID: order.VoucherID, UserID: order.UserID,
		Status: model.OrderUnpaid, Price: voucher.Price, Currency: voucher.Currency,
		CreatedAt: created, ExpiresAt: &expires,
	}
}

// byVoucherAndUser is the order in which rows are inserted, so that two
// transactions never wait for each other crosswise.
func byVoucherAndUser(a, b model.Order) int {
	return cmp.Or(cmp.Compare(a.VoucherID, b.VoucherID), cmp.Compare(a.UserID, b.UserID))
}
