package e2e_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// refused holds an answer to everything the contract says of a refusal, and
// returns its document.
func refused(t *testing.T, got api.Answer, status int, code model.Code) api.Problem {
	t.Helper()
	if got.Status != status || got.Code() != code {
		t.Errorf("got %d %s %s, want %d %s", got.Status, got.Header.Get("Content-Type"), got.Body, status, code)
		return api.Problem{}
	}
	p := remote.Decode[api.Problem](t, got)
	if p.Type != "/problems/"+strings.ToLower(strings.ReplaceAll(string(code), "_", "-")) || p.Status != status || p.Title == "" || p.Detail == "" {
		t.Errorf("%s", got.Body)
	}
	if got.Header.Get("X-Request-Id") == "" {
		t.Errorf("%s has no X-Request-Id", code)
	}
	if contentType := got.Header.Get("Content-Type"); contentType != "application/problem+json" {
		t.Errorf("Content-Type: %s", contentType)
	}
	seconds, err := strconv.Atoi(got.Header.Get("Retry-After"))
	switch code {
	case model.CodeNotStarted, model.CodeCoolingDown, model.CodeLockBusy, model.CodeRateLimited, model.CodeUnavailable:
		if err != nil || seconds < 1 {
			t.Errorf("%s: Retry-After = %q", code, got.Header.Get("Retry-After"))
		}
	default:
		if got.Header.Get("Retry-After") != "" {
			t.Errorf("%s has a Retry-After", code)
		}
	}
	bearer := got.Header.Get("WWW-Authenticate")
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
	if (code == model.CodeMethodNotAllowed) != (got.Header.Get("Allow") != "") {
		t.Errorf("%s: Allow = %q", code, got.Header.Get("Allow"))
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
	upcoming := a.Create(t, map[string]any{"begin_at": begin, "end_at": end})
	ended := a.Create(t, map[string]any{"begin_at": now.Add(-2 * time.Hour), "end_at": now.Add(-time.Hour)})
	paused := a.Create(t, map[string]any{"state": "paused"})
	draft := a.Create(t, map[string]any{"state": "draft"})
	archived := a.Create(t, map[string]any{"state": "archived"})
	// Several refusals at once: the first of the contract's order counts.
	endedAndPaused := a.Create(t, map[string]any{"state": "paused", "begin_at": now.Add(-2 * time.Hour), "end_at": now.Add(-time.Hour), "stock": 0})
	pausedAndUpcoming := a.Create(t, map[string]any{"state": "paused", "begin_at": begin, "end_at": end, "stock": 0})
	upcomingAndEmpty := a.Create(t, map[string]any{"begin_at": begin, "end_at": end, "stock": 0})
	empty := a.Create(t, map[string]any{"stock": 0})

	first, second := a.Token(t, a.user(1), model.RoleUser), a.Token(t, a.user(2), model.RoleUser)
	place := func(voucherID, token string) api.Answer {
		return a.Insist(t, http.MethodPost, "/vouchers/"+voucherID+"/seckill", token, nil)
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
	if seconds, _ := strconv.Atoi(early.Header.Get("Retry-After")); seconds < 600 || seconds > 3601 {
		t.Errorf("Retry-After = %d, the sale begins in an hour", seconds)
	}
	for _, id := range []string{draft.ID, archived.ID, "none", "no%20id", strings.Repeat("x", 65), "%2e%2e"} {
		refused(t, place(id, second), http.StatusNotFound, model.CodeNotFound)
		refused(t, place(id, a.Admin(t)), http.StatusNotFound, model.CodeNotFound)
		refused(t, a.Call(t, http.MethodGet, "/vouchers/"+id, second, nil), http.StatusNotFound, model.CodeNotFound)
	}

	refused(t, a.Call(t, http.MethodGet, "/orders", "", nil), http.StatusUnauthorized, model.CodeUnauthenticated)
	refused(t, a.Call(t, http.MethodGet, "/admin/vouchers", second, nil), http.StatusForbidden, model.CodeForbidden)
	refused(t, a.Call(t, http.MethodGet, "/nothing", "", nil), http.StatusNotFound, model.CodeNotFound)
	gone := a.Call(t, http.MethodDelete, "/vouchers/"+live.ID+"/seckill", second, nil)
	refused(t, gone, http.StatusMethodNotAllowed, model.CodeMethodNotAllowed)
	if gone.Header.Get("Allow") != "POST" {
		t.Errorf("Allow = %q", gone.Header.Get("Allow"))
	}
	large := strings.Repeat(" ", 16<<10) + "{}"
	path := "/vouchers/" + live.ID + "/seckill"
	refused(t, a.Call(t, http.MethodPost, path, second, large), http.StatusRequestEntityTooLarge, model.CodePayloadTooLarge)
	refused(t, a.Call(t, http.MethodPost, path, second, "{}", "Content-Type: text/plain"), http.StatusUnsupportedMediaType, model.CodeUnsupportedMediaType)
	refused(t, a.Call(t, http.MethodPost, path, second, "{"), http.StatusBadRequest, model.CodeValidation)
	refused(t, a.Call(t, http.MethodPost, path, second, `{"count":2}`), http.StatusUnprocessableEntity, model.CodeValidation)

	taken := a.name("Table.Error")
	a.register(t, taken)
	credentials := map[string]any{"username": strings.ToUpper(taken), "password": "long enough"}
	refused(t, a.Insist(t, http.MethodPost, "/auth/register", "", credentials), http.StatusConflict, model.CodeConflict)
	refused(t, a.login(t, taken, "wrong enough"), http.StatusUnauthorized, model.CodeUnauthenticated)

	before := a.Audit(t, live.ID)
	refused(t, a.Call(t, http.MethodPost, "/admin/vouchers/"+live.ID+"/stock", a.Admin(t), map[string]any{"stock": 0}), http.StatusConflict, model.CodeConflict)
	refused(t, a.Call(t, http.MethodPost, "/admin/vouchers/"+live.ID+"/stock", a.Admin(t), map[string]any{"delta": -1}), http.StatusConflict, model.CodeConflict)
	if after := a.Audit(t, live.ID); after.Database != before.Database || !after.Balanced {
		t.Errorf("%+v became %+v", before, after)
	}
}

// TestTooMany asks more often than a user may.
func TestTooMany(t *testing.T) {
	t.Parallel()
	a := start(t, onServers(t).with(settings{"SECKILL_RATE_USER": "2/h"}))
	path, token := "/vouchers/"+a.onSale(t, 5).ID+"/seckill", a.Token(t, a.user(1), model.RoleUser)
	for range 2 {
		if got := a.Call(t, http.MethodPost, path, token, nil); got.Code() == model.CodeRateLimited {
			t.Errorf("%d %s", got.Status, got.Body)
		}
	}
	over := a.Call(t, http.MethodPost, path, token, nil)
	refused(t, over, http.StatusTooManyRequests, model.CodeRateLimited)
	if seconds, _ := strconv.Atoi(over.Header.Get("Retry-After")); seconds < 900 || seconds > 1800 {
		t.Errorf("Retry-After = %d with 2 an hour", seconds)
	}
	if got := a.Call(t, http.MethodPost, path, a.Token(t, a.user(2), model.RoleUser), nil); got.Code() == model.CodeRateLimited {
		t.Errorf("another user: %d %s", got.Status, got.Body)
	}
}

// TestUnavailable: without its database the program says so, and nothing else.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	database := testserver.MariaDB(t)
	a := start(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": database.DSN(testserver.DefaultSchema)}))
	voucher := a.onSale(t, 5)
	token := a.Token(t, a.user(1), model.RoleUser)
	database.Kill()
	for _, call := range []struct {
		method, path, token string
		body                any
	}{
		{"POST", "/vouchers/" + voucher.ID + "/seckill", token, nil},
		{"GET", "/orders", token, nil},
		{"GET", "/orders/" + model.OrderID("01aaaaaaaaaaaaaaaaaaaaaaaa", voucher.ID), token, nil},
		{"GET", "/vouchers", "", nil},
		{"GET", "/admin/vouchers/" + voucher.ID + "/audit", a.Admin(t), nil},
		{"GET", "/admin/vouchers/" + voucher.ID + "/orders?format=csv", a.Admin(t), nil},
		{"PATCH", "/admin/vouchers/" + voucher.ID, a.Admin(t), map[string]any{"title": "x"}},
		{"POST", "/auth/login", "", map[string]any{"username": "somebody", "password": "x"}},
	} {
		refused(t, a.Call(t, call.method, call.path, call.token, call.body), http.StatusServiceUnavailable, model.CodeUnavailable)
	}
	if got := a.Call(t, http.MethodGet, "/auth/me", token, nil); got.Status != http.StatusOK {
		t.Errorf("who am I needs a database: %d", got.Status)
	}
	a.unready(t) // not at once: what an instance saw a tenth of a second ago is told to others too
	ready := check.Value(a.Get("/readyz"))(t)
	refused(t, ready, http.StatusServiceUnavailable, model.CodeUnavailable)
	for _, internal := range []string{strconv.Itoa(database.Port()), "127.0.0.1", "dial"} {
		if strings.Contains(string(ready.Body), internal) {
			t.Errorf("readyz tells %q: %s", internal, ready.Body)
		}
	}
	check.Equal(t, "livez", a.Status("/livez"), http.StatusOK)
}
