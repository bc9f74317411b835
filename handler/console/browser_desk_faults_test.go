//go:build faults

//part:journeys
package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"seckill/internal/words"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// waiting counts what 1,000 signed-in tabs ask in half an hour before a sale, by the script of the page and a clock that jumps to
// what is due next: requests a second in the busiest minute until two minutes before the beginning, and in the last one; and how many
// seconds a look is away at the least, once it is long sold out.
const waiting = `(async () => {
	const [tabs, begins, base] = [1000, 1800000, Date.now()];
	const asked = new Array(begins / 60000).fill(0); // by minute
	const voucher = { ...[...vouchers.values()][0], id: 'v', phase: 'upcoming', allocation: 'first_come', waitlist: false, begin_at: new Date(base + begins).toISOString(), end_at: new Date(base + 2 * begins).toISOString() };
	let [at, due] = [0, 0];
	performance.now = () => at;
	window.setTimeout = (what, wait) => { if (what === wake) due = at + wait; return 0; };
	call = async (method, path) => {
		if (at < begins) asked[Math.floor(at / 60000)] += 1;
		const now = { ...voucher, server_time: new Date(base + at).toISOString() };
		return { status: 200, sent: at, received: at, body: path.includes('?') ? { items: path.includes('phase=upcoming') ? [now] : [] } : now };
	};
	for (let tab = 0; tab < tabs; tab += 1) {
		at = Math.random() * 600000; // it is opened
		vouchers = new Map([['v', voucher]]);
		[rests, looks, clock.least, clock.most] = [2000, 0, base, base];
		for (plan(true); due < begins;) {
			at = due;
			await wake();
		}
	}
	vouchers = new Map([['v', { ...voucher, phase: 'sold_out' }]]);
	at = begins;
	const rare = Array.from({ length: 1000 }, () => { plan(false); return (due - at) / 1000; });
	return [Math.max(...asked.slice(10, 28)) / 60, asked.at(-1) / 60, Math.min(...rare.slice(20))];
})()`

// Every sale is there: what ends or begins soonest comes first, ended ones are folded, times are the sale's. A crowd that waits asks little.
func windowInABrowser(t *testing.T, c *chromium) {
	s := start(t)
	catalogue := check.Value(words.New())(t)
	now := time.Now().UTC().Truncate(time.Hour)
	sale := func(title string, begin, end time.Duration) string {
		return s.onSale(t, map[string]any{
			"title": title, "begin_at": now.Add(begin).Format(time.RFC3339), "end_at": now.Add(end).Format(time.RFC3339), "time_zone": "Asia/Tokyo",
		})
	}
	const hour = time.Hour
	wanted := []string{sale("First", -hour, 2*hour), sale("Second", -hour, 9*hour), sale("Third", 2*hour, 9*hour), sale("Fourth", 8*hour, 9*hour)}
	for n := range 25 {
		sale(fmt.Sprint("Ended ", n), -9*hour, -8*hour)
	}
	for _, v := range visitors() {
		b := v.tab(t, c, s.url)
		b.run(t, v.name()+": what is on sale", b.visit("/shop"), until(fmt.Sprintf(
			`[...document.querySelectorAll('#vouchers > [data-id]')].map(({ dataset }) => dataset.id).join(' ') === %q && !document.querySelector('#ended').checkVisibility()`, strings.Join(wanted, " "))))
		yours := fmt.Sprintf("%02d:00", now.Add(-hour).Hour())
		b.run(t, "in the sale's zone and the visitor's", until(fmt.Sprintf(
			`(([all, there, here]) => there.includes('%s') && here.includes('%s'))(document.querySelector('#vouchers [data-field="when"]').textContent.match(/^(.*)Asia\/Tokyo \((.*)\)$/))`,
			fmt.Sprintf("%02d:00", now.Add(8*hour).Hour()), yours)))
		v.fits(t, b, "the window")
		b.clean(t, "the window")
		v.press(t, b, "#past summary")
		b.run(t, "the ended ones, more on scrolling", until(`document.querySelectorAll('#ended > [data-id]').length >= 20`),
			chromedp.Evaluate(`scrollTo(0, document.body.scrollHeight)`, nil), until(`document.querySelectorAll('#ended > [data-id]').length === 25`))
		v.follow(t, b, `#vouchers [data-id="`+wanted[1]+`"] h3 a`)
		b.run(t, "one by itself", until(`location.pathname === "/shop/`+wanted[1]+`"`), shows(`#vouchers [data-field="phase"]`, catalogue.All()[v.language].Text("live")))
		b.quiet(t)
	}
	b := c.person(t, s.url)
	var asks []float64
	b.run(t, "a crowd of waiting tabs", b.visit("/shop"), until(`vouchers.size > 0`), chromedp.Evaluate(`token = 'x'; true`, nil),
		chromedp.Evaluate(waiting, &asks, awaited))
	t.Logf("1,000 tabs ask %.1f times a second in the busiest minute until two before the beginning, %.1f in the last one; %.0f s apart when it is long sold out", asks[0], asks[1], asks[2])
	check.That(t, asks[0] > 0 && asks[0] <= 20 && asks[1] > 0 && asks[1] <= 200 && asks[2] >= 200, "1,000 tabs ask %v", asks)
}

// gap lets a chart have readings of 100 s, between which nobody has read for half a minute, and ink tells where the line was drawn.
const gap = `{
	const say = (event, data) => document.body.dispatchEvent(new CustomEvent('htmx:sse:before:message', { cancelable: true, detail: { message: { event, data: JSON.stringify(data) } } }));
	const last = Date.parse(reading.now);
	say('history', { readings: [...Array(100).keys()].filter((n) => n < 40 || n > 70).map((n) => ({ ...reading, now: new Date(last - (100 - n) * 1000).toISOString() })) });
	window.ink = (n) => {
		const [chart, canvas, over] = ['', ' canvas', ' .u-over'].map((part) => document.querySelector('[data-chart="units"]' + part));
		const wanted = getComputedStyle(chart.querySelector('[data-series="remaining"] i')).color.match(/\d+/g).map(Number);
		const [from, to] = windowed();
		const x = Math.round((over.offsetLeft + (last / 1000 - 100 + n - from) / (to - from) * over.clientWidth) * devicePixelRatio);
		const { data } = canvas.getContext('2d').getImageData(x, 0, 1, canvas.height);
		return Array.from({ length: canvas.height }, (_, y) => 4 * y).some((at) => data[at + 3] > 100 && [0, 1, 2].every((part) => Math.abs(data[at + part] - wanted[part]) < 30));
	};
}`

// Beside one sale: one is made like another, many are changed at once, a customer is found from anywhere, a colleague is invited.
func deskInABrowser(t *testing.T, c *chromium, s *site) {
	catalogue := check.Value(words.New())(t)
	cools := s.onSale(t, map[string]any{"title": "Cools", "cooldown": "20m", "stock": 100})
	for _, v := range visitors() {
		said := func(key string) string { return catalogue.All()[v.language].Text(key) }
		ticks := func(b *tab) {
			if v.keyboard {
				b.keys(t, `[data-all="voucher"]`, " ")
			} else {
				b.do(t, "tick all", click(`[data-all="voucher"]`))
			}
		}
		b := v.tab(t, c, s.url)
		v.signsIn(t, b, "ada", "/console/vouchers/new")
		for _, field := range [][2]string{{"#title", "Typed by desk " + v.name()}, {"#price", "12,50"}, {"#face_value", "10"}, {"#stock", "300"}, {"#time_zone", "Asia/Shanghai"}} {
			v.types(t, b, field[0], field[1])
		}
		v.follow(t, b, "main form button")
		b.run(t, "a price above the face value is asked about", visible("#price-wrong"))
		v.fits(t, b, "is it meant to be")
		b.clean(t, "is it meant to be")
		v.follow(t, b, "main form button")
		b.run(t, "a draft says what will happen", done(), until(`/12\.50/.test(document.querySelector('#about .plan').textContent) && /Asia\/Shanghai/.test(document.querySelector('#about .plan').textContent)`))
		v.fits(t, b, "what will happen")
		b.clean(t, "what will happen")
		b.do(t, "the message is closed", click(`.toast-note [data-closes]`))
		v.follow(t, b, `.deeds a[href*="?like="]`)
		v.types(t, b, "#face_value", "25")
		v.follow(t, b, "main form button")
		b.run(t, "another one like it", done(), until(`/12\.50/.test(document.querySelector('#about .plan').textContent)`))

		for n := range 2 {
			s.onSale(t, map[string]any{"title": fmt.Sprint("Many ", v.name(), " ", n)})
		}
		all := func(phase string) chromedp.Action {
			return until(`document.querySelectorAll('main .badge.` + phase + `').length === 2`)
		}
		b.run(t, "many at once", b.visit("/console/vouchers?q=Many+"+v.name()), visible("main h1"), all("live"))
		v.fits(t, b, "a list of vouchers")
		ticks(b)
		v.follow(t, b, `.chosen [name="to"]`)
		b.run(t, "many are paused", done(), all("paused"))
		b.clean(t, "many are paused")
		ticks(b)
		b.do(t, "what is exported", chromedp.Evaluate(`document.addEventListener('submit', (event) => {
			if (!event.submitter.formAction.includes('xlsx')) return;
			event.preventDefault();
			fetch(event.submitter.formAction + '?' + new URLSearchParams(new FormData(event.target))).then((answer) => answer.text()).then((text) => { window.sheet = text.slice(0, 2); });
		}); true`, nil))
		v.press(t, b, `.chosen [formaction]`)
		b.run(t, "a spreadsheet of their orders", until(`window.sheet === 'PK'`))
		v.press(t, b, `.chosen [data-opens="archive"]`)
		b.clean(t, "archive many")
		v.follow(t, b, "#archive .btn-danger")
		b.run(t, "many are archived", done(), all("archived"))

		guest := "guest." + v.name() + "@example.com"
		check.Equal(t, "what is heard by "+guest, s.buy(t, guest, cools), "OK")
		s.call(t, http.MethodPost, "/orders/"+s.orderOf(t, guest, cools)+"/cancel", s.token(t, guest, model.RoleUser), nil)
		b.run(t, "somebody calls", b.visit("/console/log"), visible("main h1"))
		if v.width >= 1024 {
			b.run(t, "Ctrl-K", chromedp.KeyEvent("k", chromedp.KeyModifiers(input.ModifierCtrl)), until(`document.activeElement.name === 'q'`),
				leads(chromedp.KeyEvent(guest[:len(guest)-8]+kb.Enter)))
		} else {
			v.follow(t, b, `nav a[href="/console/accounts"]`)
			v.types(t, b, "#q", guest[:len(guest)-8])
			v.follow(t, b, ".search button")
		}
		b.run(t, "why this customer cannot buy", shows("h1", guest), until(fmt.Sprintf(
			`[...document.querySelectorAll('main tr')].some((row) => row.innerText.includes('Cools') && row.innerText.includes(%q) && row.querySelector('time'))`, said("COOLING_DOWN"))),
			until(fmt.Sprintf(`document.querySelector('.trail').textContent.includes(%q)`, said("canceled"))))
		v.fits(t, b, "a customer")
		b.clean(t, "a customer")

		name := "c-" + v.name()
		b.run(t, "colleagues", b.visit("/console/colleagues"), visible("main h1"))
		v.types(t, b, `.search [name="username"]`, name)
		v.follow(t, b, `.search button`)
		var link string
		b.run(t, "an invitation", visible(".alert.well code"), chromedp.Evaluate(`document.querySelector('.alert.well code').textContent`, &link))
		v.fits(t, b, "an invitation")
		b.clean(t, "an invitation")
		colleague := v.tab(t, c, s.url)
		colleague.run(t, "the link", chromedp.Navigate(link), visible("#password"))
		v.fits(t, colleague, "a password")
		v.types(t, colleague, "#password", password)
		v.follow(t, colleague, "main form button")
		v.signsIn(t, colleague, name, "/console")
		row := `tr:has(a[href="/console/log?actor=` + name + `"]) `
		v.press(t, b, row+`[data-opens^="off-"]`)
		v.follow(t, b, `dialog[open] .btn-danger`)
		b.run(t, "disabled", done(), visible(row+".badge.failed"))
		colleague.run(t, "is out", colleague.visit("/console/orders"), visible("#password"))
		colleague.quiet(t)
		b.quiet(t)
	}
}
