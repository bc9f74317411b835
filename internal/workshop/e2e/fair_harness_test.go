package e2e_test

import (
	"maps"
	"net/http"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// earlyGroup is who begins before all others.
const earlyGroup = "gold"

// coolEarly is the number of a fair voucher with a cool-down and an early beginning, and without a waitlist.
const coolEarly = 6

// fair are the fields of a voucher with rules of a fair sale: every second one, from 0 on, has a cool-down, every third one an early
// beginning, while everybody else waits for an hour, and every fifth one a waitlist. So all that fits together comes together.
func fair(n int, fields map[string]any) map[string]any {
	now := time.Now().UTC()
	all := map[string]any{}
	if n%2 == 0 {
		all["cooldown"] = "1h"
	}
	if n%3 == 0 {
		all["early"] = map[string]any{"groups": []string{earlyGroup}, "begin_at": now.Add(-3 * time.Hour)}
		all["begin_at"], all["end_at"] = now.Add(time.Hour), now.Add(2*time.Hour)
	}
	if n%5 == 0 {
		all["waitlist"] = true
	}
	maps.Copy(all, fields)
	return all
}

// stranger is the same instance, asked by users of no group.
func (a *app) stranger() *app {
	other := *a
	other.Groups = nil
	return &other
}

// closeSale lets the sale of a voucher be over.
func (a *app) closeSale(t testing.TB, voucherID string) {
	t.Helper()
	now := time.Now().UTC()
	window := map[string]any{"begin_at": now.Add(-2 * time.Hour), "end_at": now.Add(-time.Hour)}
	got := a.Insist(t, http.MethodPatch, "/admin/vouchers/"+voucherID, a.Admin(t), window)
	check.Equal(t, "the sale is over", got.Status, http.StatusOK)
}

// awaitDrawn waits until a draw is done, and returns its proof.
func (a *app) awaitDrawn(t testing.TB, voucherID string) (proof model.Draw) {
	t.Helper()
	check.Patiently(t, "it is drawn", func() bool {
		proof = remote.Decode[model.Draw](t, a.Insist(t, http.MethodGet, "/vouchers/"+voucherID+"/draw", "", nil))
		return proof.DrawnAt != nil
	})
	return proof
}

// drawn waits until a draw is done, and checks that it is of everybody who was told that they are entered, that it is as
// anybody can compute it, and that each of the first has an order and nobody else: one more for each user who has canceled. It
// returns their entries in drawn order.
func (a *app) drawn(t testing.TB, voucherID string, entered map[string]string, gone map[string]bool) (users []string) {
	t.Helper()
	proof := a.awaitDrawn(t, voucherID)
	_, err := runs(t, nil, "draw", "verify", "--url", a.URL, "--voucher", voucherID)
	check.Must(t, err)
	orders := map[string]model.Order{}
	for _, order := range a.conserved(t, voucherID, nil) {
		orders[order.UserID] = order
	}
	leaves := remote.Decode[model.DrawnLeaves](t, a.Insist(t, http.MethodGet, "/vouchers/"+voucherID+"/draw/entries?limit=5000", "", nil)).Items
	check.Equal(t, "entries", len(leaves), len(entered))
	report := remote.Decode[model.Report](t, a.Insist(t, http.MethodGet, "/admin/vouchers/"+voucherID+"/report", a.Admin(t), nil))
	check.That(t, proof.Winners == min(report.Stock, int64(len(leaves))) && report.Draw.OrderKept, "of %d units: %+v %+v", report.Stock, proof, report.Draw)
	check.Equal(t, "orders", report.Orders, int64(len(orders))) // one for each user
	for place, leaf := range leaves {
		user, ok := entered[leaf]
		order, has := orders[user]
		if served := place < int(proof.Winners)+len(gone); !ok || has != served || order.Live() != (served && !gone[user]) {
			t.Errorf("place %d of %d is of %q: entered: %t, has canceled: %t, has an order: %t: %+v", place+1, len(leaves), user, ok, gone[user], has, order)
		}
		users = append(users, user)
	}
	return users
}
