package repository_test

import (
	"encoding/json"
	"slices"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

// TestEvents: every change writes its event in its own transaction, those of one order in
// their order; what is refused writes none, and nobody writes any when nobody listens.
func TestEvents(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, deaf *fixture) {
		options := deaf.options
		options.Events = true
		l := lifeOf(openFixture(t, deaf.store, options))
		events := repository.NewEvents(l.db)
		silent := deaf.onSale(t, 1)
		check.Must(t, deaf.place(t, order(t, silent.ID, "zoe")).Err)

		v := l.onSale(t, 2)
		check.Must(t, check.ErrorOf(l.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{Title: new("y")})))
		check.Must(t, check.ErrorOf(l.vouchers.ChangeStock(t.Context(), v.ID, model.StockChange{Stock: new(int64(3))}, model.Idempotency{})))
		paid, code := l.paid(t, v.ID, "alice")
		check.Must(t, check.ErrorOf(l.orders.Redeem(t.Context(), code.Hash, "boss")))
		lapsed := l.bought(t, v.ID, "bob")
		late := l.started(t, lapsed)
		l.lapse(t, lapsed)
		check.Must(t, check.ErrorOf(l.orders.Expire(t.Context(), []string{lapsed.ID})))
		check.Must(t, check.ErrorOf(l.payments.Settle(t.Context(), money(t, late))))
		canceled := l.bought(t, v.ID, "carol")
		for range 2 { // the second changes nothing
			_, _, err := l.cancel(t.Context(), "carol", canceled.ID)
			check.Must(t, err)
		}
		wantIllegal(t, errorOf2(l.refunds.Request(t.Context(), canceled.ID, newID(t), "boss")), model.OrderCanceled)
		failed := check.Value(l.orders.Fail(t.Context(), reservation(t, v.ID, "dave", 1, 1), model.ReasonUnprocessable))(t)

		told := map[string][]string{}
		all := check.Value(events.Oldest(t.Context(), 100))(t)
		for _, event := range all {
			told[event.Subject] = append(told[event.Subject], event.Type)
			var data map[string]any
			check.Must(t, json.Unmarshal([]byte(event.Data), &data))
			if status, ok := data["status"].(string); ok && "order."+status != event.Type || data["code"] != nil || !aboutNow(event.HappenedAt) {
				t.Errorf("%+v", event)
			}
		}
		for subject, want := range map[string][]string{
			v.ID:        {"voucher.create", "voucher.change", "voucher.stock"},
			paid.ID:     {"order.unpaid", "order.paid", "order.redeemed"},
			lapsed.ID:   {"order.unpaid", "order.expired", "order.refunded"},
			canceled.ID: {"order.unpaid", "order.canceled"},
			failed.ID:   {"order.failed"},
			silent.ID:   nil,
		} {
			if !slices.Equal(told[subject], want) {
				t.Errorf("of %s it tells %v, want %v", subject, told[subject], want)
			}
		}
		check.Equal(t, "subjects", len(told), 5)
		first := check.Value(events.Oldest(t.Context(), 2))(t)
		for range 2 { // again: nothing
			check.Must(t, events.Forget(t.Context(), []int64{first[0].ID, first[1].ID}))
			check.Equal(t, "events left", len(check.Value(events.Oldest(t.Context(), 100))(t)), len(all)-2)
		}
	})
}
