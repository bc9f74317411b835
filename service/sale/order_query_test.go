package sale

import (
	"context"
	"testing"

	"seckill/model"
	"seckill/service/servicetest"
)

// empty has no orders.
type empty struct{ OrderStore }

func (empty) Get(context.Context, string) (model.Order, error) {
	return model.Order{}, model.NotFound("order")
}

func (empty) Detail(context.Context, string) (model.OrderDetail, error) {
	return model.OrderDetail{}, model.NotFound("order")
}

// An instance of another order mode than the database's sees no reservations:
// it must not deny an order that was promised.
func TestInstanceOfAnotherModeKnowsThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	sells := func() error { return nil }
	switching := func() error { return model.Unavailable("another order mode", nil) }
	for name, want := range map[string]struct {
		selling Selling
		code    model.Code
	}{
		"its own":     {sells, model.CodeNotFound},
		"another one": {switching, model.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			orders := &Orders{seller: &syncSeller{deps: Deps{Store: empty{}, Selling: want.selling}}}
			_, got := orders.Get(t.Context(), "alice", "1.v", 0)
			_, detail := orders.Detail(t.Context(), "1.v")
			for _, err := range []error{got, detail} {
				servicetest.WantCode(t, err, want.code)
			}
		})
	}
}
