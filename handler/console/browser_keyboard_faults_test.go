//go:build faults

//part:browser

package console_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
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

// walk goes through a page that was just loaded with the Tab key: to every place, in their order, each marked and in
// the window.
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

// keys presses Tab until the focus is at a place, and then other keys.
func (b *tab) keys(t *testing.T, selector string, keys string) {
	t.Helper()
	b.tabTo(t, selector, chromedp.KeyEvent(keys))
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
