package repository_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestAnAdministratorCancels: the history and the administrators' log have who it was, once,
// and neither the buyer's own cancellation nor a refused one is in the log.
func TestAnAdministratorCancels(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		v := l.onSale(t, 3)
		alices, bobs, eves := l.bought(t, v.ID, "alice"), l.bought(t, v.ID, "bob"), l.bought(t, v.ID, "boss")
		asked := []model.Cancellation{
			{OrderID: alices.ID, UserID: "alice", By: "boss"},
			{OrderID: bobs.ID, UserID: "bob"},
			{OrderID: eves.ID, UserID: "boss", By: "boss"}, // an administrator's own order, in the console
			{OrderID: alices.ID, UserID: "bob", By: "boss"},
		}
		for range 2 { // repeated, nothing changes
			for i, answer := range check.Value(l.orders.Cancel(t.Context(), asked))(t) {
				if i == 3 {
					wantCode(t, answer.Err, model.CodeNotFound)
				} else if answer.Err != nil || answer.Order.Status != model.OrderCanceled {
					t.Errorf("%d: %+v", i, answer)
				}
			}
		}
		l.balanced(t, v.ID, 0)
		for order, by := range map[string]string{alices.ID: "boss", bobs.ID: "bob"} {
			history := l.steps(t, order)
			check.Equal(t, "the last step of "+order, history[len(history)-1], "canceled by "+by)
		}
		logged := check.Value(l.log.List(t.Context(), model.AdminLogQuery{}))(t).Items
		logged = slices.DeleteFunc(logged, func(entry model.AdminChange) bool { return entry.Action == model.ActionVoucherCreate })
		if len(logged) != 2 {
			t.Fatalf("the log has %+v", logged)
		}
		for subject, want := range map[string]int{alices.ID: 1, bobs.ID: 0, "no id/": 0} {
			check.Equal(t, "entries of "+subject, len(check.Value(l.log.List(t.Context(), model.AdminLogQuery{Subject: subject}))(t).Items), want)
		}
		for i, id := range []string{eves.ID, alices.ID} {
			var before, after model.Order
			check.Must(t, json.Unmarshal(logged[i].Before, &before))
			check.Must(t, json.Unmarshal(logged[i].After, &after))
			if logged[i].Actor != "boss" || logged[i].Action != model.ActionOrderCancel || logged[i].Subject != id || !logged[i].At.Equal(*after.ClosedAt) ||
				before.Status != model.OrderUnpaid || after.Status != model.OrderCanceled {
				t.Errorf("%d: %+v", i, logged[i])
			}
		}
	})
}

// TestRecord: an entry by itself has the database's time, and no event.
func TestRecord(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		asked := model.AdminChange{
			Actor: "boss", Action: model.ActionRepair, Subject: "v1", Before: json.RawMessage(`{"found":1}`), At: time.Unix(0, 0),
		}
		check.Must(t, l.log.Record(t.Context(), asked))
		check.Must(t, l.log.Record(t.Context(), model.AdminChange{Actor: "boss", Action: model.ActionLetterDrop, Subject: "17"}))
		found := check.Value(l.log.List(t.Context(), model.AdminLogQuery{Actor: "boss"}))(t).Items
		if len(found) != 2 || found[0].Subject != "17" || found[0].Before != nil || found[0].After != nil {
			t.Fatalf("%+v", found)
		}
		if got := found[1]; got.Action != model.ActionRepair || string(got.Before) != string(asked.Before) || !aboutNow(got.At) {
			t.Errorf("%+v", got)
		}
	})
}

// TestMoneyOfAnOrder: its payments and its refunds, and none of another order.
func TestMoneyOfAnOrder(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		v := l.onSale(t, 2)
		alices, _ := l.paid(t, v.ID, "alice")
		bobs, _ := l.paid(t, v.ID, "bob")
		refund, _, err := l.refunds.Request(t.Context(), alices.ID, newID(t), "boss")
		check.Must(t, err)
		payments := check.Value(l.payments.OfOrder(t.Context(), alices.ID))(t)
		if len(payments) != 1 || payments[0].ID != refund.PaymentID || payments[0].Status != model.PaymentSucceeded {
			t.Errorf("payments %+v", payments)
		}
		of := func(id string) []model.Refund {
			return check.Value(l.refunds.List(t.Context(), model.RefundQuery{OrderID: id}))(t).Items
		}
		if got := of(alices.ID); len(got) != 1 || got[0].ID != refund.ID {
			t.Errorf("refunds %+v", got)
		}
		for _, id := range []string{bobs.ID, "no id!"} {
			check.Equal(t, "refunds of "+id, len(of(id)), 0)
		}
		check.Equal(t, "payments of no order", len(check.Value(l.payments.OfOrder(t.Context(), "no id!"))(t)), 0)
	})
}
