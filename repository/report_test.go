package repository_test

import (
	"fmt"
	"testing"
	"time"

	"gorm.io/gorm"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

// The orders of a sale are read whole, oldest first and each once, with the money of each.
func TestSoldOrders(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		v := l.voucher(t, model.VoucherFields{Title: title, Price: 7, Stock: 9, BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour)})
		other := l.onSale(t, 9)
		l.bought(t, other.ID, "somebody")
		unpaid := l.bought(t, v.ID, "unpaid")
		paid, _ := l.paid(t, v.ID, "paid")
		refunded, _ := l.paid(t, v.ID, "refunded")
		refund, _, err := l.refunds.Request(t.Context(), refunded.ID, newID(t), "admin")
		check.Must(t, err)
		check.Must(t, l.refunds.Done(t.Context(), refund.ID))
		late := l.bought(t, v.ID, "late")
		notice := money(t, l.started(t, late))
		_, _, err = l.cancel(t.Context(), "late", late.ID)
		check.Must(t, err)
		check.Value(l.payments.Settle(t.Context(), notice))(t)
		found := map[string]model.SoldOrder{}
		last := model.SoldOrder{}
		check.Must(t, l.orders.Sold(t.Context(), v.ID, func(o model.SoldOrder) error {
			check.That(t, found[o.ID].ID == "" && !o.CreatedAt.Before(last.CreatedAt), "%s comes after %s", o.ID, last.ID)
			found[o.ID], last = o, o
			return nil
		}))
		check.Equal(t, "orders", len(found), 4)
		for id, want := range map[string]string{
			unpaid.ID: "unpaid 0 0 false\n", paid.ID: "paid 7 0 false\n", refunded.ID: "refunded 7 7 true\n", late.ID: "refunded 7 0 true\n",
		} {
			o := found[id]
			check.Equal(t, "order", fmt.Sprintln(o.Status, o.Received, o.Returned, o.ClosedAt != nil), want)
			check.That(t, o.TookUnit(), "%s took no unit", id)
		}
		wantCode(t, l.orders.Sold(t.Context(), "no id", nil), model.CodeNotFound)
	})
}

// Pages of a sale meet without a gap, also between orders of one instant.
func TestSoldOrdersOfManyPages(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 1)
		at := time.Now().UTC().Truncate(time.Millisecond)
		const orders = 5003
		rows := make([]model.Order, orders)
		for n := range rows {
			rows[n] = model.Order{ID: fmt.Sprintf("%08d.%s", n, v.ID), VoucherID: v.ID, UserID: fmt.Sprint(n), Status: model.OrderCanceled, Currency: "CNY", CreatedAt: at.Add(time.Duration(n/2000) * time.Second)}
		}
		check.Must(t, f.db.Write(t.Context(), "fill", func(tx *gorm.DB) error { return tx.CreateInBatches(rows, 500).Error }))
		read := 0
		check.Must(t, f.orders.Sold(t.Context(), v.ID, func(o model.SoldOrder) error {
			check.Equal(t, "order", o.ID, rows[read].ID)
			read++
			return nil
		}))
		check.Equal(t, "orders", read, orders)
	})
}

// What a process has counted takes the place of what it stored before, and is added to what others counted.
func TestAnswers(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		answers := repository.NewAnswers(f.db)
		first := time.Date(2026, 11, 11, 0, 0, 0, 0, time.UTC)
		store := func(process string, after int, ok uint64) {
			t.Helper()
			check.Must(t, answers.Store(t.Context(), process, map[string]model.Counted{
				"v1": {First: first.Add(time.Duration(after) * time.Second), Latest: first.Add(time.Duration(after+1) * time.Second), ByCode: map[string]uint64{"OK": ok, "SOLD_OUT": 1}},
				"v2": {First: first, Latest: first, ByCode: map[string]uint64{"PAUSED": 1}},
			}))
		}
		store("p1", 0, 1)
		store("p1", 0, 2)
		store("p2", 5, 40)
		check.Must(t, answers.Store(t.Context(), "p1", nil))
		got := check.Value(answers.Read(t.Context(), "v1"))(t)
		check.Equal(t, "answers", fmt.Sprint(got.ByCode, got.Since, got.Until), fmt.Sprint(map[string]int64{"OK": 42, "SOLD_OUT": 2}, first, first.Add(6*time.Second)))
		none := check.Value(answers.Read(t.Context(), "v3"))(t)
		check.That(t, none.Since == nil && len(none.ByCode) == 0, "%+v", none)
		wantCode(t, check.ErrorOf(answers.Read(t.Context(), "no id")), model.CodeNotFound)
	})
}
