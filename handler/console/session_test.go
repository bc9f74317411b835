package console_test

import (
	"net/http"
	"net/url"
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
