package handler_test

import (
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/handler"
	"seckill/handler/wire"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service"
)

const seckill = "/api/v1/vouchers/v1/seckill"

func sold(_ context.Context, userID, voucherID string) (model.Order, error) {
	return model.Order{ID: "o1." + voucherID, VoucherID: voucherID, UserID: userID, Status: model.OrderUnpaid}, nil
}

// The status and the place of an order are in the answer to its purchase; in async it is not stored yet.
func TestPlace(t *testing.T) {
	t.Parallel()
	s := setup(t)
	status := model.OrderUnpaid
	s.fakes.place = func(ctx context.Context, userID, voucherID string) (model.Order, error) {
		order, err := sold(ctx, userID, voucherID)
		order.Status = status
		return order, err
	}
	for _, test := range []struct {
		body   string
		is     model.OrderStatus
		status int
	}{{"", model.OrderUnpaid, 201}, {"{}", model.OrderUnpaid, 201}, {" { }\n", model.OrderUnpaid, 201}, {"", model.OrderProcessing, 202}} {
		status = test.is
		got := s.do(t, http.MethodPost, seckill, test.body, s.as(t, "bob:1", model.RoleUser)...)
		if got.status != test.status || got.header.Get("Location") != "/api/v1/orders/o1.v1" ||
			got.header.Get("Content-Type") != "application/json" || !strings.Contains(got.body, `"user_id":"bob:1"`) {
			t.Errorf("%q: %d %v %s", test.body, got.status, got.header, got.body)
		}
	}
}

func TestPlaceRefusals(t *testing.T) { //nolint:tparallel // one server, which refuses for another reason each time
	t.Parallel()
	s := setup(t)
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
		{model.Unavailable("x", errors.New("dial tcp 10.1.2.3:3306")), 503, model.CodeUnavailable, "1 to 5"},
		{fmt.Errorf("create order: %w", context.DeadlineExceeded), 503, model.CodeUnavailable, "1 to 5"},
		{errors.New("dial tcp 10.1.2.3:3306: secret"), 500, model.CodeInternal, ""},
		{&model.Error{Code: model.CodeInternal, Detail: "10.1.2.3"}, 500, model.CodeInternal, ""},
		{&model.Error{Code: "SOMETHING_NEW", Detail: "10.1.2.3"}, 500, model.CodeInternal, ""},
	} {
		t.Run(string(test.code), func(t *testing.T) {
			s.fakes.place = func(context.Context, string, string) (model.Order, error) { return model.Order{}, test.err }
			got := s.do(t, http.MethodPost, seckill, "", s.as(t, "u", model.RoleUser)...)
			p := wantProblem(t, got, test.status, test.code)
			after := got.header.Get("Retry-After")
			if test.retryAfter == "1 to 5" && "1" <= after && after <= "5" && len(after) == 1 {
				after = test.retryAfter
			}
			if after != test.retryAfter {
				t.Errorf("Retry-After = %q", after)
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

// TestPrecedence makes a request that everything is wrong with, and mends it fault by fault in the contract's order, in
// which a spent limit has its place, of a user and of an address alike.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*handler.Options){"of a user": byUser(t, 1, time.Hour), "of an address": byAddress(t, 1, time.Hour)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, precedence, limit)
		})
	}
}

func precedence(t *testing.T, s *server) {
	t.Helper()
	s.fakes.place = func(context.Context, string, string) (model.Order, error) { return model.Order{}, model.SoldOut() }
	user := s.as(t, "u", model.RoleUser)
	const nowhere = "/api/v1/vouchers/no%20such%20id/seckill"
	large, text := strings.Repeat("x", 17<<10), append([]string{"Content-Type", "text/plain"}, user...)
	for _, step := range []struct {
		path, body string
		headers    []string
		status     int
		code       model.Code
	}{
		{seckill, "", user, 409, model.CodeSoldOut}, // spends what may be asked in an hour
		{nowhere, large, []string{"Content-Type", "text/plain"}, 401, model.CodeUnauthenticated},
		{nowhere, large, text, 413, model.CodePayloadTooLarge},
		{nowhere, "x", text, 415, model.CodeUnsupportedMediaType},
		{nowhere, "x", user, 400, model.CodeValidation},
		{nowhere, `{"quantity":2}`, user, 422, model.CodeValidation},
		{nowhere, "[]", user, 422, model.CodeValidation},
		{nowhere, `"null"`, user, 422, model.CodeValidation},
		{nowhere, "1", user, 422, model.CodeValidation},
		{nowhere, `"{}"`, user, 422, model.CodeValidation},
		{nowhere, "{}", user, 429, model.CodeRateLimited},
	} {
		got := s.do(t, http.MethodPost, step.path, step.body, step.headers...)
		wantProblem(t, got, step.status, step.code)
		if seconds, err := strconv.Atoi(got.header.Get("Retry-After")); step.status == 429 && (err != nil || seconds < 3600 || seconds > 3604) {
			t.Errorf("Retry-After = %q", got.header.Get("Retry-After"))
		}
	}
	if strings.HasSuffix(t.Name(), "user") { // another one has not spent anything, and hears of the next fault
		wantProblem(t, s.do(t, http.MethodPost, nowhere, "{}", s.as(t, "another", model.RoleUser)...), http.StatusNotFound, model.CodeNotFound)
	}
}

func TestAddressLimit(t *testing.T) {
	t.Parallel()
	limit := byAddress(t, 2, time.Hour)
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
	t.Run("every attempt counts", func(t *testing.T) {
		t.Parallel()
		s := setup(t, limit)
		s.fakes.place = sold
		wantProblem(t, s.do(t, http.MethodPost, seckill, ""), http.StatusUnauthorized, model.CodeUnauthenticated)
		place(s, "u", "").is(t, http.StatusCreated)
		wantProblem(t, place(s, "another", ""), http.StatusTooManyRequests, model.CodeRateLimited)
	})
	t.Run("behind a proxy", func(t *testing.T) {
		t.Parallel()
		s := setup(t, limit, behindProxies)
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
	s := setup(t, byUser(t, 7, 24*time.Hour))
	s.fakes.place = sold
	headers := s.as(t, "u", model.RoleUser)
	var answers [60]int
	check.Volley(len(answers), func(i int) { answers[i] = s.do(t, http.MethodPost, seckill, "", headers...).status })
	slices.Sort(answers[:])
	if answers[0] != http.StatusCreated || answers[6] != http.StatusCreated || answers[7] != http.StatusTooManyRequests || answers[59] != http.StatusTooManyRequests {
		t.Errorf("a limit of 7: %v", answers)
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
	for _, id := range []string{"%00", "a%2Fb", "%20", "a:b", strings.Repeat("a", 65), "%E5%88%B8", "%ff", "..%2f.."} {
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
		// The token, and the size and the type of the body, come before.
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

func TestCancel(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.cancel = func(_ context.Context, userID, orderID string) (model.Order, error) {
		if orderID == "paid.v1" {
			return model.Order{}, &model.Error{Code: model.CodeIllegalState, Detail: "x", OrderStatus: model.OrderPaid}
		}
		return model.Order{ID: orderID, VoucherID: "v1", UserID: userID, Status: model.OrderCanceled}, nil
	}
	user := s.as(t, "u", model.RoleUser)
	for _, body := range []string{"", "{}"} {
		got := s.do(t, http.MethodPost, "/api/v1/orders/o1.v1/cancel", body, user...)
		var order model.Order
		check.Must(t, json.Unmarshal([]byte(got.body), &order))
		if got.status != http.StatusOK || order.Status != model.OrderCanceled || order.UserID != "u" || order.ID != "o1.v1" {
			t.Errorf("%q: %d %s", body, got.status, got.body)
		}
	}
	p := wantProblem(t, s.do(t, http.MethodPost, "/api/v1/orders/paid.v1/cancel", "", user...), http.StatusConflict, model.CodeIllegalState)
	check.Equal(t, "the order's status", p.OrderStatus, "paid")
	wantProblem(t, s.do(t, http.MethodPost, "/api/v1/orders/o1.v1/cancel", ""), http.StatusUnauthorized, model.CodeUnauthenticated)
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.rebuild = func(_ context.Context, id, by string) error {
		if id == "sync" || by != "a" {
			return model.Conflict("x")
		}
		return nil
	}
	admin := s.as(t, "a", model.RoleAdmin)
	got := s.do(t, http.MethodPost, "/api/v1/admin/vouchers/v1/rebuild", "", admin...)
	if got.status != http.StatusAccepted || got.body != "{\"voucher_id\":\"v1\",\"state\":\"rebuilding\"}\n" {
		t.Errorf("%d %q", got.status, got.body)
	}
	got = s.do(t, http.MethodPost, "/api/v1/admin/vouchers/sync/rebuild", "", admin...)
	wantProblem(t, got, http.StatusConflict, model.CodeConflict)
	got = s.do(t, http.MethodPost, "/api/v1/admin/vouchers/v1/rebuild", "", s.as(t, "u", model.RoleUser)...)
	wantProblem(t, got, http.StatusForbidden, model.CodeForbidden)
}

// TestBareRequests: calls that say everything in their path refuse a body that
// says more, after everything that comes before 422.
func TestBareRequests(t *testing.T) {
	t.Parallel()
	s := setup(t)
	admin := s.as(t, "a", model.RoleAdmin)
	for _, path := range []string{"/api/v1/orders/%s/cancel", "/api/v1/admin/vouchers/%s/rebuild"} {
		there, nowhere := strings.ReplaceAll(path, "%s", "o1.v1"), strings.ReplaceAll(path, "%s", "a%20b")
		for body, want := range map[string]int{`{"why":1}`: 422, "[]": 422, "[null]": 422, "{": 400, "null null": 400} {
			wantProblem(t, s.do(t, http.MethodPost, there, body, admin...), want, model.CodeValidation)
			wantProblem(t, s.do(t, http.MethodPost, nowhere, body, admin...), http.StatusNotFound, model.CodeNotFound)
		}
		large := s.do(t, http.MethodPost, nowhere, strings.Repeat(" ", 17<<10), admin...)
		wantProblem(t, large, http.StatusRequestEntityTooLarge, model.CodePayloadTooLarge)
	}
}

func TestWorkersServeTheirHealthOnly(t *testing.T) {
	t.Parallel()
	f := &fakes{checks: []service.Check{{Name: "queue", Err: model.Unavailable("The queue is away.", nil)}}}
	h, err := handler.NewHealthOnly(handler.Options{
		Health: fakeHealth{f}, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	check.Must(t, err)
	ask := func(method, path string) answer { return record(t, h, method, path) }
	if got := ask(http.MethodGet, "/livez"); got.status != http.StatusOK {
		t.Errorf("livez: %d %s", got.status, got.body)
	}
	got := ask(http.MethodGet, "/readyz")
	if p := wantProblem(t, got, http.StatusServiceUnavailable, model.CodeUnavailable); p.Checks["queue"] != "The queue is away." {
		t.Errorf("readyz: %s", got.body)
	}
	f.checks = nil
	if got := ask(http.MethodGet, "/readyz"); got.status != http.StatusOK {
		t.Errorf("readyz: %d %s", got.status, got.body)
	}
	wantProblem(t, ask(http.MethodPost, "/livez"), http.StatusMethodNotAllowed, model.CodeMethodNotAllowed)
	for _, path := range []string{"/", "/api/v1/vouchers", "/api/v1/openapi.json", "/api/v1/docs", "/api/v1/orders/o1.v1"} {
		wantProblem(t, ask(http.MethodGet, path), http.StatusNotFound, model.CodeNotFound)
	}
	wantProblem(t, ask(http.MethodPost, "/api/v1/vouchers/v1/seckill"), http.StatusNotFound, model.CodeNotFound)
}

const exported = "/api/v1/admin/vouchers/v1/orders?format=csv"

func TestCSV(t *testing.T) {
	t.Parallel()
	s := setup(t)
	at := time.Date(2030, time.November, 11, 20, 0, 0, 123456000, time.FixedZone("", 8*3600))
	s.fakes.each = func(_ context.Context, query model.OrderQuery, row func(model.Order) error) error {
		if query.VoucherID != "v1" || query.Status != model.OrderPaid {
			t.Errorf("query = %+v", query)
		}
		return errors.Join(
			row(model.Order{ID: "o1.v1", VoucherID: "v1", UserID: "-bob", Status: model.OrderPaid, Price: 1000, Currency: "CNY", CreatedAt: at, PaidAt: &at}),
			row(model.Order{ID: "o2.v1", VoucherID: "v1", UserID: "eve", Status: model.OrderPaid, Reason: "=1+2, \"said\"\nEve", CreatedAt: at}),
		)
	}
	got := s.do(t, http.MethodGet, exported+"&status=paid", "", s.as(t, "a", model.RoleAdmin)...)
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "text/csv; charset=utf-8" ||
		got.header.Get("Content-Disposition") != `attachment; filename="orders-v1.csv"` || got.header.Get("X-Request-Id") == "" {
		t.Errorf("%d %v", got.status, got.header)
	}
	if crlf := strings.Count(got.body, "\r\n"); crlf != strings.Count(got.body, "\n") || !strings.HasSuffix(got.body, "\r\n") {
		t.Errorf("lines do not end as RFC 4180 has it: %q", got.body)
	}
	rows := check.Value(csv.NewReader(strings.NewReader(got.body)).ReadAll())(t)
	want := [][]string{
		{"id", "voucher_id", "user_id", "status", "reason", "price", "currency", "created_at", "expires_at", "paid_at", "closed_at", "redeemed_at"},
		{"o1.v1", "v1", "'-bob", "paid", "", "1000", "CNY", "2030-11-11T12:00:00.123456Z", "", "2030-11-11T12:00:00.123456Z", "", ""},
		{"o2.v1", "v1", "eve", "paid", "'=1+2, \"said\"\nEve", "0", "", "2030-11-11T12:00:00.123456Z", "", "", "", ""},
	}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("%q", rows)
	}
}

func TestCSVOfNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	admin := s.as(t, "a", model.RoleAdmin)
	var found error
	s.fakes.each = func(context.Context, model.OrderQuery, func(model.Order) error) error { return found }
	got := s.do(t, http.MethodGet, exported, "", admin...)
	if got.status != http.StatusOK || !strings.HasPrefix(got.body, "id,voucher_id,") || strings.Count(got.body, "\n") != 1 {
		t.Errorf("%d %q", got.status, got.body)
	}
	found = model.NotFound("voucher")
	for _, path := range []string{exported, exported + "&format=xml"} { // the first format counts
		wantProblem(t, s.do(t, http.MethodGet, path, "", admin...), http.StatusNotFound, model.CodeNotFound)
	}
	got = s.do(t, http.MethodGet, "/api/v1/admin/vouchers/v1/orders?format=xml", "", admin...)
	wantProblem(t, got, http.StatusUnprocessableEntity, model.CodeValidation)
}

// TestCSVCutShort: the connection breaks, so that no client takes what it got for the whole.
func TestCSVCutShort(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var next atomic.Int64
	s.fakes.each = func(_ context.Context, _ model.OrderQuery, row func(model.Order) error) error {
		for i := range next.Load() {
			if err := row(model.Order{ID: "o" + strconv.FormatInt(i, 10), VoucherID: "v1"}); err != nil {
				return err
			}
		}
		return errors.New("connection lost at 10.1.2.3")
	}
	for _, rows := range []int64{1, 499, 500, 501, 20_000} {
		next.Store(rows)
		request := s.request(t, t.Context(), http.MethodGet, exported, nil, s.as(t, "a", model.RoleAdmin)...)
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			continue // not even a header arrived, which no client takes for a file
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err == nil {
			t.Errorf("%d rows: %d bytes look like a whole file", rows, len(body))
		}
	}
	if strings.Contains(s.log.String(), `"msg":"panic"`) {
		t.Error("the cut is logged as a panic")
	}
}

// TestCSVStreams sees the first rows before the last ones exist. One that breaks off then never looks whole.
func TestCSVStreams(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, coding := range []string{"identity", "gzip"} {
		seen := make(chan struct{})
		s.fakes.each = func(ctx context.Context, _ model.OrderQuery, row func(model.Order) error) error {
			for i := range 1000 {
				if i == 500 {
					select {
					case <-seen:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				if err := row(model.Order{ID: "o" + strconv.Itoa(i), VoucherID: "v1"}); err != nil {
					return err
				}
			}
			return errors.New("connection lost")
		}
		request := s.request(t, check.Context(t), http.MethodGet, exported, nil, append(s.as(t, "a", model.RoleAdmin), "Accept-Encoding", coding)...)
		response, err := http.DefaultTransport.RoundTrip(request)
		check.Must(t, err)
		defer response.Body.Close()
		body := io.Reader(response.Body)
		if response.Header.Get("Content-Type") != "text/csv; charset=utf-8" || (response.Header.Get("Content-Encoding") == coding) != (coding == "gzip") {
			t.Fatalf("%v", response.Header)
		}
		if coding == "gzip" {
			body = check.Value(gzip.NewReader(body))(t)
		}
		reader := csv.NewReader(body)
		for range 1 + 500 { // not one of them may be kept back in a buffer
			check.Value(reader.Read())(t)
		}
		close(seen)
		if _, err := reader.ReadAll(); err == nil {
			if _, err = io.ReadAll(response.Body); err == nil {
				t.Errorf("half a file of %s looks whole", coding)
			}
		}
	}
}

// TestXLSX: nothing of it is sent before the last row is known, so that a failure is a problem document.
func TestXLSX(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var fails error
	s.fakes.each = func(_ context.Context, _ model.OrderQuery, row func(model.Order) error) error {
		for range 2000 {
			if err := row(model.Order{ID: "o1.v1"}); err != nil {
				return err
			}
		}
		return fails
	}
	path, admin := strings.ReplaceAll(exported, "csv", "xlsx"), s.as(t, "a", model.RoleAdmin)
	got := s.do(t, http.MethodGet, path, "", admin...)
	if got.status != http.StatusOK || got.header.Get("Content-Type") != wire.XLSX || !strings.HasPrefix(got.body, "PK") ||
		got.header.Get("Content-Disposition") != `attachment; filename="orders-v1.xlsx"` {
		t.Errorf("%d %v", got.status, got.header)
	}
	fails = model.Unavailable("The database is away.", nil)
	wantProblem(t, s.do(t, http.MethodGet, path, "", admin...), http.StatusServiceUnavailable, model.CodeUnavailable)
}

func TestCSVHead(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.each = func(_ context.Context, _ model.OrderQuery, row func(model.Order) error) error {
		err := row(model.Order{ID: "o1"})
		if err == nil {
			t.Error("HEAD goes through all the rows")
		}
		return err
	}
	got := s.do(t, http.MethodHead, exported, "", s.as(t, "a", model.RoleAdmin)...)
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "text/csv; charset=utf-8" || got.body != "" {
		t.Errorf("%d %v", got.status, got.header)
	}
}

// TestWaitOutlastsTheWriteTimeout: a client that asked to wait is answered.
func TestWaitOutlastsTheWriteTimeout(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.fakes.getOrder = func(_ context.Context, _, orderID string, wait time.Duration) (model.Order, error) {
			<-time.After(wait)
			return model.Order{ID: orderID, Status: model.OrderUnpaid}, nil
		}
		got := s.do(t, http.MethodGet, "/api/v1/orders/o1.v1?wait=30s", "", s.as(t, "u", model.RoleUser)...)
		if got.status != http.StatusOK || !strings.Contains(got.body, "o1.v1") {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}

// TestExportOutlastsTheWriteTimeout as long as it moves on.
func TestExportOutlastsTheWriteTimeout(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.fakes.each = func(_ context.Context, _ model.OrderQuery, row func(model.Order) error) error {
			for i := range 2001 {
				if err := row(model.Order{ID: "o" + strconv.Itoa(i)}); err != nil {
					return err
				}
				if i%1000 == 999 {
					<-time.After(writeTimeout)
				}
			}
			return nil
		}
		got := s.do(t, http.MethodGet, exported, "", s.as(t, "a", model.RoleAdmin)...)
		if got.status != http.StatusOK || strings.Count(got.body, "\n") != 2002 {
			t.Errorf("%d, %d lines", got.status, strings.Count(got.body, "\n"))
		}
		s.do(t, http.MethodGet, strings.ReplaceAll(exported, "csv", "xlsx"), "", s.as(t, "a", model.RoleAdmin)...).is(t, http.StatusOK)
	})
}

func TestRedemptions(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *handler.Options) {
		o.Redeem = func(_ context.Context, adminID, code string) (model.Order, error) {
			if code == "used" {
				return model.Order{}, &model.Error{Code: model.CodeIllegalState, Detail: "x", OrderStatus: model.OrderRedeemed, RedeemedBy: "till1", RedeemedAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
			}
			return model.Order{ID: "o1.v1", UserID: adminID, Status: model.OrderRedeemed, Code: code, SealedCode: "sealed"}, nil
		}
	})
	const path = "/api/v1/admin/redemptions"
	admin := s.as(t, "boss", model.RoleAdmin)
	got := s.do(t, http.MethodPost, path, `{"code":"7K3M-9QWD"}`, admin...)
	var order map[string]any
	check.Must(t, json.Unmarshal([]byte(got.body), &order))
	if got.status != http.StatusOK || order["status"] != "redeemed" || order["code"] != "7K3M-9QWD" || order["user_id"] != "boss" || strings.Contains(got.body, "ealed") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if p := wantProblem(t, s.do(t, http.MethodPost, path, `{"code":"used"}`, admin...), http.StatusConflict, model.CodeIllegalState); p.OrderStatus != "redeemed" || p.RedeemedBy != "till1" || p.RedeemedAt != "2030-01-02T03:04:05Z" {
		t.Errorf("%+v", p)
	}
	for _, body := range []string{`{}`, `{"code":""}`, `{"code":1}`, `{"code":"x","more":1}`, `{"code":"` + strings.Repeat("x", 129) + `"}`} {
		wantProblem(t, s.do(t, http.MethodPost, path, body, admin...), http.StatusUnprocessableEntity, model.CodeValidation)
	}
	wantProblem(t, s.do(t, http.MethodPost, path, `{"code":"x"}`, s.as(t, "u", model.RoleUser)...), http.StatusForbidden, model.CodeForbidden)
	if strings.Contains(s.log.String(), "7K3M") {
		t.Error("the log holds a code")
	}
}

func TestRefunds(t *testing.T) {
	t.Parallel()
	var asked model.RefundQuery
	s := setup(t, func(o *handler.Options) {
		o.Refund = func(_ context.Context, adminID, orderID string) (model.Refund, error) {
			if orderID == "unpaid.v1" {
				return model.Refund{}, &model.Error{Code: model.CodeIllegalState, Detail: "x", OrderStatus: model.OrderUnpaid}
			}
			return model.Refund{ID: "r1", OrderID: orderID, Actor: adminID, Status: model.RefundPending, Amount: 1000, Currency: "CNY"}, nil
		}
		o.Refunds = func(_ context.Context, q model.RefundQuery) (model.RefundPage, error) {
			asked = q
			return model.RefundPage{}, nil
		}
	})
	admin := s.as(t, "boss", model.RoleAdmin)
	got := s.do(t, http.MethodPost, "/api/v1/admin/orders/o1.v1/refund", "", admin...)
	var made model.Refund
	check.Must(t, json.Unmarshal([]byte(got.body), &made))
	if got.status != http.StatusAccepted || made.OrderID != "o1.v1" || made.Actor != "boss" || made.Status != model.RefundPending {
		t.Errorf("%d %s", got.status, got.body)
	}
	if p := wantProblem(t, s.do(t, http.MethodPost, "/api/v1/admin/orders/unpaid.v1/refund", "{}", admin...), http.StatusConflict, model.CodeIllegalState); p.OrderStatus != "unpaid" {
		t.Errorf("%+v", p)
	}
	wantProblem(t, s.do(t, http.MethodPost, "/api/v1/admin/orders/none/refund", "", admin...), http.StatusNotFound, model.CodeNotFound)
	wantProblem(t, s.do(t, http.MethodPost, "/api/v1/admin/orders/o1.v1/refund", "", s.as(t, "u", model.RoleUser)...), http.StatusForbidden, model.CodeForbidden)

	if got := s.do(t, http.MethodGet, "/api/v1/admin/refunds?status=failed&limit=5", "", admin...); got.status != http.StatusOK || strings.TrimSpace(got.body) != `{"items":[]}` {
		t.Errorf("%d %s", got.status, got.body)
	}
	check.Equal(t, "the query", asked, model.RefundQuery{Status: model.RefundFailed, Limit: 5})
	wantProblem(t, s.do(t, http.MethodGet, "/api/v1/admin/refunds?status=paid", "", admin...), http.StatusUnprocessableEntity, model.CodeValidation)
	wantProblem(t, s.do(t, http.MethodGet, "/api/v1/admin/refunds", "", s.as(t, "u", model.RoleUser)...), http.StatusForbidden, model.CodeForbidden)
}

func TestAdminLog(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	s := setup(t, func(o *handler.Options) {
		o.AdminLog = func(_ context.Context, q model.AdminLogQuery) (model.AdminLogPage, error) {
			return model.AdminLogPage{NextCursor: "next", Items: []model.AdminChange{{
				At: at, Actor: q.Actor, Action: model.ActionVoucherCreate, Subject: "v1", After: json.RawMessage(`{"title":"x"}`),
			}}}, nil
		}
	})
	got := s.do(t, http.MethodGet, "/api/v1/admin/log?actor=issuer:7", "", s.as(t, "boss", model.RoleAdmin)...)
	want := `{"items":[{"at":"2030-01-02T03:04:05Z","actor":"issuer:7","action":"voucher.create","subject":"v1","after":{"title":"x"}}],"next_cursor":"next"}`
	if got.status != http.StatusOK || strings.TrimSpace(got.body) != want {
		t.Errorf("%d %s, want %s", got.status, got.body, want)
	}
	wantProblem(t, s.do(t, http.MethodGet, "/api/v1/admin/log", "", s.as(t, "u", model.RoleUser)...), http.StatusForbidden, model.CodeForbidden)
}

// TestOrdersAreSearchedOverHTTP: what is asked for gets to the search, and viewers see no codes.
func TestOrdersAreSearchedOverHTTP(t *testing.T) {
	t.Parallel()
	var asked model.OrderSearch
	s := setup(t, func(o *handler.Options) {
		o.Search = func(_ context.Context, q model.OrderSearch) (model.OrderPage, error) {
			asked = q
			return model.OrderPage{Items: []model.Order{{ID: "o1.v1", Status: model.OrderPaid, Code: "SECRET"}}}, nil
		}
	})
	const path = "/api/v1/admin/orders"
	for level, sees := range map[model.Level]bool{model.LevelViewer: false, model.LevelCashier: true} {
		bearer := check.Value(s.tokens.Issue(token.Claims{Subject: "a", Role: model.RoleAdmin, Level: level}, time.Hour))(t)
		got := s.do(t, http.MethodGet, path+"?q=%20green%20tea%20&status=paid&limit=7&cursor=c", "", "Authorization", "Bearer "+bearer)
		got.is(t, http.StatusOK)
		want := model.OrderSearch{Words: "green tea", Status: model.OrderPaid, Limit: 7, Cursor: "c"}
		check.That(t, reflect.DeepEqual(asked, want), "asked for %+v, want %+v", asked, want)
		check.Equal(t, "a "+string(level)+" sees the code", strings.Contains(got.body, "SECRET"), sees)
	}
	admin := s.as(t, "a", model.RoleAdmin)
	for _, query := range []string{"?status=gone", "?limit=0", "?q=" + strings.Repeat("x", 201)} {
		wantProblem(t, s.do(t, http.MethodGet, path+query, "", admin...), http.StatusUnprocessableEntity, model.CodeValidation)
	}
}
