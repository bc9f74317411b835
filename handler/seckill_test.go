package handler_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/handler"
	"seckill/model"
)

const seckill = "/api/v1/vouchers/v1/seckill"

func sold(_ context.Context, userID, voucherID string) (model.Order, error) {
	return model.Order{ID: "o1." + voucherID, VoucherID: voucherID, UserID: userID, Status: model.OrderUnpaid}, nil
}

func TestPlace(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.place = sold
	for _, body := range []string{"", "{}", " { }\n"} {
		got := s.do(t, http.MethodPost, seckill, body, s.as(t, "bob:1", model.RoleUser)...)
		if got.status != http.StatusCreated || got.header.Get("Location") != "/api/v1/orders/o1.v1" ||
			got.header.Get("Content-Type") != "application/json" || !strings.Contains(got.body, `"user_id":"bob:1"`) {
			t.Errorf("%q: %d %v %s", body, got.status, got.header, got.body)
		}
	}
}

func TestPlaceProcessing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.place = func(ctx context.Context, userID, voucherID string) (model.Order, error) {
		order, err := sold(ctx, userID, voucherID)
		order.Status = model.OrderProcessing
		return order, err
	}
	got := s.do(t, http.MethodPost, seckill, "", s.as(t, "u", model.RoleUser)...)
	if got.status != http.StatusAccepted || got.header.Get("Location") != "/api/v1/orders/o1.v1" {
		t.Errorf("%d %v", got.status, got.header)
	}
}

func TestPlaceRefusals(t *testing.T) {
	t.Parallel()
	begin := time.Date(2031, time.May, 1, 8, 0, 0, 0, time.FixedZone("", 8*3600))
	for _, test := range []struct {
		err        error
		status     int
		code       model.Code
		retryAfter string
	}{
		{model.NotFound("voucher"), 404, model.CodeNotFound, ""},
		{&model.Error{Code: model.CodeEnded, Detail: "x"}, 409, model.CodeEnded, ""},
		{&model.Error{Code: model.CodePaused, Detail: "x"}, 409, model.CodePaused, ""},
		{&model.Error{Code: model.CodeNotStarted, Detail: "x", BeginAt: begin, RetryAfter: 1001 * time.Millisecond}, 409, model.CodeNotStarted, "2"},
		{model.AlreadyOrdered(model.Order{ID: "o9.v1", Status: model.OrderUnpaid}), 409, model.CodeAlreadyOrdered, ""},
		{model.SoldOut(), 409, model.CodeSoldOut, ""},
		{&model.Error{Code: model.CodeLockBusy, Detail: "x"}, 429, model.CodeLockBusy, "1"},
		{model.Unavailable("x", errors.New("dial tcp 10.1.2.3:3306")), 503, model.CodeUnavailable, "1"},
		{fmt.Errorf("create order: %w", context.DeadlineExceeded), 503, model.CodeUnavailable, "1"},
		{errors.New("dial tcp 10.1.2.3:3306: secret"), 500, model.CodeInternal, ""},
		{&model.Error{Code: model.CodeInternal, Detail: "10.1.2.3"}, 500, model.CodeInternal, ""},
		{&model.Error{Code: "SOMETHING_NEW", Detail: "10.1.2.3"}, 500, model.CodeInternal, ""},
	} {
		t.Run(string(test.code), func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			s.fakes.place = func(context.Context, string, string) (model.Order, error) { return model.Order{}, test.err }
			got := s.do(t, http.MethodPost, seckill, "", s.as(t, "u", model.RoleUser)...)
			p := wantProblem(t, got, test.status, test.code)
			if got.header.Get("Retry-After") != test.retryAfter {
				t.Errorf("Retry-After = %q", got.header.Get("Retry-After"))
			}
			if strings.Contains(got.body, "10.1.2.3") {
				t.Errorf("internals in %s", got.body)
			}
			if test.code == model.CodeNotStarted && p.BeginAt != "2031-05-01T00:00:00Z" {
				t.Errorf("begin_at = %q", p.BeginAt)
			}
			if test.code == model.CodeAlreadyOrdered && (p.OrderID != "o9.v1" || p.OrderStatus != "unpaid") {
				t.Errorf("order = %q %q", p.OrderID, p.OrderStatus)
			}
			if test.code == model.CodeInternal && !strings.Contains(s.log.String(), got.header.Get("X-Request-Id")) {
				t.Error("the log does not know the request")
			}
		})
	}
}

// TestPrecedence makes a request that everything is wrong with, and mends it
// fault by fault in the contract's order.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *handler.Options) { o.RateUser = handler.Rate{Events: 1, Per: time.Hour} })
	s.fakes.place = func(context.Context, string, string) (model.Order, error) { return model.Order{}, model.SoldOut() }
	user := s.as(t, "u", model.RoleUser)
	with := func(headers ...string) []string { return append(headers, user...) }
	const nowhere = "/api/v1/vouchers/no%20such%20id/seckill"
	large := strings.Repeat("x", 17<<10)

	spend := s.do(t, http.MethodPost, seckill, "", user...)
	wantProblem(t, spend, http.StatusConflict, model.CodeSoldOut)

	got := s.do(t, http.MethodPost, nowhere, large, "Content-Type", "text/plain")
	wantProblem(t, got, http.StatusUnauthorized, model.CodeUnauthenticated)
	got = s.do(t, http.MethodPost, nowhere, large, with("Content-Type", "text/plain")...)
	wantProblem(t, got, http.StatusRequestEntityTooLarge, model.CodePayloadTooLarge)
	got = s.do(t, http.MethodPost, nowhere, "x", with("Content-Type", "text/plain")...)
	wantProblem(t, got, http.StatusUnsupportedMediaType, model.CodeUnsupportedMediaType)
	got = s.do(t, http.MethodPost, nowhere, "x", user...)
	wantProblem(t, got, http.StatusBadRequest, model.CodeValidation)
	for _, body := range []string{`{"quantity":2}`, "[]", "null", "1", `"{}"`} {
		got = s.do(t, http.MethodPost, nowhere, body, user...)
		wantProblem(t, got, http.StatusUnprocessableEntity, model.CodeValidation)
	}
	got = s.do(t, http.MethodPost, nowhere, "{}", user...)
	wantProblem(t, got, http.StatusTooManyRequests, model.CodeRateLimited)
	if seconds, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || seconds < 3500 || seconds > 3600 {
		t.Errorf("Retry-After = %q", got.header.Get("Retry-After"))
	}
	got = s.do(t, http.MethodPost, nowhere, "{}", s.as(t, "another", model.RoleUser)...)
	wantProblem(t, got, http.StatusNotFound, model.CodeNotFound)
}

func TestAddressLimit(t *testing.T) {
	t.Parallel()
	limit := func(o *handler.Options) { o.RateAddr = handler.Rate{Events: 2, Per: time.Hour} }
	place := func(s *server, user, forwarded string) answer {
		return s.do(t, http.MethodPost, seckill, "", append(s.as(t, user, model.RoleUser), "X-Forwarded-For", forwarded)...)
	}
	t.Run("headers count for nothing", func(t *testing.T) {
		t.Parallel()
		s := setup(t, limit)
		s.fakes.place = sold
		for i := range 2 {
			if got := place(s, "u"+strconv.Itoa(i), "198.51.100."+strconv.Itoa(i)); got.status != http.StatusCreated {
				t.Errorf("%d %s", got.status, got.body)
			}
		}
		wantProblem(t, place(s, "u3", "198.51.100.3"), http.StatusTooManyRequests, model.CodeRateLimited)
	})
	t.Run("behind a proxy", func(t *testing.T) {
		t.Parallel()
		s := setup(t, limit, func(o *handler.Options) {
			o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
		})
		s.fakes.place = sold
		for i := range 6 { // one /64 for two requests each
			address := fmt.Sprintf("2001:db8:0:%d::%d", i/2, i)
			if got := place(s, "u", address); got.status != http.StatusCreated {
				t.Errorf("%s: %d %s", address, got.status, got.body)
			}
		}
		wantProblem(t, place(s, "u", "2001:db8:0:1::ffff"), http.StatusTooManyRequests, model.CodeRateLimited)
	})
}

// TestLimitUnderParallelRequests: whatever arrives at once, the limit is exact.
func TestLimitUnderParallelRequests(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *handler.Options) { o.RateUser = handler.Rate{Events: 7, Per: 24 * time.Hour} })
	s.fakes.place = sold
	headers := s.as(t, "u", model.RoleUser)
	answers := make(chan int, 60)
	var together sync.WaitGroup
	for range cap(answers) {
		together.Go(func() { answers <- s.do(t, http.MethodPost, seckill, "", headers...).status })
	}
	together.Wait()
	close(answers)
	count := map[int]int{}
	for status := range answers {
		count[status]++
	}
	if count[http.StatusCreated] != 7 || count[http.StatusTooManyRequests] != 53 {
		t.Errorf("%v", count)
	}
}

func TestImpossibleIDs(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.getOrder = func(context.Context, string, string, time.Duration) (model.Order, error) {
		t.Error("an impossible id was looked up")
		return model.Order{}, nil
	}
	headers := s.as(t, "a", model.RoleAdmin)
	for _, id := range []string{"%00", "a%2Fb", "%20", "a:b", strings.Repeat("a", 65), "%E5%88%B8", "%ff", "..%2f..", ""} {
		for _, call := range []struct{ method, path, body string }{
			{"GET", "/api/v1/vouchers/" + id, ""},
			{"POST", "/api/v1/vouchers/" + id + "/seckill", ""},
			{"GET", "/api/v1/orders/" + id, ""},
			{"POST", "/api/v1/orders/" + id + "/cancel", ""},
			{"PATCH", "/api/v1/admin/vouchers/" + id, "{}"},
			{"POST", "/api/v1/admin/vouchers/" + id + "/rebuild", ""},
			{"POST", "/api/v1/admin/vouchers/" + id + "/stock", `{"delta":1}`},
			{"GET", "/api/v1/admin/vouchers/" + id + "/orders", ""},
			{"GET", "/api/v1/admin/vouchers/" + id + "/orders?format=csv", ""},
			{"GET", "/api/v1/admin/orders/" + id, ""},
		} {
			got := s.do(t, call.method, call.path, call.body, headers...)
			wantProblem(t, got, http.StatusNotFound, model.CodeNotFound)
		}
	}
}

// TestImpossibleIDsComeFirst: whatever else is wrong with a request, an id
// that cannot exist is not found, and never not valid.
func TestImpossibleIDsComeFirst(t *testing.T) {
	t.Parallel()
	s := setup(t)
	headers := s.as(t, "a", model.RoleAdmin)
	user := s.as(t, "u", model.RoleUser)
	large := strings.Repeat(" ", 17<<10)
	for _, call := range []struct{ method, path, body string }{
		{"PATCH", "/api/v1/admin/vouchers/%00", `{"foo":1}`},
		{"PATCH", "/api/v1/admin/vouchers/%00", `{"title":`},
		{"POST", "/api/v1/admin/vouchers/a%20b/stock", `{"delta":"x"}`},
		{"GET", "/api/v1/admin/vouchers/%00/orders?limit=0", ""},
		{"GET", "/api/v1/admin/vouchers/%00/orders?format=xml", ""},
		{"GET", "/api/v1/admin/vouchers/%00/stats", ""},
		{"GET", "/api/v1/admin/vouchers/%00/audit", ""},
		{"GET", "/api/v1/admin/orders/abc", ""},
		{"GET", "/api/v1/orders/%00?wait=junk", ""},
		{"GET", "/api/v1/orders/abc?wait=junk", ""}, // no voucher in it: no order's id
		{"GET", "/api/v1/orders/abc", ""},
		{"GET", "/api/v1/orders/.v1", ""},
	} {
		wantProblem(t, s.do(t, call.method, call.path, call.body, headers...), http.StatusNotFound, model.CodeNotFound)
		if got := s.do(t, http.MethodHead, call.path, "", headers...); call.method == http.MethodGet && got.status != http.StatusNotFound {
			t.Errorf("HEAD %s: %d", call.path, got.status)
		}
		// Who asks and what was sent count before.
		wantProblem(t, s.do(t, call.method, call.path, call.body), http.StatusUnauthorized, model.CodeUnauthenticated)
		if strings.Contains(call.path, "/admin/") {
			wantProblem(t, s.do(t, call.method, call.path, call.body, user...), http.StatusForbidden, model.CodeForbidden)
		}
		if call.body != "" {
			wantProblem(t, s.do(t, call.method, call.path, large, headers...), http.StatusRequestEntityTooLarge, model.CodePayloadTooLarge)
			text := append([]string{"Content-Type", "text/plain"}, headers...)
			wantProblem(t, s.do(t, call.method, call.path, call.body, text...), http.StatusUnsupportedMediaType, model.CodeUnsupportedMediaType)
		}
	}
	// Ids that can exist leave the request to be looked at.
	for _, path := range []string{"/api/v1/orders/o1.v1?wait=junk", "/api/v1/admin/vouchers/v1/orders?limit=0"} {
		wantProblem(t, s.do(t, http.MethodGet, path, "", headers...), http.StatusUnprocessableEntity, model.CodeValidation)
	}
}
