package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestVoucherIsCreatedOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	want(t, b.page(t, "/console/vouchers"), "There are no vouchers here.")
	form := onSale("description", "First line\r\nsecond line", "payment_window", "30",
		"groups", "gold\r\n /eu/staff \r\n\r\n", "early_groups", "gold", "early_begin_at", "2001-01-01T00:00",
		"waitlist", "on")
	form.Set("once", hidden(t, b.page(t, "/console/vouchers/new"), "once"))
	page := b.act(t, "/console/vouchers/new", form)
	want(t, page, "The voucher was created.", "Coffee for two", "CN¥10.00", "CN¥25.00",
		`<b data-live="remaining">10</b>`, `<progress max="10" value="10"`)
	want(t, b.act(t, "/console/vouchers/new", form), "The voucher was created.") // sent again, it happens once
	form.Set("title", "Another title")
	b.post(t, "/console/vouchers/new", form).is(t, http.StatusConflict)
	_, list := s.call(t, http.MethodGet, "/admin/vouchers", s.token(t, "admin", model.RoleAdmin), nil)
	items, _ := list["items"].([]any)
	check.Need(t, len(items) == 1, "there are %d vouchers: %v", len(items), items)
	made, _ := items[0].(map[string]any)
	check.Equal(t, "the groups", fmt.Sprint(made["groups"], made["early"]),
		"[gold /eu/staff] map[begin_at:2001-01-01T00:00:00Z groups:[gold]]")
	want(t, page, "gold, /eu/staff", "Who may begin early", "0 wait for a unit")
	check.Equal(t, "the waitlist", made["waitlist"], any(true))
	shown := fmt.Sprint(made["price"], made["face_value"], made["description"], made["phase"])
	check.Equal(t, "the voucher of the API", shown, "1000 2500First line\nsecond linelive")
	want(t, b.page(t, "/console/vouchers?phase=live"), "Coffee for two", "10 of 10", "data-until=")
	lacks(t, b.page(t, "/console/vouchers?phase=ended"), "Coffee")
}

func TestADraftIsNotLive(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	id := b.create(t, "state", "draft")
	for state, word := range map[string]string{"draft": "草稿", "archived": "已归档"} {
		b.act(t, "/console/vouchers/"+id+"/state", url.Values{"to": {state}})
		for _, path := range []string{"/console/vouchers", "/console/vouchers/" + id} {
			page, chinese := b.page(t, path), b.get(t, path, "Accept-Language", "zh").body
			want(t, page, `<span class="badge `+state+`"`, ">"+state+"</span>")
			want(t, chinese, `<span class="badge `+state+`"`, ">"+word+"</span>")
			check.Equal(t, "badges on "+path, strings.Count(page, `class="badge`), 1)
		}
	}
}

func TestTimesAreLocal(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	zone := []string{"Cookie", "seckill-zone=Asia/Shanghai"}
	form := b.get(t, "/console/vouchers/new", zone...)
	want(t, form.body, `placeholder="Asia/Shanghai"`, `name="zone" value="Asia/Shanghai"`)
	id := b.create(t, "begin_at", "2030-11-11T20:00", "end_at", "2030-11-11T22:00:30", "zone", "Asia/Shanghai")
	v := s.voucher(t, id)
	check.Equal(t, "its time", fmt.Sprint(v["begin_at"], v["end_at"], v["phase"]),
		"2030-11-11T12:00:00Z2030-11-11T14:00:30Zupcoming")
	want(t, b.get(t, "/console/vouchers/"+id, zone...).body, "11 Nov 2030, 20:00:00",
		"11 Nov 2030, 22:00:30")
	want(t, b.get(t, "/console/vouchers/"+id+"/edit", zone...).body, `value="2030-11-11T20:00:00"`)
	for name, form := range map[string]url.Values{
		"a time that a summer time skips": onSale("begin_at", "2030-03-31T02:30", "end_at", "2031-01-01T00:00", "zone", "Europe/Berlin"),
		"no time":                         onSale("begin_at", "tomorrow"),
		"no zone":                         onSale("zone", "Atlantis/Capital"),
		"the server's zone":               onSale("zone", "Local"),
	} {
		check.Equal(t, name, b.post(t, "/console/vouchers/new", form).status, http.StatusUnprocessableEntity)
	}
}

func TestNothingTypedIsLost(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	form := onSale("title", "Tea for \"two\"", "description", "a < b", "price", "12,5x", "stock", "-3", "end_at",
		"2001-01-01T00:00", "payment_window", "0",
		"groups", "gold\ngold", "early_groups", "staff")
	b.post(t, "/console/vouchers/new", form).is(t, http.StatusUnprocessableEntity, "nothing that you typed is lost",
		`value="Tea for &#34;two&#34;"`, "a &lt; b</textarea>", `value="12,5x"`, `value="-3"`,
		`value="2001-01-01T00:00"`, `value="`+form.Get("begin_at")+`"`,
		`<p class="wrong" id="price-wrong">must be an amount like 10.00`, `id="stock-wrong"`, `id="end_at-wrong">must be after the beginning`, `id="payment_window-wrong"`, `id="groups-wrong"`, `id="early_begin_at-wrong"`,
		`aria-describedby="price-wrong"`)
	for field, wrong := range map[string]string{
		"title": " ", "price": "1.234", "face_value": "1e3", "stock": "many", "time_zone": "Atlantis", "description": strings.Repeat("x", 4001),
	} {
		b.post(t, "/console/vouchers/new", onSale(field, wrong)).is(t, http.StatusUnprocessableEntity,
			`id="`+field+`-wrong"`)
	}
}

// A sale is a draft at first, whose page says what will happen. Amounts are typed as people do; a price above the face
// value is asked about; last week's sale is made again, at the same local time also across a change of summer time.
func TestASaleIsMadeAsPeopleMakeOne(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	empty := b.page(t, "/console/vouchers/new")
	lacks(t, empty, `id="state"`)
	check.Equal(t, "its groups", strings.Count(empty, "<legend>"), 3)
	check.Equal(t, "what is folded", strings.Count(empty, "<details>"), 2)
	form := sentBack(empty)
	begin := time.Now().Add(31 * time.Hour).In(check.Value(time.LoadLocation("Asia/Shanghai"))(t))
	for name, text := range map[string]string{
		"title": "Hotpot", "price": "1,039,00", "face_value": "12,50", "stock": "300", "time_zone": "Asia/Shanghai",
		"begin_at": begin.Format("2006-01-02T15:04:05"), "end_at": begin.Add(time.Hour).Format("2006-01-02T15:04:05"),
	} {
		form.Set(name, text)
	}
	asked := b.post(t, "/console/vouchers/new", form)
	asked.is(t, http.StatusUnprocessableEntity, "is above the face value; if it is meant to be, save once more", `name="above" value="on"`, `value="1,039,00"`)
	form.Set("above", "on")
	page := b.act(t, "/console/vouchers/new", form)
	want(t, page, "What will happen when it is published", "Opens on "+begin.Format("Monday 2 Jan 2006, 15:04")+" in Asia/Shanghai, in 31 h",
		"300 units at CN¥1,039.00; each user one.", "Everybody sees it", `<span class="badge draft"`, "Times are in the zone <b>Asia/Shanghai</b>")
	id := strings.TrimPrefix(b.post(t, "/console/vouchers/new", form).leads(t), "/console/vouchers/") // it is made once
	want(t, b.get(t, "/console/vouchers/"+id, "Accept-Language", "zh").body, "还有 31 小时")
	lacks(t, b.act(t, "/console/vouchers/"+id+"/state", url.Values{"to": {"published"}}), "What will happen")
	want(t, b.page(t, "/shop/"+id), begin.Format("2 Jan 2006, 15:04")+" Asia/Shanghai")

	berlin := s.onSale(t, map[string]any{
		"title": "Weekly", "description": "Soup", "price": 700, "face_value": 900, "stock": 40, "cooldown": "30m", "time_zone": "Europe/Berlin",
		"begin_at": "2020-03-27T19:00:00Z", "end_at": "2020-03-27T21:00:00Z",
	})
	again := sentBack(b.page(t, "/console/vouchers/new?like="+berlin))
	at := check.Value(time.ParseInLocation("2006-01-02T15:04:05", again.Get("begin_at"), time.UTC))(t)
	check.Equal(t, "it is the same some weeks later", fmt.Sprint(again.Get("title"), again.Get("description"), again.Get("price"), again.Get("stock"), again.Get("cooldown"), at.Weekday(), at.Format(" 15:04")),
		"WeeklySoup7.004030Friday 20:00")
	soon := time.Now().Add(-3 * time.Hour)
	check.That(t, at.After(soon) && at.Before(soon.AddDate(0, 0, 8)), "it is at %v", at)
	want(t, b.act(t, "/console/vouchers/new", again), ">Weekly</h1>", `<span class="badge draft"`)
	for typed, minor := range map[string]float64{"12,50": 1250, "1,234": 123400, "1,234.5": 123450, " 7 ": 700, ".5": -1, "1.234": -1, "1 2": -1} {
		again.Set("price", typed)
		again.Set("above", "on")
		again.Set("once", hidden(t, b.page(t, "/console/vouchers/new"), "once"))
		if got := b.post(t, "/console/vouchers/new", again); minor < 0 {
			got.is(t, http.StatusUnprocessableEntity, `id="price-wrong"`)
		} else {
			check.Equal(t, typed, s.voucher(t, strings.TrimPrefix(got.leads(t), "/console/vouchers/"))["price"], any(minor))
		}
	}
}

// sentBack is what a browser sends of the form of a voucher when nothing was typed over.
func sentBack(page string) url.Values {
	_, rest, _ := strings.Cut(page, `data-guard>`)
	rest, _, _ = strings.Cut(strings.ReplaceAll(rest, "\r\n", "\n"), "</form>")
	form := url.Values{}
	for _, field := range regexp.MustCompile(`<input [^>]*\bname="(\w+)"[^>]* value="([^"]*)"`).FindAllStringSubmatch(rest, -1) {
		if !strings.Contains(field[0], `type="checkbox"`) || strings.Contains(rest, field[0]+" checked") {
			form.Set(field[1], html.UnescapeString(field[2]))
		}
	}
	for _, field := range regexp.MustCompile(`<textarea [^>]*\bname="(\w+)"[^>]*>\n([^<]*)</textarea>`).FindAllStringSubmatch(rest, -1) {
		form.Set(field[1], strings.ReplaceAll(html.UnescapeString(field[2]), "\n", "\r\n"))
	}
	return form
}

// fieldCase is how a field is made and changed by the API, typed over in the form (if it has the field), and shown.
type fieldCase struct {
	made, changed any
	typed         map[string]string
	become        any
	shown         string
}

func fieldCases() map[string]fieldCase {
	early := func(group, at string) map[string]any { return map[string]any{"groups": []any{group}, "begin_at": at} }
	return map[string]fieldCase{
		"price":      {100.0, 200.0, map[string]string{"price": "3"}, 300.0, "CN¥3.00 "},
		"face_value": {100.0, 200.0, map[string]string{"face_value": "3", "price": "2"}, 300.0, "CN¥3.00)"},
		"begin_at": {
			"2030-01-01T00:00:00Z", "2030-01-02T00:00:00Z",
			map[string]string{"begin_at": "2030-01-03T00:00"},
			"2030-01-03T00:00:00Z",
			`datetime="2030-01-03T00:00:00Z"`,
		},
		"end_at": {
			"2040-01-01T00:00:00Z", "2040-01-02T00:00:00Z",
			map[string]string{"end_at": "2040-01-03T00:00"},
			"2040-01-03T00:00:00Z",
			`datetime="2040-01-03T00:00:00Z"`,
		},
		"groups": {[]any{"a"}, []any{"b"}, map[string]string{"groups": "c\nd"}, []any{"c", "d"}, ">c, d<"},
		"early": {
			early("a", "2029-01-01T00:00:00Z"), early("b", "2029-01-02T00:00:00Z"),
			map[string]string{"early_groups": "c", "early_begin_at": "2029-01-03T00:00"},
			early("c", "2029-01-03T00:00:00Z"), `>c <span class="note">3 Jan 2029, 00:00:00`,
		},
		"cooldown":   {"10m0s", "20m0s", map[string]string{"cooldown": "30"}, "30m0s", "30 min"},
		"allocation": {"draw", "first_come", map[string]string{"allocation": "draw"}, "draw", "Commitment"},
		// The page does not say false.
		"waitlist":      {true, nil, map[string]string{"waitlist": "on"}, true, "0 wait for a unit"},
		"state":         {"draft", "paused", nil, "paused", `class="badge paused"`}, // changed by buttons
		"beacon":        {nil, nil, map[string]string{"allocation": "draw", "beacon": "Lotto of Friday"}, "Lotto of Friday", ">Lotto of Friday<"},
		"valid_from":    {"2030-01-01T00:00:00Z", "2030-01-02T00:00:00Z", map[string]string{"valid_from": ""}, nil, ""},
		"valid_until":   {"2041-01-01T00:00:00Z", "2042-01-02T00:00:00Z", map[string]string{"valid_until": "2043-01-03T00:00"}, "2043-01-03T00:00:00Z", `datetime="2043-01-03T00:00:00Z"`},
		"valid_for":     {"24h0m0s", "48h0m0s", map[string]string{"valid_for": "3"}, "72h0m0s", "72 h"},
		"withdrawal":    {"24h0m0s", "48h0m0s", map[string]string{"withdrawal": "14"}, "336h0m0s", "336 h"},
		"redeemers":     {[]any{"a"}, []any{"b"}, map[string]string{"redeemers": "c\nd"}, []any{"c", "d"}, ">c, d<"},
		"time_zone":     {"Asia/Tokyo", "UTC", map[string]string{"time_zone": "Europe/Berlin"}, "Europe/Berlin", "<dd>Europe/Berlin</dd>"},
		"public_report": {true, nil, map[string]string{"public_report": "on"}, true, "after the end"},
		// Stock has a call and a dialog of its own.
		"stock": {7.0, nil, nil, 7.0, `data-live="stock">7<`},
		// Orders keep their window, and each shows when it expires.
		"payment_window": {"20m0s", nil, nil, "20m0s", ""},
	}
}

// The API, the form, the page and the log know each field. What administrators do not decide is on a list.
func TestEveryFieldOfAVoucherIsSaid(t *testing.T) {
	s := shared(t)
	t.Parallel()
	undecided := map[string]string{
		"currency": "is the shop's", "remaining": "is moved by sales",
		"waiting": "is moved by the waitlist",
	}
	b, admin, chinese := s.signedIn(t, "ada"), s.token(t, "admin", model.RoleAdmin), texts(t, "zh")
	for _, field := range reflect.VisibleFields(reflect.TypeFor[model.VoucherFields]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		said, known := fieldCases()[name]
		switch {
		case undecided[name] != "":
			continue
		case !known:
			said = fieldCase{"made so", "changed so", map[string]string{name: "typed so"}, "typed so", "typed so"}
		}
		label := strings.ReplaceAll(strings.ToUpper(name[:1])+name[1:], "_", " ")
		check.That(t, chinese["member "+name] != "" || chinese[label] != "", "the log has no Chinese words for %s",
			name)
		draft := map[string]any{"title": "A", "begin_at": "2030-01-01T00:00:00Z"}
		if said.made != nil { // otherwise the form alone can make it, with another field
			draft[name] = said.made
		}
		id := s.onSale(t, map[string]any{"end_at": "2040-01-01T00:00:00Z"}, draft)
		check.That(t, reflect.DeepEqual(s.voucher(t, id)[name], said.made), "made with the %s %v: %v", name, said.made,
			s.voucher(t, id))
		if said.changed != nil {
			s.call(t, http.MethodPatch, "/admin/vouchers/"+id, admin, map[string]any{name: said.changed})
			check.That(t, reflect.DeepEqual(s.voucher(t, id)[name], said.changed), "changed to the %s %v: %v", name,
				said.changed, s.voucher(t, id))
		}
		if path := "/console/vouchers/" + id + "/edit"; said.typed != nil {
			form := sentBack(b.page(t, path))
			for control, text := range said.typed {
				check.That(t, form.Has(control) || slices.Contains([]string{"waitlist", "allocation", "public_report"}, control),
					"the form of a change has no %s: %v", control, form)
				form.Set(control, text)
			}
			b.post(t, path, form).is(t, http.StatusSeeOther)
		}
		check.That(t, reflect.DeepEqual(s.voucher(t, id)[name], said.become), "typed %v: %v", said.typed,
			s.voucher(t, id))
		// The trail says what changed.
		page := regexp.MustCompile(`(?s)<ol class="trail">.*?</ol>`).ReplaceAllString(b.page(t,
			"/console/vouchers/"+id), "")
		want(t, page, said.shown)
	}
}

func TestAFieldLeftAloneIsNotChanged(t *testing.T) {
	t.Parallel()
	begin := time.Date(2030, 1, 1, 0, 0, 0, 123_456_000, time.UTC)
	a := &shop{voucher: model.Voucher{
		ID: "v1", VoucherFields: model.VoucherFields{
			Title: "Tea & cake", Description: "one\r\ntwo", Price: 5, FaceValue: 10, Currency: "CNY", Stock: 10,
			Remaining: 10,
			BeginAt:   begin, EndAt: begin.Add(time.Hour), State: model.VoucherPublished,
		},
	}}
	b := a.browser(t)
	for range 2 {
		b.post(t, "/console/vouchers/v1/edit", sentBack(b.page(t, "/console/vouchers/v1/edit"))).is(t,
			http.StatusSeeOther)
		nothing := model.VoucherPatch{IfMatch: model.Tags{a.voucher.Tag()}, By: "ada"}
		check.That(t, reflect.DeepEqual(a.patch, nothing), "a form that was left alone asks for %+v", a.patch)
		a.voucher.Waitlist = true
	}
}

func TestEditing(t *testing.T) {
	s := shared(t)
	t.Parallel()
	ada, eve := s.signedIn(t, "ada"), s.signedIn(t, "eve")
	id := s.onSale(t, map[string]any{
		"price": 5, "face_value": 10, "begin_at": "2030-01-01T00:00:00.123456Z",
		"end_at": "2030-01-02T00:00:00Z",
	})
	path := "/console/vouchers/" + id + "/edit"
	page := ada.page(t, path)
	want(t, page, `value="0.05"`, `value="0.10"`, `value="2030-01-01T00:00:00"`)
	entries := func(page, title string) url.Values {
		return url.Values{
			"title": {title}, "price": {"0.05"}, "face_value": {"0.10"}, "begin_at": {"2030-01-01T00:00"}, "end_at": {"2030-01-02T00:00:00"},
			"zone": {"UTC"}, "tag": {hidden(t, page, "tag")},
		}
	}
	later := eve.page(t, path)
	want(t, ada.act(t, path, entries(page, "Green tea")), "The changes are saved.", "Green tea")
	v := s.voucher(t, id)
	check.Equal(t, "what was left alone", fmt.Sprint(v["begin_at"], v["price"]), "2030-01-01T00:00:00.123456Z5")
	// Another administrator has the page from before that.
	got := eve.post(t, path, entries(later, "Black tea"))
	got.is(t, http.StatusPreconditionFailed, "was changed since", `value="Black tea"`)
	check.Equal(t, "the title", s.voucher(t, id)["title"], any("Green tea"))
	want(t, eve.act(t, path, entries(got.body, "Black tea")), "Black tea") // now the page has the other change
}

func TestActions(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	id := b.create(t, "stock", "2")
	path := "/console/vouchers/" + id
	hears := func(n int, code string) {
		t.Helper()
		check.Equal(t, fmt.Sprint("what is heard by buyer ", n), s.buy(t, "buyer-"+strconv.Itoa(n), id), code)
	}
	hears(1, "OK")
	page := b.page(t, path)
	want(t, page, `<progress max="2" value="1"`, `value="paused"`)
	want(t, b.act(t, path+"/state", url.Values{"to": {"paused"}}), "The sale is paused.", `value="published"`)
	hears(2, "PAUSED")
	want(t, b.act(t, path+"/state", url.Values{"to": {"published"}}), "The voucher is published")
	hears(2, "OK")
	hears(3, "SOLD_OUT")

	restock := url.Values{"delta": {"+2"}, "once": {hidden(t, b.page(t, path), "once")}}
	want(t, b.act(t, path+"/stock", restock), "The stock was changed.", `<progress max="4" value="2"`)
	want(t, b.act(t, path+"/stock", restock), `<progress max="4" value="2"`) // sent twice, it happens once
	hears(3, "OK")
	b.post(t, path+"/stock", url.Values{"delta": {"-2"}, "once": {"fewer"}}).is(t, http.StatusConflict, `role="alert"`,
		"Nothing was changed.", `value="-2"`, `<progress max="4" value="1"`, `<dialog id="stock" aria-labelledby="stock-title" data-open>`)
	want(t, b.act(t, path+"/stock", url.Values{"delta": {"-1"}, "once": {"another"}}), `<progress max="3" value="0"`)
	hears(4, "SOLD_OUT")
	b.post(t, path+"/stock", url.Values{"delta": {"some"}}).is(t, http.StatusUnprocessableEntity, `value="some"`)

	past := time.Now().UTC().Add(-time.Minute).Format("2006-01-02T15:04:05")
	want(t, b.act(t, path+"/end", url.Values{"end_at": {past}, "zone": {"UTC"}}), "The end of the sale was moved.",
		`class="badge ended"`)
	hears(5, "ENDED")
	b.post(t, path+"/end", url.Values{"end_at": {"1999-01-01T00:00"}, "zone": {"UTC"}}).is(t,
		http.StatusUnprocessableEntity, `role="alert"`, `value="1999-01-01T00:00"`)
	want(t, b.act(t, path+"/state", url.Values{"to": {"archived"}}), "The voucher is archived.")
	hears(6, "NOT_FOUND")
	b.post(t, path+"/state", url.Values{"to": {"burnt"}}).is(t, http.StatusUnprocessableEntity)
	_, log := s.call(t, http.MethodGet, "/admin/log?limit=100", s.token(t, "admin", model.RoleAdmin), nil)
	items, _ := log["items"].([]any)
	check.That(t, len(items) >= 6 && !strings.Contains(fmt.Sprint(items), "actor:admin "), "the log has %d entries: %v",
		len(items), items)
}

func TestListHasPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	for n := range 25 {
		s.onSale(t, map[string]any{
			"title": fmt.Sprintf("Voucher %02d.", n), "begin_at": "2030-01-01T00:00:00Z",
			"end_at": "2030-01-02T00:00:00Z",
		})
	}
	first := b.page(t, "/console/vouchers?phase=upcoming")
	_, rest, ok := strings.Cut(first, `<a href="/console/vouchers?cursor=`)
	check.Need(t, ok, "there is no next page: %s", first)
	query, _, _ := strings.Cut(rest, `"`)
	second := b.page(t, "/console/vouchers?cursor="+strings.ReplaceAll(query, "&amp;", "&"))
	for n := range 25 {
		title := fmt.Sprintf("Voucher %02d.", n)
		check.That(t, strings.Contains(first, title) != strings.Contains(second, title),
			"%s is on both pages, or on none", title)
	}
	want(t, second, `<a href="/console/vouchers?phase=upcoming" rel="prev">`, `<a href="/console/vouchers">All <b>25</b></a>`, `aria-current="true">upcoming`)
	want(t, b.page(t, "/console/vouchers?q=voucher+07"), "Voucher 07.",
		`href="/console/vouchers?phase=live&amp;q=voucher&#43;07"`, `name="q" type="search" value="voucher 07"`)
	draft := b.create(t, "state", "draft", "title", "Voucher 77.")
	want(t, b.page(t, "/console/vouchers?state=draft&q=voucher"), `href="/console/vouchers/`+draft+`"`,
		`aria-current="true">draft`)
	for _, other := range []string{"state=archived", "q=tea", "state=draft&q=07"} {
		lacks(t, b.page(t, "/console/vouchers?"+other), "Voucher ")
	}
	for _, wrong := range []string{"state=gone", "phase=ended;", "cursor=nonsense", "by=luck", "from=soon"} {
		b.get(t, "/console/vouchers?"+wrong).is(t, http.StatusUnprocessableEntity)
	}
}

func TestHowLongACooldownLasts(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	for cooldown, said := range map[string]string{"1s": "1 s", "12.34s": "12.3 s", "90s": "1 min 30 s", "10m": "10 min", "59m59.9s": "1 h", "1h0m4s": "1 h 4 s", "24h": "24 h"} {
		path := "/console/vouchers/" + s.onSale(t, map[string]any{"cooldown": cooldown})
		want(t, b.page(t, path), "<dd>"+said+"</dd>")
	}
}

func TestADrawShowsItsProof(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	id := b.create(t, "allocation", "draw", "stock", "1", "beacon", "Lotto of Friday")
	path := "/console/vouchers/" + id
	want(t, b.page(t, path), "0 entries until now", "Commitment")
	want(t, b.page(t, path+"/edit"), `<option value="draw" selected>`)
	for _, user := range []string{"bob", "carl"} {
		status, entry := s.call(t, http.MethodPost, "/vouchers/"+id+"/seckill", s.token(t, user, model.RoleUser), nil)
		check.That(t, status == http.StatusAccepted && entry["leaf"] != nil, "%s: %d %v", user, status, entry)
	}
	want(t, b.page(t, path), "2 entries until now")
	want(t, b.page(t, path+"/report"), "It is not drawn, or the drawn order was not kept.")
	b.act(t, path+"/end", url.Values{
		"zone":   {"UTC"},
		"end_at": {time.Now().UTC().Add(-time.Minute).Format("2006-01-02T15:04:05")},
	})
	check.Patiently(t, "it waits", func() bool {
		return strings.Contains(b.page(t, path), "2 entries, which wait for what is drawn in public")
	})
	b.post(t, path+"/beacon", url.Values{"value": {" "}}).is(t, http.StatusUnprocessableEntity)
	want(t, b.page(t, path), `<label class="form-label" for="value">`, "Enter the value and draw")
	want(t, b.act(t, path+"/beacon", url.Values{"value": {"7 11"}}), "The value is entered")
	check.Patiently(t, "it is drawn", func() bool {
		return strings.Contains(b.page(t, path),
			"2 entries, the first 1 got an order")
	})
	want(t, b.page(t, path), "Secret", "seckill draw verify", "<code>7 11</code>", "entered what was drawn in public")
	lacks(t, b.page(t, path), "Enter the value and draw")
	want(t, b.page(t, path+"/report"), "The drawn order was kept.")
	want(t, b.get(t, path, "Accept-Language", "zh").body, "2 人登记，前 1 名得到订单")
}
