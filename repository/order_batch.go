package repository

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"seckill/model"
)

// currencyLength is that of an ISO 4217 code, and of its column.
const currencyLength = 3

// batch is what one call of CreateOrders or Persist works on. Orders that no hot
// copy has admitted have the epoch 0.
type batch struct {
	orders   []model.Reservation
	blind    bool             // see serve
	patient  bool             // waits for a row again that it waited for in vain
	refused  map[int]error    // by index: orders that cannot be stored at all
	vouchers []string         // sorted: the order in which they are locked
	members  map[string][]int // voucher → indexes into orders, in their order
	// doubtful orders went out with a COMMIT that was not answered, each with
	// the instant it was admitted at. Their window was open, and whether they
	// exist only inserting them again can tell.
	doubtful map[string]time.Time
}

func newBatch(orders []model.Reservation, check func(model.Reservation) error) *batch {
	b := &batch{
		orders:   orders,
		refused:  map[int]error{},
		members:  map[string][]int{},
		doubtful: map[string]time.Time{},
	}
	for i, order := range orders {
		// One order that the columns would refuse must not take the others down.
		if err := check(order); err != nil {
			b.refused[i] = err
			continue
		}
		b.members[order.VoucherID] = append(b.members[order.VoucherID], i)
	}
	for id := range b.members {
		b.vouchers = append(b.vouchers, id)
	}
	slices.Sort(b.vouchers)
	return b
}

// identified refuses an order that no row can be made for.
func identified(order model.Reservation) error {
	switch {
	case !model.ValidID(order.ID):
		return model.Invalid("order.id", "is not an id")
	case !model.ValidUserID(order.UserID):
		return model.Invalid("order.user_id", "is not a user's id")
	case !model.ValidID(order.VoucherID):
		return model.NotFound("voucher")
	}
	return nil
}

// admitted refuses what is no reservation, or one that no row can hold.
func admitted(order model.Reservation) error {
	switch {
	case order.Epoch <= 0:
		return model.Invalid("order.epoch", "must be positive")
	case !model.StorableTime(order.CreatedAt):
		return model.Invalid("order.created_at", "is no time that can be stored")
	case order.Currency != "" && len(order.Currency) != currencyLength:
		return model.Invalid("order.currency", "is no currency")
	case order.Price < 0 || order.Price > model.MaxAmount:
		return model.Invalid("order.price", "must be between 0 and %d", int64(model.MaxAmount))
	}
	return identified(order)
}

// of gives the orders of one voucher, with the admission of doubtful ones.
func (b *batch) of(voucherID string) []model.Reservation {
	members := make([]model.Reservation, 0, len(b.members[voucherID]))
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

// acknowledge calls an order created that an earlier attempt has committed
// without hearing so.
func (b *batch) acknowledge(outcome model.Outcome) model.Outcome {
	if _, ours := b.doubtful[outcome.Order.ID]; ours && outcome.Err == nil {
		outcome.Created = true
	}
	return outcome
}

// byVoucherAndUser is the order in which rows are inserted, so that two
// transactions never wait for each other crosswise.
func byVoucherAndUser(a, b model.Order) int {
	return cmp.Or(cmp.Compare(a.VoucherID, b.VoucherID), cmp.Compare(a.UserID, b.UserID), cmp.Compare(a.ID, b.ID))
}

// held says that the batch has waited for a row in vain: that of its voucher, if it has one
// alone.
func (b *batch) held(err error) error {
	if _, named := errors.AsType[*model.HeldError](err); named {
		return err
	}
	voucherID := ""
	if len(b.vouchers) == 1 {
		voucherID = b.vouchers[0]
	}
	return &model.HeldError{VoucherID: voucherID, Cause: err}
}
