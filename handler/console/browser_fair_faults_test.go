//go:build faults

//part:browser

package console_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// fairShopInABrowser is a buyer's way through each rule of a fair sale. TestOffer has every state.
func fairShopInABrowser(t *testing.T, c *chromium, _ *site) {
	s := start(t)
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	begins := time.Now().Add(3 * time.Hour)
	early := map[string]any{"groups": []string{"gold"}, "begin_at": in(-time.Hour)}
	soldOut := s.onSale(t, map[string]any{"title": "Waitlist", "waitlist": true, "stock": 0})
	draw := s.onSale(t, map[string]any{"title": "Draw", "allocation": "draw"})
	cools := s.onSale(t, map[string]any{"title": "Cool-down", "cooldown": "10m"})
	gold := s.onSale(t, map[string]any{"title": "Groups", "groups": []string{"gold", "staff"}})
	first := s.onSale(t, map[string]any{"title": "Early", "begin_at": begins.UTC().Format(time.RFC3339), "early": early})
	place := func(id, field string) string { return fmt.Sprintf(`#vouchers [data-id=%q] [data-field=%q]`, id, field) }
	says := func(id, button, why string, off bool) chromedp.Action {
		return until(fmt.Sprintf(`{
			const text = (place) => document.querySelector(place)?.textContent ?? '';
			text(%[1]q).startsWith(%[2]q) && document.querySelector(%[1]q).disabled === %[5]t && text(%[3]q).startsWith(%[4]q);
		}`, place(id, "buy"), button, place(id, "why"), why, off))
	}

	b := c.person(t, s.url)
	b.run(t, "what nobody in particular sees", b.visit("/shop"),
		says(soldOut, "Sign in to wait for a unit", "It is sold out", false), says(draw, "Sign in to enter the draw", "At the end", false),
		says(cools, "Sign in to buy", "", false), says(gold, "Sign in to buy", "Only members of gold and staff can buy it.", false),
		says(first, "Begins in 2", "Members of gold can buy from ", true))
	b.run(t, "a buyer registers", click(`a[data-view="sign-in"]`), fill("#username", "fair-buyer"), fill("#password", password), click(`button[value="register"]`), visible("#buyer"))
	b.run(t, "who is in no group", says(gold, "You cannot buy this", "Only members of gold and staff can buy it, and your account is in none of these groups.", true),
		says(first, "Begins in 2", "Members of gold can buy from ", true))
	b.run(t, "the draw", click(place(draw, "buy")), says(draw, "You are entered", "If you are drawn", true))
	b.run(t, "the waitlist", click(place(soldOut, "buy")), says(soldOut, "You wait: place 1", "When it is your turn", true))
	b.fits(t, "the shop")
	for _, in := range []string{"light", "dark"} {
		for rule, nodes := range b.finds(t, axe(t), in, "the shop") {
			t.Errorf("axe finds %s in %s: %q", rule, in, nodes)
		}
	}
	b.run(t, "given up", click(place(soldOut, "leave")), says(soldOut, "Wait for a unit", "It is sold out", false))
	b.run(t, "an order that is canceled", click(place(cools, "buy")), click(`#bought [data-do="cancel"]`), shows(`#bought [data-field="status"]`, "canceled"),
		click(`a[data-view="sale"]`), click(place(cools, "buy")), says(cools, "Cooling down: ", "Your last order of it", true))

	var account string
	b.run(t, "the account", chromedp.Evaluate(`JSON.parse(atob(token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/'))).sub`, &account))
	status, _ := s.call(t, http.MethodPut, "/admin/users/"+account+"/groups", s.token(t, "admin", model.RoleAdmin), map[string]any{"groups": []string{"gold"}})
	check.Equal(t, "the account gets a group", status, http.StatusOK)
	b.run(t, "who is in the group", says(gold, "Buy", "", false), says(first, "Buy", "", false))
	b.quiet(t)
}
