//go:build faults

//part:browser
package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// rush lets n buyers from first on buy at once, and counts their answers. A repeated request may find the order.
func (s *site) rush(t testing.TB, voucherID string, first, n int) map[string]int {
	t.Helper()
	heard := map[string]int{}
	var mu sync.Mutex
	check.Volley(n, func(i int) {
		answer := s.buy(t, buyer(first+i), voucherID)
		mu.Lock()
		defer mu.Unlock()
		heard[strings.Replace(answer, "ALREADY_ORDERED", "OK", 1)]++
	})
	return heard
}

func buyer(n int) string { return "buyer-" + strconv.Itoa(n) }

// shown is true when the page of a sale shows so many units, at the bar and as a number, without a reload since marked.
func shown(remaining int) chromedp.Action {
	return until(fmt.Sprintf(`window.neverReloaded && document.querySelector('[data-live="remaining"]').textContent === "%[1]d" &&
		document.querySelector("[data-bar]").value === %[1]d`, remaining))
}

// marked lets shown notice a reload. The page is live then.
func marked() chromedp.Action {
	return chromedp.Tasks{
		visible("[data-connection].fresh"), chromedp.Evaluate(`window.neverReloaded = true`, nil),
	}
}

// 300 buyers rush in, two administrators watch: the sale is paused, goes on, is restocked, and an order is canceled.
func saleInABrowser(t *testing.T, c *chromium, s *site) {
	id := s.onSale(t, map[string]any{"stock": 200, "end_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	path := "/console/vouchers/" + id
	ada := c.person(t, s.url)
	ada.signIn(t, "ada")
	eve := c.person(t, s.url)
	eve.signIn(t, "eve")

	eve.run(t, "the second administrator watches", eve.visit(path), marked())
	ada.run(t, "so does the first", ada.visit(path), marked())
	another := eve.another(t)
	another.run(t, "and another tab, whose browser has the scripts already", another.visit(path), marked())
	another.quiet(t)
	heard := s.rush(t, id, 0, 150)
	for _, b := range []*tab{ada, eve} {
		b.run(t, "the bar has fallen without a reload", shown(50))
	}
	for answer, times := range s.rush(t, id, 150, 150) {
		heard[answer] += times
	}
	check.That(t, heard["OK"] == 200 && heard["SOLD_OUT"] == 100, "300 buyers of 200 units hear %v", heard)
	for _, b := range []*tab{ada, eve} {
		b.run(t, "the bar has fallen to nothing", shown(0), shows("[data-phase]", "sold out"),
			shows(`[data-live="sold"]`, "200"))
	}
	ada.run(t, "the charts are drawn", until(`["units", "answers", "latency"].every((name) =>
		document.querySelector('[data-chart="' + name + '"] canvas')?.width > 300) && columns.get("units/remaining").values.length > 2`))
	for _, b := range []*tab{ada, eve} {
		b.do(t, "the points of the charts", chromedp.Evaluate(`window.points = times.slice(); window.left = columns.get("units/remaining").values.slice()`, nil))
	}

	eve.run(t, "restock", press("Restock"), fill("#delta", "20"), press("Change the stock"), done(), shown(20))
	ada.run(t, "the other administrator's units show", shown(20), visible("[data-changed]"))
	s.pauseInABrowser(t, ada, eve, id)
	ada.run(t, "resume", press("Resume"), shows("[data-phase]", "live"), until(`window.neverReloaded`))
	for _, b := range []*tab{ada, eve} {
		b.run(t, "every point is still there, and more",
			until(`times.length > points.length && points.every((at, n) => times[n] === at && columns.get("units/remaining").values[n] === left[n])`),
			until(`marks.some(({ what }) => what === "paused") && marks.some(({ what }) => what === "stock")`))
	}
	check.Equal(t, "of 20 buyers of 20 units", s.rush(t, id, 300, 20)["OK"], 20)
	ada.run(t, "the restocked units are sold", shown(0), shows("[data-phase]", "sold out"))

	s.call(t, http.MethodPost, "/orders/"+s.orderOf(t, buyer(300), id)+"/cancel",
		s.token(t, buyer(300), model.RoleUser), nil)
	eve.run(t, "the unit is on sale again", shown(1), shows("[data-phase]", "live"))
	ada.run(t, "audit", ada.visit(path), leads(press("Audit")), done(),
		until(`document.querySelector("main").textContent.includes("The stock of 220 is the 1 that remain and 219 live orders.")`))
	ada.run(t, "signed out", click(`form[action="/console/sign-out"] button`), visible("#password"))
	ada.quiet(t)
	eve.quiet(t)
}

func (s *site) pauseInABrowser(t *testing.T, by, watcher *tab, id string) {
	t.Helper()
	shop := by.browser.person(t, s.url)
	card := `[data-id="` + id + `"] `
	shop.run(t, "the shop window sells", shop.visit("/shop"), shows(card+`[data-field="phase"]`, "live"))
	by.run(t, "pause", press("Pause"), done(), until(`window.neverReloaded`))
	watcher.run(t, "the time of the pause", chromedp.Evaluate(`window.late = 0;
		document.body.addEventListener('htmx:sse:before:message', ({ detail }) => { window.late += JSON.parse(detail.message.data).state === 'published'; });`, nil))
	check.Equal(t, "what late hears", s.buy(t, "late", id), "PAUSED")
	watcher.run(t, "the pause shows", shows("[data-phase]", "paused"), until(`window.neverReloaded`),
		visible("[data-changed]"))
	var before int
	watcher.run(t, "readings", chromedp.Evaluate(`window.late`, &before))
	check.That(t, before <= 4, "another administrator's page shows the pause after %d readings, two a second", before)
	shop.run(t, "the shop window is paused", shows(card+`[data-field="phase"]`, "paused"),
		until(`document.querySelector('`+card+`[data-field="buy"]').disabled`))
	shop.quiet(t)
}

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
	first := s.onSale(t, map[string]any{
		"title": "Early", "begin_at": begins.UTC().Format(time.RFC3339),
		"early": early,
	})
	place := func(id, field string) string { return fmt.Sprintf(`#vouchers [data-id=%q] [data-field=%q]`, id, field) }
	says := func(id, button, why string, off bool) chromedp.Action {
		return until(fmt.Sprintf(`{
			const text = (place) => document.querySelector(place)?.textContent ?? '';
			text(%[1]q).startsWith(%[2]q) && document.querySelector(%[1]q).disabled === %[5]t && text(%[3]q).startsWith(%[4]q);
		}`, place(id, "buy"), button, place(id, "why"), why, off))
	}

	b := c.person(t, s.url)
	b.run(t, "what nobody in particular sees", b.visit("/shop"),
		says(soldOut, "Sign in to wait for a unit", "It is sold out", false),
		says(draw, "Sign in to enter the draw", "At the end", false),
		says(cools, "Sign in to buy", "", false),
		says(gold, "Sign in to buy", "Only members of gold and staff can buy it.", false),
		says(first, "Begins in 2", "Members of gold can buy from ", true))
	b.run(t, "a buyer registers", click(`a[data-view="sign-in"]`), fill("#username", "fair-buyer"),
		fill("#password", password), click(`button[value="register"]`), visible("#buyer"))
	b.run(t, "who is in no group", says(gold, "You cannot buy this",
		"Only members of gold and staff can buy it, and your account is in none of these groups.", true),
		says(first, "Begins in 2", "Members of gold can buy from ", true))
	b.run(t, "the draw", click(place(draw, "buy")), says(draw, "You are entered", "If you are drawn", true))
	b.run(t, "the waitlist", click(place(soldOut, "buy")),
		says(soldOut, "You wait: place 1", "When it is your turn", true))
	b.fits(t, "the shop")
	b.clean(t, "the shop")
	b.run(t, "given up", click(place(soldOut, "leave")), says(soldOut, "Wait for a unit", "It is sold out", false))
	b.run(t, "an order that is canceled", click(place(cools, "buy")), click(`#bought [data-do="cancel"]`),
		shows(`#bought [data-field="status"]`, "canceled"),
		click(`a[data-view="sale"]`), click(place(cools, "buy")),
		says(cools, "Cooling down: ", "Your last order of it", true))

	var account string
	b.run(t, "the account", chromedp.Evaluate(`JSON.parse(atob(token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/'))).sub`, &account))
	status, _ := s.call(t, http.MethodPut, "/admin/users/"+account+"/groups", s.token(t, "admin", model.RoleAdmin),
		map[string]any{"groups": []string{"gold"}})
	check.Equal(t, "the account gets a group", status, http.StatusOK)
	b.run(t, "who is in the group", looksAgain(), says(gold, "Buy", "", false), says(first, "Buy", "", false))
	b.quiet(t)
}

// lure serves the page of another origin, whose form pauses a sale of the console.
func lure(t *testing.T, target string) *httptest.Server {
	t.Helper()
	page := `<!doctype html><title>Win</title><form method="post" action="` + html.EscapeString(target) +
		`"><input type="hidden" name="to" value="paused"><button>Win</button></form>`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(page)) // the browser is gone
	}))
	t.Cleanup(server.Close)
	return server
}

func said(script string, result *string) chromedp.Action {
	return chromedp.Evaluate(script, result, awaited)
}

// Another port of the same host is of the same site, so the browser sends the cookie along: the console must refuse.
func anotherOriginInABrowser(t *testing.T, c *chromium, s *site) {
	b := c.person(t, s.url)
	b.signIn(t, "ada")
	id := s.onSale(t, nil)
	target := s.url + "/console/vouchers/" + id + "/state"
	server := lure(t, target)
	refused := until(`document.querySelector("h1")?.textContent === "The request came from another site's page. Nothing was changed."`)
	for name, origin := range map[string]string{
		"another port": server.URL, "another host": strings.Replace(server.URL, "127.0.0.1", "localhost", 1),
	} {
		b.run(t, "a form of "+name+" is refused", chromedp.Navigate(origin), click("button"), refused)
		var post, read, call string
		b.run(t, "scripts of "+name+" are refused", chromedp.Navigate(origin),
			said(`fetch("`+target+`", { method: "POST", mode: "no-cors", credentials: "include", body: new URLSearchParams({ to: "paused" }) }).then(() => "sent", () => "blocked")`, &post),
			said(`fetch("`+s.url+`/console", { credentials: "include" }).then((page) => page.text(), () => "blocked")`,
				&read),
			said(`fetch("`+s.url+`/api/v1/admin/vouchers/`+
				id+`", { method: "PATCH", credentials: "include", headers: { "Content-Type": "application/json" },
				body: JSON.stringify({ state: "paused" }) }).then((answer) => answer.text(), () => "blocked")`, &call))
		check.Equal(t, name+": what a script reads", read+" "+call, "blocked blocked")
		check.Equal(t, name+": the voucher, when the script's form was "+post, s.voucher(t, id)["state"],
			any("published"))
	}
	var own string
	b.run(t, "a script of the console's own pages could", b.visit("/console"),
		said(`fetch("`+target+`", { method: "POST", body: new URLSearchParams({ to: "paused" }) }).then((answer) => String(answer.status))`, &own))
	check.Equal(t, "the control, a form of the console", fmt.Sprint(own, " ", s.voucher(t, id)["state"]), "200 paused")
}

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

// A feed that stops is shown as old after two seconds, with its age, and goes on with every point of the charts.
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
	want := []string{
		"feed fresh: connected · 0.0 s ago", "feed fresh: connected · 1.9 s ago",
		"feed old: The connection is lost · 2 s ago", "feed old: The connection is lost · 61 s ago",
	}
	check.Equal(t, "the feed by its age", strings.Join(shown, "; "), strings.Join(want, "; "))
	line.Hole()
	b.run(t, "the feed stops", chromedp.Evaluate(`window.points = times.slice()`, nil),
		visible(".stale [data-connection].old"),
		until(`getComputedStyle(document.getElementById("live")).filter.includes("grayscale")`))
	line.Heal()
	b.run(t, "the feed goes on", visible("[data-connection].fresh"),
		until(`times.at(-1) > points.at(-1) && window.neverReloaded`))
}

// A session that ends in five minutes says so and can go on; one that cannot leads to the sign-in.
func (b *tab) endingSession(t *testing.T) {
	t.Helper()
	soon := func(minutes string) chromedp.Action {
		return chromedp.Evaluate(`ends = serverNow() + `+minutes+` * 60 * 1000, warn()`, nil)
	}
	b.run(t, "there is time", soon("5.1"), until(`document.getElementById("ending").hidden`))
	b.run(t, "the session ends soon", soon("4.9"), visible("#ending"),
		until(`/^04:5\d|^00:04:5\d/.test(document.querySelector("#ending .countdown").textContent)`))
	b.run(t, "it goes on", click("[data-stays]"),
		until(`document.getElementById("ending").hidden && ends > serverNow() + 20 * 60 * 1000`))
	b.run(t, "it has ended", soon("4.9"), network.ClearBrowserCookies(), click("[data-stays]"), visible("[data-again]"),
		until(`document.querySelector("[data-stays]").hidden`))
	b.run(t, "signed in again", leads(click("[data-again]")), leads(credentials("ada", password)))
}

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

// places finds what a person can do something with on the page, in its order, as the Tab key should.
const places = `(() => {
	window.places = [...document.querySelectorAll('a[href], button, input, select, textarea, summary')].filter((place) =>
		!place.disabled && place.type !== 'hidden' && place.tabIndex >= 0 && place.checkVisibility({ visibilityProperty: true }));
	return window.places.length;
})()`

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

// walk goes through a page just loaded by the Tab key: to every place, in order, each marked and in the window.
func (b *tab) walk(t *testing.T, what string) {
	t.Helper()
	var count int
	// From the top, where a page has put the keyboard into its field already.
	b.do(t, what+" by Tab", chromedp.Evaluate(places, &count),
		chromedp.Evaluate(`document.body.tabIndex = -1, document.body.focus()`, nil))
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

func (b *tab) keys(t *testing.T, selector string, keys string) {
	t.Helper()
	b.tabTo(t, selector, chromedp.KeyEvent(keys))
}

func (b *tab) tabTo(t *testing.T, selector string, action chromedp.Action) {
	t.Helper()
	for range mostStops {
		var there bool
		b.do(t, "Tab to "+selector, chromedp.KeyEvent(kb.Tab),
			chromedp.Evaluate(fmt.Sprintf(`document.activeElement.matches(%q)`, selector), &there))
		if there {
			b.run(t, "keys at "+selector, action)
			return
		}
	}
	t.Fatalf("Tab does not reach %s", selector)
}
