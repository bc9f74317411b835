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
	for status, is := range map[int]model.OrderStatus{201: model.OrderUnpaid, 202: model.OrderProcessing} {
		s.fakes.place = func(ctx context.Context, userID, voucherID string) (model.Order, error) {
			order, err := sold(ctx, userID, voucherID)
			order.Status = is
			return order, err
		}
		for _, body := range []string{"", "{}", " { }\n"} {
			got := s.do(t, http.MethodPost, seckill, body, s.as(t, "bob:1", model.RoleUser)...)
			got.is(t, status)
			check.Equal(t, "the place", got.header.Get("Location"), "/api/v1/orders/o1.v1")
			check.Equal(t, "the type", got.header.Get("Content-Type"), "application/json")
			check.That(t, strings.Contains(got.body, `"user_id":"bob:1"`), "%s", got.body)
		}
	}
}

func TestPlaceRefusals(t *testing.T) { //nolint:tparallel // one server, which refuses for another reason each time
	t.Parallel()
	s := setup(t)
	begin := time.Date(2031, time.May, 1, 8, 0, 0, 0, time.FixedZone("", 8*3600))
	for _, test := range []struct {
		err         error
		status      int
		code        model.Code
		after, says string // Retry-After, and a part of the body
	}{
		{model.NotFound("voucher"), 404, model.CodeNotFound, "", ""},
		{&model.Error{Code: model.CodeEnded, Detail: "x"}, 409, model.CodeEnded, "", ""},
		{&model.Error{Code: model.CodePaused, Detail: "x"}, 409, model.CodePaused, "", ""},
		{
			&model.Error{Code: model.CodeNotStarted, Detail: "x", BeginAt: begin, RetryAfter: 1001 * time.Millisecond},
			409, model.CodeNotStarted, "2", `"begin_at":"2031-05-01T00:00:00Z"`,
		},
		{
			model.AlreadyOrdered(model.Order{ID: "o9.v1", Status: model.OrderUnpaid}),
			409, model.CodeAlreadyOrdered, "", `"order_id":"o9.v1","order_status":"unpaid"`,
		},
		{model.SoldOut(), 409, model.CodeSoldOut, "", ""},
		{&model.Error{Code: model.CodeLockBusy, Detail: "x"}, 429, model.CodeLockBusy, "1", ""},
		{model.Unavailable("x", errors.New("dial tcp 10.1.2.3:3306")), 503, model.CodeUnavailable, "1 to 5", ""},
		{fmt.Errorf("create order: %w", context.DeadlineExceeded), 503, model.CodeUnavailable, "1 to 5", ""},
		{errors.New("dial tcp 10.1.2.3:3306: secret"), 500, model.CodeInternal, "", ""},
		{&model.Error{Code: model.CodeInternal, Detail: "10.1.2.3"}, 500, model.CodeInternal, "", ""},
		{&model.Error{Code: "SOMETHING_NEW", Detail: "10.1.2.3"}, 500, model.CodeInternal, "", ""},
	} {
		t.Run(string(test.code), func(t *testing.T) {
			s.fakes.place = func(context.Context, string, string) (model.Order, error) { return model.Order{}, test.err }
			got := s.do(t, http.MethodPost, seckill, "", s.as(t, "u", model.RoleUser)...)
			wantProblem(t, got, test.status, test.code)
			after := got.header.Get("Retry-After")
			check.That(t, after == test.after ||
				test.after == "1 to 5" && len(after) == 1 && strings.Contains("12345", after), "Retry-After = %q",
				after)
			check.That(t, strings.Contains(got.body, test.says) && !strings.Contains(got.body, "10.1.2.3"), "%s",
				got.body)
			known := strings.Contains(s.log.String(), got.header.Get("X-Request-Id"))
			check.That(t, known || test.code != model.CodeInternal, "the log does not know the request")
		})
	}
}

// A request that everything is wrong with is mended fault by fault in the contract's order, spent limits included.
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
		if seconds, err := strconv.Atoi(got.header.Get("Retry-After")); step.status == 429 &&
			(err != nil || seconds < 3600 || seconds > 3604) {
			t.Errorf("Retry-After = %q", got.header.Get("Retry-After"))
		}
	}
	if strings.HasSuffix(t.Name(), "user") { // another one has not spent anything, and hears of the next fault
		wantProblem(t, s.do(t, http.MethodPost, nowhere, "{}", s.as(t, "another", model.RoleUser)...),
			http.StatusNotFound, model.CodeNotFound)
	}
}

func TestLimitUnderParallelRequests(t *testing.T) {
	t.Parallel()
	s := setup(t, byUser(t, 7, 24*time.Hour))
	headers := s.as(t, "u", model.RoleUser)
	var answers [60]int
	check.Volley(len(answers), func(i int) { answers[i] = s.do(t, http.MethodPost, seckill, "", headers...).status })
	slices.Sort(answers[:])
	if answers[0] != http.StatusCreated || answers[6] != http.StatusCreated ||
		answers[7] != http.StatusTooManyRequests || answers[59] != http.StatusTooManyRequests {
		t.Errorf("a limit of 7: %v", answers)
	}
}

// Each route names the first fault, and the next one when that is mended: token, level, size and type of the body, an
// impossible id, then what body and query say. A purchase has an order of its own: see precedence.
func TestEveryRouteRefuses(t *testing.T) {
	t.Parallel()
	s := setup(t)
	doc, _ := readDocument(t, s)
	large, query, routes := strings.Repeat(" ", 17<<10), "?limit=0&wait=junk&format=xml&phase=%zz&status=%zz", 0
	ids := map[string][]string{
		"/orders/{id}":   {"%00", "a%2Fb", "%20", "a:b", strings.Repeat("a", 65), "%E5%88%B8", "%ff", "..%2f..", "abc", ".v1"},
		"/vouchers/{id}": {"%00", "a%2Fb", "%20", "a:b", strings.Repeat("a", 65), "%E5%88%B8", "%ff", "..%2f.."},
	}
	for template, methods := range doc.Paths {
		for method, op := range methods {
			if op.OperationID == "seckill" || op.OperationID == "payment-webhook" {
				continue
			}
			routes++
			method = strings.ToUpper(method)
			bearer := s.as(t, "a", model.RoleAdmin)
			typed := append([]string{"Content-Type", "text/plain"}, bearer...)
			refuses := func(path, body string, status int, code model.Code, headers ...string) {
				if got := s.do(t, method, path, body, headers...); got.status != status || !strings.Contains(got.body, `"code":"`+string(code)+`"`) {
					t.Errorf("%s %s with %.20q: %d %s, want %d %s", method, path, body, got.status, got.body, status,
						code)
				}
			}
			faults := func(path string) {
				if len(op.Security) == 1 && len(op.Security[0]) > 0 {
					refuses(path, large, 401, model.CodeUnauthenticated, "Content-Type", "text/plain")
				}
				if op.LeastLevel != "" {
					refuses(path, large, 403, model.CodeForbidden, s.as(t, "u", model.RoleUser)...)
				}
				refuses(path, large, 413, model.CodePayloadTooLarge, typed...)
				if method != http.MethodGet && method != http.MethodDelete {
					refuses(path, "{", 415, model.CodeUnsupportedMediaType, typed...)
				}
			}
			for segment, impossible := range ids {
				for _, id := range impossible {
					path := strings.Replace(template, "{id}", id, 1) + query
					if !strings.Contains(template, segment) {
						break
					}
					faults(path)
					for _, body := range []string{"", "{", `{"foo":1}`} {
						refuses(path, body, 404, model.CodeNotFound, bearer...)
					}
					if method == http.MethodGet {
						s.do(t, http.MethodHead, path, "", bearer...).is(t, http.StatusNotFound)
					}
				}
			}
			faults(concrete(template) + query)
			for _, parameter := range op.Parameters {
				if parameter.In == "query" {
					refuses(concrete(template)+query+"&"+parameter.Name+"=%zz", "", 422, model.CodeValidation,
						bearer...)
				}
			}
			if method == http.MethodGet || method == http.MethodDelete {
				continue
			}
			for body, status := range map[string]int{"{": 400, "null null": 400, "[]": 422, "[null]": 422} {
				refuses(concrete(template), body, status, model.CodeValidation, bearer...)
			}
		}
	}
	check.That(t, routes > 25, "only %d routes", routes)
	refused := s.do(t, http.MethodPost, "/api/v1/orders?status=%zz", "", s.as(t, "u", model.RoleUser)...)
	wantProblem(t, refused, http.StatusMethodNotAllowed, model.CodeMethodNotAllowed)
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
		got.is(t, http.StatusOK)
		check.That(t, order.Status == model.OrderCanceled && order.UserID == "u" && order.ID == "o1.v1", "%s", got.body)
	}
	p := wantProblem(t, s.do(t, http.MethodPost, "/api/v1/orders/paid.v1/cancel", "", user...), http.StatusConflict,
		model.CodeIllegalState)
	check.Equal(t, "the order's status", p.OrderStatus, "paid")
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
	got.is(t, http.StatusAccepted)
	check.Equal(t, "the answer", got.body, "{\"voucher_id\":\"v1\",\"state\":\"rebuilding\"}\n")
	wantProblem(t, s.do(t, http.MethodPost, "/api/v1/admin/vouchers/sync/rebuild", "", admin...), http.StatusConflict,
		model.CodeConflict)
}

func TestWorkersServeTheirHealthOnly(t *testing.T) {
	t.Parallel()
	f := &fakes{checks: []service.Check{{Name: "queue", Err: model.Unavailable("The queue is away.", nil)}}}
	h := check.Value(handler.NewHealthOnly(handler.Options{
		Health: fakeHealth{f}, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	}))(t)
	ask := func(method, path string) answer { return record(t, h, method, path) }
	ask(http.MethodGet, "/livez").is(t, http.StatusOK)
	p := wantProblem(t, ask(http.MethodGet, "/readyz"), http.StatusServiceUnavailable, model.CodeUnavailable)
	check.Equal(t, "the queue", p.Checks["queue"], "The queue is away.")
	f.checks = nil
	ask(http.MethodGet, "/readyz").is(t, http.StatusOK)
	wantProblem(t, ask(http.MethodPost, "/livez"), http.StatusMethodNotAllowed, model.CodeMethodNotAllowed)
	for _, path := range []string{"/", "/api/v1/vouchers", "/api/v1/openapi.json", "/api/v1/docs", "/api/v1/orders/o1.v1", seckill} {
		wantProblem(t, ask(http.MethodGet, path), http.StatusNotFound, model.CodeNotFound)
	}
}

const exported = "/api/v1/admin/vouchers/v1/orders?format=csv"

func rows(count int, fails error) func(context.Context, model.OrderQuery, func(model.BookedOrder) error) error {
	return func(_ context.Context, _ model.OrderQuery, row func(model.BookedOrder) error) error {
		for i := range count {
			if err := row(model.BookedOrder{Order: model.Order{ID: "o" + strconv.Itoa(i) + ".v1", VoucherID: "v1"}}); err != nil {
				return err
			}
		}
		return fails
	}
}

func TestCSV(t *testing.T) {
	t.Parallel()
	s := setup(t)
	at := time.Date(2030, time.November, 11, 20, 0, 0, 123456000, time.FixedZone("", 8*3600))
	s.fakes.each = func(_ context.Context, query model.OrderQuery, row func(model.BookedOrder) error) error {
		check.Equal(t, "the query", query, model.OrderQuery{VoucherID: "v1", Status: model.OrderPaid})
		return errors.Join(
			row(model.BookedOrder{Order: model.Order{
				ID: "o1.v1", VoucherID: "v1", UserID: "-bob", Status: model.OrderPaid, Price: 1000,
				Currency: "CNY", CreatedAt: at, PaidAt: &at,
			}, Reference: "=till 7", Place: "north", Received: 1000, Returned: 5}),
			row(model.BookedOrder{Order: model.Order{
				ID: "o2.v1", VoucherID: "v1", UserID: "eve", Status: model.OrderPaid,
				Reason: "=1+2, \"said\"\nEve", CreatedAt: at,
			}}),
		)
	}
	admin := s.as(t, "a", model.RoleAdmin)
	got := s.do(t, http.MethodGet, exported+"&status=paid", "", admin...)
	got.is(t, http.StatusOK)
	check.Equal(t, "the type", got.header.Get("Content-Type"), "text/csv; charset=utf-8")
	check.Equal(t, "the file's name", got.header.Get("Content-Disposition"), `attachment; filename="orders-v1.csv"`)
	const head = "id,voucher_id,user_id,status,reason,price,currency,created_at,expires_at,paid_at,closed_at,redeemed_at,reference,place,received,returned\r\n"
	check.Equal(t, "the file", got.body, head+ // whose lines end as RFC 4180 has it
		"o1.v1,v1,'-bob,paid,,1000,CNY,2030-11-11T12:00:00.123456Z,,2030-11-11T12:00:00.123456Z,,,'=till 7,north,1000,5\r\n"+
		"o2.v1,v1,eve,paid,\"'=1+2, \"\"said\"\"\r\nEve\",0,,2030-11-11T12:00:00.123456Z,,,,,,,0,0\r\n")
	s.fakes.each = rows(0, nil)
	got = s.do(t, http.MethodGet, exported, "", admin...)
	got.is(t, http.StatusOK)
	check.Equal(t, "the file of nothing", got.body, head)
	s.fakes.each = rows(0, model.NotFound("voucher"))
	for _, path := range []string{exported, exported + "&format=xml"} { // the first format counts
		wantProblem(t, s.do(t, http.MethodGet, path, "", admin...), http.StatusNotFound, model.CodeNotFound)
	}
}

// TestCSVCutShort: the connection breaks, so that no client takes what it got for the whole.
func TestCSVCutShort(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, 499, 500, 501, 20_000} {
		s := setup(t) // the request before may not have ended yet
		s.fakes.each = rows(count, errors.New("connection lost at 10.1.2.3"))
		request := s.request(t, t.Context(), http.MethodGet, exported, nil, s.as(t, "a", model.RoleAdmin)...)
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			continue // not even a header arrived, which no client takes for a file
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		check.That(t, err != nil, "%d rows: %d bytes look like a whole file", count, len(body))
		check.That(t, !strings.Contains(s.log.String(), `"msg":"panic"`), "the cut is logged as a panic")
	}
}

// TestCSVStreams sees the first rows before the last ones exist. One that breaks off then never looks whole.
func TestCSVStreams(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, coding := range []string{"identity", "gzip"} {
		seen := make(chan struct{})
		s.fakes.each = func(ctx context.Context, query model.OrderQuery, row func(model.BookedOrder) error) error {
			if err := rows(500, nil)(ctx, query, row); err != nil {
				return err
			}
			select {
			case <-seen:
			case <-ctx.Done():
			}
			return rows(500, errors.New("connection lost"))(ctx, query, row)
		}
		request := s.request(t, check.Context(t), http.MethodGet, exported, nil,
			append(s.as(t, "a", model.RoleAdmin), "Accept-Encoding", coding)...)
		response, err := http.DefaultTransport.RoundTrip(request)
		check.Must(t, err)
		defer response.Body.Close()
		body := io.Reader(response.Body)
		if coding == "gzip" {
			body = check.Value(gzip.NewReader(body))(t)
		}
		check.Equal(t, "the type", response.Header.Get("Content-Type"), "text/csv; charset=utf-8")
		check.Equal(t, "the coding", response.Header.Get("Content-Encoding") == "gzip", coding == "gzip")
		reader := csv.NewReader(body)
		for range 1 + 500 { // not one of them may be kept back in a buffer
			check.Value(reader.Read())(t)
		}
		close(seen)
		_, err = reader.ReadAll()
		if err == nil {
			_, err = io.ReadAll(response.Body)
		}
		check.That(t, err != nil, "half a file of %s looks whole", coding)
	}
}

// TestXLSX: nothing of it is sent before the last row is known, so that a failure is a problem document.
func TestXLSX(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.each = rows(2000, nil)
	path, admin := strings.ReplaceAll(exported, "csv", "xlsx"), s.as(t, "a", model.RoleAdmin)
	got := s.do(t, http.MethodGet, path, "", admin...)
	got.is(t, http.StatusOK)
	check.Equal(t, "the type", got.header.Get("Content-Type"), wire.XLSX)
	check.Equal(t, "the file's name", got.header.Get("Content-Disposition"), `attachment; filename="orders-v1.xlsx"`)
	check.That(t, strings.HasPrefix(got.body, "PK"), "%.20q", got.body)
	s.fakes.each = rows(2000, model.Unavailable("The database is away.", nil))
	wantProblem(t, s.do(t, http.MethodGet, path, "", admin...), http.StatusServiceUnavailable, model.CodeUnavailable)
}

func TestCSVHead(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.each = func(_ context.Context, _ model.OrderQuery, row func(model.BookedOrder) error) error {
		err := row(model.BookedOrder{})
		check.That(t, err != nil, "HEAD goes through all the rows")
		return err
	}
	// TestHead compares the headers.
	s.do(t, http.MethodHead, exported, "", s.as(t, "a", model.RoleAdmin)...).is(t, http.StatusOK)
}

func TestWaitOutlastsTheWriteTimeout(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.fakes.getOrder = func(_ context.Context, _, orderID string, wait time.Duration) (model.Order, error) {
			<-time.After(wait)
			return model.Order{ID: orderID, Status: model.OrderUnpaid}, nil
		}
		s.do(t, http.MethodGet, "/api/v1/orders/o1.v1?wait=30s", "", s.as(t, "u", model.RoleUser)...).is(t,
			http.StatusOK)
	})
}

func TestExportOutlastsTheWriteTimeout(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.fakes.each = func(ctx context.Context, query model.OrderQuery, row func(model.BookedOrder) error) error {
			for range 2 {
				check.Must(t, rows(1000, nil)(ctx, query, row))
				<-time.After(writeTimeout)
			}
			return rows(1, nil)(ctx, query, row)
		}
		got := s.do(t, http.MethodGet, exported, "", s.as(t, "a", model.RoleAdmin)...)
		got.is(t, http.StatusOK)
		check.Equal(t, "lines", strings.Count(got.body, "\n"), 2002)
		s.do(t, http.MethodGet, strings.ReplaceAll(exported, "csv", "xlsx"), "", s.as(t, "a", model.RoleAdmin)...).is(t,
			http.StatusOK)
	})
}

func TestRedemptions(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *handler.Options) {
		o.Redeem = func(_ context.Context, till model.Till, code string) (model.Order, error) {
			adminID := till.By
			if code == "used" {
				return model.Order{}, &model.Error{
					Code: model.CodeIllegalState, Detail: "x", OrderStatus: model.OrderRedeemed,
					RedeemedBy: "till1", RedeemedAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
				}
			}
			return model.Order{
				ID: "o1.v1", UserID: adminID, Status: model.OrderRedeemed, Code: code,
				SealedCode: "sealed",
			}, nil
		}
	})
	const path = "/api/v1/admin/redemptions"
	admin := s.as(t, "boss", model.RoleAdmin)
	got := s.do(t, http.MethodPost, path, `{"code":"7K3M-9QWD"}`, admin...)
	got.is(t, http.StatusOK)
	for _, member := range []string{`"status":"redeemed"`, `"code":"7K3M-9QWD"`, `"user_id":"boss"`} {
		check.That(t, strings.Contains(got.body, member) && !strings.Contains(got.body, "ealed\""), "%s", got.body)
	}
	p := wantProblem(t, s.do(t, http.MethodPost, path, `{"code":"used"}`, admin...), http.StatusConflict,
		model.CodeIllegalState)
	check.Equal(t, "by whom and when", fmt.Sprint(p.OrderStatus, " ", p.RedeemedBy, " ", p.RedeemedAt),
		"redeemed till1 2030-01-02 03:04:05 +0000 UTC")
	for _, body := range []string{`{}`, `{"code":""}`, `{"code":1}`, `{"code":"` + strings.Repeat("x", 129) + `"}`} {
		wantProblem(t, s.do(t, http.MethodPost, path, body, admin...), http.StatusUnprocessableEntity,
			model.CodeValidation)
	}
	check.That(t, !strings.Contains(s.log.String(), "7K3M"), "the log holds a code")
}

func TestRefunds(t *testing.T) {
	t.Parallel()
	var asked model.RefundQuery
	s := setup(t, func(o *handler.Options) {
		o.Refund = func(_ context.Context, adminID, orderID string, ask model.RefundAsk) (model.Refund, error) {
			if ask.Used {
				adminID = "used"
			}
			if orderID == "unpaid.v1" {
				return model.Refund{}, &model.Error{
					Code: model.CodeIllegalState, Detail: "x",
					OrderStatus: model.OrderUnpaid,
				}
			}
			return model.Refund{
				ID: "r1", OrderID: orderID, Actor: adminID, Status: model.RefundPending, Amount: 1000,
				Currency: "CNY",
			}, nil
		}
		o.Refunds = func(_ context.Context, q model.RefundQuery) (model.RefundPage, error) {
			asked = q
			return model.RefundPage{}, nil
		}
	})
	admin := s.as(t, "boss", model.RoleAdmin)
	got := s.do(t, http.MethodPost, "/api/v1/admin/orders/o1.v1/refund", "", admin...)
	got.is(t, http.StatusAccepted)
	for _, member := range []string{`"order_id":"o1.v1"`, `"by":"boss"`, `"status":"pending"`} {
		check.That(t, strings.Contains(got.body, member), "%s", got.body)
	}
	for body, by := range map[string]string{`{}`: "boss", `{"used":false}`: "boss", `{"used":true}`: "used"} {
		got := s.do(t, http.MethodPost, "/api/v1/admin/orders/o1.v1/refund", body, admin...)
		check.That(t, strings.Contains(got.body, `"by":"`+by+`"`), "%s: %s", body, got.body)
	}
	for _, body := range []string{`{"used":1}`, `{"used":null}`, `{"useD":true}`, `{"used":true,"x":1}`, `[]`} {
		wantProblem(t, s.do(t, http.MethodPost, "/api/v1/admin/orders/o1.v1/refund", body, admin...),
			http.StatusUnprocessableEntity, model.CodeValidation)
	}
	p := wantProblem(t, s.do(t, http.MethodPost, "/api/v1/admin/orders/unpaid.v1/refund", "{}", admin...),
		http.StatusConflict, model.CodeIllegalState)
	check.Equal(t, "the order's status", p.OrderStatus, "unpaid")
	got = s.do(t, http.MethodGet, "/api/v1/admin/refunds?status=failed&limit=5", "", admin...)
	got.is(t, http.StatusOK)
	check.Equal(t, "the list", got.body, `{"items":[]}`+"\n")
	check.Equal(t, "the query", asked, model.RefundQuery{Status: model.RefundFailed, Limit: 5})
	wantProblem(t, s.do(t, http.MethodGet, "/api/v1/admin/refunds?status=paid", "", admin...),
		http.StatusUnprocessableEntity, model.CodeValidation)
}

func TestAdminLog(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *handler.Options) {
		o.AdminLog = func(_ context.Context, q model.AdminLogQuery) (model.AdminLogPage, error) {
			return model.AdminLogPage{NextCursor: "next", Items: []model.AdminChange{{
				At: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Actor: q.Actor, Action: model.ActionVoucherCreate,
				Subject: "v1", After: json.RawMessage(`{"title":"x"}`),
			}}}, nil
		}
	})
	got := s.do(t, http.MethodGet, "/api/v1/admin/log?actor=issuer:7", "", s.as(t, "boss", model.RoleAdmin)...)
	got.is(t, http.StatusOK)
	check.Equal(t, "the log", strings.TrimSpace(got.body), `{"items":[{"at":"2030-01-02T03:04:05Z","actor":"issuer:7",`+
		`"action":"voucher.create","subject":"v1","after":{"title":"x"}}],"next_cursor":"next"}`)
}

// TestOrdersAreSearchedOverHTTP: what is asked for gets to the search, and viewers see no codes.
func TestOrdersAreSearchedOverHTTP(t *testing.T) {
	t.Parallel()
	var asked model.OrderQuery
	s := setup(t, func(o *handler.Options) {
		o.Search = func(_ context.Context, q model.OrderQuery) (model.OrderPage, error) {
			asked = q
			return model.OrderPage{Items: []model.Order{{ID: "o1.v1", Status: model.OrderPaid, Code: "SECRET"}}}, nil
		}
	})
	const path = "/api/v1/admin/orders"
	for level, sees := range map[model.Level]bool{model.LevelViewer: false, model.LevelCashier: true} {
		bearer := check.Value(s.tokens.Issue(token.Claims{Subject: "a", Role: model.RoleAdmin, Level: level},
			time.Hour))(t)
		got := s.do(t, http.MethodGet, path+"?q=%20green%20tea%20&status=paid&limit=7&cursor=c", "", "Authorization",
			"Bearer "+bearer)
		got.is(t, http.StatusOK)
		want := model.OrderQuery{
			Words: "green tea", Status: model.OrderPaid, Limit: 7, Cursor: "c", Till: &model.Till{By: "a"},
		}
		check.That(t, reflect.DeepEqual(asked, want), "asked for %+v, want %+v", asked, want)
		check.Equal(t, "a "+string(level)+" sees the code", strings.Contains(got.body, "SECRET"), sees)
	}
	admin := s.as(t, "a", model.RoleAdmin)
	from, to := time.Date(2030, time.November, 1, 0, 0, 0, 0, time.UTC), time.Date(2030, time.December, 1, 0, 0, 0, 0, time.UTC)
	for query, want := range map[string]model.Span{
		"?of=paid&from=2030-11-01T00:00:00Z&to=2030-12-01T00:00:00Z": {Of: model.InstantPaid, From: from, To: to},
		"?from=2030-11-01T00:00:00Z&of=":                             {Of: model.InstantCreated, From: from},
		"?of=closed&from=":                                           {Of: model.InstantClosed},
	} {
		s.do(t, http.MethodGet, path+query, "", admin...).is(t, http.StatusOK)
		check.That(t, reflect.DeepEqual(asked, model.OrderQuery{Span: want, Limit: 20}), "%s asked for %+v", query, asked)
		s.fakes.each = func(_ context.Context, q model.OrderQuery, _ func(model.BookedOrder) error) error {
			check.That(t, reflect.DeepEqual(q, model.OrderQuery{Span: want}), "%s exports %+v", query, q)
			return nil
		}
		got := s.do(t, http.MethodGet, path+query+"&format=csv", "", admin...)
		check.Equal(t, "the file's name", got.header.Get("Content-Disposition"), `attachment; filename="orders.csv"`)
	}
	for _, query := range []string{
		"?status=gone", "?limit=0", "?q=" + strings.Repeat("x", 201), "?of=unpaid", "?from=yesterday",
		"?to=2030-11-01", "?from=0999-12-31T23:59:59Z",
	} {
		wantProblem(t, s.do(t, http.MethodGet, path+query, "", admin...), http.StatusUnprocessableEntity,
			model.CodeValidation)
	}
}
