package handler_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was asked for")
	return 0, io.EOF
}

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
		request := s.request(t, t.Context(), http.MethodPost, "/api/v1/admin/vouchers", unread{t}, "Expect",
			"100-continue", "Content-Type", "")
		if call.role != "" {
			request.Header.Set("Authorization", "Bearer "+s.token(t, "u", call.role))
		}
		response, err := client.Do(request)
		check.Must(t, err)
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		wantProblem(t, answer{response.StatusCode, response.Header, string(body), request.URL.Path}, call.status,
			call.code)
	}
}

func TestAuthorizationHeader(t *testing.T) {
	t.Parallel()
	s := setup(t)
	good := s.token(t, "u", model.RoleUser)
	other := check.Value(token.New([]token.Key{{ID: "2", Secret: secret}}, "seckill", "seckill"))(t)
	unknownKey := check.Value(other.Issue(token.Claims{Subject: "u", Role: model.RoleUser}, time.Hour))(t)
	const path, invalid = "/api/v1/auth/me", `Bearer error="invalid_token", error_description="`
	for challenge, refused := range map[string][]string{ // one header in each line
		"Bearer": {"", "Basic " + good, good},
		invalid: {
			"Bearer", "Bearer ", "bearer x", "Bearer " + good + "x", "Bearer " + unknownKey,
			"Bearer " + good + " " + good,
			"Bearer " + good + "\nBearer " + good,
		},
	} {
		for _, lines := range refused {
			values := slices.DeleteFunc(strings.Split(lines, "\n"), func(line string) bool { return line == "" })
			got := s.several(t, http.MethodGet, path, "", "Authorization", values, nil)
			wantProblem(t, got, http.StatusUnauthorized, model.CodeUnauthenticated)
			told := got.header.Values("WWW-Authenticate")
			check.That(t, len(told) == 1 && strings.HasPrefix(told[0], challenge) &&
				(challenge == "Bearer") == (told[0] == challenge),
				"%q: WWW-Authenticate = %q", values, told)
		}
	}
	got := s.do(t, http.MethodPost, "/api/v1/admin/vouchers", "{}", s.as(t, "u", model.RoleUser)...)
	wantProblem(t, got, http.StatusForbidden, model.CodeForbidden)
	check.Equal(t, "to a user as an administrator", got.header.Get("WWW-Authenticate"),
		`Bearer error="insufficient_scope"`)
	for _, value := range []string{"Bearer " + good, "bearer " + good, "Bearer  " + good} {
		got := s.do(t, http.MethodGet, path, "", "Authorization", value)
		check.Equal(t, value, got.body, `{"id":"u","username":"name-of-u","role":"user"}`+"\n")
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.place = func(context.Context, string, string) (model.Order, error) { panic("boom") }
	user := s.as(t, "u", model.RoleUser)
	for _, call := range []struct {
		method, path, body string
		headers            []string
	}{
		{"GET", "/livez", "", nil},
		{"GET", "/api/v1/vouchers", "", nil},
		{"GET", "/nowhere", "", nil},
		{"PUT", "/api/v1/vouchers", "", nil},
		{"OPTIONS", "/api/v1/vouchers", "", nil},
		{"HEAD", "/api/v1/vouchers", "", nil},
		{"GET", "/api/v1/orders", "", nil},
		{"POST", "/api/v1/auth/login", strings.Repeat("x", 20<<10), nil},
		{"POST", seckill, "", user},
		{"GET", "/api/v1/docs", "", nil},
	} {
		seen := map[string]bool{"": true}
		for _, id := range []string{"a", "Az09._-", strings.Repeat("x", 128), "", "a b", "a:b", "ä", strings.Repeat("x", 129), `"`} {
			got := s.do(t, call.method, call.path, call.body,
				append([]string{"X-Request-Id", id}, call.headers...)...).header.Get("X-Request-Id")
			good := len(id) <= 128 && model.OfIDs(id)
			check.That(t, (got == id) == good && !seen[got], "%s %s: %q became %q", call.method, call.path, id, got)
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
	for id, call := range map[string]struct{ method, path, body string }{
		"find-1": {"POST", seckill, ""},
		"find-2": {"POST", "/api/v1/auth/login", `{"username":"u","password":"p"}`},
		"find-3": {"GET", "/api/v1/orders", ""}, // whose answer would be compressed
	} {
		got := s.do(t, call.method, call.path, call.body, append(s.as(t, "u", model.RoleUser), "X-Request-Id", id)...)
		wantProblem(t, got, http.StatusInternalServerError, model.CodeInternal)
		check.That(t, !strings.Contains(got.body, "1234") && !strings.Contains(got.body, ".go"), "internals in %s",
			got.body)
		check.That(t, s.log.Has(id, "1234", "route_test.go"), "the log does not tell of %s", id)
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, path := range []string{
		"/", "/api/v1", "/api/v1/", "/api/v2/vouchers", "/api/v2/vouchers/", "//evil.example/", "/API/v1/vouchers",
		"//api/v1/vouchers", "/metrics",
		"/debug/pprof/", "/openapi.json", "/docs", "/schemas/Order.json", "/api/v1/orders/x.v1/payments",
		"/api/v1/admin/sales",
	} {
		wantProblem(t, s.do(t, http.MethodGet, path, ""), http.StatusNotFound, model.CodeNotFound)
	}
	methods := func(got answer) string {
		allowed := strings.Split(got.header.Get("Allow"), ", ")
		slices.Sort(allowed)
		return strings.Join(allowed, ", ")
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
		got.is(t, http.StatusMethodNotAllowed)
		check.That(t, call.method == http.MethodHead || strings.Contains(got.body, `"code":"METHOD_NOT_ALLOWED"`), "%s",
			got.body)
		check.Equal(t, call.method+" "+call.path, methods(got), call.allow)
		options := s.do(t, http.MethodOptions, call.path, "")
		options.is(t, http.StatusNoContent)
		check.Equal(t, "OPTIONS "+call.path, methods(options)+options.body, call.allow)
	}
	// The target of a request may be * instead of a path. No route is there.
	for _, method := range []string{http.MethodOptions, http.MethodGet, http.MethodPost, "BREW"} {
		wantProblem(t, record(t, s.handler, method, "*"), http.StatusNotFound, model.CodeNotFound)
	}
	check.That(t, !strings.Contains(s.log.String(), "panic"), "%s", s.log)
}

// Clients that join paths with a slash behind are led to the path, whatever they send, and never to another server.
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
				got.is(t, http.StatusPermanentRedirect)
				check.Equal(t, got.asked, got.header.Get("Location"), path+query)
			}
		}
		got := s.preflight(t, path+"/", page, "POST", "authorization")
		got.is(t, http.StatusNoContent)
		check.Equal(t, got.asked, got.header.Get("Access-Control-Allow-Origin"), page)
	}
	// A client that follows sends the body again, which is then a wrong password.
	request := s.request(t, t.Context(), http.MethodPost, "/api/v1/auth/login/",
		strings.NewReader(`{"username":"u","password":"p"}`))
	response, err := (&http.Client{Transport: s.transport}).Do(request)
	check.Must(t, err)
	response.Body.Close()
	check.Equal(t, "a login with a slash behind", response.StatusCode, http.StatusUnauthorized)
}

func concrete(template string) string {
	return strings.NewReplacer("/orders/{id}", "/orders/o1.v1", "{id}", "v1", "{code}", "sold-out").Replace(template)
}

// An escaped slash is a part of an id (RFC 3986, 2.2): it leads to no other route behind a guarding proxy's back.
func TestAnEscapedSlashDividesNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	headers := s.as(t, "u", model.RoleUser)
	for _, path := range []string{"/api/v1/vouchers/v1%2Fseckill", "/api/v1/vouchers/v1%2fseckill", "/api/v1/orders/o1.v1%2Fcancel", "/api/v1%2Fvouchers"} {
		wantProblem(t, s.do(t, http.MethodGet, path, "", headers...), http.StatusNotFound, model.CodeNotFound)
		got := s.do(t, http.MethodPost, path, "", headers...)
		check.That(t, got.status == http.StatusNotFound || got.status == http.StatusMethodNotAllowed, "POST %s: %d %s",
			path, got.status, got.body)
	}
	got := s.do(t, http.MethodGet, "/api/v1/vouchers/%76%31", "")
	check.That(t, strings.Contains(got.body, `"id":"v1"`), "an id that is escaped for nothing: %d %s", got.status,
		got.body)
}

func TestHead(t *testing.T) {
	t.Parallel()
	s := setup(t)
	// The client would ask for gzip with GET alone.
	headers := append(s.as(t, "a", model.RoleAdmin), "Accept-Encoding", "identity")
	s.fakes.each = func(ctx context.Context, q model.OrderQuery, row func(model.BookedOrder) error) error {
		return rows(map[string]int{"v1": 1, "many": 2000}[q.VoucherID], nil)(ctx, q, row)
	}
	const orders = "/api/v1/admin/vouchers/%s/orders%s"
	for _, path := range []string{
		"/livez", "/readyz", "/api/v1/vouchers", "/api/v1/vouchers/v1", "/api/v1/vouchers?limit=x", "/api/v1/orders",
		"/api/v1/auth/me", "/api/v1/docs", "/api/v1/openapi.json",
		"/api/v1/admin/vouchers/v1/audit", fmt.Sprintf(orders, "v1", ""), fmt.Sprintf(orders, "none", "?format=csv"),
		fmt.Sprintf(orders, "v1", "?format=csv"), fmt.Sprintf(orders, "many", "?format=csv"),
		fmt.Sprintf(orders, "v1", "?format=xlsx"),
	} {
		get, head := s.do(t, http.MethodGet, path, "", headers...), s.do(t, http.MethodHead, path, "", headers...)
		head.is(t, get.status)
		for _, changes := range []string{"Date", "X-Request-Id"} {
			get.header.Del(changes)
			head.header.Del(changes)
		}
		same := maps.EqualFunc(head.header, get.header, slices.Equal)
		check.That(t, same && head.body == "", "%s: %v %q, and GET %v", path, head.header, head.body, get.header)
		length, stream := head.header.Get("Content-Length"), strings.Contains(path, "format")
		check.That(t, length == "" || !stream && length == strconv.Itoa(len(get.body)), "%s: length %s of %d", path,
			length, len(get.body))
	}
}

// Who has a token of its issuer learns which claim is wrong; whoever's key was not looked for yet comes again.
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
		sign("1", secret, old): "The token is not accepted: its exp has passed.", sign("1", secret+"x", old): general,
		"Bearer x": general, "": general,
	} {
		got := wantProblem(t, s.do(t, http.MethodGet, "/api/v1/auth/me", "", "Authorization", value),
			http.StatusUnauthorized, model.CodeUnauthenticated)
		check.Equal(t, "the detail", got.Detail, detail)
	}
	foreign := jwt.MapClaims{"sub": "u", "iss": "shop", "aud": "seckill", "exp": time.Now().Add(time.Hour).Unix()}
	// The issuer's keys were read just now.
	s.do(t, http.MethodGet, "/api/v1/auth/me", "", "Authorization", sign("k", secret, foreign)).is(t,
		http.StatusUnauthorized)
	later := s.do(t, http.MethodGet, "/api/v1/auth/me", "", "Authorization", sign("l", secret, foreign))
	wantProblem(t, later, http.StatusServiceUnavailable, model.CodeUnavailable)
	seconds := check.Value(strconv.Atoi(later.header.Get("Retry-After")))(t)
	check.That(t, seconds >= 1 && seconds <= 15, "Retry-After: %d", seconds)
}

func pageOf(count int) func(context.Context, model.OrderQuery) (model.OrderPage, error) {
	return func(context.Context, model.OrderQuery) (model.OrderPage, error) {
		page := model.OrderPage{}
		for i := range count {
			page.Items = append(page.Items, model.Order{
				ID: "o" + strconv.Itoa(i) + ".v1", VoucherID: "v1", UserID: "u",
				Status: model.OrderPaid,
			})
		}
		return page, nil
	}
}

func TestLargeAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.listOrders = pageOf(100)
	admin := s.as(t, "a", model.RoleAdmin)
	for _, path := range []string{"/api/v1/orders", "/api/v1/admin/vouchers/v1/orders", "/api/v1/openapi.json"} {
		with := func(method, coding string) answer {
			got := s.do(t, method, path, "", append(admin, "Accept-Encoding", coding)...)
			got.is(t, http.StatusOK)
			check.That(t, slices.Contains(words(got, "Vary"), "accept-encoding"), "%s: %v", path, got.header)
			return got
		}
		plain, coded := with(http.MethodGet, "identity"), with(http.MethodGet, "br, gzip")
		check.That(t, len(plain.body) > 10_000 && plain.header.Get("Content-Encoding") == "" &&
			json.Valid([]byte(plain.body)), "%s: %v", path, plain.header)
		check.That(t, coded.header.Get("Content-Encoding") == "gzip" && len(coded.body)*4 < len(plain.body), "%s: %v",
			path, coded.header)
		check.Equal(t, "the type", coded.header.Get("Content-Type"), "application/json")
		inflated := check.Value(io.ReadAll(check.Value(gzip.NewReader(strings.NewReader(coded.body)))(t)))(t)
		check.That(t, string(inflated) == plain.body, "%s is another one when it is compressed", path)
		refused := with(http.MethodGet, "gzip;q=0")
		check.That(t, refused.body == plain.body, "%s is compressed for a client that forbids it", path)
		check.Equal(t, "the answer to HEAD", with(http.MethodHead, "gzip").body, "")
	}
}

// Compression would cost more than it saves. Answers that a sale waits for are not compressed, whatever their size.
func TestSmallAnswersAreNotCompressed(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.listOrders = pageOf(3)
	s.fakes.getVoucher = func(_ context.Context, id string, _ bool) (model.Voucher, error) {
		v := voucher(id)
		v.Description = strings.Repeat("a", 4000)
		return v, nil
	}
	user := append(s.as(t, "u", model.RoleUser), "Accept-Encoding", "gzip")
	for _, call := range []string{
		"GET /api/v1/orders", "GET /api/v1/vouchers", "GET /api/v1/vouchers/v1", "POST " + seckill, "GET /nowhere",
		"GET /livez",
		"GET /api/v1/orders?limit=0",
	} {
		method, path, _ := strings.Cut(call, " ")
		got := s.do(t, method, path, "", user...)
		check.That(t, got.header.Get("Content-Encoding") == "" && json.Valid([]byte(got.body)), "%s: %v", got.asked,
			got.header)
	}
}

const page = "https://shop.example"

func forPages(o *handler.Options) { o.Origins = []string{page, "http://127.0.0.1:3000"} }

func words(got answer, name string) []string {
	var list []string
	for word := range strings.SplitSeq(strings.Join(got.header.Values(name), ","), ",") {
		list = append(list, strings.ToLower(strings.TrimSpace(word)))
	}
	return list
}

// preflight is a browser's question before a request; headers are in lower case and sorted (Fetch Standard).
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
			check.That(t, !strings.HasPrefix(name, "Access-Control-"), "%d has %s", got.status, name)
		}
	}
}

// TestPreflight: a browser has no token at that time.
func TestPreflight(t *testing.T) {
	t.Parallel()
	s := setup(t, forPages) // whose purchases panic
	const headers = "authorization,baggage,content-type,idempotency-key,if-match,if-none-match,sentry-trace,traceparent,x-request-id,x-requested-with,x-shop"
	for path, method := range map[string]string{
		seckill: "POST", vouchersPath + "/v1": "PATCH", "/api/v1/orders": "GET", "/api/v1/vouchers/v1": "HEAD",
	} {
		got := s.preflight(t, path, page, method, headers)
		got.is(t, http.StatusNoContent)
		for name, want := range map[string]string{
			"Origin": page, "Methods": method, "Headers": headers, "Credentials": "",
		} {
			check.Equal(t, got.asked+" allows "+name, got.header.Get("Access-Control-Allow-"+name), want)
		}
		check.That(t, got.header.Get("Access-Control-Max-Age") == "7200" &&
			slices.Contains(words(got, "Vary"), "origin"), "%v", got.header)
	}
	for _, refused := range [][]string{
		{"https://evil.example", "POST"},
		{page + ".evil.example", "POST"},
		{"null", "POST"},
		{"http://shop.example", "POST"},
		{page, "BREW"},
	} {
		got := s.preflight(t, seckill, refused[0], refused[1], "authorization")
		check.Equal(t, strings.Join(refused, " "), got.header.Get("Access-Control-Allow-Origin"), "")
	}
}

func TestPagesReadAnswers(t *testing.T) {
	t.Parallel()
	s := setup(t, forPages, byAddress(t, 1000, time.Hour))
	user := s.as(t, "u", model.RoleUser)
	for _, call := range []struct {
		method, path string
		headers      []string
		status       int
	}{
		{"GET", "/api/v1/vouchers", nil, 200},
		{"POST", seckill, user, 201},
		{"POST", seckill, nil, 401},
		{"GET", "/api/v1/admin/vouchers", user, 403},
		{"GET", "/nowhere", nil, 404},
		{"POST", "/api/v1/vouchers", nil, 405},
		{"GET", "/api/v1/docs/swagger-ui.css", nil, 200},
		{"GET", "/api/v1/openapi.json", nil, 200},
	} {
		for origin, allowed := range map[string]string{page: page, "https://evil.example": "", "": ""} {
			got := s.do(t, call.method, call.path, "", append([]string{"Origin", origin}, call.headers...)...)
			got.is(t, call.status)
			check.Equal(t, got.asked+" from "+origin, got.header.Get("Access-Control-Allow-Origin"), allowed)
			check.That(t, got.header.Get("Access-Control-Allow-Credentials") == "" &&
				slices.Contains(words(got, "Vary"), "origin"), "%v", got.header)
			for _, name := range []string{"location", "retry-after", "etag", "x-request-id", "ratelimit", "ratelimit-policy", "www-authenticate"} {
				shown := slices.Contains(words(got, "Access-Control-Expose-Headers"), name)
				check.That(t, shown || allowed == "", "%s does not show %s to pages", got.asked, name)
			}
		}
	}
}

func TestPreflightsAreLimited(t *testing.T) {
	t.Parallel()
	s := setup(t, forPages, byAddress(t, 2, time.Hour))
	for range 2 {
		s.preflight(t, seckill, page, "POST", "authorization").is(t, http.StatusNoContent)
	}
	for _, got := range []answer{
		s.preflight(t, seckill, page, "POST", "authorization"),
		s.do(t, http.MethodGet, "/api/v1/vouchers", "", "Origin", page),
	} {
		wantProblem(t, got, http.StatusTooManyRequests, model.CodeRateLimited)
		check.Equal(t, "who may read it", got.header.Get("Access-Control-Allow-Origin"), page)
	}
}
