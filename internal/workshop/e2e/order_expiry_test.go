package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// TestExpiry: an order that is not paid in its voucher's window gives its unit back, and somebody else has it. (That it
// happens within a second, service/repair tells.)
func TestExpiry(t *testing.T) {
	t.Parallel()
	everywhere(t, checkExpiry)
}

func checkExpiry(t *testing.T, a shop) {
	t.Helper()
	const window = time.Second
	voucher := a.Create(t, map[string]any{"stock": 1, "payment_window": window.String()})
	buy := func(user string) (order model.Order) {
		check.Patiently(t, "the voucher is sold", func() bool {
			got := a.Insist(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.Token(t, user, model.RoleUser), nil)
			var sold bool
			order, sold = orderOf(t, got, voucher.ID, user)
			return sold
		})
		return order
	}
	order := buy(a.user(1))
	resold := buy(a.user(2)) // as soon as the unit is there
	detail := remote.Decode[model.OrderDetail](t, a.Call(t, http.MethodGet, "/admin/orders/"+order.ID, a.Admin(t), nil))
	moves := detail.History
	last := moves[len(moves)-1]
	if detail.Status != model.OrderExpired || last.To != model.OrderExpired || last.By != model.BySystem || last.From == nil || *last.From != model.OrderUnpaid {
		t.Fatalf("%+v", detail)
	}
	if unpaid := moves[len(moves)-2]; detail.ExpiresAt == nil || unpaid.To != model.OrderUnpaid || detail.ExpiresAt.Sub(unpaid.At) != window {
		t.Fatalf("%+v does not expire %s after it became unpaid", detail, window)
	}
	if last.At.Before(*detail.ExpiresAt) || resold.CreatedAt.Before(*detail.ExpiresAt) {
		t.Errorf("expired or sold again before its time: %+v, %+v", detail, resold)
	}
	refused(t, a.asks(t, order, http.MethodPost, "/cancel"), http.StatusConflict, model.CodeIllegalState)
	// Who has let it lapse may buy again, when the other one lapses.
	buy(a.user(1))
	check.Patiently(t, "all have lapsed", func() bool {
		audit := a.Audit(t, voucher.ID).Database
		if audit.Stock != audit.Remaining+audit.LiveOrders {
			t.Errorf("%+v", audit)
		}
		return audit.Remaining == 1
	})
}
