package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grafana/sobek"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// The first page says what has come since midnight where the person is: orders, money received, money returned.
func TestTheDayOnTheOverview(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	day := func(orders, received, returned string) func() bool {
		return func() bool {
			page := b.get(t, "/console", "Cookie", "seckill-zone=Asia/Shanghai").body
			return strings.Contains(page, "<dt>Orders today</dt><dd><b>"+orders+"<") &&
				strings.Contains(page, "<dt>Money received today</dt><dd><b>"+received+"<") &&
				strings.Contains(page, "<dt>Money returned today</dt><dd><b>"+returned+"<")
		}
	}
	id := b.create(t)
	paid := s.paid(t, "alice", id)
	s.paid(t, "bob", id)
	s.buy(t, "carol", id)
	b.act(t, "/console/orders/"+paid+"/refund", nil)
	check.Patiently(t, "three orders, two paid, one of them refunded", day("3", "CN¥20.00", "CN¥10.00"))
	shanghai := check.Value(time.LoadLocation("Asia/Shanghai"))(t)
	now := time.Now().In(shanghai)
	yesterday := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, -1000_000, shanghai).UTC()
	for table, column := range map[string]string{"orders": "created_at", "payments": "decided_at", "refunds": "closed_at"} {
		s.exec(t, "UPDATE "+table+" SET "+column+" = ?", yesterday.UnixMicro())
	}
	check.Patiently(t, "of yesterday nothing counts", day("0", "CN¥0.00", "CN¥0.00"))
}

// What does not become well by itself is on the first page, whichever instance has seen it.
func TestWhatNeedsSomebody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const nobody = "Needs somebody"
		for _, test := range []struct {
			want   string
			adrift int64
			alive  []model.Instance
		}{
			{"", 0, []model.Instance{{Name: "a:8080"}}},
			{`system">b:8080 is not ready: database, queue</a>`, 0, []model.Instance{{}, {Name: "b:8080", Unready: "database,queue"}}},
			{`vouchers/v8/audit">Units and orders do not add up: Coffee`, 0, []model.Instance{{Drifted: "v7,v8"}}},
			{`vouchers/v1/audit">Units and orders do not add up: Coffee`, 1, nil},
			{`vouchers/v1/audit">Units and orders do not add up: Coffee`, -1, nil},
		} {
			sold := &shop{live: true, adrift: test.adrift, alive: test.alive}
			b := sold.browser(t)
			ctx, cancel := context.WithCancel(t.Context())
			go sold.console.Record(ctx)
			time.Sleep(time.Minute) // of the bubble
			page := b.page(t, "/console")
			check.That(t, strings.Contains(page, nobody) == (test.want != ""), "%+v: %s", test, page)
			want(t, page, test.want, "<dt>Orders today</dt><dd><b>7<")
			cancel()
		}
	})
}

// What begins next is next, however many are newer. A list begins with what is on sale, is sorted and cut by days, and
// what is chosen there is paused, archived and exported together. Numbers are grouped everywhere.
func TestAMerchantSeesWhatIsOn(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	sale := func(title string, stock int, begin, end time.Duration) string {
		return s.onSale(t, map[string]any{"title": title, "stock": stock, "price": 100 + stock, "begin_at": in(begin), "end_at": in(end)})
	}
	soon := sale("Soon", 5, 77*time.Minute, 2*time.Hour)
	busy, late := sale("Busy", 5769, -time.Hour, 2*time.Hour), sale("Late", 7, -time.Hour, 24*time.Hour)
	for n := range 7 {
		sale(fmt.Sprint("Newer ", n), 1, 100*time.Hour, 200*time.Hour)
		sale(fmt.Sprint("Quiet ", n), 1, -2*time.Hour, 48*time.Hour)
	}
	order := s.paid(t, "alice", busy)
	ordered := func(page string, titles ...string) {
		t.Helper()
		for _, title := range titles {
			_, rest, found := strings.Cut(page, ">"+title+"<")
			check.That(t, found, "%s is not behind the ones before it of %v: %s", title, titles, page)
			page = rest
		}
	}
	page := b.page(t, "/console")
	ordered(page, "Busy", "Next", "Soon", "Newer 0")
	want(t, page, "All 9 on sale", "All 8 that begin later", "5,768 of 5,769 left")
	list := b.page(t, "/console/vouchers")
	ordered(list, "Busy", "Late", "Quiet 3", "Soon", "Newer 3")
	want(t, list, `live <b>9</b>`, `upcoming <b>8</b>`, `ended <b>0</b>`, "5,768 of 5,769")
	ordered(b.page(t, "/console/vouchers?by=-price"), "Busy", "Late", "Soon")
	ordered(b.page(t, "/console/vouchers?by=remaining&phase=upcoming"), "Newer 0", "Soon")
	days := "/console/vouchers?from=" + in(72 * time.Hour)[:10] + "&to=" + in(96 * time.Hour)[:10]
	lacks(t, b.page(t, days), "Busy", "Soon", "Late")
	want(t, b.page(t, "/console/orders?voucher="+busy), `paid <b>1</b>`, `refunded <b>0</b>`)

	lead := b.post(t, "/console/vouchers/many", url.Values{"voucher": {busy, soon}, "to": {"paused"}, "back": {"/console/vouchers?q=b"}}).leads(t)
	check.Equal(t, "it leads back", lead, "/console/vouchers?q=b")
	want(t, b.page(t, lead), "The sales that were chosen are paused.")
	b.act(t, "/console/vouchers/many", url.Values{"voucher": {late}, "to": {"archived"}})
	for id, state := range map[string]string{busy: "paused", soon: "paused", late: "archived"} {
		check.Equal(t, "the state of "+id, fmt.Sprint(s.voucher(t, id)["state"]), state)
	}
	b.post(t, "/console/vouchers/many", url.Values{"voucher": {late}, "to": {"published"}}).is(t, http.StatusUnprocessableEntity)
	s.paid(t, "bob", sale("Tea", 2, -time.Hour, time.Hour))
	file := b.get(t, "/console/orders.csv?voucher="+late+"&voucher="+busy).body
	check.That(t, strings.Contains(file, order) && strings.Count(file, "\n") == 2, "the export has %s", file)
}

func TestShopUsesThePublicAPIOnly(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.browser(t)
	got := b.get(t, "/shop")
	got.is(t, http.StatusOK, "/console/static/shop.js", `data-word="SOLD_OUT"`, `data-word="unpaid"`)
	want(t, got.header.Get("Content-Security-Policy"), "connect-src 'self'", "script-src 'self'")
	want(t, b.get(t, "/shop", "Accept-Language", "zh").body, "橱窗", "立即购买")
	b.post(t, "/shop", nil).is(t, http.StatusNotFound)

	var document struct {
		Paths map[string]map[string]any
	}
	check.Must(t, json.Unmarshal([]byte(b.get(t, "/api/v1/openapi.json").body), &document))
	script := check.Value(os.ReadFile("static/shop.js"))(t)
	calls := regexp.MustCompile("call\\('([A-Z]+)', ['`]([^'`?]+)").FindAllStringSubmatch(string(script), -1)
	check.Need(t, len(calls) >= 7, "the script makes only %d calls: the pattern is wrong", len(calls))
	for _, call := range calls {
		path := "/api/v1" + regexp.MustCompile(`\$\{[^}]*\}`).ReplaceAllString(call[2], "{id}")
		_, public := document.Paths[path][strings.ToLower(call[1])]
		check.That(t, public && !strings.Contains(path, "/admin/"),
			"the script calls %s %s, which is no part of the public API", call[1], path)
	}
	lacks(t, string(script), "innerHTML")
	check.Equal(t, "ways to ask the API", strings.Count(string(script), "fetch("), 1)
}

// First comes what is on sale, the soonest end first, then what begins soonest. A voucher's page needs no script.
func TestShopShowsEverySale(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.browser(t)
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	sale := func(title string, begin, end time.Duration) string {
		return s.onSale(t, map[string]any{"title": title, "begin_at": in(begin), "end_at": in(end)})
	}
	wanted := []string{
		sale("ends soonest", -time.Hour, time.Hour), sale("ends late", -time.Hour, 9*time.Hour),
		sale("begins soonest", time.Hour, 9*time.Hour),
	}
	wanted = append(wanted, sale("begins late", 8*time.Hour, 9*time.Hour))
	gone := sale("has ended", -9*time.Hour, -8*time.Hour)
	for i := range 25 {
		sale(fmt.Sprint("newer, ended ", i), -9*time.Hour, -8*time.Hour)
	}
	page, at := b.page(t, "/shop"), 0
	for _, id := range wanted {
		next := strings.Index(page[at:], `data-id="`+id+`"`)
		check.That(t, next >= 0, "%s is not behind the ones before it", id)
		at += max(next, 0)
	}
	check.That(t, !strings.Contains(page, `data-id="`+gone+`"`), "an ended sale stands among those on sale")
	only := b.page(t, "/shop/"+gone)
	want(t, only, `<meta property="og:title" content="has ended">`, `/shop/`+gone+`"`,
		`property="og:image" content="`+s.url+`/console/static/offer.png`, "<noscript>", " UTC</time>")
	check.Equal(t, "vouchers of its page", strings.Count(only, `<article class="card" data-id=`), 1)
	check.Equal(t, "a link to nothing", b.get(t, "/shop/nothing").status, http.StatusNotFound)
}

// Where the service is tried out, a voucher is on sale with what the form says by itself.
func TestATrialBeginsAtOnce(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	page := b.page(t, "/console/vouchers/new")
	form := onSale("once", hidden(t, page, "once"))
	for _, name := range []string{"begin_at", "end_at"} {
		found := regexp.MustCompile(`name="` + name + `"[^>]* value="([^"]*)"`).FindStringSubmatch(page)
		check.Need(t, found != nil, "the form has no %s", name)
		form.Set(name, found[1])
	}
	id := strings.TrimPrefix(b.post(t, "/console/vouchers/new", form).leads(t), "/console/vouchers/")
	check.Equal(t, "what alice hears", s.buy(t, "alice", id), "OK")
}

// wordsOfThePage stands for what shop.js and the page have: a text is its key and its values, and all texts are kept.
const wordsOfThePage = `
const said = new Set();
const word = (key) => { said.add(key); return key; };
const fill = (key, ...values) => [word(key), ...values].join(' ');
const list = (names) => names.join('+');
const when = (zone, at) => at.slice(11, 16);
const left = (at) => 'T' + when('', at);
const now = () => Date.parse('2026-01-01T12:00:00Z');
const ask = (voucher, mine) => { const { says, does, why } = offer(JSON.parse(voucher), JSON.parse(mine)); return [says, does, why].join(' | '); };`

// What the button of each kind of voucher says to each kind of visitor, what it does, and why it does nothing.
func TestOffer(t *testing.T) {
	t.Parallel()
	vm := sobek.New()
	script := string(check.Value(os.ReadFile("static/offer.js"))(t))
	check.Value(vm.RunString(script + wordsOfThePage))(t)
	var ask func(voucher, mine string) string
	check.Must(t, vm.ExportTo(vm.Get("ask"), &ask))

	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(hour int) time.Time { return time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC) }
	on := model.Voucher{VoucherFields: model.VoucherFields{
		State: model.VoucherPublished, Stock: 5, Remaining: 5,
		BeginAt: at(10), EndAt: at(20),
	}}
	with := func(change func(*model.Voucher)) model.Voucher { v := on; change(&v); return v }
	gold := with(func(v *model.Voucher) { v.Groups = model.Groups{"gold", "staff"} })
	early := with(func(v *model.Voucher) {
		v.BeginAt, v.Early = at(16), model.Early{For: model.Groups{"gold"}, From: new(at(11))}
	})
	later := with(func(v *model.Voucher) {
		v.BeginAt, v.Early = at(16), model.Early{For: model.Groups{"gold"}, From: new(at(14))}
	})
	soldOut := with(func(v *model.Voucher) { v.Remaining = 0 })
	waitlist := with(func(v *model.Voucher) { v.Remaining, v.Waitlist = 0, true })
	goldWaits := with(func(v *model.Voucher) { v.Remaining, v.Waitlist, v.Groups = 0, true, model.Groups{"gold"} })
	draw := with(func(v *model.Voucher) { v.Allocation = model.ByDraw })
	upcoming := with(func(v *model.Voucher) { v.BeginAt = at(14) })
	ended := with(func(v *model.Voucher) { v.EndAt = at(11) })
	endedWaitlist := with(func(v *model.Voucher) { v.EndAt, v.Waitlist = at(11), true })
	endedDraw := with(func(v *model.Voucher) { v.EndAt, v.Allocation = at(11), model.ByDraw })
	beacon := with(func(v *model.Voucher) { v.EndAt, v.Allocation, v.Beacon = at(11), model.ByDraw, "lottery" })
	paused := with(func(v *model.Voucher) { v.State = model.VoucherPaused })
	pausedGold := with(func(v *model.Voucher) { v.State, v.Groups = model.VoucherPaused, model.Groups{"gold"} })

	const anonymous, buyer, member = "", `"signedIn": true`, `"signedIn": true, "groups": ["gold"]`
	for _, row := range []struct {
		name    string
		voucher model.Voucher
		visitor string
		want    string // says | does | why
	}{
		{"on sale, anonymous", on, anonymous, "sign in to buy | sign-in | "},
		{"on sale", on, buyer, "buy | buy | "},
		{"on sale, being bought", on, buyer + `, "busy": true`, "buying |  | "},
		{"on sale, cooling down", on, buyer + `, "coolsUntil": "2026-01-01T12:05:00Z"`, "cools T12:05 |  | ended unpaid"},
		{"on sale, cooled down", on, buyer + `, "coolsUntil": "2026-01-01T12:00:00Z"`, "buy | buy | "},
		{"on sale, order in the queue", on, buyer + `, "order": {"status": "processing"}`, "in the queue | orders | "},
		{"sold out, order to pay", soldOut, buyer + `, "order": {"status": "unpaid"}`, "yours unpaid | orders | "},
		{"ended, paid", ended, buyer + `, "order": {"status": "paid"}`, "yours paid | orders | "},
		{"ended, used", ended, buyer + `, "order": {"status": "redeemed"}`, "yours | orders | "},
		{"upcoming, anonymous", upcoming, anonymous, "waits T14:00 |  | "},
		{"upcoming", upcoming, buyer, "waits T14:00 |  | "},
		{"paused", paused, buyer, "paused |  | "},
		{"ended", ended, buyer, "ended |  | "},
		{"ended, cooling down", ended, buyer + `, "coolsUntil": "2026-01-01T12:05:00Z"`, "ended |  | "},
		{"sold out, anonymous", soldOut, anonymous, "sold_out |  | "},
		{"sold out", soldOut, buyer, "sold_out |  | "},
		{"sold out, cooling down", soldOut, buyer + `, "coolsUntil": "2026-01-01T12:05:00Z"`, "sold_out |  | "},

		{"for groups, anonymous", gold, anonymous, "sign in to buy | sign-in | for groups gold+staff"},
		{"for groups, not in them", gold, buyer, "not for you |  | in no group gold+staff"},
		{"for groups, in one", gold, member, "buy | buy | "},
		{"for groups, not in them any more, with an order", gold, buyer + `, "order": {"status": "unpaid"}`, "yours unpaid | orders | "},
		{"for groups and paused, anonymous", pausedGold, anonymous, "paused |  | for groups gold"},
		{"for groups and paused, not in them", pausedGold, buyer, "not for you |  | in no group gold"},

		{"early for some, anonymous", later, anonymous, "waits T16:00 |  | others before gold 14:00"},
		{"early for others", later, buyer, "waits T16:00 |  | others before gold 14:00"},
		{"early for me, not yet", later, member, "waits T14:00 |  | before others 16:00"},
		{"early for others, who buy already", early, buyer, "waits T16:00 |  | others before gold 11:00"},
		{"early for me, already", early, member, "buy | buy | "},

		{"waitlist, anonymous", waitlist, anonymous, "sign in to wait | sign-in | who waits"},
		{"waitlist", waitlist, buyer, "wait | wait | who waits"},
		{"waitlist, cooling down", waitlist, buyer + `, "coolsUntil": "2026-01-01T12:05:00Z"`, "cools T12:05 |  | ended unpaid"},
		{"waitlist for groups, anonymous", goldWaits, anonymous, "sign in to wait | sign-in | for groups gold"},
		{"waitlist for groups, not in them", goldWaits, buyer, "not for you |  | in no group gold"},
		{"waiting", waitlist, buyer + `, "place": {"position": 3}`, "place 3 | give up | your turn"},
		{"waiting, after the end", endedWaitlist, buyer + `, "place": {"position": 3}`, "place 3 | give up | your turn"},
		{"waited, and the order is over", waitlist, buyer + `, "place": {"position": 0, "order_id": "o1"}`, "wait | wait | who waits"},

		{"draw, anonymous", draw, anonymous, "sign in to enter | sign-in | chance"},
		{"draw", draw, buyer, "enter | buy | chance"},
		{"entered", draw, buyer + `, "entry": {"status": "entered"}`, "entered |  | if drawn"},
		{"being drawn", endedDraw, buyer + `, "entry": {"status": "entered"}`, "drawing |  | if drawn"},
		{"being drawn in public", beacon, buyer + `, "entry": {"status": "entered"}`, "drawing |  | beacon lottery"},
		{"drawn", endedDraw, buyer + `, "entry": {"status": "won"}, "order": {"status": "unpaid"}`, "yours unpaid | orders | "},
		{"drawn, and the order is over", endedDraw, buyer + `, "entry": {"status": "won"}`, "yours | orders | "},
		{"drawn behind the winners", endedDraw, buyer + `, "entry": {"status": "waiting", "position": 7}`, "place 7 | give up | your turn"},
		{"not drawn", endedDraw, buyer + `, "entry": {"status": "lost"}`, "lost the draw |  | "},
		{"drawn, never entered", endedDraw, buyer, "ended |  | "},
	} {
		shown := row.voucher.At(noon)
		var visitor struct {
			SignedIn bool
			Groups   []string
		}
		check.Must(t, json.Unmarshal([]byte("{"+row.visitor+"}"), &visitor))
		if visitor.SignedIn {
			shown = shown.ShownTo(visitor.Groups)
		}
		mine := strings.TrimSuffix(`{"groups": [], `+row.visitor, ", ") + "}" // the last of a name counts
		check.Equal(t, row.name, ask(string(check.Value(json.Marshal(shown))(t)), mine), row.want)
	}

	page := string(check.Value(os.ReadFile("pages/shop.html"))(t))
	phases := fmt.Sprint(model.Phases())
	for _, key := range vm.Get("said").Export().([]any) {
		known := strings.Contains(page, fmt.Sprintf(`data-word=%q`, key)) || strings.Contains(phases, fmt.Sprint(key))
		check.That(t, known, "the page has no words for %q", key)
	}
	// Each word of the rule was said above, so that no state is left out.
	for _, key := range regexp.MustCompile(`(?:word|fill)\('([^']+)'`).FindAllStringSubmatch(script, -1) {
		check.Equal(t, key[1]+" was said", check.Value(vm.RunString(fmt.Sprintf("said.has(%q)",
			key[1])))(t).ToBoolean(), true)
	}
}
