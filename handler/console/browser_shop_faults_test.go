//go:build faults

//part:browser

package console_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"seckill/internal/workshop/check"
)

// A buyer registers, waits for a sale to begin, buys, cancels, buys again, pays with the simulated provider and gets the
// code: with the keyboard alone, but for the provider's page.
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
	b.readable(t, card+`[data-field="buy"]`, `#account button`)
	b.keys(t, "#username", "carol")
	b.keys(t, "#password", password)
	b.keys(t, `button[value="register"]`, kb.Enter)
	b.run(t, "registered", visible("#buyer"))
	b.keys(t, "#leave", kb.Enter)
	b.run(t, "signed out", visible("#password"), until(`document.querySelector("#username").value === ""`))
	b.keys(t, "#username", "carol")
	b.keys(t, "#password", "a wrong password"+kb.Enter)
	b.run(t, "a wrong password is refused", visible("#message"))
	b.keys(t, "#password", password+kb.Enter)
	b.run(t, "signed in", visible("#buyer"))

	var first string
	countdown := `document.querySelector('` + card + `[data-field="countdown"]').textContent`
	b.run(t, "the countdown runs", until(countdown+`.startsWith("begins in 0:")`), chromedp.Evaluate(countdown, &first))
	b.run(t, "and nobody can buy yet", until(countdown+` < "`+first+`"`), buyable(""))
	status, _ := s.call(t, "PATCH", "/admin/vouchers/"+id, s.token(t, "admin", "admin"), map[string]any{"begin_at": begins.Add(-2 * time.Hour).Format(time.RFC3339)})
	check.Equal(t, "the sale is brought forward", status, 200)
	b.run(t, "the sale begins without a reload", buyable("false === "))
	buy := func() {
		t.Helper()
		b.keys(t, card+`[data-field="buy"]`, kb.Enter)
		b.run(t, "bought", visible("#pay"), shows(`#order [data-field="status"]`, "unpaid"), shows(card+`[data-field="left"]`, "2 / 3"))
	}
	buy()
	b.keys(t, "#cancel", kb.Enter)
	b.run(t, "canceled", shows(`#order [data-field="status"]`, "canceled"), shows(card+`[data-field="left"]`, "3 / 3"))
	buy()
	b.keys(t, "#pay", kb.Enter)
	var link string
	b.run(t, "the payment is started", visible("#payment"), until(`document.activeElement.id === "payment"`),
		chromedp.AttributeValue("#payment", "href", &link, nil))
	provider := b.another(t)
	provider.run(t, "it is approved", chromedp.Navigate(link), leads(chromedp.Click(`button[value="approve"]`)))
	b.run(t, "the code is there", shows(`#order [data-field="status"]`, "paid"), until(`document.querySelector('#order code[data-field="code"]').textContent.length > 8`))
	if v := s.voucher(t, id); v["remaining"] != 2.0 {
		t.Errorf("%v remain", v["remaining"])
	}
	b.quiet(t)
}

// colours are the text's and the ground's of one place, and the ground's of another one.
const colours = `((one, other) => [one.color, one.backgroundColor, other.backgroundColor]
	.map((colour) => '#' + colour.match(/\d+/g).slice(0, 3).map((part) => Number(part).toString(16).padStart(2, '0')).join(''))
)(...[%q, %q].map((place) => getComputedStyle(document.querySelector(place))))`

// readable checks that a button which can do nothing can be read, and looks unlike one that can. axe asks for neither.
func (b *tab) readable(t *testing.T, off, on string) {
	t.Helper()
	for _, in := range []string{"light", "dark"} {
		var found [3]string
		b.do(t, "the colours in "+in, scheme(in), chromedp.Evaluate(fmt.Sprintf(colours, off, on), &found))
		if found[1] == found[2] || contrast(t, found[0], found[1]) < 4.5 {
			t.Errorf("in %s %s is %s on %s, and %s is on %s", in, off, found[0], found[1], on, found[2])
		}
	}
}
