package model_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestTransitions: every status is reached, and no road leads back to one but that of an undone use.
func TestTransitions(t *testing.T) {
	t.Parallel()
	reached := map[model.OrderStatus]bool{}
	var walk func(at model.OrderStatus, way ...model.OrderStatus)
	walk = func(at model.OrderStatus, way ...model.OrderStatus) {
		check.Need(t, !slices.Contains(way, at), "a road leads back to %s", at)
		reached[at] = true
		for _, move := range model.Transitions() {
			if move.From == at && move.Event() != "order.unredeemed" {
				walk(move.To, append(way, at)...)
			}
		}
	}
	walk(model.OrderProcessing)
	check.Equal(t, "statuses that are reached", len(reached), len(model.OrderStatuses()))
}

// Every move that the diagram of the contract does not show is refused with the present status, whoever asks for it.
func TestMove(t *testing.T) {
	t.Parallel()
	legal := map[string]bool{
		"processing unpaid service": true, "processing paid service": true, "processing failed service": true,
		"unpaid paid provider": true, "unpaid paid admin": true, "unpaid canceled buyer": true, "unpaid expired service": true,
		"paid redeemed admin": true, "redeemed paid admin": true, "redeemed refunded admin": true, "paid refunded admin": true, "paid refunded provider": true, "paid refunded buyer": true,
		"canceled refunded service": true, "expired refunded service": true, "failed refunded service": true,
	}
	for _, from := range model.OrderStatuses() {
		for _, to := range model.OrderStatuses() {
			for _, by := range []model.Mover{model.MoverService, model.MoverBuyer, model.MoverAdmin, model.MoverProvider} {
				name := string(from) + " " + string(to) + " " + string(by)
				move, err := model.Move(from, to, by)
				if legal[name] {
					check.That(t, err == nil && move.From == from && move.To == to, "%s: %+v, %v", name, move, err)
					continue
				}
				e, ok := errors.AsType[*model.Error](err)
				check.That(t, ok && e.Code == model.CodeIllegalState && e.OrderStatus == from, "%s: %v", name, err)
			}
		}
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, move := range model.Transitions() {
		want := model.Order{Status: move.To}
		if stamp := map[model.OrderStamp]**time.Time{
			model.StampUnpaid: &want.UnpaidAt, model.StampPaid: &want.PaidAt, model.StampRedeemed: &want.RedeemedAt,
			model.StampClosed: &want.ClosedAt,
		}[move.Stamp]; stamp != nil {
			*stamp = &at
		}
		before := model.Order{Status: move.From}
		if move.From == model.OrderRedeemed {
			before.PaidAt, before.RedeemedAt = &at, &at
			want.PaidAt = &at
			if move.To == model.OrderRefunded {
				want.RedeemedAt = &at
			}
		}
		got := move.Apply(before, at)
		check.That(t, reflect.DeepEqual(got, want), "%s to %s: %+v", move.From, move.To, got)
		check.That(t, move.Ends() == (move.ReturnsUnit() || move.WritesOff()) && move.WritesOff() == got.WrittenOff(),
			"%s to %s: the unit ends %t, returns %t, is written off %t", move.From, move.To, move.Ends(), move.ReturnsUnit(), move.WritesOff())
	}
}
