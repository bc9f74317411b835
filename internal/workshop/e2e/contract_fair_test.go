package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// TestWhoMayBuy: a voucher is for groups, some begin early, and an account that leaves its group is refused at once.
func TestWhoMayBuy(t *testing.T) {
	t.Parallel()
	everywhere(t, checkWhoMayBuy)
}

func checkWhoMayBuy(t *testing.T, a shop) {
	t.Helper()
	admin, doc := a.Admin(t), readDocument(t, a.app)
	in := func(user string, groups ...string) string {
		return check.Value(a.Tokens.Issue(token.Claims{Subject: a.user(0) + user, Role: model.RoleUser, Groups: groups}, time.Hour))(t)
	}
	buys := func(id, bearer string) api.Answer {
		return a.Insist(t, http.MethodPost, "/vouchers/"+id+"/seckill", bearer, nil)
	}
	shown := func(path, bearer string) map[string]any {
		return object(t, a.Call(t, http.MethodGet, path, bearer, nil), http.StatusOK)
	}

	// Before the window, and in it, those of no group of the voucher are not eligible.
	for _, begin := range []time.Time{time.Now().Add(-time.Hour), time.Now().Add(time.Hour)} {
		v := a.Create(t, map[string]any{"stock": 3, "groups": []string{"/eu/staff", "gold"}, "begin_at": begin, "end_at": begin.Add(10 * time.Hour)})
		for _, bearer := range []string{in("none"), in("other", "silver", "Gold")} {
			refused(t, buys(v.ID, bearer), http.StatusForbidden, model.CodeNotEligible)
			check.Equal(t, "eligible", shown("/vouchers/"+v.ID, bearer)["eligible"], any(false))
		}
		gold := in("gold", "silver", "gold")
		check.Equal(t, "eligible", shown("/vouchers/"+v.ID, gold)["eligible"], any(true))
		if begin.After(time.Now()) {
			refused(t, buys(v.ID, gold), http.StatusConflict, model.CodeNotStarted)
		} else {
			check.That(t, buys(v.ID, gold).Sells(), "one of the group cannot buy")
			p := refused(t, a.Call(t, http.MethodPatch, "/admin/vouchers/"+v.ID, admin, `{"groups":[]}`), http.StatusConflict, model.CodeConflict)
			check.That(t, p.Detail != "", "the conflict is not explained")
		}
		if _, told := shown("/vouchers/"+v.ID, "")["eligible"]; told {
			t.Error("an answer without a token has eligible")
		}
	}

	// Gold begins early, whoever else must wait; a patch before the first order is obeyed.
	v := a.Create(t, map[string]any{
		"stock": 3, "begin_at": time.Now().Add(time.Hour), "end_at": time.Now().Add(2 * time.Hour),
		"early": map[string]any{"groups": []string{"silver"}, "begin_at": time.Now().Add(-time.Minute)},
	})
	refused(t, buys(v.ID, in("ann", "gold")), http.StatusConflict, model.CodeNotStarted)
	patch := map[string]any{"early": map[string]any{"groups": []string{"gold"}, "begin_at": time.Now().Add(-time.Minute)}}
	object(t, a.Call(t, http.MethodPatch, "/admin/vouchers/"+v.ID, admin, patch), http.StatusOK)
	check.Patiently(t, "every instance obeys the patch", func() bool { return buys(v.ID, in("ann", "gold")).Sells() })
	for _, bearer := range []string{in("bob"), in("carl", "silver")} {
		refused(t, buys(v.ID, bearer), http.StatusConflict, model.CodeNotStarted)
		check.Equal(t, "the phase", shown("/vouchers/"+v.ID, bearer)["phase"], any("upcoming"))
	}
	check.Equal(t, "the phase for gold", shown("/vouchers/"+v.ID, in("dora", "gold"))["phase"], any("live"))

	// An account gets its groups from an administrator, and is out at once.
	name := a.name("fair")
	a.register(t, name)
	before, _ := a.session(t, name, rightPassword)
	id, _ := shown("/auth/me", before)["id"].(string)
	grouped := func(groups string) {
		got := a.Call(t, http.MethodPut, "/admin/users/"+id+"/groups", admin, `{"groups":`+groups+`}`)
		doc.check(t, http.MethodPut, "/api/v1/admin/users/{id}/groups", got)
		check.Equal(t, groups, got.Status, http.StatusOK)
	}
	doc.check(t, http.MethodGet, "/api/v1/vouchers/{id}", a.Call(t, http.MethodGet, "/vouchers/"+v.ID, in("dora", "gold"), nil))
	grouped(`["gold"]`)
	after, _ := a.session(t, name, rightPassword)
	staff := a.Create(t, map[string]any{"stock": 3, "groups": []string{"gold"}})
	check.Equal(t, "eligible", shown("/vouchers/"+staff.ID, after)["eligible"], any(true))
	grouped(`[]`)
	for _, bearer := range []string{before, after} {
		refused(t, buys(staff.ID, bearer), http.StatusForbidden, model.CodeNotEligible)
	}
	refused(t, a.Call(t, http.MethodPut, "/admin/users/nobody/groups", admin, `{"groups":["gold"]}`), http.StatusNotFound, model.CodeNotFound)
	refused(t, a.Call(t, http.MethodPut, "/admin/users/"+id+"/groups", admin, `{"groups":[""]}`), http.StatusUnprocessableEntity, model.CodeValidation)
}

// TestCooldown: whose order ended unpaid waits, each time twice as long, whatever is asked again and whoever rebuilds the sale.
func TestCooldown(t *testing.T) {
	t.Parallel()
	everywhere(t, checkCooldown)
}

func checkCooldown(t *testing.T, a shop) {
	t.Helper()
	doc := readDocument(t, a.app)
	buys := func(v model.Voucher, user string) api.Answer {
		return a.Insist(t, http.MethodPost, "/vouchers/"+v.ID+"/seckill", a.Token(t, user, model.RoleUser), nil)
	}
	// waits tells for how long a user is told to wait after the end of an order.
	waits := func(v model.Voucher, order model.Order) time.Duration {
		t.Helper()
		got := buys(v, order.UserID)
		doc.check(t, http.MethodPost, "/api/v1/vouchers/{id}/seckill", got)
		p := refused(t, got, http.StatusConflict, model.CodeCoolingDown)
		return p.RetryAt.Sub(*a.now(t, order).ClosedAt).Truncate(10 * time.Millisecond)
	}
	v := a.Create(t, map[string]any{"stock": 1})
	check.Equal(t, "without one", v.Cooldown, 0)
	v = remote.Decode[model.Voucher](t, a.Call(t, http.MethodPatch, "/admin/vouchers/"+v.ID, a.Admin(t), `{"cooldown":"10m"}`))
	check.Equal(t, "the cool-down", v.Cooldown.String(), "10m0s")
	order := a.buys(t, v.ID, a.user(1))
	refused(t, a.Call(t, http.MethodPatch, "/admin/vouchers/"+v.ID, a.Admin(t), `{"cooldown":"0s"}`), http.StatusConflict, model.CodeConflict)
	for range 2 { // to cancel it again changes nothing
		a.cancels(t, order)
		check.Equal(t, "to wait", waits(v, order), 10*time.Minute)
	}
	if a.mode == model.ModeAsync {
		a.rebuild(t, v.ID)
		check.Equal(t, "to wait after a rebuild", waits(v, order), 10*time.Minute)
	}
	a.buys(t, v.ID, a.user(2))
	check.Equal(t, "to wait for what is sold out", waits(v, order), 10*time.Minute)

	// Nor does the user get a place on the waitlist meanwhile.
	v = a.Create(t, map[string]any{"stock": 1, "cooldown": "10m", "waitlist": true})
	order = a.buys(t, v.ID, a.user(1))
	a.cancels(t, order)
	a.buys(t, v.ID, a.user(2))
	got := a.Insist(t, http.MethodPost, "/vouchers/"+v.ID+"/waitlist", a.Token(t, a.user(1), model.RoleUser), nil)
	doc.check(t, http.MethodPost, "/api/v1/vouchers/{id}/waitlist", got)
	refused(t, got, http.StatusConflict, model.CodeCoolingDown)
	check.Equal(t, "to wait", waits(v, order), 10*time.Minute)

	// After the cool-down the user buys again, and the next cool-down is twice as long.
	v = a.Create(t, map[string]any{"stock": 1, "cooldown": "1s"})
	for _, want := range []time.Duration{time.Second, 2 * time.Second} {
		check.Patiently(t, "the cool-down is over", func() bool {
			got := buys(v, a.user(1))
			if got.Code() == model.CodeCoolingDown { // of the round before: this test may be slow
				check.Equal(t, "to wait", remote.Decode[api.Problem](t, got).RetryAt.Sub(*order.ClosedAt).Truncate(10*time.Millisecond), want/2)
			}
			return got.Sells()
		})
		mine := remote.Decode[model.OrderPage](t, a.Call(t, http.MethodGet, "/orders?voucher_id="+v.ID, a.Token(t, a.user(1), model.RoleUser), nil))
		order = a.becomes(t, mine.Items[0], model.OrderUnpaid)
		a.cancels(t, order)
		order = a.now(t, order)
	}
}
