package hotcopytest

import (
	"context"
	"errors"
	"slices"
	"time"

	"seckill/model"
)

// Node is the server of a voucher's copy.
func (c *Copies) Node(voucherID string) string { return c.Nodes[voucherID] }

// Reserve is that of the store, for those requests that Answer leaves open.
func (c *Copies) Reserve(ctx context.Context, asked []model.ReserveRequest) ([]model.ReserveResult, error) {
	answers := make([]model.ReserveResult, len(asked))
	if err := c.before(ctx, "Reserve", ""); err != nil {
		for i, a := range asked {
			answers[i].Order, answers[i].Err = model.Order{ID: a.OrderID, VoucherID: a.VoucherID, UserID: a.UserID}, err
		}
		return answers, err
	}
	var open []model.ReserveRequest
	var places []int
	for i, a := range asked {
		if c.Answer != nil {
			if given := c.Answer(a); given != nil {
				answers[i] = *given
				continue
			}
		}
		open, places = append(open, a), append(places, i)
	}
	if len(open) == 0 {
		return answers, nil
	}
	got, err := c.Store.Reserve(ctx, open)
	for i, place := range places {
		answers[place] = got[i]
	}
	return answers, err
}

// Confirm is that of the store.
func (c *Copies) Confirm(ctx context.Context, reservations []model.Reservation) ([]bool, error) {
	if err := c.before(ctx, "Confirm", ""); err != nil {
		return make([]bool, len(reservations)), err
	}
	return c.Store.Confirm(ctx, reservations)
}

// Settle is that of the store.
func (c *Copies) Settle(ctx context.Context, orders []model.Order) error {
	if err := c.before(ctx, "Settle", ""); err != nil {
		return err
	}
	var ids []string
	for _, o := range orders {
		ids = append(ids, o.VoucherID)
	}
	asked, err := c.away(ids)
	orders = slices.DeleteFunc(slices.Clone(orders), func(o model.Order) bool { return !slices.Contains(asked, o.VoucherID) })
	return errors.Join(c.Store.Settle(ctx, orders), err)
}

// Release is that of the store.
func (c *Copies) Release(ctx context.Context, release model.Release) (applied bool, err error) {
	return c.ReleaseAll(ctx, release.VoucherID, []model.Release{release})
}

// ReleaseAll is that of the store.
func (c *Copies) ReleaseAll(ctx context.Context, voucherID string, releases []model.Release) (applied bool, err error) {
	return after(ctx, c, "Release", voucherID, func() (bool, error) { return c.Store.ReleaseAll(ctx, voucherID, releases) })
}

// Read is that of the store.
func (c *Copies) Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error) {
	if slices.ContainsFunc(ids, func(id string) bool { return c.Silent[id] }) {
		<-ctx.Done()
		return map[string]model.HotCopy{}, model.Unavailable("Redis does not answer.", ctx.Err())
	}
	if err := c.before(ctx, "Read", ""); err != nil {
		return map[string]model.HotCopy{}, err
	}
	asked, err := c.away(ids)
	copies, failed := c.Store.Read(ctx, asked)
	return copies, errors.Join(failed, err)
}

// Pending is that of the store. An id that names no voucher, as tests like them, is looked for in v1.
func (c *Copies) Pending(ctx context.Context, orderID string) (r model.Reservation, found bool, err error) {
	voucherID, ok := model.VoucherOf(orderID)
	if err := c.before(ctx, "Pending", voucherID); err != nil || ok {
		if err == nil {
			r, found, err = c.Store.Pending(ctx, orderID)
		}
		return r, found, err
	}
	r, found = c.Sale("v1").Pending()[orderID]
	return r, found, nil
}

// OrderOf is that of the store.
func (c *Copies) OrderOf(ctx context.Context, voucherID, userID string) (string, *model.Reservation, error) {
	if err := c.before(ctx, "OrderOf", voucherID); err != nil {
		return "", nil, err
	}
	return c.Store.OrderOf(ctx, voucherID, userID)
}

// OrdersOf is that of the store.
func (c *Copies) OrdersOf(ctx context.Context, buyers []model.Buyer) ([]model.BuyersOrder, error) {
	if c.before(ctx, "OrdersOf", "") != nil {
		return make([]model.BuyersOrder, len(buyers)), nil //nolint:nilerr // what cannot be told is empty
	}
	return c.Store.OrdersOf(ctx, buyers)
}

// after makes a call of the store, unless the test makes it fail.
func after[T any](ctx context.Context, c *Copies, method, voucherID string, call func() (T, error)) (answer T, err error) {
	if err = c.before(ctx, method, voucherID); err == nil {
		answer, err = call()
	}
	return answer, err
}

// then is after, for a call without an answer.
func (c *Copies) then(ctx context.Context, method, voucherID string, call func() error) error {
	if err := c.before(ctx, method, voucherID); err != nil {
		return err
	}
	return call()
}

// Due is that of the store.
func (c *Copies) Due(ctx context.Context, voucherID string, olderThan time.Duration, limit int) ([]model.Reservation, error) {
	return after(ctx, c, "Due", voucherID, func() ([]model.Reservation, error) { return c.Store.Due(ctx, voucherID, olderThan, limit) })
}

// Held is that of the store.
func (c *Copies) Held(ctx context.Context, voucherID string, epoch int64, orderIDs []string) (map[string]model.Reservation, error) {
	return after(ctx, c, "Held", voucherID, func() (map[string]model.Reservation, error) {
		return c.Store.Held(ctx, voucherID, epoch, orderIDs)
	})
}

// Processing is that of the store.
func (c *Copies) Processing(ctx context.Context, q model.OrderQuery) (model.OrderPage, error) {
	return after(ctx, c, "Processing", q.VoucherID, func() (model.OrderPage, error) { return c.Store.Processing(ctx, q) })
}

// Apply is that of the store.
func (c *Copies) Apply(ctx context.Context, v model.Voucher) (applied bool, err error) {
	return after(ctx, c, "Apply", v.ID, func() (bool, error) { return c.Store.Apply(ctx, v) })
}

// Incarnation is that of the store.
func (c *Copies) Incarnation(ctx context.Context) (string, error) {
	return after(ctx, c, "Incarnation", "", func() (string, error) { return c.Store.Incarnation(ctx) })
}

// EachProcessing is that of the store.
func (c *Copies) EachProcessing(ctx context.Context, voucherID string, yield func(model.Order) error) error {
	return c.then(ctx, "EachProcessing", voucherID, func() error { return c.Store.EachProcessing(ctx, voucherID, yield) })
}

// Close is that of the store.
func (c *Copies) Close(ctx context.Context, record model.EpochRecord) error {
	return c.then(ctx, "Close", record.VoucherID, func() error { return c.Store.Close(ctx, record) })
}

// Load is that of the store.
func (c *Copies) Load(ctx context.Context, record model.EpochRecord, live []model.Order, carried []model.Reservation) error {
	return c.then(ctx, "Load", record.VoucherID, func() error { return c.Store.Load(ctx, record, live, carried) })
}

// Open is that of the store.
func (c *Copies) Open(ctx context.Context, record model.EpochRecord, v model.Voucher, missing int64) error {
	return c.then(ctx, "Open", v.ID, func() error { return c.Store.Open(ctx, record, v, missing) })
}

// Lower is that of the store.
func (c *Copies) Lower(ctx context.Context, voucherID string, stock, revision int64) error {
	return c.then(ctx, "Lower", voucherID, func() error { return c.Store.Lower(ctx, voucherID, stock, revision) })
}

// Quiet is that of the store.
func (c *Copies) Quiet(ctx context.Context, records []model.EpochRecord) []bool {
	if c.before(ctx, "Quiet", "") != nil { // what cannot be told is not quiet
		return make([]bool, len(records))
	}
	return c.Store.Quiet(ctx, records)
}

// Buyers is that of the store. It yields when it has read all.
func (c *Copies) Buyers(ctx context.Context, v model.Voucher, yield func(userID string) error) error {
	var users []string
	err := c.before(ctx, "Buyers", v.ID)
	if err == nil {
		err = c.Store.Buyers(ctx, v, func(userID string) error { users = append(users, userID); return nil })
	}
	if err == nil {
		err = pause(ctx, c.Yields)
	}
	for _, userID := range users {
		if err == nil {
			err = yield(userID)
		}
	}
	return err
}
