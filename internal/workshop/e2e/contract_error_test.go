package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
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

// refused holds an answer to everything the contract says of a refusal, and returns its document.
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
	check.That(t, got.Header.Get("X-Request-Id") != "", "%s has no X-Request-Id", code)
	if contentType := got.Header.Get("Content-Type"); contentType != "application/problem+json" {
		t.Errorf("Content-Type: %s", contentType)
	}
	seconds, err := strconv.Atoi(got.Header.Get("Retry-After"))
	switch code {
	case model.CodeNotStarted, model.CodeCoolingDown, model.CodeLockBusy, model.CodeRateLimited, model.CodeUnavailable:
		check.That(t, err == nil && seconds >= 1, "%s: Retry-After = %q", code, got.Header.Get("Retry-After"))
	default:
		check.That(t, got.Header.Get("Retry-After") == "", "%s has a Retry-After", code)
	}
	bearer := got.Header.Get("WWW-Authenticate")
	switch code {
	case model.CodeUnauthenticated:
		check.That(t, bearer == "Bearer" || strings.HasPrefix(bearer, `Bearer error="invalid_token", `),
			"%s: WWW-Authenticate = %q", code, bearer)
	case model.CodeForbidden:
		check.That(t, bearer == `Bearer error="insufficient_scope"`, "%s: WWW-Authenticate = %q", code, bearer)
	default:
		check.That(t, bearer == "", "%s: WWW-Authenticate = %q", code, bearer)
	}
	check.That(t, (code == model.CodeMethodNotAllowed) == (got.Header.Get("Allow") != ""),
		"%s: Allow = %q", code, got.Header.Get("Allow"))
	check.That(t, (code == model.CodeValidation) == (len(p.Errors) > 0), "%s: errors = %v", code, p.Errors)
	check.That(t, (code == model.CodeNotStarted) != p.BeginAt.IsZero(), "%s: begin_at = %s", code, p.BeginAt)
	check.That(t, (code == model.CodeAlreadyOrdered) == (p.OrderID != "" && p.OrderStatus != ""),
		"%s: order_id = %q, order_status = %q", code, p.OrderID, p.OrderStatus)
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
	check.That(t, again.OrderID == order.ID && again.OrderStatus == model.OrderUnpaid, "order_id = %q", again.OrderID)
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
	check.That(t, gone.Header.Get("Allow") == "POST", "Allow = %q", gone.Header.Get("Allow"))
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
		check.That(t, !strings.Contains(string(ready.Body), internal), "readyz tells %q: %s", internal, ready.Body)
	}
	check.Equal(t, "livez", a.Status("/livez"), http.StatusOK)
}

// TestPrecedence changes a voucher that is sold out under a buyer, somebody who came too late, and somebody who has
// canceled an order a moment ago: of all the refusals that apply, each hears the first of the contract's order, and
// `phase` says the same.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	everywhere(t, checkPrecedence)
}

func checkPrecedence(t *testing.T, a shop) {
	t.Helper()
	buyer, late, cooling := a.Token(t, a.user(1), model.RoleUser), a.Token(t, a.user(2), model.RoleUser), a.Token(t, a.user(3), model.RoleUser)
	voucher := a.Create(t, map[string]any{"stock": 1, "cooldown": "1h"})
	place := func(token string) api.Answer {
		return a.Insist(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", token, nil)
	}
	a.cancels(t, a.buys(t, voucher.ID, a.user(3)))
	order := a.buys(t, voucher.ID, a.user(1))
	listed := func(phase model.Phase) bool {
		page := remote.Decode[model.VoucherPage](t, a.Call(t, http.MethodGet, "/vouchers?limit=100&phase="+string(phase), "", nil))
		return slices.ContainsFunc(page.Items, func(v model.Voucher) bool { return v.ID == voucher.ID && v.Phase == phase })
	}
	now := time.Now().UTC().Truncate(time.Second)
	open := map[string]any{"begin_at": now.Add(-time.Hour), "end_at": now.Add(time.Hour), "state": "published"}
	for _, step := range []struct {
		name   string
		change map[string]any
		phase  model.Phase
		buyer  model.Code
		late   model.Code
	}{
		{"open", open, model.PhaseSoldOut, model.CodeAlreadyOrdered, model.CodeSoldOut},
		{"upcoming", map[string]any{"begin_at": now.Add(30 * time.Minute)}, model.PhaseUpcoming, model.CodeNotStarted, model.CodeNotStarted},
		{"and paused", map[string]any{"state": "paused"}, model.PhasePaused, model.CodePaused, model.CodePaused},
		{"and ended", map[string]any{"begin_at": now.Add(-2 * time.Hour), "end_at": now.Add(-time.Minute)}, model.PhaseEnded, model.CodeEnded, model.CodeEnded},
		{"open again", open, model.PhaseSoldOut, model.CodeAlreadyOrdered, model.CodeSoldOut},
		{"archived", map[string]any{"state": "archived"}, "", model.CodeNotFound, model.CodeNotFound},
		{"back", open, model.PhaseSoldOut, model.CodeAlreadyOrdered, model.CodeSoldOut},
	} {
		object(t, a.Insist(t, http.MethodPatch, "/admin/vouchers/"+voucher.ID, a.Admin(t), step.change), http.StatusOK)
		cools := step.late
		if cools == model.CodeSoldOut {
			cools = model.CodeCoolingDown
		}
		for token, code := range map[string]model.Code{buyer: step.buyer, late: step.late, cooling: cools} {
			got := place(token)
			if got.Code() != code {
				t.Errorf("%s: %s, want %s", step.name, got.Body, code)
				continue
			}
			status := http.StatusConflict
			if code == model.CodeNotFound {
				status = http.StatusNotFound
			}
			if p := refused(t, got, status, code); code == model.CodeAlreadyOrdered && (p.OrderID != order.ID || p.OrderStatus != model.OrderUnpaid) {
				t.Errorf("%s: %s", step.name, got.Body)
			}
		}
		if step.phase == "" {
			continue
		}
		if v := remote.Decode[model.Voucher](t, a.Call(t, http.MethodGet, "/vouchers/"+voucher.ID, "", nil)); v.Phase != step.phase {
			t.Errorf("%s: phase = %s", step.name, v.Phase)
		}
		// A list may be a moment old.
		check.Eventually(t, step.name+": it is listed by its phase only", func() bool {
			return !slices.ContainsFunc(model.Phases(), func(phase model.Phase) bool { return listed(phase) != (phase == step.phase) })
		})
	}
	// Whatever happened to the sale, the order is there.
	mine := remote.Decode[model.OrderPage](t, a.Call(t, http.MethodGet, "/orders?voucher_id="+voucher.ID, buyer, nil))
	check.That(t, len(mine.Items) == 1 && mine.Items[0].ID == order.ID, "%+v", mine)
}

// TestPages walks through lists while they grow.
func TestPages(t *testing.T) {
	t.Parallel()
	anywhere(t, checkPages)
}

func checkPages(t *testing.T, a shop) {
	t.Helper()
	user := a.Token(t, a.user(1), model.RoleUser)
	var vouchers, orders []string
	add := func() {
		v := a.onSale(t, 3)
		vouchers = append(vouchers, v.ID)
		orders = append(orders, a.buys(t, v.ID, a.user(1)).ID)
	}
	for range 7 {
		add()
	}
	for path, all := range map[string]*[]string{"/vouchers": &vouchers, "/orders": &orders, "/admin/vouchers": &vouchers, "/orders?status=unpaid": &orders, "/vouchers?phase=live": &vouchers} {
		token := user
		if strings.HasPrefix(path, "/admin") {
			token = a.Admin(t)
		}
		want := slices.Clone(*all)
		slices.Reverse(want) // newest first
		var got []string
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		for cursor, pages := "", 0; ; pages++ {
			page := object(t, a.Call(t, http.MethodGet, path+separator+"limit=3&cursor="+cursor, token, nil), http.StatusOK)
			items, _ := page["items"].([]any)
			for _, item := range items {
				id, _ := item.(map[string]any)["id"].(string)
				got = append(got, id)
			}
			if pages == 0 {
				add() // what is added behind one's back is on no later page
			}
			next, more := page["next_cursor"].(string)
			if !more {
				break
			}
			check.Need(t, len(items) <= 3 && (len(items) >= 3 || strings.Contains(path, "phase")) && pages <= 50,
				"%s: page %d has %d items", path, pages, len(items))
			cursor = next
		}
		got = slices.DeleteFunc(got, func(id string) bool { return !slices.Contains(*all, id) }) // of other tests
		check.That(t, slices.Equal(got, want), "%s:\n got %v\nwant %v", path, got, want)
	}
	for _, path := range []string{"/vouchers", "/orders", "/admin/vouchers", "/admin/vouchers/" + vouchers[0] + "/orders"} {
		for _, query := range []string{"cursor=nonsense", "cursor=%00", "cursor=" + strings.Repeat("A", 100)} {
			got := a.Call(t, http.MethodGet, path+"?"+query, a.Admin(t), nil)
			p := refused(t, got, http.StatusUnprocessableEntity, model.CodeValidation)
			location := "query." + query[:strings.Index(query, "=")]
			check.That(t, len(p.Errors) == 1 && p.Errors[0].Location == location, "%s?%s: %v", path, query, p.Errors)
		}
		if got := a.Call(t, http.MethodGet, path+"?unknown=1&limit=100", a.Admin(t), nil); got.Status != http.StatusOK {
			t.Errorf("%s: an unknown parameter: %d %s", path, got.Status, got.Body)
		}
	}
	if page := object(t, a.Call(t, http.MethodGet, "/orders", a.Token(t, a.user(9), model.RoleUser), nil), http.StatusOK); fmt.Sprint(page) != "map[items:[]]" {
		t.Errorf("no orders are %v", page)
	}
	for voucher, count := range map[string]int{vouchers[2]: 1, "none": 0, "not%20an%20id": 0} {
		got := a.Call(t, http.MethodGet, "/orders?voucher_id="+voucher, user, nil)
		if page := remote.Decode[model.OrderPage](t, got); got.Status != http.StatusOK || len(page.Items) != count || page.Items == nil {
			t.Errorf("%s: %d %s", voucher, got.Status, got.Body)
		}
	}
}

// TestListeners: what is for operators is not for clients, and the other way round.
func TestListeners(t *testing.T) {
	t.Parallel()
	within(t, "sync on servers", checkListeners)
}

func checkListeners(t *testing.T, a shop) {
	t.Helper()
	get := func(url string) api.Answer {
		return check.Value(api.Send(t.Context(), a.Client, http.MethodGet, url, "", nil))(t)
	}
	for path, want := range map[string]string{"/metrics": `seckill_build_info{goversion="go1.`, "/debug/pprof/": "goroutine", "/debug/pprof/heap?debug=1": "heap profile"} {
		get(a.URL + "/api/v1/vouchers")
		if got := get(a.ops + path); got.Status != http.StatusOK || !strings.Contains(string(got.Body), want) {
			t.Errorf("operations %s: %d", path, got.Status)
		}
		refused(t, get(a.URL+path), http.StatusNotFound, model.CodeNotFound)
	}
	if got := get(a.ops + "/api/v1/vouchers"); got.Status != http.StatusNotFound {
		t.Errorf("the API is on the operations listener: %d", got.Status)
	}
	live, ready := get(a.URL+"/livez"), get(a.URL+"/readyz")
	if live.Status != http.StatusOK || ready.Status != http.StatusOK || len(strings.Split(strings.TrimSpace(string(ready.Body)), "\n")) < 3 {
		t.Errorf("%d %d %s", live.Status, ready.Status, ready.Body)
	}
	docs := get(a.URL + "/api/v1/docs")
	if docs.Status != http.StatusOK || !strings.HasPrefix(docs.Header.Get("Content-Type"), "text/html") || strings.Contains(string(docs.Body), "//") && strings.Contains(string(docs.Body), "https://") {
		t.Errorf("%d %s", docs.Status, docs.Body)
	}
	for n, path := range []string{"/livez", "/api/v1/vouchers", "/nowhere"} {
		id := "trace-" + strconv.Itoa(n)
		got, err := api.Send(t.Context(), a.Client, http.MethodGet, a.URL+path, "", nil, "X-Request-Id: "+id)
		check.That(t, err == nil && got.Header.Get("X-Request-Id") == id, "%s: %v %v", path, got.Header, err)
	}
}

// A client may close its sending half behind its request, as nc -N and some proxies do, and buys like any other.
func TestHalfClosedClientsBuy(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, a shop) {
		t.Helper()
		voucher := a.Create(t, map[string]any{"stock": 10_000})
		var token string
		ask := func(method, path string) (api.Answer, error) {
			c := check.Value((&net.Dialer{}).DialContext(check.Context(t), "tcp", strings.TrimPrefix(a.URL, "http://")))(t)
			defer c.Close()
			request := check.Value(http.NewRequestWithContext(t.Context(), method, a.URL+"/api/v1"+path, nil))(t)
			request.Header.Set("Authorization", "Bearer "+token)
			check.Must(t, request.Write(c))
			tcp, _ := c.(*net.TCPConn)
			check.Must(t, tcp.CloseWrite())
			response, err := http.ReadResponse(bufio.NewReader(c), request)
			if err != nil {
				return api.Answer{}, err
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			return api.Answer{Status: response.StatusCode, Header: response.Header, Body: body}, err
		}
		bought := remote.Insist(t, "a purchase", func(attempt int) (api.Answer, error) {
			token = a.Token(t, a.user(attempt), model.RoleUser) // another one: what a 503 leaves behind is another test's
			return ask(http.MethodPost, "/vouchers/"+voucher.ID+"/seckill")
		})
		order := remote.Decode[model.Order](t, bought)
		got := remote.Insist(t, "a wait", func(int) (api.Answer, error) { return ask(http.MethodGet, "/orders/"+order.ID+"?wait=30s") })
		check.Equal(t, "its order becomes", remote.Decode[model.Order](t, got).Status, model.OrderUnpaid)
	})
}

// The server as a whole, the target * of HTTP, is no way around what every request gets: an id, the limits, a place in
// the metrics.
func TestTheServerAsAWhole(t *testing.T) {
	t.Parallel()
	a := start(t, embeddedSettings(t).with(settings{"SECKILL_RATE_ADDR": "5/h"}))
	ask := func(url string) api.Answer {
		request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodOptions, url, nil))(t)
		request.URL.Path = "*"
		request.Header.Set("X-Request-Id", "of-the-whole")
		response, err := a.Client.Do(request)
		check.Must(t, err)
		defer response.Body.Close()
		return api.Answer{Status: response.StatusCode, Header: response.Header, Body: check.Value(io.ReadAll(response.Body))(t)}
	}
	got := ask(a.URL)
	refused(t, got, http.StatusNotFound, model.CodeNotFound)
	check.Equal(t, "its id", got.Header.Get("X-Request-Id"), "of-the-whole")
	for range 4 {
		got = ask(a.URL)
	}
	refused(t, got, http.StatusNotFound, model.CodeNotFound)
	refused(t, ask(a.URL), http.StatusTooManyRequests, model.CodeRateLimited)
	if metrics := a.metrics(t); !strings.Contains(metrics, `seckill_http_request_duration_seconds_count{code="404",method="OPTIONS",route="unmatched"} 5`) {
		t.Error("it is not in the metrics")
	}
	check.Equal(t, "the operations listener says", ask(a.ops).Status, http.StatusBadRequest)
}

// metrics are what the operations listener tells.
func (a *app) metrics(t testing.TB) string {
	t.Helper()
	return string(check.Value(api.Send(t.Context(), a.Client, http.MethodGet, a.ops+"/metrics", "", nil))(t).Body)
}

// metric reads one number from the metrics, whatever its labels.
func (a *app) metric(t *testing.T, name string) float64 {
	t.Helper()
	line := regexp.MustCompile(`(?m)^` + name + `(?:\{[^}]*\})? (\S+)$`).FindStringSubmatch(a.metrics(t))
	check.Need(t, line != nil, "no metric is named %s", name)
	return check.Value(strconv.ParseFloat(line[1], 64))(t)
}

// A page that makes a browser ask the operations listener under a name of its own (DNS rebinding) hears nothing; a
// monitoring system of the inner network does.
func TestOperationsHearNoStrangersNames(t *testing.T) {
	t.Parallel()
	within(t, "sync embedded", checkOperationsHearNoStrangersNames)
}

func checkOperationsHearNoStrangersNames(t *testing.T, a shop) {
	t.Helper()
	for host, want := range map[string]int{
		"": http.StatusOK, "localhost:8081": http.StatusOK, "seckill-1:8081": http.StatusOK, "seckill.shop.svc.cluster.local": http.StatusOK,
		"evil.example": http.StatusMisdirectedRequest, "127.0.0.1.evil.example:8081": http.StatusMisdirectedRequest,
	} {
		for _, path := range []string{"/metrics", "/debug/pprof/cmdline"} {
			request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, a.ops+path, nil))(t)
			if host != "" {
				request.Host = host
			}
			answer, err := a.Client.Do(request)
			check.Must(t, err)
			_ = answer.Body.Close()
			check.Equal(t, path+" as "+host, answer.StatusCode, want)
		}
	}
}

// A page of an origin that the setting names buys as a browser does it: it asks first, then it reads the answer.
// Without the setting no page does.
func TestPagesBuy(t *testing.T) {
	t.Parallel()
	anywhere(t, func(t *testing.T, a shop) {
		t.Helper()
		path := "/vouchers/" + a.onSale(t, 1).ID + "/seckill"
		allowed := func(got api.Answer, origin string) bool {
			t.Helper()
			header := got.Header.Get("Access-Control-Allow-Origin")
			check.That(t, header == "" || header == origin, "%d allows %q", got.Status, header)
			return header == origin
		}
		for _, origin := range append(origins(), "https://evil.example") {
			want := !a.embedded && slices.Contains(origins(), origin)
			asked := a.Call(t, http.MethodOptions, path, "", nil,
				"Origin: "+origin, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization")
			if allowed(asked, origin) != want || want && asked.Header.Get("Access-Control-Allow-Headers") != "authorization" {
				t.Errorf("%s asks: %d %v", origin, asked.Status, asked.Header)
			}
			bought := a.Call(t, http.MethodPost, path, a.Token(t, a.user(1), model.RoleUser), nil, "Origin: "+origin)
			if !bought.Sells() && !remote.Again(bought, nil) && bought.Code() != model.CodeAlreadyOrdered || allowed(bought, origin) != want {
				t.Errorf("%s buys: %d %v", origin, bought.Status, bought.Header)
			}
		}
	})
}
