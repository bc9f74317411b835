package e2e_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// refused holds an answer to everything the contract says of a refusal, and
// returns its document.
func refused(t *testing.T, got answer, status int, code model.Code) problem {
	t.Helper()
	if got.status != status || got.code() != code {
		t.Errorf("got %d %s %s, want %d %s", got.status, got.header.Get("Content-Type"), got.body, status, code)
		return problem{}
	}
	p := decode[problem](t, got)
	if p.Type != "/problems/"+strings.ToLower(strings.ReplaceAll(string(code), "_", "-")) || p.Status != status || p.Title == "" || p.Detail == "" {
		t.Errorf("%s", got.body)
	}
	if got.header.Get("X-Request-Id") == "" {
		t.Errorf("%s has no X-Request-Id", code)
	}
	if contentType := got.header.Get("Content-Type"); contentType != "application/problem+json" {
		t.Errorf("Content-Type: %s", contentType)
	}
	seconds, err := strconv.Atoi(got.header.Get("Retry-After"))
	switch code {
	case model.CodeNotStarted, model.CodeLockBusy, model.CodeRateLimited, model.CodeUnavailable:
		if err != nil || seconds < 1 {
			t.Errorf("%s: Retry-After = %q", code, got.header.Get("Retry-After"))
		}
	default:
		if got.header.Get("Retry-After") != "" {
			t.Errorf("%s has a Retry-After", code)
		}
	}
	bearer := got.header.Get("WWW-Authenticate")
	switch code {
	case model.CodeUnauthenticated:
		if bearer != "Bearer" && !strings.HasPrefix(bearer, `Bearer error="invalid_token", `) {
			t.Errorf("%s: WWW-Authenticate = %q", code, bearer)
		}
	case model.CodeForbidden:
		if bearer != `Bearer error="insufficient_scope"` {
			t.Errorf("%s: WWW-Authenticate = %q", code, bearer)
		}
	default:
		if bearer != "" {
			t.Errorf("%s: WWW-Authenticate = %q", code, bearer)
		}
	}
	if (code == model.CodeMethodNotAllowed) != (got.header.Get("Allow") != "") {
		t.Errorf("%s: Allow = %q", code, got.header.Get("Allow"))
	}
	if (code == model.CodeValidation) != (len(p.Errors) > 0) {
		t.Errorf("%s: errors = %v", code, p.Errors)
	}
	if (code == model.CodeNotStarted) == p.BeginAt.IsZero() {
		t.Errorf("%s: begin_at = %s", code, p.BeginAt)
	}
	if (code == model.CodeAlreadyOrdered) != (p.OrderID != "" && p.OrderStatus != "") {
		t.Errorf("%s: order_id = %q, order_status = %q", code, p.OrderID, p.OrderStatus)
	}
	return p
}

// TestErrorTable goes through the contract's table of errors.
func TestErrorTable(t *testing.T) {
	t.Parallel()
	everywhere(t, checkErrorTable)
}

func checkErrorTable(t *testing.T, in shop) {
	t.Helper()
	a := in.elsewhere(t)
	now := time.Now().UTC().Truncate(time.Second)
	live := a.onSale(t, 1)
	begin, end := now.Add(time.Hour), now.Add(2*time.Hour)
	upcoming := a.create(t, map[string]any{"begin_at": begin, "end_at": end})
	ended := a.create(t, map[string]any{"begin_at": now.Add(-2 * time.Hour), "end_at": now.Add(-time.Hour)})
	paused := a.create(t, map[string]any{"state": "paused"})
	draft := a.create(t, map[string]any{"state": "draft"})
	archived := a.create(t, map[string]any{"state": "archived"})
	// Several refusals at once: the first of the contract's order counts.
	endedAndPaused := a.create(t, map[string]any{"state": "paused", "begin_at": now.Add(-2 * time.Hour), "end_at": now.Add(-time.Hour), "stock": 0})
	pausedAndUpcoming := a.create(t, map[string]any{"state": "paused", "begin_at": begin, "end_at": end, "stock": 0})
	upcomingAndEmpty := a.create(t, map[string]any{"begin_at": begin, "end_at": end, "stock": 0})
	empty := a.create(t, map[string]any{"stock": 0})

	first, second := a.token(t, a.user(1), model.RoleUser), a.token(t, a.user(2), model.RoleUser)
	place := func(voucherID, token string) answer {
		return a.insist(t, http.MethodPost, "/vouchers/"+voucherID+"/seckill", token, nil)
	}

	order := a.buys(t, live.ID, a.user(1))
	again := refused(t, place(live.ID, first), http.StatusConflict, model.CodeAlreadyOrdered)
	if again.OrderID != order.ID || again.OrderStatus != model.OrderUnpaid {
		t.Errorf("order_id = %q", again.OrderID)
	}
	refused(t, place(live.ID, second), http.StatusConflict, model.CodeSoldOut)
	refused(t, place(empty.ID, second), http.StatusConflict, model.CodeSoldOut)
	refused(t, place(ended.ID, second), http.StatusConflict, model.CodeEnded)
	refused(t, place(endedAndPaused.ID, second), http.StatusConflict, model.CodeEnded)
	refused(t, place(paused.ID, second), http.StatusConflict, model.CodePaused)
	refused(t, place(pausedAndUpcoming.ID, second), http.StatusConflict, model.CodePaused)
	refused(t, place(upcomingAndEmpty.ID, second), http.StatusConflict, model.CodeNotStarted)
	early := place(upcoming.ID, second)
	if p := refused(t, early, http.StatusConflict, model.CodeNotStarted); !p.BeginAt.Equal(begin) {
		t.Errorf("begin_at = %s, want %s", p.BeginAt, begin)
	}
	if seconds, _ := strconv.Atoi(early.header.Get("Retry-After")); seconds < 600 || seconds > 3601 {
		t.Errorf("Retry-After = %d, the sale begins in an hour", seconds)
	}
	for _, id := range []string{draft.ID, archived.ID, "none", "no%20id", strings.Repeat("x", 65), "%2e%2e"} {
		refused(t, place(id, second), http.StatusNotFound, model.CodeNotFound)
		refused(t, place(id, a.admin(t)), http.StatusNotFound, model.CodeNotFound)
		refused(t, a.call(t, http.MethodGet, "/vouchers/"+id, second, nil), http.StatusNotFound, model.CodeNotFound)
	}

	refused(t, a.call(t, http.MethodGet, "/orders", "", nil), http.StatusUnauthorized, model.CodeUnauthenticated)
	refused(t, a.call(t, http.MethodGet, "/admin/vouchers", second, nil), http.StatusForbidden, model.CodeForbidden)
	refused(t, a.call(t, http.MethodGet, "/nothing", "", nil), http.StatusNotFound, model.CodeNotFound)
	gone := a.call(t, http.MethodDelete, "/vouchers/"+live.ID+"/seckill", second, nil)
	refused(t, gone, http.StatusMethodNotAllowed, model.CodeMethodNotAllowed)
	if gone.header.Get("Allow") != "POST" {
		t.Errorf("Allow = %q", gone.header.Get("Allow"))
	}
	large := strings.Repeat(" ", 16<<10) + "{}"
	path := "/vouchers/" + live.ID + "/seckill"
	refused(t, a.call(t, http.MethodPost, path, second, large), http.StatusRequestEntityTooLarge, model.CodePayloadTooLarge)
	refused(t, a.call(t, http.MethodPost, path, second, "{}", "Content-Type: text/plain"), http.StatusUnsupportedMediaType, model.CodeUnsupportedMediaType)
	refused(t, a.call(t, http.MethodPost, path, second, "{"), http.StatusBadRequest, model.CodeValidation)
	refused(t, a.call(t, http.MethodPost, path, second, `{"count":2}`), http.StatusUnprocessableEntity, model.CodeValidation)

	taken := a.name("Table.Error")
	a.register(t, taken)
	credentials := map[string]any{"username": strings.ToUpper(taken), "password": "long enough"}
	refused(t, a.insist(t, http.MethodPost, "/auth/register", "", credentials), http.StatusConflict, model.CodeConflict)
	refused(t, a.login(t, taken, "wrong enough"), http.StatusUnauthorized, model.CodeUnauthenticated)

	before := a.audit(t, live.ID)
	refused(t, a.call(t, http.MethodPost, "/admin/vouchers/"+live.ID+"/stock", a.admin(t), map[string]any{"stock": 0}), http.StatusConflict, model.CodeConflict)
	refused(t, a.call(t, http.MethodPost, "/admin/vouchers/"+live.ID+"/stock", a.admin(t), map[string]any{"delta": -1}), http.StatusConflict, model.CodeConflict)
	if after := a.audit(t, live.ID); after.Database != before.Database || !after.Balanced {
		t.Errorf("%+v became %+v", before, after)
	}
}

// TestTooMany asks more often than a user may.
func TestTooMany(t *testing.T) {
	t.Parallel()
	a := start(t, onServers(t).with(settings{"SECKILL_RATE_USER": "2/h"}))
	path, token := "/vouchers/"+a.onSale(t, 5).ID+"/seckill", a.token(t, a.user(1), model.RoleUser)
	for range 2 {
		if got := a.call(t, http.MethodPost, path, token, nil); got.code() == model.CodeRateLimited {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	over := a.call(t, http.MethodPost, path, token, nil)
	refused(t, over, http.StatusTooManyRequests, model.CodeRateLimited)
	if seconds, _ := strconv.Atoi(over.header.Get("Retry-After")); seconds < 900 || seconds > 1800 {
		t.Errorf("Retry-After = %d with 2 an hour", seconds)
	}
	if got := a.call(t, http.MethodPost, path, a.token(t, a.user(2), model.RoleUser), nil); got.code() == model.CodeRateLimited {
		t.Errorf("another user: %d %s", got.status, got.body)
	}
}

// TestUnavailable: without its database the program says so, and nothing else.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	database := testserver.MariaDB(t)
	a := start(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": database.DSN(testserver.DefaultSchema)}))
	voucher := a.onSale(t, 5)
	token := a.token(t, a.user(1), model.RoleUser)
	database.Kill()
	for _, call := range []struct {
		method, path, token string
		body                any
	}{
		{"POST", "/vouchers/" + voucher.ID + "/seckill", token, nil},
		{"GET", "/orders", token, nil},
		{"GET", "/orders/" + model.OrderID("01aaaaaaaaaaaaaaaaaaaaaaaa", voucher.ID), token, nil},
		{"GET", "/vouchers", "", nil},
		{"GET", "/admin/vouchers/" + voucher.ID + "/audit", a.admin(t), nil},
		{"GET", "/admin/vouchers/" + voucher.ID + "/orders?format=csv", a.admin(t), nil},
		{"PATCH", "/admin/vouchers/" + voucher.ID, a.admin(t), map[string]any{"title": "x"}},
		{"POST", "/auth/login", "", map[string]any{"username": "somebody", "password": "x"}},
	} {
		refused(t, a.call(t, call.method, call.path, call.token, call.body), http.StatusServiceUnavailable, model.CodeUnavailable)
	}
	if got := a.call(t, http.MethodGet, "/auth/me", token, nil); got.status != http.StatusOK {
		t.Errorf("who am I needs a database: %d", got.status)
	}
	ready := check.Value(send(a.client, http.MethodGet, a.url+"/readyz", "", nil))(t)
	refused(t, ready, http.StatusServiceUnavailable, model.CodeUnavailable)
	for _, internal := range []string{strconv.Itoa(database.Port()), "127.0.0.1", "dial"} {
		if strings.Contains(string(ready.body), internal) {
			t.Errorf("readyz tells %q: %s", internal, ready.body)
		}
	}
	check.Equal(t, "livez", a.status(t, "/livez"), http.StatusOK)
}
