package handler_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"seckill/handler"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service"
)

// unread is a body that fails the test when it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was asked for")
	return 0, io.EOF
}

// TestTokenBeforeBody: a stranger's body is not even asked for.
func TestTokenBeforeBody(t *testing.T) {
	t.Parallel()
	s := setup(t)
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	t.Cleanup(client.CloseIdleConnections)
	for _, call := range []struct {
		role   model.Role
		status int
		code   model.Code
	}{{"", 401, model.CodeUnauthenticated}, {model.RoleUser, 403, model.CodeForbidden}} {
		request := s.request(t, t.Context(), http.MethodPost, "/api/v1/admin/vouchers", unread{t}, "Expect", "100-continue", "Content-Type", "")
		if call.role != "" {
			request.Header.Set("Authorization", "Bearer "+s.token(t, "u", call.role))
		}
		response, err := client.Do(request)
		check.Must(t, err)
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		wantProblem(t, answer{response.StatusCode, response.Header, string(body), request.URL.Path}, call.status, call.code)
	}
}

func TestAuthorizationHeader(t *testing.T) {
	t.Parallel()
	s := setup(t)
	good := s.token(t, "u", model.RoleUser)
	other := check.Value(token.New([]token.Key{{ID: "2", Secret: secret}}, "seckill", "seckill"))(t)
	unknownKey := check.Value(other.Issue(token.Claims{Subject: "u", Role: model.RoleUser}, time.Hour))(t)
	const invalid = `Bearer error="invalid_token", error_description="`
	for value, challenge := range map[string]string{
		"": "Bearer", "Basic " + good: "Bearer", good: "Bearer",
		"Bearer": invalid, "Bearer ": invalid, "bearer x": invalid, "Bearer " + good + "x": invalid,
		"Bearer " + unknownKey: invalid, "Bearer " + good + " " + good: invalid,
	} {
		got := s.do(t, http.MethodGet, "/api/v1/auth/me", "", "Authorization", value)
		wantProblem(t, got, http.StatusUnauthorized, model.CodeUnauthenticated)
		if told := got.header.Values("WWW-Authenticate"); len(told) != 1 || !strings.HasPrefix(told[0], challenge) || (challenge == "Bearer") != (told[0] == challenge) {
			t.Errorf("%q: WWW-Authenticate = %q", value, told)
		}
	}
	twice := s.request(t, t.Context(), http.MethodGet, "/api/v1/auth/me", nil)
	twice.Header["Authorization"] = []string{"Bearer " + good, "Bearer " + good}
	response, err := http.DefaultTransport.RoundTrip(twice)
	check.Must(t, err)
	response.Body.Close()
	if told := response.Header.Get("WWW-Authenticate"); response.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(told, invalid) {
		t.Errorf("two tokens: %d, WWW-Authenticate = %q", response.StatusCode, told)
	}
	got := s.do(t, http.MethodPost, "/api/v1/admin/vouchers", "{}", s.as(t, "u", model.RoleUser)...)
	wantProblem(t, got, http.StatusForbidden, model.CodeForbidden)
	if told := got.header.Get("WWW-Authenticate"); told != `Bearer error="insufficient_scope"` {
		t.Errorf("a user as an administrator: WWW-Authenticate = %q", told)
	}
	for _, value := range []string{"Bearer " + good, "bearer " + good, "Bearer  " + good} {
		got := s.do(t, http.MethodGet, "/api/v1/auth/me", "", "Authorization", value)
		if want := `{"id":"u","username":"name-of-u","role":"user"}` + "\n"; got.status != http.StatusOK || got.body != want {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
}

// TestBadTokenTakesNothingAway from what strangers may see.
func TestBadTokenTakesNothingAway(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var admins []bool
	s.fakes.getVoucher = func(_ context.Context, id string, admin bool) (model.Voucher, error) {
		admins = append(admins, admin)
		return voucher(id), nil
	}
	for _, value := range []string{"", "Bearer nonsense", "Bearer " + s.token(t, "u", model.RoleUser), "Bearer " + s.token(t, "a", model.RoleAdmin)} {
		s.do(t, http.MethodGet, "/api/v1/vouchers/v1", "", "Authorization", value).is(t, http.StatusOK)
	}
	if len(admins) != 4 || admins[0] || admins[1] || admins[2] || !admins[3] {
		t.Errorf("who is an administrator: %v", admins)
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.place = func(context.Context, string, string) (model.Order, error) { panic("boom") }
	for _, call := range []struct{ method, path, body string }{
		{"GET", "/livez", ""},
		{"GET", "/api/v1/vouchers", ""},
		{"GET", "/nowhere", ""},
		{"PUT", "/api/v1/vouchers", ""},
		{"OPTIONS", "/api/v1/vouchers", ""},
		{"HEAD", "/api/v1/vouchers", ""},
		{"GET", "/api/v1/orders", ""},
		{"POST", "/api/v1/auth/login", strings.Repeat("x", 20<<10)},
		{"POST", seckill, ""},
		{"GET", "/api/v1/docs", ""},
	} {
		headers := s.as(t, "u", model.RoleUser)
		if call.path == "/api/v1/orders" {
			headers = nil
		}
		with := func(id string) string {
			return s.do(t, call.method, call.path, call.body, append([]string{"X-Request-Id", id}, headers...)...).header.Get("X-Request-Id")
		}
		for _, id := range []string{"a", "Az09._-", strings.Repeat("x", 128)} {
			if got := with(id); got != id {
				t.Errorf("%s %s: %q became %q", call.method, call.path, id, got)
			}
		}
		seen := map[string]bool{}
		for _, id := range []string{"", "a b", "a:b", "ä", strings.Repeat("x", 129), `"`} {
			got := with(id)
			if got == id || got == "" || seen[got] {
				t.Errorf("%s %s: %q became %q", call.method, call.path, id, got)
			}
			seen[got] = true
		}
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.place = func(context.Context, string, string) (model.Order, error) { panic("the vault's number is 1234") }
	s.fakes.login = func(context.Context, string, string) (service.Session, error) {
		panic(errors.New("the vault's number is 1234"))
	}
	s.fakes.listOrders = func(context.Context, model.OrderQuery) (model.OrderPage, error) { panic("the vault's number is 1234") }
	for _, call := range []struct{ method, path, body string }{
		{"POST", seckill, ""},
		{"POST", "/api/v1/auth/login", `{"username":"u","password":"p"}`},
		{"GET", "/api/v1/orders", ""}, // whose answer would be compressed
	} {
		got := s.do(t, call.method, call.path, call.body,
			append(s.as(t, "u", model.RoleUser), "X-Request-Id", "find-me-"+strconv.Itoa(len(call.path)))...)
		wantProblem(t, got, http.StatusInternalServerError, model.CodeInternal)
		if strings.Contains(got.body, "1234") || strings.Contains(got.body, ".go") {
			t.Errorf("internals in %s", got.body)
		}
		log := s.log.String()
		for _, want := range []string{"find-me-" + strconv.Itoa(len(call.path)), "1234", "route_test.go"} {
			if !strings.Contains(log, want) {
				t.Errorf("%q is not in the log", want)
			}
		}
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, path := range []string{"/", "/api/v1", "/api/v1/", "/api/v2/vouchers", "/api/v2/vouchers/", "//evil.example/", "/API/v1/vouchers", "//api/v1/vouchers", "/metrics", "/debug/pprof/", "/openapi.json", "/docs", "/schemas/Order.json", "/api/v1/orders/x.v1/payments", "/api/v1/admin/sales"} {
		wantProblem(t, s.do(t, http.MethodGet, path, ""), http.StatusNotFound, model.CodeNotFound)
	}
	for _, call := range []struct{ method, path, allow string }{
		{"GET", seckill, "POST"},
		{"HEAD", "/api/v1/auth/login", "POST"},
		{"DELETE", "/api/v1/vouchers", "GET, HEAD"},
		{"PUT", "/api/v1/admin/vouchers/v1", "GET, HEAD, PATCH"},
		{"BREW", "/api/v1/orders", "GET, HEAD"},
		{"POST", "/livez", "GET, HEAD"},
		{"POST", "/api/v1/openapi.json", "GET, HEAD"},
	} {
		got := s.do(t, call.method, call.path, "")
		if call.method != http.MethodHead {
			wantProblem(t, got, http.StatusMethodNotAllowed, model.CodeMethodNotAllowed)
		}
		if got.status != http.StatusMethodNotAllowed || !sameMethods(got.header.Get("Allow"), call.allow) {
			t.Errorf("%s %s: %d, Allow: %s", call.method, call.path, got.status, got.header.Get("Allow"))
		}
		options := s.do(t, http.MethodOptions, call.path, "")
		if options.status != http.StatusNoContent || !sameMethods(options.header.Get("Allow"), call.allow) || options.body != "" {
			t.Errorf("OPTIONS %s: %d %v", call.path, options.status, options.header)
		}
	}
	// The target of a request may be * instead of a path. No route is there.
	for _, method := range []string{http.MethodOptions, http.MethodGet, http.MethodPost, "BREW"} {
		wantProblem(t, record(t, s.handler, method, "*"), http.StatusNotFound, model.CodeNotFound)
	}
	if log := s.log.String(); strings.Contains(log, "panic") {
		t.Error(log)
	}
}

// TestTrailingSlash: clients that join paths with a slash behind are led to the path, whatever they
// send; nobody is led to another server.
func TestTrailingSlash(t *testing.T) {
	t.Parallel()
	s := setup(t, forPages)
	doc, _ := readDocument(t, s)
	for template, methods := range doc.Paths {
		path := concrete(template)
		if template == "/api/v1/docs" {
			continue // is a page with files below
		}
		for method := range methods {
			for query, slashes := range map[string]string{"": "/", "?limit=1&cursor=a%2Fb": "/", "?x": "//"} {
				got := s.do(t, strings.ToUpper(method), path+slashes+query, "")
				if got.status != http.StatusPermanentRedirect || got.header.Get("Location") != path+query {
					t.Errorf("%s %s%s%s: %d, Location: %q", method, path, slashes, query, got.status, got.header.Get("Location"))
				}
			}
		}
		got := s.preflight(t, path+"/", page, "POST", "authorization")
		if got.status != http.StatusNoContent || got.header.Get("Access-Control-Allow-Origin") != page {
			t.Errorf("a preflight of %s/: %d %v", path, got.status, got.header)
		}
	}
	// A client that follows sends the body again.
	s.fakes.login = func(context.Context, string, string) (service.Session, error) {
		return service.Session{AccessToken: "abc"}, nil
	}
	request := s.request(t, t.Context(), http.MethodPost, "/api/v1/auth/login/", strings.NewReader(`{"username":"u","password":"p"}`))
	response, err := (&http.Client{Transport: s.transport}).Do(request)
	check.Must(t, err)
	response.Body.Close()
	check.Equal(t, "a login with a slash behind", response.StatusCode, http.StatusOK)
}

// concrete fills the braces of a path: orders and vouchers may have these ids.
func concrete(template string) string {
	return strings.NewReplacer("/orders/{id}", "/orders/o1.v1", "{id}", "v1", "{code}", "sold-out").Replace(template)
}

func sameMethods(got, want string) bool {
	seen := map[string]bool{}
	for method := range strings.SplitSeq(got, ", ") {
		seen[method] = true
	}
	methods := strings.Split(want, ", ")
	for _, method := range methods {
		if !seen[method] {
			return false
		}
	}
	return len(seen) == len(methods)
}

// An escaped slash is a part of an id, which then cannot exist (RFC 3986, 2.2): it does not
// lead to another route, behind the back of a proxy that guards that one.
func TestAnEscapedSlashDividesNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.place = func(context.Context, string, string) (model.Order, error) {
		t.Error("something was bought")
		return model.Order{}, nil
	}
	s.fakes.cancel = func(context.Context, string, string) (model.Order, error) {
		t.Error("something was canceled")
		return model.Order{}, nil
	}
	headers := s.as(t, "u", model.RoleUser)
	for _, path := range []string{"/api/v1/vouchers/v1%2Fseckill", "/api/v1/vouchers/v1%2fseckill", "/api/v1/orders/o1.v1%2Fcancel", "/api/v1%2Fvouchers"} {
		wantProblem(t, s.do(t, http.MethodGet, path, "", headers...), http.StatusNotFound, model.CodeNotFound)
		if got := s.do(t, http.MethodPost, path, "", headers...); got.status != http.StatusNotFound && got.status != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d %s", path, got.status, got.body)
		}
	}
	if got := s.do(t, http.MethodGet, "/api/v1/vouchers/%76%31", ""); got.status != http.StatusOK || !strings.Contains(got.body, `"id":"v1"`) {
		t.Errorf("an id that is escaped for nothing: %d %s", got.status, got.body)
	}
}

func TestHead(t *testing.T) {
	t.Parallel()
	s := setup(t)
	// The client would ask for gzip with GET alone.
	headers := append(s.as(t, "a", model.RoleAdmin), "Accept-Encoding", "identity")
	s.fakes.each = func(_ context.Context, q model.OrderQuery, row func(model.Order) error) error {
		rows := map[string]int{"none": 0, "v1": 1, "many": 2000}[q.VoucherID]
		for range rows {
			if err := row(model.Order{ID: "o1.v1"}); err != nil {
				return err
			}
		}
		return nil
	}
	orders := func(id string) string { return "/api/v1/admin/vouchers/" + id + "/orders" }
	for _, path := range []string{
		"/livez", "/readyz", "/api/v1/vouchers", "/api/v1/vouchers/v1", "/api/v1/vouchers?limit=x", "/api/v1/orders", "/api/v1/auth/me", "/api/v1/docs", "/api/v1/openapi.json",
		"/api/v1/admin/vouchers/v1/audit", orders("v1"), orders("none") + "?format=csv", orders("v1") + "?format=csv", orders("many") + "?format=csv", orders("v1") + "?format=xlsx",
	} {
		get, head := s.do(t, http.MethodGet, path, "", headers...), s.do(t, http.MethodHead, path, "", headers...)
		for _, changes := range []string{"Date", "X-Request-Id"} {
			get.header.Del(changes)
			head.header.Del(changes)
		}
		if head.status != get.status || head.body != "" || !maps.EqualFunc(head.header, get.header, slices.Equal) {
			t.Errorf("%s: %d %v %q, and GET %v", path, head.status, head.header, head.body, get.header)
		}
		if length := head.header.Get("Content-Length"); strings.Contains(path, "format") && length != "" || length != "" && length != strconv.Itoa(len(get.body)) {
			t.Errorf("%s: length %s of %d", path, length, len(get.body))
		}
	}
}

// TestUnauthenticatedSaysWhat: who has a token of its issuer is told which claim is wrong, and whoever's key was not
// looked for yet comes again.
func TestUnauthenticatedSaysWhat(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	check.Must(t, os.WriteFile(keys, []byte(`{"keys":[]}`), 0o600))
	s := setup(t, func(o *handler.Options) {
		o.Tokens = check.Value(token.New([]token.Key{{ID: "1", Secret: secret}}, "seckill", "seckill",
			token.Trust(slog.New(slog.DiscardHandler), token.Issuer{Name: "shop", Keys: keys})))(t)
	})
	sign := func(kid, secret string, claims jwt.MapClaims) string {
		unsigned := jwt.NewWithClaims(jwt.SigningMethodHS256, claims)
		unsigned.Header["kid"] = kid
		return "Bearer " + check.Value(unsigned.SignedString([]byte(secret)))(t)
	}
	old := jwt.MapClaims{"sub": "u", "role": "user", "iss": "seckill", "aud": "seckill", "exp": 1}
	const general = "A valid bearer token is needed."
	for value, detail := range map[string]string{
		sign("1", secret, old): "The token is not accepted: its exp has passed.", sign("1", secret+"x", old): general, "Bearer x": general, "": general,
	} {
		got := wantProblem(t, s.do(t, http.MethodGet, "/api/v1/auth/me", "", "Authorization", value), http.StatusUnauthorized, model.CodeUnauthenticated)
		check.Equal(t, "the detail", got.Detail, detail)
	}
	foreign := jwt.MapClaims{"sub": "u", "iss": "shop", "aud": "seckill", "exp": time.Now().Add(time.Hour).Unix()}
	s.do(t, http.MethodGet, "/api/v1/auth/me", "", "Authorization", sign("k", secret, foreign)).is(t, http.StatusUnauthorized) // its keys were read, just now
	later := s.do(t, http.MethodGet, "/api/v1/auth/me", "", "Authorization", sign("l", secret, foreign))
	wantProblem(t, later, http.StatusServiceUnavailable, model.CodeUnavailable)
	if seconds := check.Value(strconv.Atoi(later.header.Get("Retry-After")))(t); seconds < 1 || seconds > 15 {
		t.Errorf("Retry-After: %d", seconds)
	}
}

// pageOf answers every list with so many orders.
func pageOf(count int) func(context.Context, model.OrderQuery) (model.OrderPage, error) {
	return func(context.Context, model.OrderQuery) (model.OrderPage, error) {
		page := model.OrderPage{}
		for i := range count {
			page.Items = append(page.Items, model.Order{ID: "o" + strconv.Itoa(i) + ".v1", VoucherID: "v1", UserID: "u", Status: model.OrderPaid})
		}
		return page, nil
	}
}

func inflate(t *testing.T, body string) string {
	t.Helper()
	reader := check.Value(gzip.NewReader(strings.NewReader(body)))(t)
	plain := check.Value(io.ReadAll(reader))(t)
	return string(plain)
}

func TestLargeAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.listOrders = pageOf(100)
	admin := s.as(t, "a", model.RoleAdmin)
	for _, path := range []string{"/api/v1/orders", "/api/v1/admin/vouchers/v1/orders", "/api/v1/openapi.json"} {
		plain := s.do(t, http.MethodGet, path, "", append(admin, "Accept-Encoding", "identity")...)
		if plain.status != http.StatusOK || len(plain.body) < 10_000 || plain.header.Get("Content-Encoding") != "" || !json.Valid([]byte(plain.body)) {
			t.Fatalf("%s: %d, %d bytes, %v", path, plain.status, len(plain.body), plain.header)
		}
		coded := s.do(t, http.MethodGet, path, "", append(admin, "Accept-Encoding", "br, gzip")...)
		if coded.status != http.StatusOK || coded.header.Get("Content-Encoding") != "gzip" || len(coded.body)*4 > len(plain.body) ||
			coded.header.Get("Content-Type") != "application/json" || inflate(t, coded.body) != plain.body {
			t.Errorf("%s: %d, %d of %d bytes, %v", path, coded.status, len(coded.body), len(plain.body), coded.header)
		}
		for _, got := range []answer{plain, coded} {
			if vary := words(got, "Vary"); !slices.Contains(vary, "accept-encoding") {
				t.Errorf("%s: Vary: %v", path, vary)
			}
		}
		refused := s.do(t, http.MethodGet, path, "", append(admin, "Accept-Encoding", "gzip;q=0")...)
		if refused.header.Get("Content-Encoding") != "" || refused.body != plain.body {
			t.Errorf("%s is compressed for a client that forbids it", path)
		}
		head := s.do(t, http.MethodHead, path, "", append(admin, "Accept-Encoding", "gzip")...)
		if head.status != http.StatusOK || head.body != "" {
			t.Errorf("HEAD %s: %d %q", path, head.status, head.body)
		}
	}
}

// TestSmallAnswersAreNotCompressed: it would cost more than it saves. Nor are those that
// a sale waits for, whatever their size.
func TestSmallAnswersAreNotCompressed(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.listOrders = pageOf(3)
	s.fakes.place = sold
	s.fakes.getVoucher = func(_ context.Context, id string, _ bool) (model.Voucher, error) {
		v := voucher(id)
		v.Description = strings.Repeat("a", 4000)
		return v, nil
	}
	for _, call := range []struct{ method, path string }{
		{"GET", "/api/v1/orders"},
		{"GET", "/api/v1/vouchers"},
		{"GET", "/api/v1/vouchers/v1"},
		{"POST", seckill},
		{"GET", "/nowhere"},
		{"GET", "/livez"},
	} {
		got := s.do(t, call.method, call.path, "", append(s.as(t, "u", model.RoleUser), "Accept-Encoding", "gzip")...)
		if got.header.Get("Content-Encoding") != "" || !json.Valid([]byte(got.body)) {
			t.Errorf("%s %s: %v", call.method, call.path, got.header)
		}
	}
	got := s.do(t, http.MethodGet, "/api/v1/orders?limit=0", "", append(s.as(t, "u", model.RoleUser), "Accept-Encoding", "gzip")...)
	wantProblem(t, got, http.StatusUnprocessableEntity, model.CodeValidation)
}

const page = "https://shop.example"

// forPages lets the scripts of two origins call the API.
func forPages(o *handler.Options) { o.Origins = []string{page, "http://127.0.0.1:3000"} }

// words are the values of a header that lists some.
func words(got answer, name string) []string {
	var list []string
	for word := range strings.SplitSeq(strings.Join(got.header.Values(name), ","), ",") {
		list = append(list, strings.ToLower(strings.TrimSpace(word)))
	}
	return list
}

// preflight is the question of a browser before a page's request; headers are in lower
// case and sorted, as the Fetch Standard has them.
func (s *server) preflight(t *testing.T, path, origin, method, headers string) answer {
	t.Helper()
	return s.do(t, http.MethodOptions, path, "", "Origin", origin,
		"Access-Control-Request-Method", method, "Access-Control-Request-Headers", headers)
}

func TestNoOriginIsAllowedByDefault(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, got := range []answer{
		s.do(t, http.MethodGet, "/api/v1/vouchers", "", "Origin", page),
		s.preflight(t, seckill, page, "POST", "authorization"),
	} {
		for name := range got.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%d has %s", got.status, name)
			}
		}
	}
}

// TestPreflight: a browser has no token at that time.
func TestPreflight(t *testing.T) {
	t.Parallel()
	s := setup(t, forPages)
	s.fakes.place = func(context.Context, string, string) (model.Order, error) {
		t.Error("a preflight bought something")
		return model.Order{}, nil
	}
	const headers = "authorization,baggage,content-type,idempotency-key,if-match,if-none-match,sentry-trace,traceparent,x-request-id,x-requested-with,x-shop"
	for path, method := range map[string]string{
		seckill: "POST", vouchersPath + "/v1": "PATCH", "/api/v1/orders": "GET", "/api/v1/vouchers/v1": "HEAD",
	} {
		got := s.preflight(t, path, page, method, headers)
		if got.status != http.StatusNoContent || got.body != "" || got.header.Get("Access-Control-Allow-Origin") != page ||
			got.header.Get("Access-Control-Allow-Methods") != method || got.header.Get("Access-Control-Allow-Headers") != headers ||
			got.header.Get("Access-Control-Max-Age") != "7200" || !slices.Contains(words(got, "Vary"), "origin") {
			t.Errorf("%s %s: %d %v", method, path, got.status, got.header)
		}
		if credentials := got.header.Get("Access-Control-Allow-Credentials"); credentials != "" {
			t.Errorf("%s %s allows credentials: %s", method, path, credentials)
		}
	}
	for name, refused := range map[string]answer{
		"another origin":      s.preflight(t, seckill, "https://evil.example", "POST", "authorization"),
		"a longer origin":     s.preflight(t, seckill, page+".evil.example", "POST", "authorization"),
		"no origin":           s.preflight(t, seckill, "null", "POST", "authorization"),
		"the other scheme":    s.preflight(t, seckill, "http://shop.example", "POST", "authorization"),
		"a method of nothing": s.preflight(t, seckill, page, "BREW", "authorization"),
	} {
		if allowed := refused.header.Get("Access-Control-Allow-Origin"); allowed != "" {
			t.Errorf("%s: %v", name, refused.header)
		}
	}
}

// TestPagesReadAnswers, refusals included, and caches distinguish origins.
func TestPagesReadAnswers(t *testing.T) {
	t.Parallel()
	s := setup(t, forPages, byAddress(t, 1000, time.Hour))
	s.fakes.place = sold
	user := s.as(t, "u", model.RoleUser)
	from := func(origin string, headers ...string) []string { return append([]string{"Origin", origin}, headers...) }
	for _, call := range []struct {
		method, path string
		headers      []string
		status       int
	}{
		{"GET", "/api/v1/vouchers", from(page), 200},
		{"POST", seckill, from(page, user...), 201},
		{"POST", seckill, from(page), 401},
		{"GET", "/api/v1/admin/vouchers", from(page, user...), 403},
		{"GET", "/nowhere", from(page), 404},
		{"POST", "/api/v1/vouchers", from(page), 405},
		{"GET", "/api/v1/docs/swagger-ui.css", from(page), 200},
		{"GET", "/api/v1/openapi.json", from(page), 200},
	} {
		got := s.do(t, call.method, call.path, "", call.headers...)
		exposed := words(got, "Access-Control-Expose-Headers")
		if got.status != call.status || got.header.Get("Access-Control-Allow-Origin") != page || got.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s %s: %d %v", call.method, call.path, got.status, got.header)
		}
		for _, name := range []string{"location", "retry-after", "etag", "x-request-id", "ratelimit", "ratelimit-policy", "www-authenticate"} {
			if !slices.Contains(exposed, name) {
				t.Errorf("%s %s does not show %s to pages: %v", call.method, call.path, name, exposed)
			}
		}
		call.headers[1] = "https://evil.example"
		foreign := s.do(t, call.method, call.path, "", call.headers...)
		if foreign.status != call.status || foreign.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s of a foreign page: %d %v", call.method, call.path, foreign.status, foreign.header)
		}
		for _, answer := range []answer{got, foreign, s.do(t, call.method, call.path, "", call.headers[2:]...)} {
			if vary := words(answer, "Vary"); !slices.Contains(vary, "origin") {
				t.Errorf("%s %s: Vary: %v", call.method, call.path, vary)
			}
		}
	}
}

// TestPreflightsAreLimited like other requests, and a page can read that they are.
func TestPreflightsAreLimited(t *testing.T) {
	t.Parallel()
	s := setup(t, forPages, byAddress(t, 2, time.Hour))
	for range 2 {
		s.preflight(t, seckill, page, "POST", "authorization")
	}
	for _, got := range []answer{
		s.preflight(t, seckill, page, "POST", "authorization"),
		s.do(t, http.MethodGet, "/api/v1/vouchers", "", "Origin", page),
	} {
		wantProblem(t, got, http.StatusTooManyRequests, model.CodeRateLimited)
		if got.header.Get("Access-Control-Allow-Origin") != page || got.header.Get("Retry-After") == "" {
			t.Errorf("%v", got.header)
		}
	}
}
