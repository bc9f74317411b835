package handler_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/handler"
	"seckill/internal/workshop/check"
	"seckill/model"
)

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
