//go:build faults

//part:journeys

package console_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"seckill/internal/workshop/check"
)

// visitor is somebody with a language, colours, a window and a way to use it.
type visitor struct {
	language, scheme string
	width            int64
	keyboard         bool // and no mouse
}

var everybody = flag.Bool("everybody", false, "whether each journey is made by all visitors, and not by those few that cover each pair of what they are")

// visitors are a desk's and a telephone's, in both languages and colours, with a mouse and with a keyboard.
func visitors() (all []visitor) {
	if !*everybody {
		return []visitor{{"en", "light", 1440, false}, {"en", "dark", 390, true}, {"zh", "light", 390, false}, {"zh", "dark", 1440, true}}
	}
	for _, language := range []string{"en", "zh"} {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{1440, 390} {
				all = append(all, visitor{language, scheme, width, false}, visitor{language, scheme, width, true})
			}
		}
	}
	return all
}

// What people want of a console and a shop, from beginning to end: an operator, a buyer, a cashier and a viewer.
func TestJourneysInABrowser(t *testing.T) { //nolint:tparallel // one browser
	t.Parallel()
	s := start(t)
	s.administrator(t, "ada")
	c := open(t)
	t.Run("operator", func(t *testing.T) { operatorInABrowser(t, c, s) })
	t.Run("buyer", func(t *testing.T) { buyerInABrowser(t, c) })
	t.Run("till", func(t *testing.T) { tillInABrowser(t, c, s) })
}

func (v visitor) name() string {
	return fmt.Sprintf("%s-%s-%d-%s", v.language, v.scheme, v.width, map[bool]string{true: "keyboard", false: "mouse"}[v.keyboard])
}

// tab is a tab of the visitor's own.
func (v visitor) tab(t *testing.T, c *chromium, url string) *tab {
	t.Helper()
	b := c.person(t, url)
	b.do(t, "the visitor's browser", network.Enable(), network.SetExtraHTTPHeaders(network.Headers{"Accept-Language": v.language}), scheme(v.scheme), chromedp.EmulateViewport(v.width, 900))
	return b
}

// press presses what a selector finds.
func (v visitor) press(t *testing.T, b *tab, selector string) {
	t.Helper()
	if v.keyboard {
		b.keys(t, selector, kb.Enter)
	} else {
		b.do(t, "press "+selector, click(selector))
	}
}

// follow presses what leads to another page, or to the same one again.
func (v visitor) follow(t *testing.T, b *tab, selector string) {
	t.Helper()
	if v.keyboard {
		b.tabTo(t, selector, leads(chromedp.KeyEvent(kb.Enter)))
	} else {
		b.do(t, "follow "+selector, leads(click(selector)))
	}
}

// types fills in a field. The keyboard's Tab has selected what is there.
func (v visitor) types(t *testing.T, b *tab, selector, text string) {
	t.Helper()
	if v.keyboard {
		b.keys(t, selector, text)
	} else {
		b.do(t, "type into "+selector, fill(selector, text))
	}
}

// signsIn opens a page of the console.
func (v visitor) signsIn(t *testing.T, b *tab, name, path string) {
	t.Helper()
	b.run(t, v.name()+": sign-in", b.visit(path), visible("#password"))
	v.types(t, b, "#username", name)
	v.types(t, b, "#password", password)
	v.follow(t, b, ".card form button")
}

// fits checks that nothing is wider than a narrow telephone.
func (v visitor) fits(t *testing.T, b *tab, what string) {
	t.Helper()
	var wide int
	b.run(t, v.name()+" "+what)
	b.do(t, what+" at 360", chromedp.EmulateViewport(360, 800), chromedp.Evaluate(`document.documentElement.scrollWidth`, &wide), chromedp.EmulateViewport(v.width, 900))
	check.That(t, wide <= 360, "%s: %s is %d px wide on a telephone of 360", v.name(), what, wide)
}
