//go:build faults

//part:journeys

package console_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"seckill/internal/words"
	"seckill/internal/workshop/check"
)

// A buyer registers, buys, pays with the simulated provider, comes back and has the code, also after a reload; a sale
// that has not begun says so on its button, and becomes one that can be bought without a reload.
func buyerInABrowser(t *testing.T, c *chromium) {
	s := start(t, "SECKILL_ORDER_MODE=async")
	catalogue := check.Value(words.New())(t)
	begins := time.Now().Add(50 * time.Hour).UTC()
	for _, v := range visitors() {
		buyer := "buyer-" + v.name()
		said := func(key string, args ...any) string { return catalogue.All()[v.language].Text(key, args...) }
		id := s.onSale(t, map[string]any{"title": "Coffee for two, with cake", "description": "At any of our houses, all day.", "stock": 3, "begin_at": begins.Format(time.RFC3339), "end_at": begins.Add(time.Hour).Format(time.RFC3339)})
		button := `#vouchers [data-id="` + id + `"] [data-field="buy"]`
		b := v.tab(t, c, s.url)
		b.run(t, "the shop says when the sale begins", b.visit("/shop"), until(fmt.Sprintf(`document.querySelector(%q)?.disabled && /2.*1|2.*2/.test(document.querySelector(%q).textContent)`, button, button)))
		v.fits(t, b, "shop")
		b.readable(t, button, "#account button")
		status, _ := s.call(t, "PATCH", "/admin/vouchers/"+id, s.token(t, "admin", "admin"), map[string]any{"begin_at": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)})
		check.Equal(t, "the sale is brought forward", status, 200)
		b.run(t, "it begins without a reload", shows(button, said("Sign in to buy")))
		v.press(t, b, button)
		b.run(t, "the form", visible("#account"))
		v.types(t, b, "#username", buyer)
		v.types(t, b, "#password", "a wrong password")
		v.press(t, b, `button[value="login"]`)
		b.run(t, "a wrong password is refused in words", shows("#message", said("The username or the password is wrong.")))
		v.fits(t, b, "sign in")
		v.types(t, b, "#password", password)
		v.press(t, b, `button[value="register"]`)
		b.run(t, "registered", visible("#buyer"), shows(button, said("Buy")))
		v.press(t, b, button)
		b.run(t, "bought", visible(`#bought [data-do="pay"]`), shows(`#bought [data-field="status"]`, said("unpaid")))
		v.fits(t, b, "unpaid order")
		v.press(t, b, `#bought [data-do="cancel"]`)
		b.run(t, "canceled", shows(`#bought [data-field="status"]`, said("canceled")), shows(button, said("Buy")))
		v.press(t, b, `a[data-view="sale"]`)
		v.press(t, b, button)
		b.run(t, "bought again", visible(`#bought [data-do="pay"]:not([hidden])`))
		v.press(t, b, `#bought [data-do="pay"]:not([hidden])`)
		b.run(t, "the provider's page", visible(`button[value="approve"]`))
		v.fits(t, b, "payment")
		v.press(t, b, `button[value="approve"]`)
		b.run(t, "approved", visible(`a.back.next`))
		v.press(t, b, "a.back.next")
		const code = `document.querySelector('#bought .code-ticket:not([hidden]) code')?.textContent.length > 8 && document.querySelector('#bought svg path')?.getAttribute('d').length > 500`
		b.run(t, "the code is there", visible("#bought .code-ticket:not([hidden])"), until(code))
		b.run(t, "and after a reload", chromedp.Reload(), visible("#bought .code-ticket:not([hidden])"), until(code))
		v.fits(t, b, "paid order")
		v.press(t, b, `a[data-view="sale"]`)
		b.run(t, "the button says that it is mine", shows(button, said("Yours: show the code")))
		v.press(t, b, "#leave")
		b.run(t, "somebody else", shows(button, said("Sign in to buy")))
		v.press(t, b, button)
		b.run(t, "the form again", visible("#account"))
		v.types(t, b, "#username", buyer)
		v.types(t, b, "#password", password)
		v.press(t, b, `button[value="register"]`)
		b.run(t, "a name that is taken is said in words", shows("#message", said("The username is taken.")))
		b.quiet(t)
	}
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
