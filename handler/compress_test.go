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
