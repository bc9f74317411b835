package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"seckill/model"
)

// TestPrecedence changes a voucher that is sold out under a buyer and somebody
// who came too late: of all the refusals that apply, each hears the first of
// the contract's order, and `phase` says the same.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	everywhere(t, nil, checkPrecedence)
}

func checkPrecedence(t *testing.T, a *app) {
	t.Helper()
	buyer, late := a.token(t, a.user(1), model.RoleUser), a.token(t, a.user(2), model.RoleUser)
	voucher := a.onSale(t, 1)
	place := func(token string) answer {
		return a.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", token, nil)
	}
	bought := place(buyer)
	order := decode[model.Order](t, bought)
	if bought.status != http.StatusCreated {
		t.Fatalf("%d %s", bought.status, bought.body)
	}
	now := time.Now().UTC().Truncate(time.Second)
	open := map[string]any{"begin_at": now.Add(-time.Hour), "end_at": now.Add(time.Hour), "state": "published"}
	for _, step := range []struct {
		name   string
		change map[string]any
		phase  model.Phase
		buyer  model.Code
		late   model.Code
	}{
		{"open", open, model.PhaseSoldOut, model.CodeAlreadyOrdered, model.CodeSoldOut},
		{"upcoming", map[string]any{"begin_at": now.Add(30 * time.Minute)}, model.PhaseUpcoming, model.CodeNotStarted, model.CodeNotStarted},
		{"and paused", map[string]any{"state": "paused"}, model.PhasePaused, model.CodePaused, model.CodePaused},
		{"and ended", map[string]any{"begin_at": now.Add(-2 * time.Hour), "end_at": now.Add(-time.Minute)}, model.PhaseEnded, model.CodeEnded, model.CodeEnded},
		{"open again", open, model.PhaseSoldOut, model.CodeAlreadyOrdered, model.CodeSoldOut},
		{"archived", map[string]any{"state": "archived"}, "", model.CodeNotFound, model.CodeNotFound},
		{"back", open, model.PhaseSoldOut, model.CodeAlreadyOrdered, model.CodeSoldOut},
	} {
		changed := a.call(t, http.MethodPatch, "/admin/vouchers/"+voucher.ID, a.admin(t), step.change)
		if changed.status != http.StatusOK {
			t.Fatalf("%s: %d %s", step.name, changed.status, changed.body)
		}
		for token, code := range map[string]model.Code{buyer: step.buyer, late: step.late} {
			got := place(token)
			if got.code() != code {
				t.Errorf("%s: %s, want %s", step.name, got.body, code)
				continue
			}
			status := http.StatusConflict
			if code == model.CodeNotFound {
				status = http.StatusNotFound
			}
			if p := refused(t, got, status, code); code == model.CodeAlreadyOrdered && (p.OrderID != order.ID || p.OrderStatus != model.OrderUnpaid) {
				t.Errorf("%s: %s", step.name, got.body)
			}
		}
		if step.phase == "" {
			continue
		}
		if v := decode[model.Voucher](t, a.call(t, http.MethodGet, "/vouchers/"+voucher.ID, "", nil)); v.Phase != step.phase {
			t.Errorf("%s: phase = %s", step.name, v.Phase)
		}
		page := decode[model.VoucherPage](t, a.call(t, http.MethodGet, "/vouchers?phase="+string(step.phase), "", nil))
		if len(page.Items) != 1 || page.Items[0].Phase != step.phase {
			t.Errorf("%s: ?phase=%s lists %+v", step.name, step.phase, page.Items)
		}
		for _, other := range model.Phases() {
			if other == step.phase {
				continue
			}
			page := decode[model.VoucherPage](t, a.call(t, http.MethodGet, "/vouchers?phase="+string(other), "", nil))
			if len(page.Items) != 0 {
				t.Errorf("%s: ?phase=%s lists it, too", step.name, other)
			}
		}
	}
	// Whatever happened to the sale, the order is there.
	mine := decode[model.OrderPage](t, a.call(t, http.MethodGet, "/orders?voucher_id="+voucher.ID, buyer, nil))
	if len(mine.Items) != 1 || mine.Items[0].ID != order.ID {
		t.Errorf("%+v", mine)
	}
}
