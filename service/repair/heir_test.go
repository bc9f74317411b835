//part:redis

package repair_test

import (
	"testing"
	"time"

	"seckill/internal/ids"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// Who waited and got a unit has an order, and is promised no other one, also while the hot copy has not heard of it and a
// cancellation brings it a unit that nobody waited for.
func TestAnHeirIsPromisedNoSecondOrder(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(t *testing.T, b *backstage, first model.Order){
		"of an order that expired": func(t *testing.T, b *backstage, first model.Order) {
			check.Equal(t, "orders that expired", len(check.Value(b.orders.Expire(t.Context(), []string{first.ID}))(t)), 1)
		},
		"of a stock that grew": func(t *testing.T, b *backstage, first model.Order) {
			check.Value(b.vouchers.ChangeStock(t.Context(), first.VoucherID, model.StockChange{Delta: new(int64(1))}, model.Idempotency{}))(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openBackstage(t, testserver.SharedRedis(t))
			id := check.Value(ids.New())(t)
			check.Value(b.vouchers.Create(t.Context(), id, model.NewVoucher{
				Title: "x", Stock: 2, State: model.VoucherPublished, BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour),
				Waitlist: true, PaymentWindow: time.Nanosecond,
			}, model.Idempotency{}))(t)
			check.Must(t, b.Rebuilder.Do(t.Context(), id, model.AnyEpoch))
			first, second := b.sold(t, id, "first"), b.sold(t, id, "second")
			check.Must(t, check.Value(b.orders.Join(t.Context(), id, []model.Joining{{UserID: "heir"}}))(t)[0].Err)
			serve(t, b, first)

			canceled := check.Value(b.orders.Cancel(t.Context(), []model.Cancellation{{OrderID: second.ID, UserID: "second"}}))(t)[0]
			check.Must(t, canceled.Err)
			check.That(t, check.Value(b.hot.ReleaseAll(t.Context(), id, canceled.Releases))(t), "the unit does not come back without the database")
			got := b.admit(t, id, "heir")
			latest := check.Value(b.epochs.Latest(t.Context(), []string{id}))(t)[id]
			check.That(t, got.Err != nil || got.Epoch != latest, "the heir was promised order %s by epoch %d of %d", got.ID, got.Epoch, latest)

			check.Must(t, b.Rebuilder.Do(t.Context(), id, 0))
			check.Must(t, b.Relay(t.Context(), id))
			check.Equal(t, "what the heir hears then", model.CodeOf(b.admit(t, id, "heir").Err), model.CodeAlreadyOrdered)
			b.sold(t, id, "other")
			v := check.Value(b.vouchers.Get(t.Context(), id))(t)
			check.Equal(t, "what remains", v.Remaining, 0)
			b.balanced(t, id, v.Stock)
		})
	}
}

// admit asks the hot copy for a unit.
func (b *backstage) admit(t *testing.T, voucherID, userID string) model.ReserveResult {
	t.Helper()
	order := model.OrderID(check.Value(ids.New())(t), voucherID)
	return check.Value(b.hot.Reserve(t.Context(), []model.ReserveRequest{{OrderID: order, VoucherID: voucherID, UserID: userID}}))(t)[0]
}

// sold is an order that the hot copy has admitted and knows of.
func (b *backstage) sold(t *testing.T, voucherID, userID string) model.Order {
	t.Helper()
	admitted := b.admit(t, voucherID, userID)
	check.Must(t, admitted.Err)
	persisted := check.Value(b.orders.Persist(t.Context(), []model.Reservation{admitted.Reservation}))(t)[0]
	check.Must(t, persisted.Err)
	check.Must(t, b.hot.Settle(t.Context(), []model.Order{persisted.Order}))
	return persisted.Order
}
