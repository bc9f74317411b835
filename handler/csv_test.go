package handler_test

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"seckill/model"
)

const exported = "/api/v1/admin/vouchers/v1/orders?format=csv"

// record asks a handler without a listener.
func record(t *testing.T, h http.Handler, path string) answer {
	t.Helper()
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return answer{recorder.Code, recorder.Header(), recorder.Body.String()}
}

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
	rows, err := csv.NewReader(strings.NewReader(got.body)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"id", "voucher_id", "user_id", "status", "reason", "price", "currency", "created_at", "expires_at", "paid_at", "closed_at"},
		{"o1.v1", "v1", "'-bob", "paid", "", "1000", "CNY", "2030-11-11T12:00:00.123456Z", "", "2030-11-11T12:00:00.123456Z", ""},
		{"o2.v1", "v1", "eve", "paid", "'=1+2, \"said\"\nEve", "0", "", "2030-11-11T12:00:00.123456Z", "", "", ""},
	}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("%q", rows)
	}
}

func TestEmptyCSVHasItsHeader(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.each = func(context.Context, model.OrderQuery, func(model.Order) error) error { return nil }
	got := s.do(t, http.MethodGet, exported, "", s.as(t, "a", model.RoleAdmin)...)
	if got.status != http.StatusOK || !strings.HasPrefix(got.body, "id,voucher_id,") || strings.Count(got.body, "\n") != 1 {
		t.Errorf("%d %q", got.status, got.body)
	}
}

func TestCSVOfNothingIsAProblem(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.each = func(context.Context, model.OrderQuery, func(model.Order) error) error {
		return model.NotFound("voucher")
	}
	wantProblem(t, s.do(t, http.MethodGet, exported, "", s.as(t, "a", model.RoleAdmin)...), http.StatusNotFound, model.CodeNotFound)
	got := s.do(t, http.MethodGet, exported+"&format=xml", "", s.as(t, "a", model.RoleAdmin)...)
	if got.status != http.StatusNotFound { // the first format counts
		t.Errorf("%d", got.status)
	}
	got = s.do(t, http.MethodGet, "/api/v1/admin/vouchers/v1/orders?format=xml", "", s.as(t, "a", model.RoleAdmin)...)
	wantProblem(t, got, http.StatusUnprocessableEntity, model.CodeValidation)
}

// TestCSVCutShort: the connection breaks, so that no client takes what it got
// for the whole.
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
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+exported, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+s.token(t, "a", model.RoleAdmin))
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			continue // not even a header arrived: nobody takes that for a file
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

// TestCSVStreams sees the first rows before the last ones exist.
func TestCSVStreams(t *testing.T) {
	t.Parallel()
	s := setup(t)
	seen := make(chan struct{})
	timeout := time.After(10 * time.Second)
	s.fakes.each = func(_ context.Context, _ model.OrderQuery, row func(model.Order) error) error {
		for i := range 501 {
			if i == 500 {
				select {
				case <-seen:
				case <-timeout:
					return errors.New("the first rows did not arrive")
				}
			}
			if err := row(model.Order{ID: "o" + strconv.Itoa(i), VoucherID: "v1"}); err != nil {
				return err
			}
		}
		return nil
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+exported, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.token(t, "a", model.RoleAdmin))
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	reader := csv.NewReader(response.Body)
	for range 1 + 500 { // not one of them may be kept back in a buffer
		if _, err := reader.Read(); err != nil {
			t.Fatal(err)
		}
	}
	close(seen)
	rest, err := reader.ReadAll()
	if err != nil || len(rest) != 1 {
		t.Errorf("%d more rows, %v", len(rest), err)
	}
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
