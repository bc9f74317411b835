package e2e_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// TestPrecedence changes a voucher that is sold out under a buyer, somebody
// who came too late, and somebody who has canceled an order a moment ago: of all the refusals that apply, each hears the first of
// the contract's order, and `phase` says the same.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	everywhere(t, checkPrecedence)
}

func checkPrecedence(t *testing.T, a shop) {
	t.Helper()
	buyer, late, cooling := a.Token(t, a.user(1), model.RoleUser), a.Token(t, a.user(2), model.RoleUser), a.Token(t, a.user(3), model.RoleUser)
	voucher := a.Create(t, map[string]any{"stock": 1, "cooldown": "1h"})
	place := func(token string) api.Answer {
		return a.Insist(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", token, nil)
	}
	a.cancels(t, a.buys(t, voucher.ID, a.user(3)))
	order := a.buys(t, voucher.ID, a.user(1))
	listed := func(phase model.Phase) bool {
		page := remote.Decode[model.VoucherPage](t, a.Call(t, http.MethodGet, "/vouchers?limit=100&phase="+string(phase), "", nil))
		return slices.ContainsFunc(page.Items, func(v model.Voucher) bool { return v.ID == voucher.ID && v.Phase == phase })
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
		object(t, a.Insist(t, http.MethodPatch, "/admin/vouchers/"+voucher.ID, a.Admin(t), step.change), http.StatusOK)
		cools := step.late
		if cools == model.CodeSoldOut {
			cools = model.CodeCoolingDown
		}
		for token, code := range map[string]model.Code{buyer: step.buyer, late: step.late, cooling: cools} {
			got := place(token)
			if got.Code() != code {
				t.Errorf("%s: %s, want %s", step.name, got.Body, code)
				continue
			}
			status := http.StatusConflict
			if code == model.CodeNotFound {
				status = http.StatusNotFound
			}
			if p := refused(t, got, status, code); code == model.CodeAlreadyOrdered && (p.OrderID != order.ID || p.OrderStatus != model.OrderUnpaid) {
				t.Errorf("%s: %s", step.name, got.Body)
			}
		}
		if step.phase == "" {
			continue
		}
		if v := remote.Decode[model.Voucher](t, a.Call(t, http.MethodGet, "/vouchers/"+voucher.ID, "", nil)); v.Phase != step.phase {
			t.Errorf("%s: phase = %s", step.name, v.Phase)
		}
		// A list may be a moment old.
		check.Eventually(t, step.name+": it is listed by its phase only", func() bool {
			return !slices.ContainsFunc(model.Phases(), func(phase model.Phase) bool { return listed(phase) != (phase == step.phase) })
		})
	}
	// Whatever happened to the sale, the order is there.
	mine := remote.Decode[model.OrderPage](t, a.Call(t, http.MethodGet, "/orders?voucher_id="+voucher.ID, buyer, nil))
	if len(mine.Items) != 1 || mine.Items[0].ID != order.ID {
		t.Errorf("%+v", mine)
	}
}
