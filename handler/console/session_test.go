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

	"seckill/internal/workshop/check"
	"seckill/model"
)

// sessionOf is the cookie that an answer sets.
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
	got := b.get(t, "/console/vouchers/new")
	if to := got.header.Get("Location"); got.status != http.StatusSeeOther || to != "/console/sign-in?next=%2Fconsole%2Fvouchers%2Fnew" {
		t.Errorf("a stranger gets %d to %q", got.status, to)
	}
	want(t, b.page(t, got.header.Get("Location")), `name="next" value="/console/vouchers/new"`)

	got = b.signInTo(t, "/console", "ada", "wrong password")
	if got.status != http.StatusUnauthorized || len(got.header.Values("Set-Cookie")) != 0 {
		t.Errorf("a wrong password is %d, cookies %q", got.status, got.header.Values("Set-Cookie"))
	}
	want(t, got.body, "The username or the password is wrong.", `value="ada"`)
	if strings.Contains(got.body, "wrong password\"") {
		t.Error("the page repeats the password")
	}

	got = b.signInTo(t, "/console/vouchers/new", "ada", password, "Cookie", "seckill-console=chosen-by-somebody-else")
	cookie := sessionOf(t, got)
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.MaxAge != 1800 || cookie.Secure {
		t.Errorf("the session's cookie is %s", cookie)
	}
	if cookie.Value == "chosen-by-somebody-else" {
		t.Error("the session from before the login goes on")
	}
	if to := got.header.Get("Location"); to != "/console/vouchers/new" || strings.Contains(to, cookie.Value) {
		t.Errorf("it leads to %q", to)
	}
	want(t, b.page(t, "/console/vouchers/new"), "ada")
	b.get(t, "/console/sign-in").is(t, http.StatusSeeOther)
}

// Neither an account that is no administrator's nor a token that is of no account opens the console.
func TestPagesAskToSignIn(t *testing.T) {
	t.Parallel()
	s := start(t)
	status, document := s.call(t, http.MethodPost, "/auth/register", "", map[string]string{"username": "bob", "password": password})
	if status != http.StatusCreated {
		t.Fatalf("register: %d %v", status, document)
	}
	b := s.browser(t)
	got := b.signIn(t, "bob", password)
	if got.status != http.StatusForbidden || len(got.header.Values("Set-Cookie")) != 0 {
		t.Errorf("a buyer signs in: %d", got.status)
	}
	want(t, got.body, "This account is not an administrator")
	for _, session := range []string{
		"", "seckill-console=", "seckill-console=nonsense", "seckill-console=" + s.token(t, "admin", model.RoleAdmin), "seckill-console=" + s.token(t, "bob", model.RoleUser),
	} {
		for _, path := range []string{
			"/console", "/console/vouchers/new", "/console/vouchers/v1", "/console/vouchers/v1/edit", "/console/vouchers/v1/events",
			"/console/vouchers/v1/audit", "/console/orders.csv", "/console/orders", "/console/orders/o1.v1", "/console/dead-letters",
			"/console/dead-letters/1", "/console/system", "/console/log", "/console/refunds", "/console/accounts", "/console/accounts/a1",
		} {
			if got := b.get(t, path, "Cookie", session); got.status != http.StatusSeeOther || !strings.HasPrefix(got.header.Get("Location"), "/console/sign-in") {
				t.Errorf("GET %s with %q: %d", path, session, got.status)
			}
		}
		for _, path := range []string{
			"/console/sign-out", "/console/vouchers/v1/state", "/console/vouchers/v1/repair", "/console/vouchers/v1/rebuild",
			"/console/orders/o1.v1/cancel", "/console/orders/o1.v1/refund",
			"/console/redemptions", "/console/dead-letters/1/replay", "/console/dead-letters/1/drop",
		} {
			if got := b.post(t, path, onSale(), "Cookie", session); got.status != http.StatusSeeOther || !strings.HasPrefix(got.header.Get("Location"), "/console/sign-in") || !strings.Contains(got.header.Get("Set-Cookie"), "seckill-done=ended;") {
				t.Errorf("POST %s with %q: %d to %q", path, session, got.status, got.header.Get("Location"))
			}
		}
		for _, path := range []string{"/console/vouchers/new", "/console/vouchers/v1/edit", "/console/vouchers/v1/stock", "/console/vouchers/v1/end", "/console/accounts/a1/groups"} {
			if got := b.post(t, path, onSale(), "Cookie", session); got.status != http.StatusUnauthorized || !strings.Contains(got.body, `action="/console/sign-in"`) {
				t.Errorf("POST %s with %q: %d", path, session, got.status)
			}
		}
	}
	_, list := s.call(t, http.MethodGet, "/admin/vouchers", s.token(t, "admin", model.RoleAdmin), nil)
	if items, ok := list["items"].([]any); !ok || len(items) != 0 {
		t.Errorf("strangers made vouchers: %v", list)
	}
}

// The console signs in as the API does, in the name of the address, and says so when that is sent away.
func TestSignInIsThrottled(t *testing.T) {
	t.Parallel()
	throttled := &shop{err: &model.Error{Code: model.CodeRateLimited, Detail: "Too many failed logins.", RetryAfter: time.Minute}}
	got := throttled.browser(t).signIn(t, "ada", "a wrong password")
	if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "60" || throttled.from != "127.0.0.1" {
		t.Errorf("a login of %s is %d: %v", throttled.from, got.status, got.header)
	}
	want(t, got.body, "Too many failed logins", `value="ada"`)
}

func TestSignOutEndsTheSessionEverywhere(t *testing.T) {
	s := shared(t)
	t.Parallel()
	s.administrator(t, "who-signs-out")
	b := s.browser(t)
	copied := sessionOf(t, b.signIn(t, "who-signs-out", password))
	thief := s.browser(t)
	stolen := []string{"Cookie", copied.Name + "=" + copied.Value}
	if got := thief.get(t, "/console", stolen...); got.status != http.StatusOK {
		t.Fatalf("the copy is no session before: %d", got.status)
	}
	got := b.post(t, "/console/sign-out", nil)
	if cookie := sessionOf(t, got); cookie.MaxAge >= 0 || cookie.Value != "" {
		t.Errorf("the cookie stays: %s", cookie)
	}
	want(t, b.page(t, got.header.Get("Location")), "You have signed out.")
	thief.get(t, "/console", stolen...).is(t, http.StatusSeeOther)
	if status, _ := s.call(t, http.MethodGet, "/admin/vouchers", copied.Value, nil); status != http.StatusUnauthorized {
		t.Errorf("the token still opens the API: %d", status)
	}
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
			if cookie.Secure != test.secure || strings.HasPrefix(cookie.Name, "__Host-") != test.secure || cookie.Path != "/" || cookie.Domain != "" {
				t.Errorf("the cookie is %s", cookie)
			}
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
		got := s.browser(t).signInTo(t, next, "who-is-led", password)
		if got.header.Get("Location") != to {
			t.Errorf("%q leads to %q", next, got.header.Get("Location"))
		}
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
		got := b.post(t, "/console/vouchers/"+id+"/state", url.Values{"to": {"paused"}}, headers...)
		check.Equal(t, name, got.status, http.StatusForbidden)
		want(t, got.body, "another site")
		b.signIn(t, "ada", password, headers...).is(t, http.StatusForbidden)
	}
	if state := s.voucher(t, id)["state"]; state != "published" {
		t.Errorf("the voucher is %v", state)
	}
	want(t, b.act(t, "/console/vouchers/"+id+"/state", url.Values{"to": {"paused"}}), "The sale is paused.")
}

// TestGroupsOfAnAccount: an administrator finds an account by its name or id, sees its groups and changes them, and it
// may buy what is for them. What is no group is refused beside the field, with what was typed.
func TestGroupsOfAnAccount(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	_, made := s.call(t, http.MethodPost, "/auth/register", "", map[string]string{"username": "Grouped.One", "password": password})
	id := fmt.Sprint(made["id"])
	path := "/console/accounts/" + id
	for _, words := range []string{" grouped.one ", id} {
		got := b.get(t, "/console/accounts?q="+url.QueryEscape(words))
		check.Equal(t, words+" leads to", got.header.Get("Location"), path)
	}
	unknown := b.get(t, "/console/accounts?q=nobody")
	unknown.is(t, http.StatusNotFound)
	want(t, unknown.body, `value="nobody"`, `id="q-wrong" role="alert">There is no such account.`)
	b.get(t, "/console/accounts/unknown").is(t, http.StatusNotFound)
	b.post(t, "/console/accounts/unknown/groups", nil).is(t, http.StatusNotFound)

	status, in := s.call(t, http.MethodPost, "/auth/login", "", map[string]string{"username": "grouped.one", "password": password})
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
		got := b.post(t, path+"/groups", url.Values{"groups": {typed}})
		got.is(t, http.StatusUnprocessableEntity)
		want(t, got.body, `aria-invalid="true" aria-describedby="groups-wrong groups-hint"`, wrong, strings.TrimPrefix(typed, "\n")+"</textarea>")
	}
	want(t, b.page(t, path), "\n</textarea>") // as before
	got := b.post(t, path+"/groups", url.Values{"groups": {"gold\r\n staff \r\n\r\n"}})
	check.Equal(t, "saved leads to", got.header.Get("Location"), path)
	want(t, b.page(t, path), "Grouped.One", "gold\nstaff</textarea>", "The groups are saved.", "Within a second the account can buy")
	check.Equal(t, "who is in the group hears", buy(), nil)
	want(t, b.page(t, "/console/log"), "changed the groups of an account", `<span class="note">Groups</span>`, `href="`+path+`"`)
	if page := s.signedIn(t, "viewer").page(t, path); strings.Contains(page, "<textarea") || !strings.Contains(page, "gold\nstaff</dd>") {
		t.Errorf("a viewer sees %s", page)
	}
}

// TestLevelsInTheConsole: what an administrator's level does not include is refused, whatever the page shows. Levels
// are by wire.LeastLevel, as those of the API.
func TestLevelsInTheConsole(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.onSale(t, nil)
	order := s.paid(t, "alice", id)
	_, shown := s.call(t, http.MethodGet, "/orders/"+order, s.token(t, "alice", model.RoleUser), nil)
	code, _ := shown["code"].(string)
	sees := map[model.Level]bool{model.LevelCashier: true, model.LevelOperator: true, model.LevelAdmin: true}
	acts := []struct {
		path  string
		least model.Level
	}{
		{"/redemptions", model.LevelCashier},
		{"/vouchers/new", model.LevelOperator},
		{"/vouchers/" + id + "/edit", model.LevelOperator},
		{"/vouchers/" + id + "/state", model.LevelOperator},
		{"/vouchers/" + id + "/stock", model.LevelOperator},
		{"/vouchers/" + id + "/end", model.LevelOperator},
		{"/orders/" + order + "/refund", model.LevelOperator},
		{"/orders/" + order + "/cancel", model.LevelOperator},
		{"/accounts/unknown/groups", model.LevelOperator},
		{"/vouchers/" + id + "/repair", model.LevelAdmin},
		{"/vouchers/" + id + "/rebuild", model.LevelAdmin},
		{"/dead-letters/1/replay", model.LevelAdmin},
		{"/dead-letters/1/drop", model.LevelAdmin},
	}
	for _, level := range model.Levels()[:3] {
		b := s.signedIn(t, string(level))
		for _, path := range []string{"", "/vouchers", "/vouchers/" + id, "/orders/" + order, "/vouchers/" + id + "/audit", "/orders", "/refunds", "/system", "/log", "/accounts", "/accounts/" + s.account(t, string(level))} {
			got := b.get(t, "/console"+path)
			got.is(t, http.StatusOK)
			if _, main, _ := strings.Cut(got.body, "<main"); level == model.LevelViewer && strings.Contains(main, `method="post"`) {
				t.Errorf("a viewer sees what cannot be done on %q: %s", path, main)
			}
		}
		page := b.page(t, "/console/orders/"+order)
		check.Equal(t, "a "+string(level)+" sees the code", strings.Contains(page, code), sees[level])
		for _, act := range acts {
			enough := slices.Index(model.Levels(), level) >= slices.Index(model.Levels(), act.least)
			if enough {
				continue
			}
			b.post(t, "/console"+act.path, nil).is(t, http.StatusForbidden)
		}
	}
	got := s.signedIn(t, "cashier").post(t, "/console/redemptions", map[string][]string{"code": {code}})
	check.That(t, got.status < http.StatusBadRequest, "a cashier redeems: %d %s", got.status, got.body)
}

// hiddenFields are those of a page's form that begin with a prefix, without it.
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
	if asked.status != http.StatusUnauthorized || asked.header.Get("Location") != "" {
		t.Fatalf("a form without a session is %d", asked.status)
	}
	want(t, asked.body, `role="alert"`, "The session has ended.", "Nothing was changed.")
	kept := hiddenFields(asked.body, "")
	kept.Set("username", "ada")
	kept.Set("password", "a wrong password")
	wrong := b.post(t, "/console/sign-in", kept)
	if wrong.status != http.StatusUnauthorized {
		t.Fatalf("a wrong password is %d", wrong.status)
	}
	kept = hiddenFields(wrong.body, "") // a mistyped password does not lose it either
	kept.Set("username", "ada")
	kept.Set("password", password)
	in := b.post(t, "/console/sign-in", kept)
	if in.status != http.StatusOK || strings.Contains(in.body, password) {
		t.Fatalf("signing in: %d %s", in.status, in.body)
	}
	want(t, in.body, `<form method="post" action="`+path+`">`, "Back to the form")
	_, form, _ := strings.Cut(in.body, `<form method="post" action="`+path+`">`)
	back := b.post(t, path, hiddenFields(form, ""))
	if back.status != http.StatusOK {
		t.Fatalf("back to the form: %d %s", back.status, back.body)
	}
	return back.body
}

// A voucher that was typed in while the session ended is there again after the sign-in, and
// is made once, when the form is sent again. Nothing of it was in a URL, or made before.
func TestAFormOutlivesItsSession(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.administrator(t, "ada")
	b := s.browser(t)
	description := "Two lines,\r\n\"quoted\" <b>&amp;</b> 咖啡" + strings.Repeat("茶", 3_900)
	typed := onSale("title", `Tea & "more" <i>`, "description", description, "price", "12.5x", "payment_window", "7", "once", "a-key-of-this-form")
	page := b.resume(t, b.post(t, "/console/vouchers/new", typed), "/console/vouchers/new")
	want(t, page, `value="Tea &amp; &#34;more&#34; &lt;i&gt;"`, `value="12.5x"`, `value="7"`, "咖啡茶", `value="a-key-of-this-form"`)
	if strings.Contains(page, `role="alert"`) {
		t.Error("the form was judged before it was sent again")
	}
	if list := b.page(t, "/console"); strings.Contains(list, "Tea &amp;") {
		t.Error("a voucher was made on the way")
	}
	typed.Set("price", "12.50")
	got := b.post(t, "/console/vouchers/new", typed)
	id, ok := strings.CutPrefix(got.header.Get("Location"), "/console/vouchers/")
	id, _, _ = strings.Cut(id, "?")
	if !ok {
		t.Fatalf("create: %d %s", got.status, got.body)
	}
	if made := s.voucher(t, id); made["description"] != strings.ReplaceAll(description, "\r\n", "\n") {
		t.Errorf("it was made of something else: %q", made["description"])
	}

	away := s.browser(t)
	edit := typed
	edit.Set("title", "Tea for three")
	edit.Set("tag", hidden(t, b.page(t, "/console/vouchers/"+id+"/edit"), "tag"))
	want(t, away.resume(t, away.post(t, "/console/vouchers/"+id+"/edit", edit), "/console/vouchers/"+id+"/edit"), "Edit voucher", "Tea for three")

	away = s.browser(t)
	page = away.resume(t, away.post(t, "/console/vouchers/"+id+"/stock", url.Values{"delta": {"+17"}}), "/console/vouchers/"+id+"/stock")
	want(t, page, `<dialog id="stock" aria-labelledby="stock-title" data-open>`, `value="&#43;17"`)
	away = s.browser(t)
	end := time.Now().Add(5 * time.Hour).UTC().Format("2006-01-02T15:04:05")
	page = away.resume(t, away.post(t, "/console/vouchers/"+id+"/end", url.Values{"end_at": {end}, "zone": {"UTC"}}), "/console/vouchers/"+id+"/end")
	want(t, page, `<dialog id="end" aria-labelledby="end-title" data-open>`, `value="`+end+`"`)
	if strings.Contains(page, "aria-invalid") {
		t.Error("what was not judged is called wrong")
	}
	if now := s.voucher(t, id); now["title"] != `Tea & "more" <i>` || now["stock"] != 10.0 {
		t.Errorf("something was changed on the way: %v", now)
	}
}

// A button that was pressed too late leads back to its page, and says that nothing was done.
func TestALateButtonSaysSo(t *testing.T) {
	s := shared(t)
	t.Parallel()
	ada := s.signedIn(t, "ada")
	path := "/console/vouchers/" + ada.create(t)
	late := s.browser(t)
	for referer, next := range map[string]string{
		s.url + path:                  url.QueryEscape(path),
		"https://evil.example" + path: "",
	} {
		got := late.post(t, path+"/state", url.Values{"to": {"paused"}}, "Referer", referer)
		to := got.header.Get("Location")
		if got.status != http.StatusSeeOther || !strings.HasPrefix(to, "/console/sign-in") || strings.Contains(to, "next="+url.QueryEscape(path)) != (next != "") {
			t.Errorf("from %s: %d to %q", referer, got.status, to)
		}
		want(t, late.page(t, to), "The session had ended. Nothing was changed.")
	}
}
