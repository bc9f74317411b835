package service

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"seckill/model"
)

// foreign is a database that is sold from in another order mode.
type foreign struct{}

func (foreign) Selling() error { return model.Unavailable("another order mode", nil) }

// empty has no orders.
type empty struct{ OrderStore }

func (empty) Get(context.Context, string) (model.Order, error) {
	return model.Order{}, model.NotFound("order")
}

func (empty) Detail(context.Context, string) (model.OrderDetail, error) {
	return model.OrderDetail{}, model.NotFound("order")
}

// An instance of another order mode than the database's sees no reservations:
// it must not deny an order that was promised, nor change what it cannot see.
func TestInstanceOfAnotherModeKnowsThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		mode ModeWatch
		code model.Code
	}{
		"its own":     {nil, model.CodeNotFound},
		"another one": {foreign{}, model.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			orders := &Orders{store: empty{}, mode: want.mode}
			_, got := orders.Get(t.Context(), "alice", "1.v", 0)
			_, detail := orders.Detail(t.Context(), "1.v")
			for _, err := range []error{got, detail} {
				if model.CodeOf(err) != want.code {
					t.Errorf("%v, want %s", err, want.code)
				}
			}
		})
	}
	vouchers := NewVouchers(nil, nil, nil, slog.New(slog.DiscardHandler)).SoldIn(foreign{})
	title := "Tea"
	_, patched := vouchers.Patch(t.Context(), "v", model.VoucherPatch{Title: &title})
	_, stocked := vouchers.ChangeStock(t.Context(), "v", model.StockChange{Stock: new(int64)}, model.Idempotency{})
	if err := errors.Join(patched, stocked); model.CodeOf(patched) != model.CodeUnavailable || model.CodeOf(stocked) != model.CodeUnavailable {
		t.Errorf("changed all the same: %v", err)
	}
}
