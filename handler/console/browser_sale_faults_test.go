//go:build faults

//part:browser

package console_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"seckill/internal/workshop/check"
)

// rush lets buyers number first to first+n-1 press the button at the same instant, and returns how many heard each
// answer. A request that was repeated may find the order.
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

// An administrator puts a voucher up; 300 buyers rush in over the API; a second administrator watches. The sale is
// paused, goes on and is restocked, and an order is canceled. At the end the audit adds up.
func saleInABrowser(t *testing.T, c *chromium, s *site) {
	ada := c.person(t, s.url)
	ada.run(t, "/ leads to the sign-in", ada.visit("/"), visible("#password"))
	ada.run(t, "a wrong password is refused", credentials("ada", "a wrong password"), visible(".refusal"))
	ada.run(t, "signed in", credentials("ada", password), visible(`a[href="/console/vouchers/new"]`))
	id := ada.putUp(t)
	path := "/console/vouchers/" + id
	eve := c.person(t, s.url)
	eve.signIn(t, "eve")

	eve.run(t, "the second administrator watches", eve.visit(path), marked())
	ada.run(t, "so does the first", marked())
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
	if heard["OK"] != 200 || heard["SOLD_OUT"] != 100 {
		t.Errorf("300 buyers of 200 units hear %v", heard)
	}
	for _, b := range []*tab{ada, eve} {
		b.run(t, "the bar has fallen to nothing", shown(0), shows("[data-phase]", "sold out"), shows(`[data-live="sold"]`, "200"))
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
		b.run(t, "every point is still there, and more", until(`times.length > points.length && points.every((at, n) => times[n] === at && columns.get("units/remaining").values[n] === left[n])`),
			until(`marks.some(({ what }) => what === "paused") && marks.some(({ what }) => what === "stock")`))
	}
	if heard := s.rush(t, id, 300, 20); heard["OK"] != 20 {
		t.Errorf("20 buyers of 20 units hear %v", heard)
	}
	ada.run(t, "the restocked units are sold", shown(0), shows("[data-phase]", "sold out"))

	eve.run(t, "the second administrator watches again", eve.visit(path), marked(), shown(0))
	ada.cancels(t, s.orderOf(t, buyer(300), id))
	eve.run(t, "the unit is on sale again", shown(1), shows("[data-phase]", "live"))
	ada.run(t, "audit", ada.visit(path), leads(press("Audit")), done(),
		until(`document.querySelector("main").textContent.includes("The stock of 220 is the 1 that remain and 219 live orders.")`))
	ada.run(t, "signed out", click(`form[action="/console/sign-out"] button`), visible("#password"))
	ada.quiet(t)
	eve.quiet(t)
}

// putUp creates a voucher of 200 units through the form, in which a field is wrong at first, and returns its id.
func (b *tab) putUp(t *testing.T) (id string) {
	t.Helper()
	const title = `Coffee <script>document.title = "broken"</script>`
	now := time.Now().UTC()
	b.run(t, "the form of a new voucher", leads(press("New voucher")), visible("#title"))
	b.run(t, "a field is wrong", fill("#title", title), fill("#price", "ten"), fill("#face_value", "25"),
		fill("#stock", "200"), fill("#begin_at", now.Add(-time.Hour).Format("2006-01-02T15:04:05")),
		fill("#end_at", now.Add(time.Hour).Format("2006-01-02T15:04:05")), leads(press("Create")), visible("#price-wrong"))
	var kept string
	b.run(t, "what was typed is there", chromedp.Value("#title", &kept))
	if kept != title {
		t.Errorf("the title is %q", kept)
	}
	var place string
	b.run(t, "created", fill("#price", "10"), leads(press("Create")), visible("[data-events]"), chromedp.Location(&place))
	b.run(t, "a script in a title stays text", until(`document.title.includes("<script>") && document.querySelector("h1").textContent.includes("<script>")`))
	id, _, _ = strings.Cut(place[strings.LastIndexByte(place, '/')+1:], "?")
	return id
}

// pauseInABrowser pauses a sale of which buyers and the other administrator hear at once.
func (s *site) pauseInABrowser(t *testing.T, by, watcher *tab, id string) {
	t.Helper()
	shop := by.browser.person(t, s.url)
	card := `[data-id="` + id + `"] `
	shop.run(t, "the shop window sells", shop.visit("/shop"), shows(card+`[data-field="phase"]`, "live"))
	by.run(t, "pause", press("Pause"), done(), until(`window.neverReloaded`))
	watcher.run(t, "the time of the pause", chromedp.Evaluate(`window.late = 0;
		document.body.addEventListener('htmx:sse:before:message', ({ detail }) => { window.late += JSON.parse(detail.message.data).state === 'published'; });`, nil))
	check.Equal(t, "what late hears", s.buy(t, "late", id), "PAUSED")
	watcher.run(t, "the pause shows", shows("[data-phase]", "paused"), until(`window.neverReloaded`), visible("[data-changed]"))
	var before int
	watcher.run(t, "readings", chromedp.Evaluate(`window.late`, &before))
	if before > 4 { // there are two of them a second
		t.Errorf("another administrator's page shows the pause after %d readings", before)
	}
	shop.run(t, "the shop window is paused", shows(card+`[data-field="phase"]`, "paused"), until(`document.querySelector('`+card+`[data-field="buy"]').disabled`))
	shop.quiet(t)
}

// cancels finds an order by its id, and cancels it.
func (b *tab) cancels(t *testing.T, orderID string) {
	t.Helper()
	b.run(t, "the search for orders", leads(click(`header a[href="/console/orders"]`)), visible("#q"))
	b.run(t, "an order is found by its id", fill("#q", orderID), leads(press("Search")), visible(".badge.unpaid"), visible(`h1 .id[title="`+orderID+`"]`))
	b.run(t, "it is canceled", press("Cancel the order"), leads(click(`dialog[open] form[action$="/cancel"] .btn-danger`)), visible(".badge.canceled"))
}
