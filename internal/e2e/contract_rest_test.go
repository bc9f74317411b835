package e2e_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/model"
)

// object reads an answer as what is written in it, so that members a struct
// would default are seen to be there or not.
func object(t *testing.T, got answer, status int) map[string]any {
	t.Helper()
	if contentType := got.header.Get("Content-Type"); got.status != status || contentType != "application/json" {
		t.Fatalf("%d %s %s, want %d", got.status, contentType, got.body, status)
	}
	return decode[map[string]any](t, got)
}

// members are the names of an object's members, sorted.
func members(o map[string]any) []string { return slices.Sorted(maps.Keys(o)) }

// instant reads a time that must be RFC 3339 in UTC.
func instant(t *testing.T, o map[string]any, member string) time.Time {
	t.Helper()
	text, _ := o[member].(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !strings.HasSuffix(text, "Z") {
		t.Errorf("%s = %q is no RFC 3339 time in UTC", member, text)
	}
	return at
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	a := start(t, onServers(t))
	credentials := map[string]any{"username": "Alice.W_1-x", "password": "correct horse"}
	registered := object(t, a.call(t, http.MethodPost, "/auth/register", "", credentials), http.StatusCreated)
	if !slices.Equal(members(registered), []string{"id", "role", "username"}) || registered["username"] != "Alice.W_1-x" || registered["role"] != "user" {
		t.Errorf("%v", registered)
	}
	credentials["username"] = "alice.w_1-X" // without regard to case
	session := object(t, a.call(t, http.MethodPost, "/auth/login", "", credentials), http.StatusOK)
	token, _ := session["access_token"].(string)
	if !slices.Equal(members(session), []string{"access_token", "expires_in", "token_type"}) || session["token_type"] != "Bearer" || session["expires_in"].(float64) < 60 {
		t.Errorf("%v", session)
	}
	me := object(t, a.call(t, http.MethodGet, "/auth/me", token, nil), http.StatusOK)
	if !maps.Equal(me, registered) {
		t.Errorf("me = %v, registered = %v", me, registered)
	}
	// A buyer needs no account, and nobody becomes an administrator by asking.
	stranger := object(t, a.call(t, http.MethodGet, "/auth/me", a.token(t, "github:42", model.RoleUser), nil), http.StatusOK)
	if stranger["id"] != "github:42" || stranger["role"] != "user" || stranger["username"] != nil {
		t.Errorf("%v", stranger)
	}
	refused(t, a.call(t, http.MethodGet, "/admin/vouchers", token, nil), http.StatusForbidden, model.CodeForbidden)
	credentials["role"] = "admin"
	refused(t, a.call(t, http.MethodPost, "/auth/register", "", credentials), http.StatusUnprocessableEntity, model.CodeValidation)

	for _, wrong := range []string{"correct horse ", "Correct horse", "", "x", strings.Repeat("x", 5000)} {
		body := map[string]any{"username": "Alice.W_1-x", "password": wrong}
		refused(t, a.call(t, http.MethodPost, "/auth/login", "", body), http.StatusUnauthorized, model.CodeUnauthenticated)
	}
	for _, nobody := range []string{"nobody", "", "Älice", "a b", strings.Repeat("x", 5000), "alice.w_1-x\x00"} {
		body := map[string]any{"username": nobody, "password": "correct horse"}
		refused(t, a.call(t, http.MethodPost, "/auth/login", "", body), http.StatusUnauthorized, model.CodeUnauthenticated)
	}
	for body, location := range map[string]string{
		`{"username":"ab","password":"correct horse"}`:                              "body.username",
		`{"username":"` + strings.Repeat("a", 33) + `","password":"correct horse"}`: "body.username",
		`{"username":"a b c","password":"correct horse"}`:                           "body.username",
		`{"username":"Bób","password":"correct horse"}`:                             "body.username",
		`{"username":"shorty","password":"123456789"}`:                              "body.password",
		`{"username":"longy","password":"` + strings.Repeat("p", 129) + `"}`:        "body.password",
		`{"username":"shorty"}`:                                                     "body.password",
	} {
		p := refused(t, a.call(t, http.MethodPost, "/auth/register", "", body), http.StatusUnprocessableEntity, model.CodeValidation)
		if len(p.Errors) != 1 || p.Errors[0].Location != location {
			t.Errorf("%s: %v", body, p.Errors)
		}
	}
}

func TestVouchers(t *testing.T) {
	t.Parallel()
	a := start(t, onServers(t))
	admin := a.admin(t)
	body := `{"title":"茶 & <cake>","description":"for two","price":1000,"face_value":1e12,"stock":5,` +
		`"begin_at":"2020-01-01T08:00:00.5+08:00","end_at":"2099-01-01T00:00:00-05:00"}`
	created := a.call(t, http.MethodPost, "/admin/vouchers", admin, body)
	v := object(t, created, http.StatusCreated)
	id, _ := v["id"].(string)
	want := map[string]any{
		"id": id, "title": "茶 & <cake>", "description": "for two", "price": 1000.0, "face_value": 1e12, "currency": "CNY",
		"stock": 5.0, "remaining": 5.0, "state": "published", "phase": "live",
		"begin_at": v["begin_at"], "end_at": v["end_at"], "server_time": v["server_time"],
	}
	if !maps.Equal(v, want) || !model.ValidID(id) || created.header.Get("Location") != "/api/v1/admin/vouchers/"+id {
		t.Errorf("%v %v", v, created.header)
	}
	if !strings.Contains(string(created.body), "茶 & <cake>") {
		t.Errorf("the title is escaped: %s", created.body)
	}
	if begin := instant(t, v, "begin_at"); !begin.Equal(time.Date(2020, 1, 1, 0, 0, 0, 5e8, time.UTC)) {
		t.Errorf("begin_at = %s", begin)
	}
	if end := instant(t, v, "end_at"); !end.Equal(time.Date(2099, 1, 1, 5, 0, 0, 0, time.UTC)) {
		t.Errorf("end_at = %s", end)
	}
	if off := time.Since(instant(t, v, "server_time")); off < -time.Minute || off > time.Minute {
		t.Errorf("server_time is off by %s", off)
	}
	for _, path := range []string{"/vouchers/" + id, "/admin/vouchers/" + id} {
		token := ""
		if strings.Contains(path, "admin") {
			token = admin
		}
		got := object(t, a.call(t, http.MethodGet, path, token, nil), http.StatusOK)
		instant(t, got, "server_time")
		got["server_time"] = v["server_time"]
		if !maps.Equal(got, v) {
			t.Errorf("%s: %v, want %v", path, got, v)
		}
	}

	patched := object(t, a.call(t, http.MethodPatch, "/admin/vouchers/"+id, admin, "{}"), http.StatusOK)
	patched["server_time"] = v["server_time"]
	if !maps.Equal(patched, v) {
		t.Errorf("{} changed %v to %v", v, patched)
	}
	patched = object(t, a.call(t, http.MethodPatch, "/admin/vouchers/"+id, admin,
		`{"title":"Coffee","description":"","price":0,"face_value":7,"end_at":"2021-01-01T00:00:00Z","state":"paused"}`), http.StatusOK)
	if patched["title"] != "Coffee" || patched["description"] != "" || patched["price"] != 0.0 || patched["face_value"] != 7.0 ||
		patched["state"] != "paused" || patched["phase"] != "ended" || patched["begin_at"] != v["begin_at"] || patched["stock"] != 5.0 {
		t.Errorf("%v", patched)
	}
	for _, one := range []string{`{"end_at":"2019-01-01T00:00:00Z"}`, `{"begin_at":"2021-01-01T00:00:00Z"}`} {
		p := refused(t, a.call(t, http.MethodPatch, "/admin/vouchers/"+id, admin, one), http.StatusUnprocessableEntity, model.CodeValidation)
		if len(p.Errors) == 1 && !strings.HasPrefix(p.Errors[0].Location, "body.") {
			t.Errorf("%s: %v", one, p.Errors)
		}
	}
	for _, path := range []string{"/admin/vouchers/none", "/admin/vouchers/no%20id"} {
		refused(t, a.call(t, http.MethodPatch, path, admin, "{}"), http.StatusNotFound, model.CodeNotFound)
		refused(t, a.call(t, http.MethodPost, path+"/stock", admin, `{"delta":1}`), http.StatusNotFound, model.CodeNotFound)
		for _, of := range []string{"", "/stats", "/audit", "/orders", "/orders?format=csv"} {
			refused(t, a.call(t, http.MethodGet, path+of, admin, nil), http.StatusNotFound, model.CodeNotFound)
		}
	}
}

func TestHiddenVouchers(t *testing.T) {
	t.Parallel()
	a := start(t, onServers(t))
	shown := map[string]bool{"published": true, "paused": true, "draft": false, "archived": false}
	ids := map[string]string{}
	for state := range shown {
		ids[state] = a.create(t, map[string]any{"state": state}).ID
	}
	listed := func(path, token string) map[string]bool {
		found := map[string]bool{}
		for _, v := range decode[model.VoucherPage](t, a.call(t, http.MethodGet, path, token, nil)).Items {
			found[v.ID] = true
		}
		return found
	}
	public, whole := listed("/vouchers", ""), listed("/admin/vouchers", a.admin(t))
	asAdmin := listed("/vouchers", a.admin(t))
	for state, id := range ids {
		if public[id] != shown[state] || asAdmin[id] != shown[state] || !whole[id] {
			t.Errorf("%s: public %v, as an administrator %v, whole %v", state, public[id], asAdmin[id], whole[id])
		}
		for token, status := range map[string]int{
			"": http.StatusOK, "nonsense": http.StatusOK, a.token(t, a.user(1), model.RoleUser): http.StatusOK, a.admin(t): http.StatusOK,
		} {
			if !shown[state] && token != a.admin(t) {
				status = http.StatusNotFound
			}
			if got := a.call(t, http.MethodGet, "/vouchers/"+id, token, nil); got.status != status {
				t.Errorf("%s: %d, want %d", state, got.status, status)
			}
		}
	}
}

// TestPages walks through lists while they grow.
func TestPages(t *testing.T) {
	t.Parallel()
	a := start(t, onServers(t))
	user := a.token(t, a.user(1), model.RoleUser)
	var vouchers, orders []string
	add := func() {
		v := a.onSale(t, 3)
		vouchers = append(vouchers, v.ID)
		got := a.call(t, http.MethodPost, "/vouchers/"+v.ID+"/seckill", user, nil)
		orders = append(orders, decode[model.Order](t, got).ID)
	}
	for range 7 {
		add()
	}
	for path, all := range map[string]*[]string{"/vouchers": &vouchers, "/orders": &orders, "/admin/vouchers": &vouchers, "/orders?status=unpaid": &orders, "/vouchers?phase=live": &vouchers} {
		token := user
		if strings.HasPrefix(path, "/admin") {
			token = a.admin(t)
		}
		want := slices.Clone(*all)
		slices.Reverse(want) // newest first
		var got []string
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		for cursor, pages := "", 0; ; pages++ {
			page := object(t, a.call(t, http.MethodGet, path+separator+"limit=3&cursor="+cursor, token, nil), http.StatusOK)
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
			if len(items) != 3 || pages > 5 {
				t.Fatalf("%s: page %d has %d items", path, pages, len(items))
			}
			cursor = next
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", path, got, want)
		}
	}
	for _, path := range []string{"/vouchers", "/orders", "/admin/vouchers", "/admin/vouchers/" + vouchers[0] + "/orders"} {
		for _, query := range []string{"cursor=nonsense", "cursor=%00", "cursor=" + strings.Repeat("A", 100), "limit=0", "limit=101", "limit=x"} {
			got := a.call(t, http.MethodGet, path+"?"+query, a.admin(t), nil)
			p := refused(t, got, http.StatusUnprocessableEntity, model.CodeValidation)
			location := "query." + query[:strings.Index(query, "=")]
			if len(p.Errors) != 1 || p.Errors[0].Location != location {
				t.Errorf("%s?%s: %v", path, query, p.Errors)
			}
		}
		if got := a.call(t, http.MethodGet, path+"?unknown=1&limit=100", a.admin(t), nil); got.status != http.StatusOK {
			t.Errorf("%s: an unknown parameter: %d %s", path, got.status, got.body)
		}
	}
	if page := object(t, a.call(t, http.MethodGet, "/orders", a.token(t, a.user(9), model.RoleUser), nil), http.StatusOK); fmt.Sprint(page) != "map[items:[]]" {
		t.Errorf("no orders are %v", page)
	}
	if page := object(t, a.call(t, http.MethodGet, "/orders?voucher_id="+vouchers[2], user, nil), http.StatusOK); len(page["items"].([]any)) != 1 {
		t.Errorf("%v", page)
	}
	if page := object(t, a.call(t, http.MethodGet, "/orders?voucher_id=not%20an%20id", user, nil), http.StatusOK); len(page["items"].([]any)) != 0 {
		t.Errorf("%v", page)
	}
}

func TestOrders(t *testing.T) {
	t.Parallel()
	a := start(t, onServers(t).with(settings{"SECKILL_PAYMENT_WINDOW": "7m", "SECKILL_CURRENCY": "EUR"}))
	voucher := a.create(t, map[string]any{"stock": 3, "price": 4200})
	user, token := a.user(1), a.token(t, a.user(1), model.RoleUser)
	bought := a.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", token, "{}")
	order := object(t, bought, http.StatusCreated)
	id, _ := order["id"].(string)
	want := map[string]any{
		"id": id, "voucher_id": voucher.ID, "user_id": user, "status": "unpaid", "price": 4200.0, "currency": "EUR",
		"created_at": order["created_at"], "expires_at": order["expires_at"],
	}
	if !maps.Equal(order, want) || bought.header.Get("Location") != "/api/v1/orders/"+id {
		t.Errorf("%v %v", order, bought.header)
	}
	if of, ok := model.VoucherOf(id); !ok || of != voucher.ID {
		t.Errorf("the order's id does not tell its voucher: %s", id)
	}
	if window := instant(t, order, "expires_at").Sub(instant(t, order, "created_at")); window != 7*time.Minute {
		t.Errorf("it expires after %s", window)
	}
	for _, path := range []string{bought.header.Get("Location"), bought.header.Get("Location") + "?wait=30s"} {
		began := time.Now()
		got := object(t, a.call(t, http.MethodGet, strings.TrimPrefix(path, "/api/v1"), token, nil), http.StatusOK)
		if !maps.Equal(got, order) {
			t.Errorf("%s: %v", path, got)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s waited %s for an order that is not processing", path, took)
		}
	}
	detail := object(t, a.call(t, http.MethodGet, "/admin/orders/"+id, a.admin(t), nil), http.StatusOK)
	history, _ := detail["history"].([]any)
	delete(detail, "history")
	if !maps.Equal(detail, order) || len(history) != 1 {
		t.Fatalf("%v %v", detail, history)
	}
	if creation := history[0].(map[string]any); creation["at"] != order["created_at"] || creation["from"] != nil ||
		creation["to"] != "unpaid" || creation["by"] != user || !slices.Equal(members(creation), []string{"at", "by", "from", "to"}) {
		t.Errorf("%v", creation)
	}
	// The price is the one of the purchase.
	a.call(t, http.MethodPatch, "/admin/vouchers/"+voucher.ID, a.admin(t), `{"price":1}`)
	if got := object(t, a.call(t, http.MethodGet, "/orders/"+id, token, nil), http.StatusOK); got["price"] != 4200.0 {
		t.Errorf("price = %v", got["price"])
	}

	stats := object(t, a.call(t, http.MethodGet, "/admin/vouchers/"+voucher.ID+"/stats", a.admin(t), nil), http.StatusOK)
	byStatus, _ := stats["orders_by_status"].(map[string]any)
	if stats["stock"] != 3.0 || stats["remaining"] != 2.0 || stats["reserved"] != 0.0 || stats["sold"] != 1.0 || byStatus["unpaid"] != 1.0 || len(stats) != 5 {
		t.Errorf("%v", stats)
	}
	audit := a.call(t, http.MethodGet, "/admin/vouchers/"+voucher.ID+"/audit", a.admin(t), nil)
	wantAudit := `{"voucher_id":"` + voucher.ID + `","mode":"sync","balanced":true,"database":{"stock":3,"remaining":2,"live_orders":1},"redis":null,"queue":null,"drift":[]}`
	if got := strings.TrimSpace(string(audit.body)); audit.status != http.StatusOK || got != wantAudit {
		t.Errorf("%d %s", audit.status, got)
	}
}

func TestStockChanges(t *testing.T) {
	t.Parallel()
	a := start(t, onServers(t))
	voucher := a.onSale(t, 3)
	path := "/admin/vouchers/" + voucher.ID + "/stock"
	for n := range 2 {
		a.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.token(t, a.user(n), model.RoleUser), nil)
	}
	for _, change := range []struct {
		body             string
		stock, remaining float64
	}{{`{"delta":5}`, 8, 6}, {`{"delta":-6}`, 2, 0}, {`{"stock":4}`, 4, 2}, {`{"delta":0}`, 4, 2}, {`{"stock":2}`, 2, 0}} {
		got := object(t, a.call(t, http.MethodPost, path, a.admin(t), change.body), http.StatusOK)
		if got["stock"] != change.stock || got["remaining"] != change.remaining {
			t.Errorf("%s: %v", change.body, got)
		}
	}
	for _, body := range []string{`{"stock":1}`, `{"delta":-1}`} {
		refused(t, a.call(t, http.MethodPost, path, a.admin(t), body), http.StatusConflict, model.CodeConflict)
	}
	for _, body := range []string{`{}`, `{"stock":2,"delta":1}`, `{"stock":-1}`, `{"stock":1000000000001}`, `{"delta":1.5}`, `{"stock":null}`} {
		refused(t, a.call(t, http.MethodPost, path, a.admin(t), body), http.StatusUnprocessableEntity, model.CodeValidation)
	}
	if got := a.call(t, http.MethodPost, path, a.admin(t), `{"delta":1000000000000}`); got.status != http.StatusUnprocessableEntity && got.status != http.StatusConflict {
		t.Errorf("more than 10^12: %d %s", got.status, got.body)
	}
	if audit := a.audit(t, voucher.ID); audit.Database.Stock != 2 || !audit.Balanced {
		t.Errorf("%+v", audit)
	}
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	a := start(t, s)
	admin := a.admin(t)
	body := map[string]any{"title": "Once", "price": 1, "face_value": 2, "stock": 3, "begin_at": "2030-01-01T00:00:00Z", "end_at": "2030-01-02T00:00:00Z"}
	ask := func(token, path string, body any, key string) answer {
		return a.call(t, http.MethodPost, path, token, body, "Idempotency-Key: "+key)
	}
	var mu sync.Mutex
	ids := map[string]int{}
	var together sync.WaitGroup
	for range 8 { // also all at once
		together.Go(func() {
			got := ask(admin, "/admin/vouchers", body, "create once")
			var v model.Voucher
			if err := json.Unmarshal(got.body, &v); err != nil || got.status != http.StatusCreated || got.header.Get("Location") != "/api/v1/admin/vouchers/"+v.ID {
				t.Errorf("%d %s", got.status, got.body)
			}
			mu.Lock()
			ids[v.ID]++
			mu.Unlock()
		})
	}
	together.Wait()
	if len(ids) != 1 {
		t.Fatalf("one key made %v", ids)
	}
	var id string
	for id = range ids {
	}
	other := maps.Clone(body)
	other["stock"] = 4
	refused(t, ask(admin, "/admin/vouchers", other, "create once"), http.StatusConflict, model.CodeConflict)
	another := decode[model.Voucher](t, ask(a.token(t, "admin-2", model.RoleAdmin), "/admin/vouchers", body, "create once"))
	if another.ID == id || another.ID == "" {
		t.Error("two administrators share a key")
	}

	stock := "/admin/vouchers/" + id + "/stock"
	first := object(t, ask(admin, stock, `{"delta":2}`, "create once"), http.StatusOK) // another route: another key
	if first["stock"] != 5.0 {
		t.Errorf("%v", first)
	}
	object(t, ask(admin, stock, `{"delta":10}`, "second"), http.StatusOK)
	again := object(t, ask(admin, stock, ` { "delta" : 2 } `, "create once"), http.StatusOK)
	if again["stock"] != 5.0 {
		t.Errorf("the first answer again: %v", again)
	}
	if now := a.audit(t, id); now.Database.Stock != 15 {
		t.Errorf("stock = %d", now.Database.Stock)
	}
	refused(t, ask(admin, stock, `{"delta":3}`, "create once"), http.StatusConflict, model.CodeConflict)
	refused(t, ask(admin, "/admin/vouchers/"+another.ID+"/stock", `{"delta":2}`, "create once"), http.StatusConflict, model.CodeConflict)
	// A CONFLICT is an answer, too: it is repeated when it would no longer be one.
	refused(t, ask(admin, stock, `{"delta":-16}`, "too much"), http.StatusConflict, model.CodeConflict)
	object(t, ask(admin, stock, `{"delta":20}`, "more"), http.StatusOK)
	refused(t, ask(admin, stock, `{"delta":-16}`, "too much"), http.StatusConflict, model.CodeConflict)
	// And so on another instance.
	twin := start(t, s)
	if got := twin.call(t, http.MethodPost, stock, admin, `{"delta":2}`, "Idempotency-Key: create once"); decode[model.Voucher](t, got).Stock != 5 {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, key := range []string{strings.Repeat("k", 256), "Schlüssel"} {
		refused(t, ask(admin, stock, `{"delta":1}`, key), http.StatusUnprocessableEntity, model.CodeValidation)
	}
}

func TestExports(t *testing.T) {
	t.Parallel()
	a := start(t, onServers(t))
	voucher := a.onSale(t, 40)
	want := map[string]string{}
	for n := range 30 {
		user := a.user(n)
		want[decode[model.Order](t, a.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.token(t, user, model.RoleUser), nil)).ID] = user
	}
	path := "/admin/vouchers/" + voucher.ID + "/orders"
	got := a.call(t, http.MethodGet, path+"?format=csv&limit=5", a.admin(t), nil)
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "text/csv; charset=utf-8" || got.header.Get("X-Request-Id") == "" {
		t.Fatalf("%d %v", got.status, got.header)
	}
	rows, err := csv.NewReader(strings.NewReader(string(got.body))).ReadAll()
	if err != nil || len(rows) != 31 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	column := func(name string) int { return slices.Index(rows[0], name) }
	for _, row := range rows[1:] {
		if want[row[column("id")]] != row[column("user_id")] || row[column("status")] != "unpaid" || row[column("voucher_id")] != voucher.ID || row[column("price")] != "1000" {
			t.Errorf("%v", row)
		}
		delete(want, row[column("id")])
	}
	if len(want) != 0 {
		t.Errorf("missing: %v", want)
	}
	paid := a.call(t, http.MethodGet, path+"?format=csv&status=paid", a.admin(t), nil)
	if paid.status != http.StatusOK || strings.Count(string(paid.body), "\n") != 1 {
		t.Errorf("%d %s", paid.status, paid.body)
	}
	if got := len(a.rows(t, voucher.ID)); got != 30 {
		t.Errorf("%d orders as JSON", got)
	}
	refused(t, a.call(t, http.MethodGet, path+"?format=xml", a.admin(t), nil), http.StatusUnprocessableEntity, model.CodeValidation)
	refused(t, a.call(t, http.MethodGet, path+"?status=gone&format=csv", a.admin(t), nil), http.StatusUnprocessableEntity, model.CodeValidation)
}

// TestListeners: what is for operators is not for clients, and the other way
// round.
func TestListeners(t *testing.T) {
	t.Parallel()
	a := start(t, onServers(t))
	get := func(url string) answer {
		got, err := send(a.client, http.MethodGet, url, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for path, want := range map[string]string{"/metrics": "seckill_http_request_duration_seconds", "/debug/pprof/": "goroutine", "/debug/pprof/heap?debug=1": "heap profile"} {
		get(a.url + "/api/v1/vouchers")
		if got := get(a.ops + path); got.status != http.StatusOK || !strings.Contains(string(got.body), want) {
			t.Errorf("operations %s: %d", path, got.status)
		}
		refused(t, get(a.url+path), http.StatusNotFound, model.CodeNotFound)
	}
	if got := get(a.ops + "/api/v1/vouchers"); got.status != http.StatusNotFound {
		t.Errorf("the API is on the operations listener: %d", got.status)
	}
	live, ready := get(a.url+"/livez"), get(a.url+"/readyz")
	if live.status != http.StatusOK || ready.status != http.StatusOK || len(strings.Split(strings.TrimSpace(string(ready.body)), "\n")) < 3 {
		t.Errorf("%d %d %s", live.status, ready.status, ready.body)
	}
	docs := get(a.url + "/api/v1/docs")
	if docs.status != http.StatusOK || !strings.HasPrefix(docs.header.Get("Content-Type"), "text/html") || strings.Contains(string(docs.body), "//") && strings.Contains(string(docs.body), "https://") {
		t.Errorf("%d %s", docs.status, docs.body)
	}
	for n, path := range []string{"/livez", "/api/v1/vouchers", "/nowhere"} {
		id := "trace-" + strconv.Itoa(n)
		got, err := send(a.client, http.MethodGet, a.url+path, "", nil, "X-Request-Id: "+id)
		if err != nil || got.header.Get("X-Request-Id") != id {
			t.Errorf("%s: %v %v", path, got.header, err)
		}
	}
}
