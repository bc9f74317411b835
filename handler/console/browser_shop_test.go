package console_test

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"seckill/internal/testserver"
)

// A buyer registers, waits for a sale to begin, buys, pays with the simulated provider and gets the code.
func shopInABrowser(t *testing.T, c *chromium, _ *site) {
	s := start(t, "SECKILL_ORDER_MODE=async")
	begins := time.Now().Add(time.Hour).UTC()
	id := s.onSale(t, map[string]any{"stock": 3, "begin_at": begins.Format(time.RFC3339)})
	card := `[data-id="` + id + `"] `
	buyable := func(want string) chromedp.Action {
		return until(want + `document.querySelector('` + card + `[data-field="buy"]')?.disabled`)
	}
	b := c.person(t, s.url)
	b.run(t, "the shop shows the voucher", b.visit("/shop"), visible("#vouchers article"), shows(card+`[data-field="left"]`, "3 / 3"), buyable(""))
	b.run(t, "registered", chromedp.SetValue("#username", "carol"), chromedp.SetValue("#password", password), press("Register"), visible("#buyer"))
	b.run(t, "signed out", leads(press("Sign out")), visible("#password"))
	b.run(t, "a wrong password is refused", chromedp.SetValue("#username", "carol"), chromedp.SetValue("#password", "a wrong password"), press("Sign in"), visible("#message"))
	b.run(t, "signed in", chromedp.SetValue("#password", password), press("Sign in"), visible("#buyer"))

	var first string
	countdown := `document.querySelector('` + card + `[data-field="countdown"]').textContent`
	b.run(t, "the countdown runs", until(countdown+`.startsWith("begins in 0:")`), chromedp.Evaluate(countdown, &first))
	b.run(t, "and nobody can buy yet", until(countdown+` < "`+first+`"`), buyable(""))
	status, _ := s.call(t, "PATCH", "/admin/vouchers/"+id, s.token(t, "admin", "admin"), map[string]any{"begin_at": begins.Add(-2 * time.Hour).Format(time.RFC3339)})
	testserver.Equal(t, "the sale is brought forward", status, 200)
	b.run(t, "the sale begins without a reload", buyable("false === "))
	b.run(t, "bought", press("Buy"), visible("#pay"), shows(`#order [data-field="status"]`, "unpaid"), shows(card+`[data-field="left"]`, "2 / 3"))
	var link string
	b.run(t, "the payment is started", press("Pay"), visible("#payment"), until(`document.activeElement.id === "payment"`),
		chromedp.AttributeValue("#payment", "href", &link, nil))
	provider := b.another(t)
	provider.run(t, "it is approved", chromedp.Navigate(link), leads(chromedp.Click(`button[value="approve"]`)))
	b.run(t, "the code is there", shows(`#order [data-field="status"]`, "paid"), until(`document.querySelector('#order code[data-field="code"]').textContent.length > 8`))
	if v := s.voucher(t, id); v["remaining"] != 2.0 {
		t.Errorf("%v remain", v["remaining"])
	}
	b.quiet(t)
}
