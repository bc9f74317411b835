//go:build faults

//part:journeys

package console_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// act opens a dialog, if it names one, presses a button, and waits until the page says that it is done.
func (v visitor) act(t *testing.T, b *tab, dialog, button string) {
	t.Helper()
	if dialog != "" {
		v.press(t, b, `main [data-opens="`+dialog+`"]`)
		button = "#" + dialog + " " + button
	}
	v.press(t, b, button)
	b.run(t, v.name()+": done "+button, done())
	b.do(t, "the message is closed", click(`.toast-note [data-closes]`))
}

// An operator creates a voucher, watches it, pauses it and goes on, restocks it, moves its end and its title, archives
// and publishes it; cancels an order, gives money back and uses a code. With a keyboard nothing is clicked, but the
// messages.
func operatorInABrowser(t *testing.T, c *chromium, s *site) {
	for _, v := range visitors() {
		b := v.tab(t, c, s.url)
		v.signsIn(t, b, "ada", "/console")
		v.fits(t, b, "overview")
		if v.keyboard {
			b.keys(t, ".skip", kb.Enter)
			b.run(t, "the content is skipped to", until(`document.activeElement.id === "main"`))
		}
		v.follow(t, b, `main a[href="/console/vouchers/new"]`)
		for _, field := range [][2]string{{"#title", "Typed by " + v.name()}, {"#price", "10"}, {"#face_value", "25"}, {"#stock", "5"}} {
			v.types(t, b, field[0], field[1])
		}
		v.follow(t, b, "main form button")
		b.run(t, "created", done(), visible("#live"))
		var place string
		b.do(t, "the sale", chromedp.Evaluate(`location.pathname`, &place), click(`.toast-note [data-closes]`), marked())
		id := place[len("/console/vouchers/"):]
		cancel, refund, redeem := "keys-1"+v.name(), "keys-2"+v.name(), "keys-3"+v.name()
		for _, user := range []string{cancel, refund, redeem} {
			check.Equal(t, "what is heard by "+user, s.buy(t, user, id), "OK")
		}
		b.run(t, "three are sold", shows(`[data-live="sold"]`, "3"))
		v.fits(t, b, "sale")
		for _, to := range []struct{ dialog, state, phase string }{{"", "paused", "paused"}, {"", "published", "live"}, {"archive", "archived", "archived"}, {"publish", "published", "live"}} {
			v.act(t, b, to.dialog, `form[action$="/state"] [value="`+to.state+`"]`)
			b.run(t, "the sale is "+to.phase, visible("[data-phase]."+to.phase))
		}
		v.press(t, b, `main [data-opens="stock"]`)
		v.types(t, b, "#delta", "3")
		v.act(t, b, "", "#stock .btn-primary")
		b.run(t, "three more", shows(`[data-live="stock"]`, "8"), until(`window.neverReloaded`))
		v.act(t, b, "end", ".btn-primary")
		v.follow(t, b, `main a[href$="/edit"]`)
		v.types(t, b, "#title", "Changed by "+v.name())
		v.follow(t, b, "main form button")
		b.run(t, "saved", done(), shows("h1", "Changed by "+v.name()))

		orderOf := func(user string) string { return s.orderOf(t, user, id) }
		s.pays(t, refund, orderOf(refund))
		for _, step := range [][2]string{{"cancel", orderOf(cancel)}, {"refund", orderOf(refund)}} {
			v.follow(t, b, `header a[href="/console/orders"]`)
			v.fits(t, b, "orders")
			v.types(t, b, "#q", step[1])
			v.follow(t, b, ".search button")
			b.run(t, "the order", visible(`h1 .id[title="`+step[1]+`"]`))
			v.fits(t, b, "order")
			v.press(t, b, `main [data-opens="`+step[0]+`"]`)
			v.follow(t, b, "#"+step[0]+" .btn-danger")
			b.run(t, v.name()+": "+step[0], done(), visible(map[string]string{"cancel": ".badge.canceled", "refund": ".badge.refunded"}[step[0]]))
		}
		s.pays(t, redeem, orderOf(redeem))
		_, order := s.call(t, http.MethodGet, "/admin/orders/"+orderOf(redeem), s.token(t, "admin", model.RoleAdmin), nil)
		v.follow(t, b, `header a[href="/console/redeem"]`)
		v.types(t, b, "#code", fmt.Sprint(order["code"]))
		v.follow(t, b, `button[value="use"]`)
		b.run(t, "the code is used up", done(), visible(".badge.redeemed"))
		other := map[string]string{"en": "zh", "zh": "en"}[v.language]
		v.follow(t, b, `header button[name="to"]`)
		b.run(t, "in the other language", until(`document.documentElement.lang === "`+other+`"`))
		v.follow(t, b, `form[action="/console/sign-out"] button`)
		b.run(t, "signed out", visible("#password"))
		b.quiet(t)
	}
}

// A cashier redeems and looks up, and a viewer sees and cannot act.
func tillInABrowser(t *testing.T, c *chromium, s *site) {
	id := s.onSale(t, map[string]any{"title": "Tea for two", "stock": len(visitors())})
	for n, v := range visitors() {
		user := "guest-" + v.name()
		order := s.paid(t, user, id)
		_, shown := s.call(t, "GET", "/orders/"+order, s.token(t, user, "user"), nil)
		code, _ := shown["code"].(string)
		for _, level := range []string{"cashier", "viewer"} {
			if n == 0 {
				s.administrator(t, level)
			}
			b := v.tab(t, c, s.url)
			v.signsIn(t, b, level, "/console/orders")
			if level == "viewer" {
				b.run(t, "a viewer sees the sale", b.visit("/console/vouchers/"+id), visible("main h1"), until(`document.querySelectorAll('main form[method="post"]').length === 0`))
				v.fits(t, b, "sale of a viewer")
				b.run(t, "and its order", b.visit("/console/orders/"+order), visible("main h1"), until(`document.querySelectorAll('main form[method="post"]').length === 0 && !document.body.innerText.includes("`+code+`")`))
				b.quiet(t)
				continue
			}
			for _, step := range []struct{ how, seen string }{{"look", ".verdict-card.paid"}, {"use", ".verdict-card.redeemed"}, {"use", ".refusal"}} {
				v.follow(t, b, `header a[href="/console/redeem"]`)
				v.types(t, b, "#code", code)
				v.follow(t, b, `button[value="`+step.how+`"]`)
				b.run(t, step.how+" the code", visible(step.seen))
				v.fits(t, b, step.how+step.seen)
			}
			b.quiet(t)
		}
	}
}
