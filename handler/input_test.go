package handler_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service"
)

func TestWait(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var waited time.Duration
	s.fakes.getOrder = func(_ context.Context, userID, orderID string, wait time.Duration) (model.Order, error) {
		waited = wait
		return model.Order{ID: orderID, UserID: userID}, nil
	}
	headers := s.as(t, "u", model.RoleUser)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "0s": 0, "10s": 10 * time.Second, "1m": 30 * time.Second, "1h": 30 * time.Second, "1.5s": 1500 * time.Millisecond, "-0s": 0,
	} {
		got := s.do(t, http.MethodGet, "/api/v1/orders/o1.v1?wait="+text, "", headers...)
		if got.status != http.StatusOK || waited != want {
			t.Errorf("%q: %d, waited %s", text, got.status, waited)
		}
	}
	for _, text := range []string{"-1s", "10", "soon", "1d", "10s10", "%20"} {
		p := wantProblem(t, s.do(t, http.MethodGet, "/api/v1/orders/o1.v1?wait="+text, "", headers...), http.StatusUnprocessableEntity, model.CodeValidation)
		if !locates(p, "query.wait") {
			t.Errorf("%q: %v", text, p.Errors)
		}
	}
}

func TestQueries(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var asked model.OrderQuery
	s.fakes.listOrders = func(_ context.Context, query model.OrderQuery) (model.OrderPage, error) {
		asked = query
		return model.OrderPage{}, nil
	}
	headers := s.as(t, "u", model.RoleUser)
	for query, want := range map[string]model.OrderQuery{
		"":                            {UserID: "u", Limit: 20},
		"?limit=100&cursor=abc":       {UserID: "u", Limit: 100, Cursor: "abc"},
		"?status=paid&voucher_id=v1":  {UserID: "u", Limit: 20, Status: model.OrderPaid, VoucherID: "v1"},
		"?limit=1&limit=2&unknown=%0": {UserID: "u", Limit: 1},
		"?cursor=":                    {UserID: "u", Limit: 20},
		"?user_id=somebody-else":      {UserID: "u", Limit: 20},
	} {
		got := s.do(t, http.MethodGet, "/api/v1/orders"+query, "", headers...)
		if got.status != http.StatusOK || asked != want || got.body != `{"items":[]}`+"\n" {
			t.Errorf("%s: %d %s %+v", query, got.status, got.body, asked)
		}
	}
	asked = model.OrderQuery{}
	got := s.do(t, http.MethodGet, "/api/v1/orders?voucher_id=no%20such%20id", "", headers...)
	if got.status != http.StatusOK || got.body != `{"items":[]}`+"\n" || asked != (model.OrderQuery{}) {
		t.Errorf("%d %s", got.status, got.body)
	}
	for query, location := range map[string]string{
		"limit=0": "query.limit", "limit=101": "query.limit", "limit=-1": "query.limit", "limit=ten": "query.limit",
		"limit=1.5": "query.limit", "status=lost": "query.status", "status=Paid": "query.status",
		"limit=99999999999999999999": "query.limit", "cursor=" + strings.Repeat("c", 513): "query.cursor",
	} {
		p := wantProblem(t, s.do(t, http.MethodGet, "/api/v1/orders?"+query, "", headers...), http.StatusUnprocessableEntity, model.CodeValidation)
		if !locates(p, location) {
			t.Errorf("%s: %v", query, p.Errors)
		}
	}
	wantProblem(t, s.do(t, http.MethodGet, "/api/v1/vouchers?phase=over", ""), http.StatusUnprocessableEntity, model.CodeValidation)
}

// TestLogin: what is ill-formed is wrong, and only what is absent is not valid.
func TestLogin(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.login = func(_ context.Context, username, password string) (service.Session, error) {
		if username != "somebody" || password != "long enough" {
			return service.Session{}, &model.Error{Code: model.CodeUnauthenticated, Detail: "wrong"}
		}
		return service.Session{AccessToken: "abc", ExpiresIn: 90 * time.Minute}, nil
	}
	got := s.do(t, http.MethodPost, "/api/v1/auth/login", `{"username":"somebody","password":"long enough"}`)
	if want := `{"access_token":"abc","token_type":"Bearer","expires_in":5400}` + "\n"; got.status != http.StatusOK || got.body != want {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, body := range []string{
		`{"username":"somebody","password":"short"}`, `{"username":"","password":""}`, `{"username":"x y","password":"long enough"}`,
		`{"username":"somebody","password":"` + strings.Repeat("x", 1000) + `"}`,
	} {
		got := s.do(t, http.MethodPost, "/api/v1/auth/login", body)
		wantProblem(t, got, http.StatusUnauthorized, model.CodeUnauthenticated)
		if got.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%v", got.header)
		}
	}
	wantProblem(t, s.do(t, http.MethodPost, "/api/v1/auth/login", `{"username":"somebody"}`), http.StatusUnprocessableEntity, model.CodeValidation)
}

// TestOneRepresentation: whatever a client accepts, it gets JSON that says so.
func TestOneRepresentation(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, accept := range []string{"json", "text/html", "application/problem+json", "application/cbor", "*/*", "application/json;q=0"} {
		got := s.do(t, http.MethodGet, "/api/v1/vouchers", "", "Accept", accept)
		if got.status != http.StatusOK || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", accept, got.status, got.header.Get("Content-Type"))
		}
		wantProblem(t, s.do(t, http.MethodGet, "/api/v1/vouchers?limit=x", "", "Accept", accept), http.StatusUnprocessableEntity, model.CodeValidation)
	}
}

// TestEmptyParameters: what a form or a generated client leaves empty is absent.
func TestEmptyParameters(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var heard call
	heard.listen(s.fakes)
	s.fakes.limits = model.Limits{}
	doc, _ := readDocument(t, s)
	headers := s.as(t, "a", model.RoleAdmin)
	queries := 0
	for template, methods := range doc.Paths {
		var all []string
		for _, parameter := range methods["get"].Parameters {
			if parameter.In == "query" {
				check.That(t, parameter.AllowEmptyValue, "the document lets nobody leave %s of %s empty", parameter.Name, template)
				all = append(all, parameter.Name+"=", parameter.Name)
			}
		}
		if len(all) == 0 || strings.HasSuffix(template, "/refunds") || strings.HasSuffix(template, "/log") {
			continue // the last two have no fakes
		}
		for _, query := range append(all, strings.Join(all, "&")) {
			heard.reset()
			queries++
			got := s.do(t, http.MethodGet, concrete(template)+"?"+query, "", headers...)
			if got.status != http.StatusOK {
				t.Errorf("%s?%s: %d %s", template, query, got.status, got.body)
			}
			if q := heard.orders; q != nil && (q.Limit != 20 || q.Status != "" || q.Cursor != "") {
				t.Errorf("%s?%s asks for %+v", template, query, q)
			}
		}
	}
	if queries < 20 {
		t.Errorf("only %d queries", queries)
	}
}

// A parameter that cannot be read must not vanish, or else the client gets an answer to
// another question than its own. Unknown ones are ignored all the same.
func TestUnreadableParameters(t *testing.T) {
	t.Parallel()
	s := setup(t)
	headers := s.as(t, "a", model.RoleAdmin)
	many := strings.Repeat("&", 10_000)
	for path, queries := range map[string][]string{
		"/api/v1/vouchers":                 {"phase=ended%zz", "phase=ended;", "limit=0;", "limit=1&cursor=%", "%70hase=%f", "unknown=1;phase=ended", "phase=ended" + many},
		"/api/v1/admin/vouchers":           {"phase=ended%zz", "limit=0;"},
		"/api/v1/orders":                   {"status=paid;", "status=paid%zz", "status;", "voucher_id=v1%", "limit=1;limit=2", "status=%zz&status=paid"},
		"/api/v1/orders/o1.v1":             {"wait=bogus%zz", "wait=1s;"},
		"/api/v1/admin/vouchers/v1/orders": {"format=csv%zz", "status=paid;format=csv"},
		"/api/v1/admin/refunds":            {"status=done;"},
		"/api/v1/admin/log":                {"actor=a%zz", "actor=a;"},
	} {
		for _, query := range queries {
			got := s.do(t, http.MethodGet, path+"?"+query, "", headers...)
			if p := wantProblem(t, got, http.StatusUnprocessableEntity, model.CodeValidation); len(p.Errors) != 1 || !locates(p, "query") {
				t.Errorf("%s?%.40s: %v", path, query, p.Errors)
			}
		}
	}
	for _, path := range []string{
		"/api/v1/vouchers?unknown=%zz", "/api/v1/vouchers?unknown=1;2", "/api/v1/vouchers?%zz=1&limit=1", "/api/v1/vouchers?;", "/api/v1/vouchers?limit=1&",
		"/api/v1/auth/me?status=paid;", "/api/v1/vouchers/v1?wait=%zz",
	} {
		s.do(t, http.MethodGet, path, "", headers...).is(t, http.StatusOK)
	}
	for _, path := range []string{seckill, "/api/v1/orders/o1.v1/cancel"} {
		s.fakes.place = func(context.Context, string, string) (model.Order, error) { return model.Order{ID: "o1.v1"}, nil }
		s.fakes.cancel = func(context.Context, string, string) (model.Order, error) { return model.Order{ID: "o1.v1"}, nil }
		if got := s.do(t, http.MethodPost, path+"?status=paid;&wait=%zz", "", headers...); got.status >= http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// What else a request with an unreadable parameter can be refused for comes first.
func TestUnreadableParametersComeLate(t *testing.T) {
	t.Parallel()
	s := setup(t)
	user := s.as(t, "u", model.RoleUser)
	wantProblem(t, s.do(t, http.MethodGet, "/api/v1/orders?status=%zz", ""), http.StatusUnauthorized, model.CodeUnauthenticated)
	wantProblem(t, s.do(t, http.MethodGet, "/api/v1/admin/vouchers?phase=%zz", "", user...), http.StatusForbidden, model.CodeForbidden)
	wantProblem(t, s.do(t, http.MethodGet, "/api/v1/orders/impossible?wait=%zz", "", user...), http.StatusNotFound, model.CodeNotFound)
	wantProblem(t, s.do(t, http.MethodPost, "/api/v1/orders?status=%zz", "", user...), http.StatusMethodNotAllowed, model.CodeMethodNotAllowed)
}
