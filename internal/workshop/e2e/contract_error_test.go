package e2e_test

import (
	"cmp"
	"io"
	"net/http"
	"regexp"
	"slices"
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

func statusOf(code model.Code) int {
	return cmp.Or(map[model.Code]int{
		model.CodeValidation: 422, model.CodeUnauthenticated: 401, model.CodeForbidden: 403, model.CodeNotEligible: 403,
		model.CodeNotFound: 404, model.CodeMethodNotAllowed: 405, model.CodePreconditionFailed: 412,
		model.CodePayloadTooLarge: 413, model.CodeUnsupportedMediaType: 415,
		model.CodeLockBusy: 429, model.CodeRateLimited: 429, model.CodeUnavailable: 503,
	}[code], http.StatusConflict)
}

// refused holds an answer to the contract of refusals, and returns its document; status is for an unusual one.
func refused(t *testing.T, got api.Answer, code model.Code, status ...int) (p api.Problem) {
	t.Helper()
	want := append(status, statusOf(code))[0]
	if got.Status != want || got.Code() != code {
		t.Errorf("got %d %s %s, want %d %s", got.Status, got.Header.Get("Content-Type"), got.Body, want, code)
		return p
	}
	p = remote.Decode[api.Problem](t, got)
	head, again := got.Header.Get, got.Header.Get("Retry-After")
	seconds, _ := strconv.Atoi(again)
	later := slices.Contains([]model.Code{
		model.CodeNotStarted, model.CodeCoolingDown, model.CodeLockBusy, model.CodeRateLimited, model.CodeUnavailable,
	}, code)
	for what, right := range map[string]bool{
		"type":             p.Type == "/problems/"+strings.ToLower(strings.ReplaceAll(string(code), "_", "-")),
		"text":             p.Status == want && p.Title != "" && p.Detail != "",
		"X-Request-Id":     head("X-Request-Id") != "",
		"Content-Type":     head("Content-Type") == "application/problem+json",
		"Retry-After":      later && seconds >= 1 || !later && again == "",
		"WWW-Authenticate": challenges(code, head("WWW-Authenticate")),
		"Allow":            (code == model.CodeMethodNotAllowed) == (head("Allow") != ""),
		"errors":           (code == model.CodeValidation) == (len(p.Errors) > 0),
		"begin_at":         (code == model.CodeNotStarted) != p.BeginAt.IsZero(),
		"order":            (code == model.CodeAlreadyOrdered) == (p.OrderID != "" && p.OrderStatus != ""),
	} {
		check.That(t, right, "%s has a wrong %s: %s %v", code, what, got.Body, got.Header)
	}
	return p
}

// challenges reports whether a code comes with the right challenge.
func challenges(code model.Code, challenge string) bool {
	switch code {
	case model.CodeUnauthenticated:
		return challenge == "Bearer" || strings.HasPrefix(challenge, `Bearer error="invalid_token", `)
	case model.CodeForbidden:
		return challenge == `Bearer error="insufficient_scope"`
	default:
		return challenge == ""
	}
}

func invalid(t *testing.T, got api.Answer, location string) {
	p := refused(t, got, model.CodeValidation)
	check.That(t, len(p.Errors) == 1 && p.Errors[0].Location == location, "%v, want %s", p.Errors, location)
}

type refusal struct {
	call, token string
	body        any
	code        model.Code
}

func (a *app) refuse(t *testing.T, calls []refusal) {
	t.Helper()
	for _, r := range calls {
		refused(t, a.once(t, r.call, r.token, r.body), r.code)
	}
}

func TestErrorTable(t *testing.T) { t.Parallel(); everywhere(t, checkErrorTable) }

func checkErrorTable(t *testing.T, in shop) {
	a, now := in.elsewhere(t), time.Now().UTC().Truncate(time.Second)
	live, second, admin := a.onSale(t, 1), a.as(t, a.user(2)), a.Admin(t)
	order := a.buys(t, live.ID, a.user(1))
	again := refused(t, a.buy(t, live.ID, a.user(1)), model.CodeAlreadyOrdered)
	check.That(t, again.OrderID == order.ID && again.OrderStatus == model.OrderUnpaid, "order_id = %q", again.OrderID)
	refused(t, a.buy(t, live.ID, a.user(2)), model.CodeSoldOut)

	begin := now.Add(time.Hour) // TestPrecedence has several refusals at once
	early := a.buy(t, a.Create(t, map[string]any{"begin_at": begin, "end_at": now.Add(2 * time.Hour)}).ID, a.user(2))
	p := refused(t, early, model.CodeNotStarted)
	seconds, _ := strconv.Atoi(early.Header.Get("Retry-After"))
	check.That(t, p.BeginAt.Equal(begin) && seconds >= 600 && seconds <= 3601, "%+v", p)
	refused(t, a.buy(t, a.onSale(t, 0).ID, a.user(2)), model.CodeSoldOut)
	hidden := []string{"none", "no%20id", strings.Repeat("x", 65), "%2e%2e"}
	for _, state := range []string{"draft", "archived"} {
		hidden = append(hidden, a.Create(t, map[string]any{"state": state}).ID)
	}
	for _, id := range hidden {
		a.refuse(t, []refusal{
			{"POST /vouchers/" + id + "/seckill", second, nil, model.CodeNotFound},
			{"POST /vouchers/" + id + "/seckill", admin, nil, model.CodeNotFound},
			{"GET /vouchers/" + id, second, nil, model.CodeNotFound},
		})
	}

	place, stock := "POST /vouchers/"+live.ID+"/seckill", "POST /admin/vouchers/"+live.ID+"/stock"
	before := a.Audit(t, live.ID)
	a.refuse(t, []refusal{
		{"GET /orders", "", nil, model.CodeUnauthenticated},
		{"GET /admin/vouchers", second, nil, model.CodeForbidden},
		{"GET /nothing", "", nil, model.CodeNotFound},
		{place, second, strings.Repeat(" ", 16<<10) + "{}", model.CodePayloadTooLarge},
		{place, second, `{"count":2}`, model.CodeValidation},
		{stock, admin, map[string]any{"stock": 0}, model.CodeConflict},
		{stock, admin, map[string]any{"delta": -1}, model.CodeConflict},
	})
	refused(t, a.once(t, place, second, "{"), model.CodeValidation, http.StatusBadRequest)
	refused(t, a.once(t, place, second, "{}", "Content-Type: text/plain"), model.CodeUnsupportedMediaType)
	gone := a.once(t, "DELETE /vouchers/"+live.ID+"/seckill", second, nil)
	refused(t, gone, model.CodeMethodNotAllowed)
	check.Equal(t, "Allow", gone.Header.Get("Allow"), "POST")
	after := a.Audit(t, live.ID)
	check.That(t, after.Database == before.Database && after.Balanced, "%+v became %+v", before, after)
}

// TestUnavailable: without its database the program says so, and nothing else.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	database := testserver.MariaDB(t)
	a := start(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": database.DSN(testserver.DefaultSchema)}))
	id, token, admin := a.onSale(t, 5).ID, a.as(t, a.user(1)), a.Admin(t)
	database.Kill()
	a.refuse(t, []refusal{
		{"POST /vouchers/" + id + "/seckill", token, nil, model.CodeUnavailable},
		{"GET /orders", token, nil, model.CodeUnavailable},
		{"GET /orders/" + model.OrderID("01aaaaaaaaaaaaaaaaaaaaaaaa", id), token, nil, model.CodeUnavailable},
		{"GET /vouchers", "", nil, model.CodeUnavailable},
		{"GET /admin/vouchers/" + id + "/audit", admin, nil, model.CodeUnavailable},
		{"GET /admin/vouchers/" + id + "/orders?format=csv", admin, nil, model.CodeUnavailable},
		{"PATCH /admin/vouchers/" + id, admin, map[string]any{"title": "x"}, model.CodeUnavailable},
		{"POST /auth/login", "", map[string]any{"username": "somebody", "password": "x"}, model.CodeUnavailable},
	})
	check.Equal(t, "who am I, which needs no database", a.once(t, "GET /auth/me", token, nil).Status, http.StatusOK)
	a.unready(t) // not at once: what an instance saw a tenth of a second ago is told to others too
	ready := check.Value(a.Get("/readyz"))(t)
	refused(t, ready, model.CodeUnavailable)
	for _, internal := range []string{strconv.Itoa(database.Port()), "127.0.0.1", "dial"} {
		check.That(t, !strings.Contains(string(ready.Body), internal), "readyz tells %q: %s", internal, ready.Body)
	}
	check.Equal(t, "livez", a.Status("/livez"), http.StatusOK)
}

// TestPrecedence changes a sold-out voucher under a buyer, a late-comer, and somebody who just canceled: of all
// refusals that apply each hears the contract's first, and `phase` agrees.
func TestPrecedence(t *testing.T) { t.Parallel(); everywhere(t, checkPrecedence) }

func checkPrecedence(t *testing.T, a shop) {
	voucher := a.Create(t, map[string]any{"stock": 1, "cooldown": "1h"})
	a.cancels(t, a.buys(t, voucher.ID, a.user(3)))
	order := a.buys(t, voucher.ID, a.user(1))
	listed := func(phase model.Phase) bool {
		page := remote.Decode[model.VoucherPage](t, a.once(t, "GET /vouchers?limit=100&phase="+string(phase), "", nil))
		return slices.ContainsFunc(page.Items,
			func(v model.Voucher) bool { return v.ID == voucher.ID && v.Phase == phase })
	}
	now := time.Now().UTC().Truncate(time.Second)
	open := map[string]any{"begin_at": now.Add(-time.Hour), "end_at": now.Add(time.Hour), "state": "published"}
	later := map[string]any{"begin_at": now.Add(30 * time.Minute)}
	over := map[string]any{"begin_at": now.Add(-2 * time.Hour), "end_at": now.Add(-time.Minute)}
	const each = "" // hears something else: the buyer, the late one, the one who cools down
	for _, step := range []struct {
		name   string
		change map[string]any
		phase  model.Phase
		all    model.Code
	}{
		{"open", open, model.PhaseSoldOut, each},
		{"upcoming", later, model.PhaseUpcoming, model.CodeNotStarted},
		{"and paused", map[string]any{"state": "paused"}, model.PhasePaused, model.CodePaused},
		{"and ended", over, model.PhaseEnded, model.CodeEnded},
		{"open again", open, model.PhaseSoldOut, each},
		{"archived", map[string]any{"state": "archived"}, "", model.CodeNotFound},
		{"back", open, model.PhaseSoldOut, each},
	} {
		a.patch(t, voucher.ID, step.change)
		for n, code := range []model.Code{model.CodeAlreadyOrdered, model.CodeSoldOut, model.CodeCoolingDown} {
			code = cmp.Or(step.all, code)
			p := refused(t, a.buy(t, voucher.ID, a.user(n+1)), code)
			check.That(t, code != model.CodeAlreadyOrdered ||
				p.OrderID == order.ID && p.OrderStatus == model.OrderUnpaid,
				"%s: %+v", step.name, p)
		}
		if step.phase == "" {
			continue
		}
		v := remote.Decode[model.Voucher](t, a.once(t, "GET /vouchers/"+voucher.ID, "", nil))
		check.Equal(t, step.name+": phase", v.Phase, step.phase)
		// A list may be a moment old.
		check.Eventually(t, step.name+": it is listed by its phase only", func() bool {
			return !slices.ContainsFunc(model.Phases(),
				func(phase model.Phase) bool { return listed(phase) != (phase == step.phase) })
		})
	}
	mine := a.mine(t, voucher.ID, a.user(1)) // whatever happened to the sale, the order is there
	check.That(t, len(mine) == 1 && mine[0].ID == order.ID, "%+v", mine)
}

func (a *app) requests(t *testing.T, method, url string, differs func(*http.Request)) api.Answer {
	t.Helper()
	request := check.Value(http.NewRequestWithContext(t.Context(), method, url, nil))(t)
	differs(request)
	answer, err := a.Client.Do(request)
	check.Must(t, err)
	defer answer.Body.Close()
	if answer.Close { // which the client takes out of the header
		answer.Header.Set("Connection", "close")
	}
	return api.Answer{Status: answer.StatusCode, Header: answer.Header, Body: check.Value(io.ReadAll(answer.Body))(t)}
}

// TestListeners: operators' routes are not for clients, and the other way round. The operations listener answers a
// monitoring system inside, and no page that leads a browser to it by a name of its own (DNS rebinding).
func TestListeners(t *testing.T) { t.Parallel(); within(t, "sync on servers", checkListeners) }

func checkListeners(t *testing.T, a shop) {
	get := func(url string, host ...string) api.Answer {
		return a.requests(t, http.MethodGet, url, func(r *http.Request) {
			r.Header.Set("X-Request-Id", "trace-1")
			r.Host = strings.Join(host, "")
		})
	}
	get(a.URL + "/api/v1/vouchers")
	for path, want := range map[string]string{"/metrics": `seckill_build_info{goversion="go1.`, "/debug/pprof/heap?debug=1": "heap profile"} {
		got := get(a.ops + path)
		check.That(t, got.Status == http.StatusOK && strings.Contains(string(got.Body), want), "operations %s: %d",
			path, got.Status)
		refused(t, get(a.URL+path), model.CodeNotFound)
		for host, status := range map[string]int{
			"localhost:8081": 200, "seckill-1:8081": 200, "seckill.shop.svc.cluster.local": 200,
			"evil.example": http.StatusMisdirectedRequest, "127.0.0.1.evil.example:8081": http.StatusMisdirectedRequest,
		} {
			check.Equal(t, path+" as "+host, get(a.ops+path, host).Status, status)
		}
	}
	check.Equal(t, "the API on the operations listener", get(a.ops+"/api/v1/vouchers").Status, http.StatusNotFound)
	for path, says := range map[string]string{"/livez": "", "/readyz": "\n", "/api/v1/docs": "<html", "/api/v1/vouchers": "items", "/nowhere": "NOT_FOUND"} {
		got := get(a.URL + path)
		check.That(t, strings.Contains(string(got.Body), says) && (got.Status == http.StatusOK) == (path != "/nowhere"),
			"%s: %d %s", path, got.Status, got.Body)
		check.Equal(t, "the id of a request for "+path, got.Header.Get("X-Request-Id"), "trace-1")
	}
}

// HTTP's target *, the server as a whole, avoids nothing that every request gets: an id, the limits, the metrics.
func TestTheServerAsAWhole(t *testing.T) {
	t.Parallel()
	a := start(t, embeddedSettings(t).with(settings{"SECKILL_RATE_ADDR": "5/h"}))
	ask := func(url string) api.Answer {
		return a.requests(t, http.MethodOptions, url, func(r *http.Request) {
			r.URL.Path = "*"
			r.Header.Set("X-Request-Id", "of-the-whole")
		})
	}
	for range 5 {
		got := ask(a.URL)
		refused(t, got, model.CodeNotFound)
		check.Equal(t, "its id", got.Header.Get("X-Request-Id"), "of-the-whole")
	}
	refused(t, ask(a.URL), model.CodeRateLimited)
	const counted = `seckill_http_request_duration_seconds_count{code="404",method="OPTIONS",route="unmatched"} 5`
	check.That(t, strings.Contains(a.metrics(t), counted), "it is not in the metrics")
	check.Equal(t, "the operations listener says", ask(a.ops).Status, http.StatusBadRequest)
}

func (a *app) metrics(t testing.TB) string {
	t.Helper()
	return string(check.Value(api.Send(t.Context(), a.Client, http.MethodGet, a.ops+"/metrics", "", nil))(t).Body)
}

func (a *app) metric(t *testing.T, name string) float64 {
	t.Helper()
	line := regexp.MustCompile(`(?m)^` + name + `(?:\{[^}]*\})? (\S+)$`).FindStringSubmatch(a.metrics(t))
	check.Need(t, line != nil, "no metric is named %s", name)
	return check.Value(strconv.ParseFloat(line[1], 64))(t)
}
