package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/words"
	"seckill/internal/workshop/check"
	"seckill/model"
)

func sessionOf(t *testing.T, got answer) *http.Cookie {
	t.Helper()
	response := http.Response{Header: got.header}
	for _, cookie := range response.Cookies() {
		if strings.HasSuffix(cookie.Name, "seckill-console") {
			return cookie
		}
	}
	t.Fatalf("no session was set: %d %s", got.status, got.body)
	return nil
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.administrator(t, "ada")
	b := s.browser(t)
	to := b.get(t, "/console/vouchers/new").leads(t)
	check.Equal(t, "a stranger is led to", to, "/console/sign-in?next=%2Fconsole%2Fvouchers%2Fnew")
	want(t, b.page(t, to), `name="next" value="/console/vouchers/new"`)

	got := b.signInTo(t, "/console", "ada", "wrong password")
	got.is(t, http.StatusUnauthorized, "The username or the password is wrong.", `value="ada"`)
	check.Equal(t, "cookies of a wrong password", len(got.header.Values("Set-Cookie")), 0)
	lacks(t, got.body, "wrong password\"")

	got = b.signInTo(t, "/console/vouchers/new", "ada", password, "Cookie", "seckill-console=chosen-by-somebody-else")
	cookie := sessionOf(t, got)
	cookie.Raw = ""
	attributes := cookie.String()[len(cookie.Name)+1+len(cookie.Value):]
	check.Equal(t, "the session's cookie", attributes, "; Path=/; Max-Age=1800; HttpOnly; SameSite=Strict")
	check.That(t, cookie.Value != "chosen-by-somebody-else", "the session from before the login goes on")
	check.Equal(t, "it leads to", got.leads(t), "/console/vouchers/new") // and there is no token in the URL
	want(t, b.page(t, "/console/vouchers/new"), "ada")
	b.get(t, "/console/sign-in").is(t, http.StatusSeeOther)
}

// Neither an account that is no administrator's nor a token that is of no account opens the console.
func TestPagesAskToSignIn(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.call(t, http.MethodPost, "/auth/register", "", map[string]string{"username": "bob", "password": password})
	b := s.browser(t)
	got := b.signIn(t, "bob", password)
	got.is(t, http.StatusForbidden, "This account is not an administrator")
	check.Equal(t, "cookies of a buyer", len(got.header.Values("Set-Cookie")), 0)
	for _, session := range []string{
		"", "seckill-console=", "seckill-console=nonsense", "seckill-console=" + s.token(t, "admin", model.RoleAdmin),
		"seckill-console=" + s.token(t, "bob", model.RoleUser),
	} {
		for _, path := range []string{
			"", "/vouchers/new", "/vouchers/v1", "/vouchers/v1/edit", "/vouchers/v1/events", "/vouchers/v1/audit",
			"/orders.csv", "/orders",
			"/orders/o1.v1", "/dead-letters", "/dead-letters/1", "/system", "/log", "/refunds", "/accounts", "/events",
			"/accounts/a1",
		} {
			to := b.get(t, "/console"+path, "Cookie", session).leads(t)
			check.That(t, strings.HasPrefix(to, "/console/sign-in"), "GET %s with %q leads to %s", path, session, to)
		}
		for _, path := range []string{
			"/sign-out", "/vouchers/v1/state", "/vouchers/v1/repair", "/vouchers/v1/rebuild", "/orders/o1.v1/cancel",
			"/orders/o1.v1/refund",
			"/redemptions", "/dead-letters/1/replay", "/dead-letters/1/drop", "/events",
		} {
			got := b.post(t, "/console"+path, onSale(), "Cookie", session)
			said := strings.Contains(got.header.Get("Set-Cookie"), "seckill-done=ended;")
			check.That(t, said && strings.HasPrefix(got.leads(t), "/console/sign-in"), "POST %s with %q: %v", path,
				session, got.header)
		}
		for _, path := range []string{"/vouchers/new", "/vouchers/v1/edit", "/vouchers/v1/stock", "/vouchers/v1/end", "/accounts/a1/groups"} {
			b.post(t, "/console"+path, onSale(), "Cookie", session).is(t, http.StatusUnauthorized,
				`action="/console/sign-in"`)
		}
	}
	_, list := s.call(t, http.MethodGet, "/admin/vouchers", s.token(t, "admin", model.RoleAdmin), nil)
	check.Equal(t, "vouchers of strangers", fmt.Sprint(list["items"]), "[]")
}

// The console signs in as the API does, in the name of the address, and says so when that is sent away.
func TestSignInIsThrottled(t *testing.T) {
	t.Parallel()
	throttled := &shop{err: &model.Error{
		Code: model.CodeRateLimited, Detail: "Too many failed logins.",
		RetryAfter: time.Minute,
	}}
	got := throttled.browser(t).signIn(t, "ada", "a wrong password")
	got.is(t, http.StatusTooManyRequests, "Too many failed logins", `value="ada"`)
	check.Equal(t, "the address, and the wait", throttled.from+" "+got.header.Get("Retry-After"), "127.0.0.1 60")
}

func TestSignOutEndsTheSessionEverywhere(t *testing.T) {
	s := shared(t)
	t.Parallel()
	s.administrator(t, "who-signs-out")
	b := s.browser(t)
	copied := sessionOf(t, b.signIn(t, "who-signs-out", password))
	thief := s.browser(t)
	stolen := []string{"Cookie", copied.Name + "=" + copied.Value}
	thief.get(t, "/console", stolen...).is(t, http.StatusOK)
	got := b.post(t, "/console/sign-out", nil)
	cookie := sessionOf(t, got)
	check.That(t, cookie.MaxAge < 0 && cookie.Value == "", "the cookie stays: %s", cookie)
	want(t, b.page(t, got.leads(t)), "You have signed out.")
	thief.get(t, "/console", stolen...).is(t, http.StatusSeeOther)
	status, _ := s.call(t, http.MethodGet, "/admin/vouchers", copied.Value, nil)
	check.Equal(t, "the token at the API", status, http.StatusUnauthorized)
	b.signIn(t, "who-signs-out", password).is(t, http.StatusSeeOther)
}

func TestCookieBehindTLS(t *testing.T) { //nolint:tparallel // its sites end with it
	common := shared(t)
	t.Parallel()
	behind := start(t, "SECKILL_TRUSTED_PROXIES=127.0.0.0/8")
	for _, s := range []*site{behind, common} {
		s.administrator(t, "who-is-behind")
	}
	for name, test := range map[string]struct {
		site          *site
		header, value string
		secure        bool
	}{
		"a trusted proxy":           {behind, "X-Forwarded-Proto", "https", true},
		"a trusted proxy, RFC 7239": {behind, "Forwarded", `for=192.0.2.1;proto=https`, true},
		"its word is the last":      {behind, "X-Forwarded-Proto", "https, http", false},
		"anybody":                   {common, "X-Forwarded-Proto", "https", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := test.site.browser(t)
			got := b.signIn(t, "who-is-behind", password, test.header, test.value)
			cookie := sessionOf(t, got)
			check.That(t, cookie.Secure == test.secure && cookie.Path == "/" && cookie.Domain == "", "the cookie is %s",
				cookie)
			check.Equal(t, "its name promises TLS", strings.HasPrefix(cookie.Name, "__Host-"), test.secure)
			b.get(t, "/console", "Cookie", cookie.Name+"="+cookie.Value, test.header, test.value).is(t, http.StatusOK)
		})
	}
}

func TestSignInLeadsNowhereElse(t *testing.T) {
	s := shared(t)
	t.Parallel()
	s.administrator(t, "who-is-led")
	for next, to := range map[string]string{
		"/console/vouchers/v1?x=1":         "/console/vouchers/v1?x=1",
		"":                                 "/console",
		"https://evil.example/console":     "/console",
		"//evil.example/console":           "/console",
		`/\evil.example/console`:           "/console",
		"/consoles":                        "/console",
		"/console/../api/v1/docs":          "/console",
		"javascript:alert(1)":              "/console",
		"/console/%0d%0aSet-Cookie:%20a=b": "/console/%0d%0aSet-Cookie:%20a=b",
	} {
		check.Equal(t, next+" leads to", s.browser(t).signInTo(t, next, "who-is-led", password).leads(t), to)
	}
}

func TestAnotherSiteIsRefused(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	id := b.create(t)
	for name, headers := range map[string][]string{
		"another site":          {"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"},
		"another port":          {"Sec-Fetch-Site", "same-site", "Origin", "http://127.0.0.1:1"},
		"an old browser's page": {"Sec-Fetch-Site", "", "Origin", "https://evil.example"},
		"a sandboxed page":      {"Sec-Fetch-Site", "", "Origin", "null"},
	} {
		t.Log(name)
		b.post(t, "/console/vouchers/"+id+"/state", url.Values{"to": {"paused"}}, headers...).is(t,
			http.StatusForbidden, "another site")
		b.signIn(t, "ada", password, headers...).is(t, http.StatusForbidden)
	}
	check.Equal(t, "the state", s.voucher(t, id)["state"], any("published"))
	want(t, b.act(t, "/console/vouchers/"+id+"/state", url.Values{"to": {"paused"}}), "The sale is paused.")
}

// An account in a group may buy what is for it. What is no group is refused beside the field, with what was typed.
func TestGroupsOfAnAccount(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	_, made := s.call(t, http.MethodPost, "/auth/register", "",
		map[string]string{"username": "Grouped.One", "password": password})
	id := fmt.Sprint(made["id"])
	path := "/console/accounts/" + id
	for _, words := range []string{" grouped.one ", id} {
		check.Equal(t, words+" leads to", b.get(t, "/console/accounts?q="+url.QueryEscape(words)).leads(t), path)
	}
	b.get(t, "/console/accounts?q=nobody").is(t, http.StatusNotFound, `value="nobody"`,
		`id="q-wrong" role="alert">Nobody is found by this.`)
	b.get(t, "/console/accounts/unknown").is(t, http.StatusNotFound)
	b.post(t, "/console/accounts/unknown/groups", nil).is(t, http.StatusNotFound)

	status, in := s.call(t, http.MethodPost, "/auth/login", "",
		map[string]string{"username": "grouped.one", "password": password})
	check.Equal(t, "the login", status, http.StatusOK)
	voucher := s.onSale(t, map[string]any{"groups": []string{"gold"}})
	buy := func() any {
		_, heard := s.call(t, http.MethodPost, "/vouchers/"+voucher+"/seckill", fmt.Sprint(in["access_token"]), nil)
		return heard["code"]
	}
	check.Equal(t, "who is in no group hears", buy(), any(string(model.CodeNotEligible)))
	for typed, wrong := range map[string]string{
		"gold\nstaff\ngold":       "must not name a group twice",
		"a\u200bb":                "must not have control or invisible characters",
		strings.Repeat("x", 129):  "must not name a group with more than 128 characters",
		strings.Repeat("\nx", 21): "must name at most 20 groups",
	} {
		b.post(t, path+"/groups", url.Values{"groups": {typed}}).is(t, http.StatusUnprocessableEntity,
			`aria-invalid="true" aria-describedby="groups-wrong groups-hint"`, wrong, strings.TrimPrefix(typed, "\n")+"</textarea>")
	}
	want(t, b.page(t, path), "\n</textarea>") // as before
	saved := b.post(t, path+"/groups", url.Values{"groups": {"gold\r\n staff \r\n\r\n"}})
	check.Equal(t, "saved leads to", saved.leads(t), path)
	want(t, b.page(t, path), "Grouped.One", "gold\nstaff</textarea>", "The groups are saved.",
		"Within a second the account can buy")
	check.Equal(t, "who is in the group hears", buy(), nil)
	want(t, b.page(t, "/console/log"), "changed the groups of an account", `<span class="note">Groups</span>`,
		`href="`+path+`"`)
	seen := s.signedIn(t, "viewer").page(t, path)
	lacks(t, seen, "<textarea")
	want(t, seen, "gold, staff</dd>")
}

// An administrator invites colleagues with a link that sets a password once, says what they may do, and lets nobody in
// any more; not himself. An old link, another's, and one of a disabled account set nothing.
func TestColleagues(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	act := func(name, what, level string) answer {
		return b.post(t, "/console/colleagues", url.Values{"username": {name}, "what": {what}, "level": {level}})
	}
	link := func(got answer) string {
		got.is(t, http.StatusOK, "It sets the password once")
		return regexp.MustCompile(`/console/invite/[^<"]+`).FindString(got.body)
	}
	invited := link(act("till7", "invite", "cashier"))
	act("till7", "invite", "cashier").is(t, http.StatusConflict, "The username is taken.", `value="till7"`)
	stranger := s.browser(t)
	set := func(link, secret string) answer { return stranger.post(t, link, url.Values{"password": {secret}}) }
	want(t, stranger.page(t, invited), `value="till7"`, `autocomplete="new-password"`)
	set(invited, "short").is(t, http.StatusUnprocessableEntity, "A password has 10 to 128 characters.")
	other := strings.Replace(invited, s.account(t, "till7"), s.account(t, "ada"), 1)
	check.That(t, other != invited, "the link names no account: %s", invited)
	for _, wrong := range []string{other, "/console/invite/x", invited + "x"} {
		set(wrong, password).is(t, http.StatusConflict, "The invitation was used, or withdrawn.")
	}
	check.Equal(t, "the password is set", set(invited, password).leads(t), "/console/sign-in")
	set(invited, password+"2").is(t, http.StatusConflict)
	stranger.get(t, invited).is(t, http.StatusConflict)
	check.Equal(t, "till7 signs in", stranger.signIn(t, "till7", password).leads(t), "/console")
	want(t, stranger.page(t, "/console/redeem"), "Use a code")
	stranger.get(t, "/console/colleagues").is(t, http.StatusForbidden)

	act("till7", "level", "operator").leads(t)
	want(t, b.page(t, "/console/log"), "cashier → operator", ">ada</a>")
	again := link(act("till7", "invite", ""))
	s.browser(t).signIn(t, "till7", password).is(t, http.StatusUnauthorized)
	act("till7", "disable", "").leads(t)
	want(t, b.page(t, "/console/colleagues"), `<span class="badge failed">disabled</span>`, "This is you.")
	set(again, password).is(t, http.StatusConflict)
	act("ada", "disable", "").is(t, http.StatusConflict, "Another administrator has to change your account.")
	act("ada", "level", "viewer").is(t, http.StatusConflict)
	want(t, b.page(t, "/console/system"), `href="/console/colleagues"`)
}

// Whatever somebody has of a customer leads to one page, which says what each sale answers, and why. Lists have names.
func TestOneCustomerOnePage(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	_, made := s.call(t, http.MethodPost, "/auth/register", "", map[string]string{"username": "Anna.Li", "password": password})
	anna := fmt.Sprint(made["id"])
	path := "/console/accounts/" + anna
	sale := func(title string, more map[string]any) string {
		return s.onSale(t, map[string]any{"title": title, "cooldown": "20m"}, more)
	}
	paid := s.paid(t, anna, sale("Bought", nil))
	cools := sale("Cools", nil)
	s.buy(t, anna, cools)
	s.call(t, http.MethodPost, "/orders/"+s.orderOf(t, anna, cools)+"/cancel", s.token(t, anna, model.RoleUser), nil)
	elsewhere := sale("Cash", nil)
	s.buy(t, anna, elsewhere)
	b.act(t, "/console/orders/"+s.orderOf(t, anna, elsewhere)+"/paid", url.Values{"reference": {"Till 7/42"}})
	sale("Gold", map[string]any{"groups": []string{"gold"}})
	sale("None", map[string]any{"stock": 0})
	sale("Paused", map[string]any{"state": "paused"})
	sale("Later", map[string]any{"begin_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	sale("Free", nil)
	s.call(t, http.MethodPost, "/vouchers/"+sale("Draw", map[string]any{"allocation": "draw"})+"/seckill", s.token(t, anna, model.RoleUser), nil)
	s.buy(t, "mail@example.com", sale("Other", nil))
	_, order := s.call(t, http.MethodGet, "/orders/"+paid, s.token(t, anna, model.RoleUser), nil)
	unique, _, _ := strings.Cut(paid, ".")
	for _, words := range []string{"anna.li", "nna.l", anna, anna[len(anna)-8:], paid, unique[len(unique)-8:], "Till 7/42", fmt.Sprint(order["code"])} {
		check.Equal(t, words+" leads to", b.get(t, "/console/accounts?q="+url.QueryEscape(words)).leads(t), path)
	}
	check.Equal(t, "a part of mail leads to", b.get(t, "/console/accounts?q=mail%40").leads(t), "/console/accounts/mail@example.com")
	want(t, b.page(t, "/console/accounts/mail@example.com"), "at another identity provider", ">Other</a>")
	page := b.page(t, path)
	for title, answer := range map[string]string{
		"Bought": "ALREADY_ORDERED", "Cools": "COOLING_DOWN", "Gold": "NOT_ELIGIBLE", "None": "SOLD_OUT", "Paused": "PAUSED", "Later": "NOT_STARTED", "Free": "can buy",
		"Draw": "entered the draw",
	} {
		words := check.Value(words.New())(t).All()["en"].Text(answer)
		row := regexp.MustCompile(`(?s)<tr><th scope="row"><a class="clamp"[^>]*>` + title + `<.*?</tr>`).FindString(page)
		check.That(t, strings.Contains(row, ">"+words+"<"), "%s answers %s, want %q", title, row, words)
	}
	want(t, page, "<h1>Anna.Li</h1>", "may not buy it again until <time", "Till 7/42", ">canceled</a>")
	want(t, b.page(t, "/console/orders"), ">Anna.Li</a>", ">mail@example.com</a>")
	want(t, b.page(t, "/console/orders/"+paid), ">Anna.Li</a>")
	want(t, b.get(t, "/console/orders.csv").body, ",Anna.Li,", ",mail@example.com,")
	want(t, b.page(t, "/console/log"), ">ada</a>")
}

// Whatever the page shows, wire.LeastLevel decides, as in the API.
func TestLevelsInTheConsole(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.onSale(t, nil)
	order := s.paid(t, "alice", id)
	_, shown := s.call(t, http.MethodGet, "/orders/"+order, s.token(t, "alice", model.RoleUser), nil)
	code, _ := shown["code"].(string)
	sees := map[model.Level]bool{model.LevelCashier: true, model.LevelOperator: true, model.LevelAdmin: true}
	voucher := "/vouchers/" + id
	acts := map[model.Level][]string{
		model.LevelCashier: {"/redemptions"},
		model.LevelOperator: {
			"/vouchers/new", voucher + "/edit", voucher + "/state", voucher + "/stock", voucher + "/end",
			"/orders/" + order + "/refund", "/orders/" + order + "/cancel", "/accounts/unknown/groups",
		},
		model.LevelAdmin: {voucher + "/repair", voucher + "/rebuild", "/colleagues", "/dead-letters/1/replay", "/dead-letters/1/drop"},
	}
	for _, level := range model.Levels()[:3] {
		b := s.signedIn(t, string(level))
		for _, path := range []string{"", "/vouchers", "/vouchers/" + id, "/orders/" + order, "/vouchers/" + id + "/audit", "/orders", "/refunds", "/system", "/log", "/events", "/accounts", "/accounts/" + s.account(t, string(level))} {
			got := b.get(t, "/console"+path)
			if path == "" && level == model.LevelCashier {
				got = b.get(t, got.leads(t))
			}
			got.is(t, http.StatusOK)
			if _, main, _ := strings.Cut(got.body, "<main"); level == model.LevelViewer {
				lacks(t, main, `method="post"`) // what a viewer cannot do
			}
		}
		page := b.page(t, "/console/orders/"+order)
		check.Equal(t, "a "+string(level)+" sees the code", strings.Contains(page, code), sees[level])
		for _, above := range model.Levels()[slices.Index(model.Levels(), level)+1:] {
			for _, path := range acts[above] {
				b.post(t, "/console"+path, nil).is(t, http.StatusForbidden)
			}
		}
	}
	got := s.signedIn(t, "cashier").post(t, "/console/redemptions", map[string][]string{"code": {code}})
	check.That(t, got.status < http.StatusBadRequest, "a cashier redeems: %d %s", got.status, got.body)
}

func hiddenFields(page, prefix string) url.Values {
	fields := url.Values{}
	for _, found := range regexp.MustCompile(`<input type="hidden" name="`+regexp.QuoteMeta(prefix)+`([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		fields.Set(found[1], html.UnescapeString(found[2]))
	}
	return fields
}

// resume signs in on the page that answers a form, and follows the button back to the form.
func (b *browser) resume(t *testing.T, asked answer, path string) string {
	t.Helper()
	asked.is(t, http.StatusUnauthorized, `role="alert"`, "The session has ended.", "Nothing was changed.")
	for _, secret := range []string{"a wrong password", password} { // a mistyped password does not lose it either
		kept := hiddenFields(asked.body, "")
		kept.Set("username", "ada")
		kept.Set("password", secret)
		asked = b.post(t, "/console/sign-in", kept)
	}
	form := `<form method="post" action="` + path + `">`
	asked.is(t, http.StatusOK, form, "Back to the form")
	lacks(t, asked.body, password)
	_, fields, _ := strings.Cut(asked.body, form)
	back := b.post(t, path, hiddenFields(fields, ""))
	back.is(t, http.StatusOK)
	return back.body
}

// A voucher that was typed in is there again after the sign-in, and is made once. Nothing of it was in a URL.
func TestAFormOutlivesItsSession(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.administrator(t, "ada")
	b := s.browser(t)
	description := "Two lines,\r\n\"quoted\" <b>&amp;</b> 咖啡" + strings.Repeat("茶", 3_900)
	typed := onSale("title", `Tea & "more" <i>`, "description", description, "price", "12.5x", "payment_window", "7",
		"once", "a-key-of-this-form")
	page := b.resume(t, b.post(t, "/console/vouchers/new", typed), "/console/vouchers/new")
	want(t, page, `value="Tea &amp; &#34;more&#34; &lt;i&gt;"`, `value="12.5x"`, `value="7"`, "咖啡茶",
		`value="a-key-of-this-form"`)
	lacks(t, page, `role="alert"`)               // it is judged when it is sent again
	lacks(t, b.page(t, "/console"), "Tea &amp;") // nothing was made on the way
	typed.Set("price", "12.50")
	id := strings.TrimPrefix(b.post(t, "/console/vouchers/new", typed).leads(t), "/console/vouchers/")
	check.Equal(t, "the description", s.voucher(t, id)["description"],
		any(strings.ReplaceAll(description, "\r\n", "\n")))

	away := s.browser(t)
	edit := typed
	edit.Set("title", "Tea for three")
	edit.Set("tag", hidden(t, b.page(t, "/console/vouchers/"+id+"/edit"), "tag"))
	want(t, away.resume(t, away.post(t, "/console/vouchers/"+id+"/edit", edit), "/console/vouchers/"+id+"/edit"),
		"Edit voucher", "Tea for three")

	away = s.browser(t)
	page = away.resume(t, away.post(t, "/console/vouchers/"+id+"/stock", url.Values{"delta": {"+17"}}),
		"/console/vouchers/"+id+"/stock")
	want(t, page, `<dialog id="stock" aria-labelledby="stock-title" data-open>`, `value="&#43;17"`)
	away = s.browser(t)
	end := time.Now().Add(5 * time.Hour).UTC().Format("2006-01-02T15:04:05")
	page = away.resume(t, away.post(t, "/console/vouchers/"+id+"/end", url.Values{"end_at": {end}, "zone": {"UTC"}}),
		"/console/vouchers/"+id+"/end")
	want(t, page, `<dialog id="end" aria-labelledby="end-title" data-open>`, `value="`+end+`"`)
	lacks(t, page, "aria-invalid")
	now := s.voucher(t, id)
	check.Equal(t, "what was changed on the way", fmt.Sprint(now["title"], now["stock"]), `Tea & "more" <i>10`)
}

func TestALateButtonSaysSo(t *testing.T) {
	s := shared(t)
	t.Parallel()
	ada := s.signedIn(t, "ada")
	path := "/console/vouchers/" + ada.create(t)
	late := s.browser(t)
	for referer, next := range map[string]string{s.url: "next=" + url.QueryEscape(path), "https://evil.example": ""} {
		to := late.post(t, path+"/state", url.Values{"to": {"paused"}}, "Referer", referer+path).leads(t)
		check.Equal(t, "from "+referer, to, "/console/sign-in?"+next)
		want(t, late.page(t, to), "The session had ended. Nothing was changed.")
	}
}
