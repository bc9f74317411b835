//go:build faults

//part:journeys
package console_test

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"seckill/internal/words"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// A buyer registers, buys, pays and has the code, also after a reload; a later sale can be bought without a reload.
func buyerInABrowser(t *testing.T, c *chromium) {
	s := start(t, "SECKILL_ORDER_MODE=async")
	catalogue := check.Value(words.New())(t)
	begins := time.Now().Add(50 * time.Hour).UTC()
	for _, v := range visitors() {
		buyer := "buyer-" + v.name()
		said := func(key string, args ...any) string { return catalogue.All()[v.language].Text(key, args...) }
		id := s.onSale(t, map[string]any{
			"title":       "Coffee for two, with cake",
			"description": "At any of our houses, all day.", "stock": 3, "begin_at": begins.Format(time.RFC3339), "end_at": begins.Add(time.Hour).Format(time.RFC3339),
		})
		button := `#vouchers [data-id="` + id + `"] [data-field="buy"]`
		b := v.tab(t, c, s.url)
		b.run(t, "the shop says when the sale begins", b.visit("/shop"),
			until(fmt.Sprintf(`document.querySelector(%q)?.disabled && /2.*1|2.*2/.test(document.querySelector(%q).textContent)`, button, button)))
		v.fits(t, b, "shop")
		b.readable(t, button, "#account button")
		status, _ := s.call(t, "PATCH", "/admin/vouchers/"+id, s.token(t, "admin", "admin"),
			map[string]any{"begin_at": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)})
		check.Equal(t, "the sale is brought forward", status, 200)
		b.run(t, "it begins without a reload", looksAgain(), shows(button, said("Sign in to buy")))
		v.press(t, b, button)
		b.run(t, "the form", visible("#account"))
		v.types(t, b, "#username", buyer)
		v.types(t, b, "#password", "a wrong password")
		v.press(t, b, `button[value="login"]`)
		b.run(t, "a wrong password is refused in words",
			shows("#message", said("The username or the password is wrong.")))
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

// looksAgain is a visitor who comes back to the tab: a waiting page asks the server only every few minutes.
func looksAgain() chromedp.Action { return chromedp.Evaluate(`looked = -Infinity; back(); true`, nil) }

// The button opens by the server's clock alone, the tap leaves at once, and who is a moment too early gets a unit too.
func secondInABrowser(t *testing.T, c *chromium) {
	s := start(t)
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339Nano) }
	id := s.onSale(t, map[string]any{
		"title": "At eight sharp", "stock": 20, "begin_at": in(time.Hour),
		"end_at": in(2 * time.Hour),
	})
	button := `#vouchers [data-id="` + id + `"] [data-field="buy"]`
	wrong := beforehand(`{ const right = Date.now; Date.now = () => right() + 7 * 60000; }`)
	pages := map[string][]chromedp.Action{
		"wire": nil, "3G": {network3G(400)}, "3G and a slow processor": {network3G(400), emulation.SetCPUThrottlingRate(4)}, "a clock 7 min wrong": {wrong},
	}
	for name, as := range pages {
		b := c.person(t, s.url)
		b.run(t, name, append(as, b.visit("/shop/"+id),
			until(fmt.Sprintf(`document.querySelector(%q)?.disabled`, button)))...)
		var late float64
		b.run(t, "the button opens without an answer, a second from now", chromedp.Evaluate(fmt.Sprintf(`{
			window.fetch = () => new Promise(() => {});
			const real = () => performance.timeOrigin + performance.now();
			const begins = Math.ceil(real()) + 1000;
			new MutationObserver(() => { if (!document.querySelector(%[1]q).disabled) window.openedAt ??= real() - begins; })
				.observe(document.querySelector(%[1]q), { attributes: true });
			vouchers.get(%[2]q).begin_at = new Date(begins).toISOString();
			show();
			document.querySelector(%[1]q).disabled; }`, button, id), new(bool)), until(`window.openedAt !== undefined`), chromedp.Evaluate(`window.openedAt`, &late))
		t.Logf("%s: enabled %.0f ms after the beginning", name, late)
		b.quiet(t)
	}

	early := c.person(t, s.url)
	later := s.onSale(t, map[string]any{
		"title": "A little later", "stock": 1, "begin_at": in(time.Hour),
		"end_at": in(2 * time.Hour),
	})
	place := `#vouchers [data-id="` + later + `"] `
	early.run(t, "a buyer", early.visit("/shop/"+later+"#sign-in"), fill("#username", "early-buyer"),
		fill("#password", password), click(`button[value="register"]`), visible("#buyer"))
	status, _ := s.call(t, "PATCH", "/admin/vouchers/"+later, s.token(t, "admin", "admin"),
		map[string]any{"begin_at": in(2 * time.Second)})
	check.Equal(t, "the sale is brought forward", status, 200)
	var sent bool
	early.run(t, "the page is ahead of the server, and the tap leaves in its own frame", chromedp.Evaluate(`{
		clock.most += 7200000; // until the next answer
		show();
		const real = window.fetch;
		let sent = false;
		window.fetch = (...call) => { sent = true; return real(...call); };
		document.querySelector('`+place+`[data-field="buy"]').click();
		sent; }`, &sent))
	check.That(t, sent, "the tap waits for something before it leaves")
	early.run(t, "NOT_STARTED is repeated", visible(`#bought [data-do="pay"]`))
	second := early.another(t)
	second.run(t, "a second tab is signed in", second.visit("/shop"), visible("#buyer"),
		shows(place+`[data-field="buy"]`, "Yours: pay now"))

	cools := s.onSale(t, map[string]any{"title": "Cool-down", "cooldown": "10m"})
	card := `#vouchers [data-id="` + cools + `"] `
	second.run(t, "an order that is canceled", second.visit("/shop"), click(card+`[data-field="buy"]`),
		click(`#bought [data-id] [data-do="cancel"]`))
	second.run(t, "a refusal stands on its card", click(`a[data-view="sale"]`), click(card+`[data-field="buy"]`),
		visible(card+`[data-field="refusal"]`))
	second.run(t, "cooling down survives a reload", chromedp.Reload(),
		until(`document.querySelector('`+card+`[data-field="buy"]')?.textContent.startsWith('Cooling down')`))
	second.run(t, "offline", offline(true), visible("#lost"),
		until(`document.querySelector('`+card+`[data-field="buy"]').disabled`))
	second.run(t, "and online", offline(false), until(`document.querySelector('#lost').hidden`))

	early.quiet(t)
	second.quiet(t)
}

// network3G has a latency in ms.
func network3G(latency float64) chromedp.Action {
	return network.EmulateNetworkConditions(false, latency, 50_000, 50_000) // bytes a second
}

func offline(is bool) chromedp.Action { return network.EmulateNetworkConditions(is, 0, -1, -1) }

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
		check.That(t, found[1] != found[2] && contrast(t, found[0], found[1]) >= 4.5,
			"in %s the colours of %s and %s are %v", in, off, on, found)
	}
}

type visitor struct {
	language, scheme string
	width            int64
	keyboard         bool // and no mouse
}

var everybody = flag.Bool("everybody", false,
	"whether each journey is made by all visitors, and not by those few that cover each pair of what they are")

func visitors() (all []visitor) {
	if !*everybody {
		return []visitor{
			{"en", "light", 1440, false},
			{"en", "dark", 390, true},
			{"en", "light", 1280, true},
			{"zh", "light", 390, false},
			{"zh", "dark", 1440, true},
			{"zh", "dark", 1280, false},
		}
	}
	for _, language := range []string{"en", "zh"} {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{1440, 1280, 390} {
				all = append(all, visitor{language, scheme, width, false}, visitor{language, scheme, width, true})
			}
		}
	}
	return all
}

func TestJourneysInABrowser(t *testing.T) { //nolint:tparallel // one browser
	t.Parallel()
	s := start(t)
	s.administrator(t, "ada")
	c := open(t)
	t.Run("operator", func(t *testing.T) { operatorInABrowser(t, c, s) })
	t.Run("buyer", func(t *testing.T) { buyerInABrowser(t, c) })
	t.Run("second", func(t *testing.T) { secondInABrowser(t, c) })
	t.Run("window", func(t *testing.T) { windowInABrowser(t, c) })
	t.Run("desk", func(t *testing.T) { deskInABrowser(t, c, s) })
	t.Run("after the sale", func(t *testing.T) { afterTheSaleInABrowser(t, c, s) })
	t.Run("till", func(t *testing.T) { tillInABrowser(t, c, s) })
	t.Run("replay", func(t *testing.T) { replayInABrowser(t, c, s) })
}

// ended is a sale of 30 units to 90 buyers and of 5 units by lot, both over, of which everybody may read what they were.
func (s *site) ended(t *testing.T) (sale, drawn string) {
	t.Helper()
	sale = s.onSale(t, map[string]any{"title": "Coffee for two", "stock": 30, "public_report": true, "waitlist": true})
	drawn = s.onSale(t, map[string]any{"title": "Tea for two", "stock": 5, "public_report": true, "allocation": "draw"})
	s.rush(t, sale, 0, 90)
	s.rush(t, drawn, 0, 40)
	_, list := s.call(t, http.MethodGet, "/admin/vouchers/"+sale+"/orders", s.token(t, "admin", model.RoleAdmin), nil)
	gives := list["items"].([]any)[0].(map[string]any)
	for n := 90; n < 93; n++ {
		s.call(t, http.MethodPost, "/vouchers/"+sale+"/waitlist", s.token(t, buyer(n), model.RoleUser), nil)
	}
	s.call(t, http.MethodPost, fmt.Sprint("/orders/", gives["id"], "/cancel"), s.token(t, fmt.Sprint(gives["user_id"]), model.RoleUser), nil)
	s.exec(t, "UPDATE orders SET closed_at = closed_at + 60000000 WHERE id = ?", gives["id"]) // a minute later
	s.exec(t, "UPDATE orders SET created_at = created_at + 60000000 WHERE id IN (SELECT order_id FROM waitlist WHERE voucher_id = ?)", sale)
	for _, id := range []string{sale, drawn} {
		s.call(t, http.MethodPatch, "/admin/vouchers/"+id, s.token(t, "admin", model.RoleAdmin),
			map[string]any{"end_at": time.Now().Add(-time.Millisecond).UTC().Format(time.RFC3339Nano)})
	}
	check.Patiently(t, "it is drawn, and all is counted", func() bool {
		_, proof := s.call(t, http.MethodGet, "/vouchers/"+drawn+"/draw", "", nil)
		_, replay := s.call(t, http.MethodGet, "/vouchers/"+sale+"/replay", "", nil)
		return proof["drawn_at"] != nil && fmt.Sprint(replay["attempts"]) == "90"
	})
	return sale, drawn
}

// forged answers a page's next readings of a draw's list with one leaf that is another.
const forged = `{
	const real = window.fetch;
	window.fetch = async (path, ...how) => {
		const answer = await real(path, ...how);
		if (!path.includes('/draw/entries')) return answer;
		const page = await answer.json();
		page.items[1] = page.items[1].replace(/^./, (digit) => (digit === '0' ? '1' : '0'));
		return new Response(JSON.stringify(page));
	};
}`

// busy answers a page's first question for what is the visitor's own as a busy server does.
const busy = `{
	const real = window.fetch;
	let asked = false;
	window.fetch = (path, ...how) => {
		if (asked || !path.includes('/orders?')) return real(path, ...how);
		asked = true;
		return Promise.resolve(new Response('{}', { status: 503 }));
	};
}`

// Everybody sees an ended sale again, moves in it, finds what was theirs, and draws a draw again. It needs no script.
func replayInABrowser(t *testing.T, c *chromium, s *site) {
	sale, drawn := s.ended(t)
	at := func(name string) string {
		return fmt.Sprintf(`document.querySelector('[data-now="%s"]').textContent`, name)
	}
	for _, v := range visitors() {
		b := v.tab(t, c, s.url)
		b.run(t, v.name()+" the shop leads there", b.visit("/shop/"+sale), visible("#report"))
		v.follow(t, b, `[data-field="again"] a`)
		b.run(t, "the whole sale", visible("#picture svg .line"), visible("#mine"), until(at("left")+` === "0"`),
			until(at("OK")+` === "30" && `+at("SOLD_OUT")+` === "60" && `+at("else")+` === "0"`))
		v.fits(t, b, "the sale, again")
		b.clean(t, "the sale, again")
		v.press(t, b, `[data-range="all"]`)
		b.run(t, "all of it", until(at("back")+` === "1" && `+at("served")+` === "1"`))
		b.do(t, "its beginning", chromedp.Focus("#at"), chromedp.KeyEvent(kb.Home), until(at("left")+` === "30" && `+at("OK")+` === "0"`))
		v.press(t, b, "#play")
		b.run(t, "it plays", until(`Number(document.querySelector("#at").value) > 8 && document.querySelector(".plays").hidden`))
		v.press(t, b, "#play")
		var first int
		b.do(t, "who bought first", chromedp.Evaluate(`window.before = Number(document.querySelector("#at").value)`, &first),
			chromedp.Evaluate(fmt.Sprintf(`sessionStorage.setItem('token', %q)`, s.token(t, s.first(t, sale), model.RoleUser)), nil), beforehand(busy), chromedp.Reload())
		b.run(t, "is told so, when the server has time", until(`/\D1[^\d].*30/.test(document.querySelector('#mine').textContent)`))
		var sheet string
		b.do(t, "as a table", chromedp.Evaluate(`{ URL.createObjectURL = (blob) => { blob.text().then((text) => { window.sheet = text; }); return '#'; }; true }`, nil))
		v.press(t, b, `[data-does="csv"]`)
		b.do(t, "the table", until(`window.sheet !== undefined`), chromedp.Evaluate(`window.sheet`, &sheet))
		check.That(t, strings.Contains(sheet, `,"30",`) && strings.Count(sheet, "\r\n") > 30, "the table is %q", sheet)
		b.run(t, "on paper", emulation.SetEmulatedMedia().WithMedia("print"), until(`!document.querySelector(".player").checkVisibility()`))
		b.do(t, "and back", emulation.SetEmulatedMedia())

		b.run(t, "the draw", scheme(v.scheme), b.visit("/shop/"+drawn+"/replay"), visible("#verify"))
		v.press(t, b, "#verify")
		b.run(t, "the draw holds", visible("#verified.done"), until(`document.querySelectorAll("#findings .holds").length === 4`))
		v.fits(t, b, "a draw that holds")
		b.clean(t, "a draw that holds")
		b.do(t, "a leaf is changed", chromedp.Evaluate(forged, nil))
		v.press(t, b, "#verify")
		b.run(t, "and found", visible("#verified.refusal"), visible("#findings .fails"))
		b.clean(t, "a draw that does not hold")
		b.quiet(t)
	}
	b := c.person(t, s.url)
	b.run(t, "without a script", emulation.SetScriptExecutionDisabled(true), b.visit("/shop/"+sale+"/replay"), chromedp.WaitVisible("#steps table"))
	b.do(t, "with one again", emulation.SetScriptExecutionDisabled(false))
	b.signIn(t, "ada")
	b.run(t, "the report", b.visit("/console/vouchers/"+sale+"/report"), visible("#picture svg .line"), until(at("OK")+` === "30"`))
	b.fits(t, "the report")
	b.clean(t, "the report")
	b.run(t, "the report on paper", emulation.SetEmulatedMedia().WithMedia("print"), until(`!document.querySelector(".rail").checkVisibility()`))
	b.quiet(t)
}

// first is who bought first.
func (s *site) first(t *testing.T, id string) string {
	t.Helper()
	_, list := s.call(t, http.MethodGet, "/admin/vouchers/"+id+"/orders?limit=100", s.token(t, "admin", model.RoleAdmin), nil)
	items := list["items"].([]any)
	return fmt.Sprint(items[len(items)-1].(map[string]any)["user_id"])
}

func (v visitor) name() string {
	return fmt.Sprintf("%s-%s-%d-%s", v.language, v.scheme, v.width,
		map[bool]string{true: "keyboard", false: "mouse"}[v.keyboard])
}

func (v visitor) tab(t *testing.T, c *chromium, url string) *tab {
	t.Helper()
	b := c.person(t, url)
	b.do(t, "the visitor's browser", network.Enable(),
		network.SetExtraHTTPHeaders(network.Headers{"Accept-Language": v.language}), scheme(v.scheme),
		chromedp.EmulateViewport(v.width, 900))
	return b
}

func (v visitor) press(t *testing.T, b *tab, selector string) {
	t.Helper()
	if v.keyboard {
		b.keys(t, selector, kb.Enter)
	} else {
		b.do(t, "press "+selector, click(selector))
	}
}

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

func (v visitor) signsIn(t *testing.T, b *tab, name, path string) {
	t.Helper()
	b.run(t, v.name()+": sign-in", b.visit(path), visible("#password"))
	v.types(t, b, "#username", name)
	v.types(t, b, "#password", password)
	v.follow(t, b, ".card form button")
}

func (v visitor) fits(t *testing.T, b *tab, what string) {
	t.Helper()
	var wide int
	b.run(t, v.name()+" "+what)
	b.do(t, what+" at 360", chromedp.EmulateViewport(360, 800),
		chromedp.Evaluate(`document.documentElement.scrollWidth`, &wide), chromedp.EmulateViewport(v.width, 900))
	check.That(t, wide <= 360, "%s: %s is %d px wide on a telephone of 360", v.name(), what, wide)
}

// act opens a dialog, if it names one, presses a button, and waits until the page says that it is done.
func (v visitor) act(t *testing.T, b *tab, dialog, button string) {
	t.Helper()
	if dialog != "" {
		v.press(t, b, `main [data-opens="`+dialog+`"]`)
		button = "#" + dialog + " " + button
	}
	v.press(t, b, button)
	b.run(t, v.name()+": done "+button, done())
	b.do(t, "the message is closed", click(`.toast-note [data-closes]`))
}

// The operator's whole way, from a new voucher to a used code. With a keyboard nothing is clicked but the messages.
func operatorInABrowser(t *testing.T, c *chromium, s *site) {
	for _, v := range visitors() {
		b := v.tab(t, c, s.url)
		v.signsIn(t, b, "ada", "/console")
		v.fits(t, b, "overview")
		if v.keyboard {
			b.keys(t, ".skip", kb.Enter)
			b.run(t, "the content is skipped to", until(`document.activeElement.id === "main"`))
		}
		v.follow(t, b, `main a[href="/console/vouchers/new"]`)
		for _, field := range [][2]string{{"#title", "Typed by " + v.name()}, {"#price", "10"}, {"#face_value", "25"}, {"#stock", "5"}} {
			v.types(t, b, field[0], field[1])
		}
		v.follow(t, b, "main form button")
		b.run(t, "created", done(), visible("#live"))
		var place string
		b.do(t, "the sale", chromedp.Evaluate(`location.pathname`, &place), click(`.toast-note [data-closes]`))
		v.act(t, b, "publish", `form[action$="/state"] [value="published"]`) // it was a draft
		b.do(t, "it is on sale", marked())
		id := place[len("/console/vouchers/"):]
		cancel, refund, redeem := "keys-1"+v.name(), "keys-2"+v.name(), "keys-3"+v.name()
		for _, user := range []string{cancel, refund, redeem} {
			check.Equal(t, "what is heard by "+user, s.buy(t, user, id), "OK")
		}
		b.run(t, "three are sold", shows(`[data-live="sold"]`, "3"))
		b.run(t, "a gap in a chart is a gap", chromedp.Evaluate(gap, nil), until(`ink(20) && !ink(55) && ink(85)`))
		v.fits(t, b, "sale")
		for _, to := range []struct{ dialog, state, phase string }{{"", "paused", "paused"}, {"", "published", "live"}, {"archive", "archived", "archived"}, {"publish", "published", "live"}} {
			v.act(t, b, to.dialog, `form[action$="/state"] [value="`+to.state+`"]`)
			b.run(t, "the sale is "+to.phase, visible("[data-phase]."+to.phase))
		}
		v.press(t, b, `main [data-opens="stock"]`)
		v.types(t, b, "#delta", "3")
		v.act(t, b, "", "#stock .btn-primary")
		b.run(t, "three more", shows(`[data-live="stock"]`, "8"), until(`window.neverReloaded`))
		v.act(t, b, "end", ".btn-primary")
		v.follow(t, b, `main a[href$="/edit"]`)
		v.types(t, b, "#title", "Changed by "+v.name())
		v.follow(t, b, "main form button")
		b.run(t, "saved", done(), shows("h1", "Changed by "+v.name()))

		orderOf := func(user string) string { return s.orderOf(t, user, id) }
		s.pays(t, refund, orderOf(refund))
		for _, step := range [][2]string{{"cancel", orderOf(cancel)}, {"refund", orderOf(refund)}} {
			v.follow(t, b, `header a[href="/console/orders"]`)
			v.fits(t, b, "orders")
			v.types(t, b, "#q", step[1])
			v.follow(t, b, ".search button")
			b.run(t, "the order", visible(`h1 .id[title="`+step[1]+`"]`))
			v.fits(t, b, "order")
			v.press(t, b, `main [data-opens="`+step[0]+`"]`)
			if step[0] == "refund" {
				v.types(t, b, "#refund-reason", "spoiled")
			}
			v.follow(t, b, "#"+step[0]+" .btn-danger")
			b.run(t, v.name()+": "+step[0], done(),
				visible(map[string]string{"cancel": ".badge.canceled", "refund": ".badge.refunded"}[step[0]]))
		}
		s.pays(t, redeem, orderOf(redeem))
		_, order := s.call(t, http.MethodGet, "/admin/orders/"+orderOf(redeem), s.token(t, "admin", model.RoleAdmin),
			nil)
		v.follow(t, b, `header a[href="/console/redeem"]`)
		v.types(t, b, "#code", fmt.Sprint(order["code"]))
		v.follow(t, b, `button[value="use"]`)
		b.run(t, "the code is used up", done(), visible(".badge.redeemed"))
		other := map[string]string{"en": "zh", "zh": "en"}[v.language]
		v.follow(t, b, `header button[name="to"]`)
		b.run(t, "in the other language", until(`document.documentElement.lang === "`+other+`"`))
		v.follow(t, b, `form[action="/console/sign-out"] button`)
		b.run(t, "signed out", visible("#password"))
		b.quiet(t)
	}
}

// A buyer pays elsewhere, an operator says so, the buyer has the code and gives it back, and a person pays the money back.
func afterTheSaleInABrowser(t *testing.T, c *chromium, s *site) {
	catalogue := check.Value(words.New())(t)
	for _, v := range visitors() {
		said := func(key string) string { return catalogue.All()[v.language].Text(key) }
		id := s.onSale(t, map[string]any{
			"title": "Given back by " + v.name(), "stock": 1, "withdrawal": "24h", "valid_for": "48h",
		})
		buyer := v.tab(t, c, s.url)
		buyer.run(t, "the shop", buyer.visit("/shop/"+id+"#sign-in"), visible("#account"))
		v.types(t, buyer, "#username", "back-"+v.name())
		v.types(t, buyer, "#password", password)
		v.press(t, buyer, `button[value="register"]`)
		buyer.run(t, "registered", visible("#buyer"))
		v.press(t, buyer, `#vouchers [data-id="`+id+`"] [data-field="buy"]`)
		buyer.run(t, "bought", visible(`#bought [data-do="pay"]`), shows(`#bought [data-field="status"]`, said("unpaid")))
		_, list := s.call(t, http.MethodGet, "/admin/vouchers/"+id+"/orders", s.token(t, "admin", model.RoleAdmin), nil)
		order := fmt.Sprint(list["items"].([]any)[0].(map[string]any)["id"])

		b := v.tab(t, c, s.url)
		v.signsIn(t, b, "ada", "/console/orders/"+order)
		v.press(t, b, `main [data-opens="paid"]`)
		v.types(t, b, "#reference", "till 7, "+v.name())
		v.fits(t, b, "paid elsewhere")
		v.follow(t, b, "#paid .btn-primary")
		b.run(t, "paid elsewhere", done(), visible(".badge.paid"))
		b.clean(t, "an order that was paid elsewhere")

		buyer.run(t, "the code is there", chromedp.Reload(), visible("#bought .code-ticket:not([hidden])"),
			visible(`#bought [data-field="back"] summary`))
		v.press(t, buyer, `#bought [data-field="back"] summary`)
		v.fits(t, buyer, "how to give it back")
		buyer.clean(t, "how to give it back")
		v.press(t, buyer, `#bought [data-do="withdraw"]`)
		buyer.run(t, "given back, with a receipt", shows(`#bought [data-field="status"]`, said("refunded")),
			until(`document.querySelector('#bought [data-field="says"]').textContent.includes("`+order+`")`))
		buyer.quiet(t)

		b.run(t, "what a person pays back", b.visit("/console/refunds?status=outside"))
		b.clean(t, "refunds that a person pays back")
		v.follow(t, b, `form[action="/console/orders/`+order+`/refund/done"] button`)
		b.run(t, "paid back", done(), visible(`h1 .id[title="`+order+`"]`),
			until(`!document.querySelector('form[action$="/refund/done"]')`))
		b.quiet(t)
	}
}

func tillInABrowser(t *testing.T, c *chromium, s *site) {
	id := s.onSale(t, map[string]any{"title": "Tea for two", "stock": len(visitors())})
	for n, v := range visitors() {
		user := "guest-" + v.name()
		order := s.paid(t, user, id)
		_, shown := s.call(t, "GET", "/orders/"+order, s.token(t, user, "user"), nil)
		code, _ := shown["code"].(string)
		for _, level := range []string{"cashier", "viewer"} {
			if n == 0 {
				s.administrator(t, level)
			}
			b := v.tab(t, c, s.url)
			v.signsIn(t, b, level, "/console")
			if level == "viewer" {
				b.run(t, "a viewer sees the sale", b.visit("/console/vouchers/"+id), visible("main h1"),
					until(`document.querySelectorAll('main form[method="post"]').length === 0`))
				v.fits(t, b, "sale of a viewer")
				b.run(t, "and its order", b.visit("/console/orders/"+order), visible("main h1"),
					until(`document.querySelectorAll('main form[method="post"]').length === 0 && !document.body.innerText.includes("`+code+`")`))
				b.quiet(t)
				continue
			}
			for _, step := range []struct{ how, seen string }{{"look", ".verdict.known"}, {"use", ".verdict.good"}, {"use", ".verdict.bad"}, {"look", ".verdict.bad"}} {
				v.types(t, b, "#code", code)
				v.follow(t, b, `#till button[value="`+step.how+`"]`)
				b.run(t, step.how+" the code", visible(step.seen))
				v.fits(t, b, step.how+step.seen)
				b.clean(t, step.how+step.seen)
				v.press(t, b, "[data-next]")
				b.run(t, "the next code", until(`!document.querySelector("[data-verdict]") && document.querySelector("#code").value === ""`))
			}
			b.quiet(t)
		}
	}
}
