//go:build faults

//part:browser

package console_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"seckill/internal/words"
	"seckill/internal/workshop/check"
)

// visitor is somebody with a language, a window and a way to press things.
type visitor struct {
	language string
	width    int64
	keyboard bool
}

// visitors cover both languages, a desk and a telephone, mouse and keyboard.
func visitors() []visitor { return []visitor{{"en", 1440, false}, {"zh", 390, true}} }

func (v visitor) name() string { return fmt.Sprintf("%s-%d", v.language, v.width) }

// tab is a tab of the visitor's own.
func (v visitor) tab(t *testing.T, c *chromium, url string) *tab {
	t.Helper()
	b := c.person(t, url)
	b.do(t, "the visitor's browser", network.Enable(), network.SetExtraHTTPHeaders(network.Headers{"Accept-Language": v.language}), chromedp.EmulateViewport(v.width, 900))
	return b
}

// press presses what a selector finds.
func (v visitor) press(t *testing.T, b *tab, selector string) {
	t.Helper()
	if v.keyboard {
		b.keys(t, selector, kb.Enter)
	} else {
		b.do(t, "press "+selector, visible(selector), chromedp.ScrollIntoView(selector), chromedp.Click(selector))
	}
}

// fits checks that nothing is wider than a narrow telephone.
func (v visitor) fits(t *testing.T, b *tab, what string) {
	t.Helper()
	var wide int
	b.run(t, v.name()+" "+what)
	b.do(t, what+" at 360", chromedp.EmulateViewport(360, 800), chromedp.Evaluate(`document.documentElement.scrollWidth`, &wide), chromedp.EmulateViewport(v.width, 900))
	check.That(t, wide <= 360, "%s: %s is %d px wide on a telephone of 360", v.name(), what, wide)
}

// A buyer registers, buys, pays with the simulated provider, comes back and has the code, also after a reload; a sale that
// has not begun says so on its button, and becomes one that can be bought without a reload.
func shopInABrowser(t *testing.T, c *chromium, _ *site) {
	s := start(t, "SECKILL_ORDER_MODE=async")
	catalogue := check.Value(words.New())(t)
	begins := time.Now().Add(50 * time.Hour).UTC()
	for _, v := range visitors() {
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
		b.run(t, "the form", visible("#account"), chromedp.SetValue("#username", "buyer-"+v.language), chromedp.SetValue("#password", "a wrong password"))
		v.press(t, b, `button[value="login"]`)
		b.run(t, "a wrong password is refused in words", shows("#message", said("The username or the password is wrong.")))
		v.fits(t, b, "sign in")
		b.do(t, "the right one", chromedp.SetValue("#password", password))
		v.press(t, b, `button[value="register"]`)
		b.run(t, "registered", visible("#buyer"), shows(button, said("Buy")))
		v.press(t, b, button)
		b.run(t, "bought", visible(`#bought [data-do="pay"]`), shows(`#bought [data-field="status"]`, said("unpaid")))
		v.fits(t, b, "unpaid order")
		v.press(t, b, `#bought [data-do="pay"]`)
		b.run(t, "the provider's page", visible(`button[value="approve"]`))
		v.fits(t, b, "payment")
		v.press(t, b, `button[value="approve"]`)
		b.run(t, "approved", visible(`a.back.next`))
		v.press(t, b, "a.back.next")
		const code = `document.querySelector('#bought code[data-field="code"]')?.textContent.length > 8 && document.querySelector('#bought svg path')?.getAttribute('d').length > 500`
		b.run(t, "the code is there", visible("#bought .code-ticket"), until(code))
		b.run(t, "and after a reload", chromedp.Reload(), visible("#bought .code-ticket"), until(code))
		v.fits(t, b, "paid order")
		v.press(t, b, `a[data-view="sale"]`)
		b.run(t, "the button says that it is mine", shows(button, said("Yours: show the code")))
		v.press(t, b, "#leave")
		b.run(t, "somebody else", shows(button, said("Sign in to buy")))
		v.press(t, b, button)
		b.do(t, "the name again", visible("#account"), chromedp.SetValue("#username", "buyer-"+v.language), chromedp.SetValue("#password", password))
		v.press(t, b, `button[value="register"]`)
		b.run(t, "a name that is taken is said in words", shows("#message", said("The username is taken.")))
		b.quiet(t)
	}
}

// A cashier redeems and looks up, and a viewer sees and cannot act.
func tillInABrowser(t *testing.T, c *chromium, s *site) {
	id := s.onSale(t, map[string]any{"title": "Tea for two"})
	for _, v := range visitors() {
		user := "guest-" + v.language
		order := s.paid(t, user, id)
		_, shown := s.call(t, "GET", "/orders/"+order, s.token(t, user, "user"), nil)
		code, _ := shown["code"].(string)
		for _, level := range []string{"cashier", "viewer"} {
			if v.language == "en" {
				s.administrator(t, level)
			}
			b := v.tab(t, c, s.url)
			b.run(t, level+" signs in", b.visit("/console/sign-in"), visible("#password"), credentials(level, password), visible(`a[href="/console/orders"]`))
			if level == "viewer" {
				b.run(t, "a viewer sees the sale", b.visit("/console/vouchers/"+id), visible("main h1"), until(`document.querySelectorAll('main form[method="post"]').length === 0`))
				v.fits(t, b, "sale of a viewer")
				b.run(t, "and its order", b.visit("/console/orders/"+order), visible("main h1"), until(`document.querySelectorAll('main form[method="post"]').length === 0 && !document.body.innerText.includes("`+code+`")`))
				b.quiet(t)
				continue
			}
			for _, step := range []struct{ how, seen string }{{"look", ".verdict-card.paid"}, {"use", ".verdict-card.redeemed"}, {"use", ".refusal"}} {
				b.do(t, "the code", b.visit("/console/redeem"), visible("#code"), chromedp.SetValue("#code", code))
				v.press(t, b, `button[value="`+step.how+`"]`)
				b.run(t, step.how+" the code", visible(step.seen))
				v.fits(t, b, step.how+step.seen)
			}
			b.quiet(t)
		}
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
