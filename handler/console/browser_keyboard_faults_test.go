//go:build faults

//part:browser

package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// places finds what a person can do something with on the page, in its order, as the Tab key should.
const places = `(() => {
	window.places = [...document.querySelectorAll('a[href], button, input, select, textarea, summary')].filter((place) =>
		!place.disabled && place.type !== 'hidden' && place.tabIndex >= 0 && place.checkVisibility({ visibilityProperty: true }));
	return window.places.length;
})()`

// focus is where the keyboard is.
type focus struct {
	At   int    // of the places; -1: at none of them
	Name string // for people
	Ring bool   // it is marked
	Seen bool   // it is in the window
}

const focused = `(() => {
	const place = document.activeElement;
	const style = getComputedStyle(place);
	const box = place.getBoundingClientRect();
	return {
		At: (window.places ?? []).indexOf(place), Name: place.outerHTML.slice(0, 80),
		Ring: place.matches(':focus-visible') && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
		Seen: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
	};
})()`

// mostStops bounds the presses of Tab: a list of 20 orders has five places a line, and the field of a time has 8 parts.
const mostStops = 200

// walk goes through a page that was just loaded with the Tab key: to every place, in their order, each marked and in the window.
func (b *tab) walk(t *testing.T, what string) {
	t.Helper()
	var count int
	// From the top, where a page has put the keyboard into its field already.
	b.do(t, what+" by Tab", chromedp.Evaluate(places, &count), chromedp.Evaluate(`document.body.tabIndex = -1, document.body.focus()`, nil))
	next := 0
	var begun bool // the page has put the keyboard into its field
	b.do(t, what+" by Tab", chromedp.Evaluate(`const begun = window.places.includes(document.activeElement); if (begun) window.places[0].focus(); begun`, &begun))
	if begun {
		next = 1
	}
	for range mostStops {
		var f focus
		b.do(t, what+" by Tab", chromedp.KeyEvent(kb.Tab), chromedp.Evaluate(focused, &f))
		switch {
		case f.At == next-1 && next > 0: // the next part of one field
			continue
		case f.At != next:
			t.Errorf("%s: Tab leads to place %d of %d, want %d: %s", what, f.At, count, next, f.Name)
			return
		case !f.Ring || !f.Seen:
			t.Errorf("%s: the focus cannot be seen (marked %t, in the window %t): %s", what, f.Ring, f.Seen, f.Name)
		}
		if next++; next == count {
			return
		}
	}
	t.Errorf("%s: Tab reached %d of %d places", what, next, count)
}

// reach is keys in the console, where Enter leads to another page, or to the same one again.
func (b *tab) reach(t *testing.T, selector string, keys string) {
	t.Helper()
	action := chromedp.Action(chromedp.KeyEvent(keys))
	if strings.HasSuffix(keys, kb.Enter) && selector != ".skip" {
		action = leads(action)
	}
	b.tabTo(t, selector, action)
}

// keys presses Tab until the focus is at a place, and then other keys.
func (b *tab) keys(t *testing.T, selector string, keys string) {
	t.Helper()
	b.tabTo(t, selector, chromedp.KeyEvent(keys))
}

// act does something with what is at a place of a form, in a dialog that is opened first; an empty name is of none.
func (b *tab) act(t *testing.T, opens, place, keys string) {
	t.Helper()
	if opens != "" {
		b.keys(t, `main [data-opens="`+opens+`"]`, kb.Enter)
	}
	b.keys(t, place, keys)
	b.run(t, "done: "+place, done())
}

func (b *tab) tabTo(t *testing.T, selector string, action chromedp.Action) {
	t.Helper()
	for range mostStops {
		var there bool
		b.do(t, "Tab to "+selector, chromedp.KeyEvent(kb.Tab), chromedp.Evaluate(fmt.Sprintf(`document.activeElement.matches(%q)`, selector), &there))
		if there {
			b.run(t, "keys at "+selector, action)
			return
		}
	}
	t.Fatalf("Tab does not reach %s", selector)
}

// Every action is done with the keyboard alone: nothing here is clicked, or set by a script.
func keyboardInABrowser(t *testing.T, c *chromium, s *site) {
	b := c.person(t, s.url)
	b.run(t, "sign-in", b.visit("/console"), visible("#password"))
	b.reach(t, ".skip", kb.Enter)
	b.run(t, "the content is skipped to", until(`document.activeElement.id === "main"`))
	b.reach(t, "#username", "ada")
	b.reach(t, "#password", password+kb.Enter)
	b.run(t, "signed in", visible(`a[href="/console/vouchers/new"]`))
	b.reach(t, `a[href="/console/vouchers/new"]`, kb.Enter)
	b.run(t, "form", visible("#title"))
	for _, field := range [][2]string{{"#title", "Typed by keys"}, {"#price", "10"}, {"#face_value", "25"}, {"#stock", "5"}} {
		b.reach(t, field[0], field[1])
	}
	b.reach(t, "main form button", kb.Enter)
	b.run(t, "created", done())

	b.reach(t, `a[href$="/edit"]`, kb.Enter)
	b.reach(t, "#title", "Changed by keys"+kb.Enter)
	b.run(t, "saved", done(), shows("h1", "Changed by keys"))
	for _, to := range [][2]string{{"", "paused"}, {"", "published"}, {"archive", "archived"}, {"publish", "published"}} {
		b.act(t, to[0], `main form[action$="/state"] [value="`+to[1]+`"]`, kb.Enter)
	}
	b.act(t, "stock", "#delta", "3"+kb.Enter)
	b.run(t, "3 more", shows(`[data-live="stock"]`, "8"))
	b.act(t, "end", `form[action$="/end"] .btn-primary`, kb.Enter)

	id := s.onSale(t, nil)
	bought := func(user string) string {
		check.Equal(t, "what is heard by "+user, s.buy(t, user, id), "OK")
		return s.orderOf(t, user, id)
	}
	for action, orderID := range map[string]string{"/cancel": bought("keys-1"), "/refund": s.paid(t, "keys-2", id)} {
		b.reach(t, `header a[href="/console/orders"]`, kb.Enter)
		b.run(t, "orders", visible("#q"))
		b.reach(t, "#q", orderID+kb.Enter)
		b.run(t, "the order", shows("h1 code", orderID))
		b.act(t, action[1:], `dialog form[action$="`+action+`"] .btn-danger`, kb.Enter)
	}
	_, order := s.call(t, http.MethodGet, "/admin/orders/"+s.paid(t, "keys-3", id), s.token(t, "admin", model.RoleAdmin), nil)
	b.reach(t, `header a[href="/console/redeem"]`, kb.Enter)
	b.reach(t, "#code", fmt.Sprint(order["code"])+kb.Enter)
	b.run(t, "the code is used up", done(), visible(".badge.redeemed"))
	b.reach(t, `header button[name="to"]`, kb.Enter)
	b.run(t, "in Chinese", until(`document.documentElement.lang === "zh"`))
	b.reach(t, `form[action="/console/sign-out"] button`, kb.Enter)
	b.run(t, "signed out", visible("#password"))
	b.quiet(t)
}
