package handler_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/handler"
	"seckill/model"
	"seckill/service"
)

func TestCancel(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.cancel = func(_ context.Context, userID, orderID string) (model.Order, error) {
		switch orderID {
		case "gone.v1":
			return model.Order{}, model.NotFound("order")
		case "paid.v1":
			return model.Order{}, &model.Error{Code: model.CodeIllegalState, Detail: "x", OrderStatus: model.OrderPaid}
		case "away.v1":
			return model.Order{}, model.Unavailable("x", nil)
		}
		return model.Order{ID: orderID, VoucherID: "v1", UserID: userID, Status: model.OrderCanceled}, nil
	}
	user := s.as(t, "u", model.RoleUser)
	for _, body := range []string{"", "{}"} {
		got := s.do(t, http.MethodPost, "/api/v1/orders/o1.v1/cancel", body, user...)
		var order model.Order
		if err := json.Unmarshal([]byte(got.body), &order); err != nil || got.status != http.StatusOK ||
			order.Status != model.OrderCanceled || order.UserID != "u" || order.ID != "o1.v1" {
			t.Errorf("%q: %d %s, %v", body, got.status, got.body, err)
		}
	}
	for id, want := range map[string]struct {
		status int
		code   model.Code
	}{
		"gone.v1": {http.StatusNotFound, model.CodeNotFound},
		"paid.v1": {http.StatusConflict, model.CodeIllegalState},
		"away.v1": {http.StatusServiceUnavailable, model.CodeUnavailable},
	} {
		p := wantProblem(t, s.do(t, http.MethodPost, "/api/v1/orders/"+id+"/cancel", "", user...), want.status, want.code)
		if (p.OrderStatus == "paid") != (id == "paid.v1") {
			t.Errorf("%s: order_status %q", id, p.OrderStatus)
		}
	}
	wantProblem(t, s.do(t, http.MethodPost, "/api/v1/orders/o1.v1/cancel", ""), http.StatusUnauthorized, model.CodeUnauthenticated)
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.rebuild = func(_ context.Context, id string) error {
		if id == "sync" {
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
		for body, want := range map[string]int{`{"why":1}`: 422, "[]": 422, "null": 422, "{": 400} {
			wantProblem(t, s.do(t, http.MethodPost, there, body, admin...), want, model.CodeValidation)
			wantProblem(t, s.do(t, http.MethodPost, nowhere, body, admin...), http.StatusNotFound, model.CodeNotFound)
		}
		large := s.do(t, http.MethodPost, nowhere, strings.Repeat(" ", 17<<10), admin...)
		wantProblem(t, large, http.StatusRequestEntityTooLarge, model.CodePayloadTooLarge)
	}
}

// TestBothAnswersToAPurchaseAreDocumented: which one it is depends on the mode.
func TestBothAnswersToAPurchaseAreDocumented(t *testing.T) {
	t.Parallel()
	doc, _ := readDocument(t, setup(t))
	responses := doc.Paths["/api/v1/vouchers/{id}/seckill"]["post"].Responses
	for _, status := range []string{"201", "202"} {
		if _, ok := responses[status].Content["application/json"]; !ok || responses[status].Headers["Location"] == nil {
			t.Errorf("%s: %+v", status, responses[status])
		}
	}
}

func TestWorkersServeTheirHealthOnly(t *testing.T) {
	t.Parallel()
	f := &fakes{checks: []service.Check{{Name: "queue", Err: model.Unavailable("The queue is away.", nil)}}}
	h, err := handler.NewHealthOnly(handler.Options{
		Health: fakeHealth{f}, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path string) answer {
		recorder := httptest.NewRecorder()
		h.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return answer{status: recorder.Code, header: recorder.Header(), body: recorder.Body.String()}
	}
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
