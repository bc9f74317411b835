package model_test

import (
	"errors"
	"testing"
	"time"

	"seckill/model"
)

// The table says the same of a unit as Live does: an order that becomes live takes one,
// and one that stops being live returns it. No road leads back to a status.
func TestTransitions(t *testing.T) {
	t.Parallel()
	next := map[model.OrderStatus][]model.OrderStatus{}
	for _, move := range model.Transitions() {
		from, to := model.Order{Status: move.From}.Live(), model.Order{Status: move.To}.Live()
		want := model.UnitUnmoved
		if to && !from {
			want = model.UnitTaken
		} else if from && !to {
			want = model.UnitReturned
		}
		if move.Unit != want {
			t.Errorf("%s to %s: unit %d, want %d", move.From, move.To, move.Unit, want)
		}
		next[move.From] = append(next[move.From], move.To)
	}
	var walk func(at model.OrderStatus, way map[model.OrderStatus]bool)
	reached := map[model.OrderStatus]bool{}
	walk = func(at model.OrderStatus, way map[model.OrderStatus]bool) {
		if way[at] {
			t.Fatalf("a road leads back to %s", at)
		}
		reached[at], way[at] = true, true
		for _, to := range next[at] {
			walk(to, way)
		}
		delete(way, at)
	}
	walk(model.OrderProcessing, map[model.OrderStatus]bool{})
	for _, status := range model.OrderStatuses() {
		if !reached[status] {
			t.Errorf("no road leads to %s", status)
		}
	}
}

// Every move that the diagram of the contract does not show is refused with the present status, whoever asks for it.
func TestMove(t *testing.T) {
	t.Parallel()
	legal := map[string]bool{
		"processing unpaid service": true, "processing failed service": true,
		"unpaid paid provider": true, "unpaid canceled buyer": true, "unpaid expired service": true,
		"paid redeemed admin": true, "paid refunded admin": true, "paid refunded provider": true,
		"canceled refunded service": true, "expired refunded service": true, "failed refunded service": true,
	}
	for _, from := range model.OrderStatuses() {
		for _, to := range model.OrderStatuses() {
			for _, by := range []model.Mover{model.MoverService, model.MoverBuyer, model.MoverAdmin, model.MoverProvider} {
				name := string(from) + " " + string(to) + " " + string(by)
				move, err := model.Move(from, to, by)
				if legal[name] {
					if err != nil || move.From != from || move.To != to {
						t.Errorf("%s: %+v, %v", name, move, err)
					}
					continue
				}
				if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeIllegalState || e.OrderStatus != from {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, move := range model.Transitions() {
		o := move.Apply(model.Order{Status: move.From}, at)
		stamped := map[model.OrderStamp]*time.Time{
			model.StampUnpaid: o.UnpaidAt, model.StampPaid: o.PaidAt, model.StampRedeemed: o.RedeemedAt, model.StampClosed: o.ClosedAt,
		}
		if o.Status != move.To {
			t.Errorf("%s to %s: is %s", move.From, move.To, o.Status)
		}
		for stamp, value := range stamped {
			if (stamp == move.Stamp) != (value != nil) || value != nil && !value.Equal(at) {
				t.Errorf("%s to %s: %s is %v", move.From, move.To, stamp, value)
			}
		}
	}
}
