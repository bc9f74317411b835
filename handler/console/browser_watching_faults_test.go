//go:build faults

//part:browser

package console_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// What a page says by itself: that its numbers are old, that its session ends, that what was typed would be lost.
func watchingInABrowser(t *testing.T, c *chromium, s *site) {
	line := testserver.NewLine(t, strings.TrimPrefix(s.url, "http://"))
	defer line.Heal()
	b := c.person(t, "http://"+line.Addr())
	b.signIn(t, "ada")
	b.run(t, "a sale", b.visit("/console/vouchers/"+s.onSale(t, nil)), marked())
	b.staleFeed(t, line)
	b.endingSession(t)
	b.guardedForm(t)
	b.quiet(t)
}

// A feed that stops is shown as old from two seconds on, with its age, and goes on by itself with every point of the
// charts.
func (b *tab) staleFeed(t *testing.T, line *testserver.Line) {
	t.Helper()
	var shown []string
	b.do(t, "the age of the numbers", chromedp.Evaluate(`(() => {
		const now = performance.now;
		const shown = [0, 1900, 2000, 61000].map((passed) => {
			performance.now = () => latest + passed;
			age();
			return document.querySelector('[data-connection]').className + ': ' + document.querySelector('[data-connection]').textContent;
		});
		performance.now = now;
		age();
		return shown;
	})()`, &shown))
	want := []string{"feed fresh: live · 0.0 s ago", "feed fresh: live · 1.9 s ago", "feed old: The connection is lost · 2 s ago", "feed old: The connection is lost · 61 s ago"}
	if !slices.Equal(shown, want) {
		t.Errorf("by its age the feed is shown as %q, want %q", shown, want)
	}
	line.Hole()
	b.run(t, "the feed stops", chromedp.Evaluate(`window.points = times.slice()`, nil), visible(".stale [data-connection].old"), until(`getComputedStyle(document.getElementById("live")).filter.includes("grayscale")`))
	line.Heal()
	b.run(t, "the feed goes on", visible("[data-connection].fresh"), until(`times.at(-1) > points.at(-1) && window.neverReloaded`))
}

// A session that ends in five minutes says so, and goes on when that is asked for; one that cannot go on leads to the
// sign-in.
func (b *tab) endingSession(t *testing.T) {
	t.Helper()
	soon := func(minutes string) chromedp.Action {
		return chromedp.Evaluate(`ends = serverNow() + `+minutes+` * 60 * 1000, warn()`, nil)
	}
	b.run(t, "there is time", soon("5.1"), until(`document.getElementById("ending").hidden`))
	b.run(t, "the session ends soon", soon("4.9"), visible("#ending"), until(`/^04:5\d|^00:04:5\d/.test(document.querySelector("#ending .countdown").textContent)`))
	b.run(t, "it goes on", click("[data-stays]"), until(`document.getElementById("ending").hidden && ends > serverNow() + 20 * 60 * 1000`))
	b.run(t, "it has ended", soon("4.9"), network.ClearBrowserCookies(), click("[data-stays]"), visible("[data-again]"), until(`document.querySelector("[data-stays]").hidden`))
	b.run(t, "signed in again", leads(click("[data-again]")), leads(credentials("ada", password)))
}

// A form that was typed into asks before it is left.
func (b *tab) guardedForm(t *testing.T) {
	t.Helper()
	asked := make(chan page.DialogType, 4)
	var leaves atomic.Bool // the answer
	chromedp.ListenTarget(b.ctx, func(event any) {
		if dialog, ok := event.(*page.EventJavascriptDialogOpening); ok {
			asked <- dialog.Type
			go func() { _ = chromedp.Run(b.ctx, page.HandleJavaScriptDialog(leaves.Load())) }() // the page waits for it
		}
	})
	leave := click(`header a[href="/console/orders"]`)
	b.run(t, "a form that nobody has typed into is left", b.visit("/console/vouchers/new"), leads(leave))
	check.Equal(t, "questions", len(asked), 0)
	b.run(t, "a form is typed into", b.visit("/console/vouchers/new"), click("#title"), chromedp.KeyEvent("Tea"), leave)
	check.Equal(t, "the question", <-asked, page.DialogTypeBeforeunload)
	b.run(t, "it is not left", until(`document.querySelector("#title").value === "Tea"`))
	leaves.Store(true)
	b.run(t, "it is left", leave, visible("#q"))
	check.Equal(t, "the question again", <-asked, page.DialogTypeBeforeunload)
}
