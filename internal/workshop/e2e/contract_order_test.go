//part:races

package e2e_test

import (
	"encoding/csv"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

func TestVouchers(t *testing.T) {
	t.Parallel()
	anywhere(t, checkVouchers)
}

func checkVouchers(t *testing.T, a shop) {
	t.Helper()
	admin, began := a.Admin(t), time.Now()
	body := `{"title":"茶 & <cake>","description":"for two","price":1000,"face_value":1e12,"stock":5,` +
		`"begin_at":"2020-01-01T08:00:00.5+08:00","end_at":"2099-01-01T00:00:00-05:00"}`
	created := a.Call(t, http.MethodPost, "/admin/vouchers", admin, body)
	v := object(t, created, http.StatusCreated)
	id, _ := v["id"].(string)
	want := map[string]any{
		"id": id, "title": "茶 & <cake>", "description": "for two", "price": 1000.0, "face_value": 1e12, "currency": "EUR", "allocation": "first_come",
		"stock": 5.0, "remaining": 5.0, "state": "published", "phase": "live",
		"begin_at": v["begin_at"], "end_at": v["end_at"], "server_time": v["server_time"],
	}
	if !maps.Equal(v, want) || !model.ValidID(id) || created.Header.Get("Location") != "/api/v1/admin/vouchers/"+id {
		t.Errorf("%v %v", v, created.Header)
	}
	check.That(t, strings.Contains(string(created.Body), "茶 & <cake>"), "the title is escaped: %s", created.Body)
	if begin := instant(t, v, "begin_at"); !begin.Equal(time.Date(2020, 1, 1, 0, 0, 0, 5e8, time.UTC)) {
		t.Errorf("begin_at = %s", begin)
	}
	if end := instant(t, v, "end_at"); !end.Equal(time.Date(2099, 1, 1, 5, 0, 0, 0, time.UTC)) {
		t.Errorf("end_at = %s", end)
	}
	if at := instant(t, v, "server_time"); at.Before(began.Add(-time.Minute)) || at.After(time.Now().Add(time.Minute)) {
		t.Errorf("server_time is %s", at)
	}
	for _, path := range []string{"/vouchers/" + id, "/admin/vouchers/" + id} {
		token := ""
		if strings.Contains(path, "admin") {
			token = admin
		}
		got := object(t, a.Call(t, http.MethodGet, path, token, nil), http.StatusOK)
		instant(t, got, "server_time")
		got["server_time"] = v["server_time"]
		check.That(t, maps.Equal(got, v), "%s: %v, want %v", path, got, v)
	}

	patched := object(t, a.Call(t, http.MethodPatch, "/admin/vouchers/"+id, admin, "{}"), http.StatusOK)
	patched["server_time"] = v["server_time"]
	check.That(t, maps.Equal(patched, v), "{} changed %v to %v", v, patched)
	patched = object(t, a.Call(t, http.MethodPatch, "/admin/vouchers/"+id, admin,
		`{"title":"Coffee","description":"","price":0,"face_value":7,"end_at":"2021-01-01T00:00:00Z","state":"paused"}`), http.StatusOK)
	if patched["title"] != "Coffee" || patched["description"] != "" || patched["price"] != 0.0 || patched["face_value"] != 7.0 ||
		patched["state"] != "paused" || patched["phase"] != "ended" || patched["begin_at"] != v["begin_at"] || patched["stock"] != 5.0 {
		t.Errorf("%v", patched)
	}
	for _, one := range []string{`{"end_at":"2019-01-01T00:00:00Z"}`, `{"begin_at":"2021-01-01T00:00:00Z"}`} {
		p := refused(t, a.Call(t, http.MethodPatch, "/admin/vouchers/"+id, admin, one), http.StatusUnprocessableEntity, model.CodeValidation)
		check.That(t, len(p.Errors) != 1 || strings.HasPrefix(p.Errors[0].Location, "body."), "%s: %v", one, p.Errors)
	}
	own := object(t, a.Call(t, http.MethodPost, "/admin/vouchers", admin, body[:len(body)-1]+`,"payment_window":"90s"}`), http.StatusCreated)
	ownID, _ := own["id"].(string)
	doc := readDocument(t, a.app)
	for _, path := range []string{"/api/v1/vouchers/{id}", "/api/v1/admin/vouchers/{id}"} {
		got := a.Call(t, http.MethodGet, strings.ReplaceAll(path[len("/api/v1"):], "{id}", ownID), admin, nil)
		doc.check(t, http.MethodGet, path, got)
		if shown := object(t, got, http.StatusOK)["payment_window"]; shown != "1m30s" || own["payment_window"] != shown {
			t.Errorf("%s: payment_window is %v, and %v when it was made", path, shown, own["payment_window"])
		}
	}
	for _, path := range []string{"/admin/vouchers/none", "/admin/vouchers/no%20id"} {
		refused(t, a.Call(t, http.MethodPatch, path, admin, "{}"), http.StatusNotFound, model.CodeNotFound)
		refused(t, a.Call(t, http.MethodPost, path+"/stock", admin, `{"delta":1}`), http.StatusNotFound, model.CodeNotFound)
		for _, of := range []string{"", "/stats", "/audit", "/report", "/orders", "/orders?format=csv"} {
			refused(t, a.Call(t, http.MethodGet, path+of, admin, nil), http.StatusNotFound, model.CodeNotFound)
		}
	}
	// An id that cannot exist is not found, whatever else is wrong.
	const impossible = "/admin/vouchers/no%20id"
	refused(t, a.Call(t, http.MethodPatch, impossible, admin, `{"foo":1}`), http.StatusNotFound, model.CodeNotFound)
	refused(t, a.Call(t, http.MethodPost, impossible+"/stock", admin, `{"delta":"x"}`), http.StatusNotFound, model.CodeNotFound)
	refused(t, a.Call(t, http.MethodGet, impossible+"/orders?limit=0", admin, nil), http.StatusNotFound, model.CodeNotFound)
	for _, order := range []string{"/orders/%00?wait=junk", "/orders/abc?wait=junk", "/admin/orders/abc"} {
		refused(t, a.Call(t, http.MethodGet, order, admin, nil), http.StatusNotFound, model.CodeNotFound)
	}
}

func TestHiddenVouchers(t *testing.T) {
	t.Parallel()
	anywhere(t, checkHiddenVouchers)
}

func checkHiddenVouchers(t *testing.T, a shop) {
	t.Helper()
	shown := map[string]bool{"published": true, "paused": true, "draft": false, "archived": false}
	ids := map[string]string{}
	for state := range shown {
		ids[state] = a.Create(t, map[string]any{"state": state}).ID
	}
	listed := func(path, token string) map[string]bool {
		found := map[string]bool{}
		for _, v := range remote.Decode[model.VoucherPage](t, a.Call(t, http.MethodGet, path, token, nil)).Items {
			found[v.ID] = true
		}
		return found
	}
	admin := a.Admin(t) // another second, another token
	public, whole := listed("/vouchers?limit=100", ""), listed("/admin/vouchers?limit=100", admin)
	asAdmin := listed("/vouchers?limit=100", admin)
	for state, id := range ids {
		if public[id] != shown[state] || asAdmin[id] != shown[state] || !whole[id] {
			t.Errorf("%s: public %v, as an administrator %v, whole %v", state, public[id], asAdmin[id], whole[id])
		}
		for token, status := range map[string]int{
			"": http.StatusOK, "nonsense": http.StatusOK, a.Token(t, a.user(1), model.RoleUser): http.StatusOK, admin: http.StatusOK,
		} {
			if !shown[state] && token != admin {
				status = http.StatusNotFound
			}
			if got := a.Call(t, http.MethodGet, "/vouchers/"+id, token, nil); got.Status != status {
				t.Errorf("%s: %d, want %d", state, got.Status, status)
			}
		}
	}
}

func TestStockChanges(t *testing.T) {
	t.Parallel()
	everywhere(t, checkStockChanges)
}

func checkStockChanges(t *testing.T, a shop) {
	t.Helper()
	voucher := a.onSale(t, 3)
	path := "/admin/vouchers/" + voucher.ID + "/stock"
	for n := range 2 {
		a.buys(t, voucher.ID, a.user(n))
	}
	for _, change := range []struct {
		body             string
		stock, remaining float64
	}{{`{"delta":5}`, 8, 6}, {`{"delta":-6}`, 2, 0}, {`{"stock":4}`, 4, 2}, {`{"delta":0}`, 4, 2}, {`{"stock":2}`, 2, 0}} {
		got := object(t, a.Insist(t, http.MethodPost, path, a.Admin(t), change.body), http.StatusOK)
		check.That(t, got["stock"] == change.stock && got["remaining"] == change.remaining, "%s: %v", change.body, got)
	}
	for _, body := range []string{`{"stock":1}`, `{"delta":-1}`} {
		refused(t, a.Call(t, http.MethodPost, path, a.Admin(t), body), http.StatusConflict, model.CodeConflict)
	}
	for _, body := range []string{`{}`, `{"stock":2,"delta":1}`, `{"stock":-1}`, `{"stock":1000000000001}`, `{"delta":1.5}`, `{"delta":1.0000000000000000000001}`, `{"stock":null}`} {
		refused(t, a.Call(t, http.MethodPost, path, a.Admin(t), body), http.StatusUnprocessableEntity, model.CodeValidation)
	}
	if got := a.Call(t, http.MethodPost, path, a.Admin(t), `{"delta":1000000000000}`); got.Status != http.StatusUnprocessableEntity && got.Status != http.StatusConflict {
		t.Errorf("more than 10^12: %d %s", got.Status, got.Body)
	}
	if audit := a.quiet(t, voucher.ID); audit.Database.Stock != 2 {
		t.Errorf("%+v", audit)
	}

	// Administrators change one stock at the same time: each change is made once, whatever the others do. Who is told that
	// another change is under way asks again, with the same key.
	voucher = a.onSale(t, 100)
	path = "/admin/vouchers/" + voucher.ID + "/stock"
	check.Volley(12, func(i int) {
		body := []string{`{"delta":-2}`, `{"delta":3}`}[i%2]
		got := a.Insist(t, http.MethodPost, path, a.Admin(t), body, "Idempotency-Key: change "+strconv.Itoa(i))
		check.That(t, got.Status == http.StatusOK, "%s: %d %s", body, got.Status, got.Body)
	})
	if audit := a.Audit(t, voucher.ID); audit.Database.Stock != 106 || audit.Database.Remaining != 106 {
		t.Errorf("%+v", audit)
	}
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	anywhere(t, checkIdempotencyKeys)
}

func checkIdempotencyKeys(t *testing.T, a shop) {
	t.Helper()
	admin := a.Token(t, a.user(1), model.RoleAdmin)
	body := map[string]any{"title": "Once", "price": 1, "face_value": 2, "stock": 3, "begin_at": "2030-01-01T00:00:00Z", "end_at": "2030-01-02T00:00:00Z"}
	ask := func(token, path string, body any, key string) api.Answer {
		return a.Call(t, http.MethodPost, path, token, body, "Idempotency-Key: "+key)
	}
	made := make([]api.Answer, 8)
	check.Volley(len(made), func(i int) { made[i] = ask(admin, "/admin/vouchers", body, "create once") }) // also all at once
	id := remote.Decode[model.Voucher](t, made[0]).ID
	for _, got := range made {
		if remote.Decode[model.Voucher](t, got).ID != id || got.Status != http.StatusCreated || got.Header.Get("Location") != "/api/v1/admin/vouchers/"+id {
			t.Errorf("one key made %s, and %d %s", id, got.Status, got.Body)
		}
	}
	other := maps.Clone(body)
	other["stock"] = 4
	refused(t, ask(admin, "/admin/vouchers", other, "create once"), http.StatusConflict, model.CodeConflict)
	another := remote.Decode[model.Voucher](t, ask(a.Token(t, a.user(2), model.RoleAdmin), "/admin/vouchers", body, "create once"))
	check.That(t, another.ID != id && another.ID != "", "two administrators share a key")

	stock := "/admin/vouchers/" + id + "/stock"
	first := object(t, ask(admin, stock, `{"delta":2}`, "create once"), http.StatusOK) // another route: another key
	check.That(t, first["stock"] == 5.0, "%v", first)
	object(t, ask(admin, stock, `{"delta":10}`, "second"), http.StatusOK)
	again := object(t, ask(admin, stock, ` { "delta" : 2 } `, "create once"), http.StatusOK)
	check.That(t, again["stock"] == 5.0, "the first answer again: %v", again)
	if now := a.Audit(t, id); now.Database.Stock != 15 {
		t.Errorf("stock = %d", now.Database.Stock)
	}
	refused(t, ask(admin, stock, `{"delta":3}`, "create once"), http.StatusConflict, model.CodeConflict)
	refused(t, ask(admin, "/admin/vouchers/"+another.ID+"/stock", `{"delta":2}`, "create once"), http.StatusConflict, model.CodeConflict)
	// A CONFLICT is an answer, too: it is repeated when it would no longer be one.
	refused(t, ask(admin, stock, `{"delta":-16}`, "too much"), http.StatusConflict, model.CodeConflict)
	object(t, ask(admin, stock, `{"delta":20}`, "more"), http.StatusOK)
	refused(t, ask(admin, stock, `{"delta":-16}`, "too much"), http.StatusConflict, model.CodeConflict)
	for _, key := range []string{strings.Repeat("k", 256), "Schlüssel"} {
		refused(t, ask(admin, stock, `{"delta":1}`, key), http.StatusUnprocessableEntity, model.CodeValidation)
	}
}

// TestIdempotencyKeysAreShared by the instances of a deployment.
func TestIdempotencyKeysAreShared(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	one, other := start(t, s), start(t, s)
	path := "/admin/vouchers/" + one.onSale(t, 1).ID + "/stock"
	for _, a := range []*app{one, other, one} {
		got := a.Call(t, http.MethodPost, path, a.Admin(t), `{"delta":2}`, "Idempotency-Key: k")
		if v := remote.Decode[model.Voucher](t, got); got.Status != http.StatusOK || v.Stock != 3 {
			t.Errorf("%d %s", got.Status, got.Body)
		}
	}
}

func TestOrders(t *testing.T) {
	t.Parallel()
	everywhere(t, checkOrders)
}

func checkOrders(t *testing.T, a shop) {
	t.Helper()
	voucher := a.Create(t, map[string]any{"stock": 3, "price": 4200})
	user, token := a.user(1), a.Token(t, a.user(1), model.RoleUser)
	bought := a.Call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", token, "{}")
	order := object(t, bought, map[model.OrderMode]int{model.ModeSync: http.StatusCreated, model.ModeAsync: http.StatusAccepted}[a.mode])
	id, _ := order["id"].(string)
	want := map[string]any{
		"id": id, "voucher_id": voucher.ID, "user_id": user, "status": "processing", "price": 4200.0, "currency": "EUR", "created_at": order["created_at"],
	}
	promised := order
	if a.mode == model.ModeAsync {
		check.That(t, maps.Equal(order, want), "%v", order)
		a.becomes(t, model.Order{ID: id, UserID: user}, model.OrderUnpaid)
		order = object(t, a.Call(t, http.MethodGet, "/orders/"+id, token, nil), http.StatusOK)
	}
	want["status"], want["expires_at"] = "unpaid", order["expires_at"]
	if !maps.Equal(order, want) || bought.Header.Get("Location") != "/api/v1/orders/"+id || order["created_at"] != promised["created_at"] {
		t.Errorf("%v %v", order, bought.Header)
	}
	if of, ok := model.VoucherOf(id); !ok || of != voucher.ID {
		t.Errorf("the order's id does not tell its voucher: %s", id)
	}
	for _, path := range []string{bought.Header.Get("Location"), bought.Header.Get("Location") + "?wait=30s"} {
		got := object(t, a.Call(t, http.MethodGet, strings.TrimPrefix(path, "/api/v1"), token, nil), http.StatusOK)
		check.That(t, maps.Equal(got, order), "%s: %v", path, got)
	}
	detail := object(t, a.Call(t, http.MethodGet, "/admin/orders/"+id, a.Admin(t), nil), http.StatusOK)
	history, _ := detail["history"].([]any)
	delete(detail, "history")
	moves := []string{"unpaid"}
	if a.mode == model.ModeAsync {
		moves = []string{"processing", "unpaid"}
	}
	check.Need(t, maps.Equal(detail, order) && len(history) == len(moves), "%v %v", detail, history)
	creation, _ := history[0].(map[string]any)
	if creation["at"] != order["created_at"] || creation["from"] != nil ||
		creation["to"] != moves[0] || creation["by"] != user || !slices.Equal(members(creation), []string{"at", "by", "from", "to"}) {
		t.Errorf("%v", creation)
	}
	unpaid, _ := history[len(moves)-1].(map[string]any)
	if window := instant(t, order, "expires_at").Sub(instant(t, unpaid, "at")); window != 7*time.Minute {
		t.Errorf("it expires %s after it became unpaid", window)
	}
	// The price is the one of the purchase.
	a.Call(t, http.MethodPatch, "/admin/vouchers/"+voucher.ID, a.Admin(t), `{"price":1}`)
	if got := object(t, a.Call(t, http.MethodGet, "/orders/"+id, token, nil), http.StatusOK); got["price"] != 4200.0 {
		t.Errorf("price = %v", got["price"])
	}

	stats := object(t, a.Call(t, http.MethodGet, "/admin/vouchers/"+voucher.ID+"/stats", a.Admin(t), nil), http.StatusOK)
	byStatus, _ := stats["orders_by_status"].(map[string]any)
	if stats["stock"] != 3.0 || stats["remaining"] != 2.0 || stats["reserved"] != 0.0 || stats["sold"] != 1.0 || byStatus["unpaid"] != 1.0 || len(stats) != 5 {
		t.Errorf("%v", stats)
	}
	a.quiet(t, voucher.ID)
	audit := a.Call(t, http.MethodGet, "/admin/vouchers/"+voucher.ID+"/audit", a.Admin(t), nil)
	copies := map[model.OrderMode]string{
		model.ModeSync:  `"redis":null,"queue":null`,
		model.ModeAsync: `"redis":{"state":"open","remaining":2,"reserved":0,"buyers":1},"queue":{"pending":0,"oldest_age_ms":0}`,
	}[a.mode]
	wantAudit := `{"voucher_id":"` + voucher.ID + `","mode":"` + string(a.mode) + `","balanced":true,"database":{"stock":3,"remaining":2,"live_orders":1},` + copies + `,"drift":[]}`
	if got := strings.TrimSpace(string(audit.Body)); audit.Status != http.StatusOK || got != wantAudit {
		t.Errorf("%d %s", audit.Status, got)
	}
}

func TestExports(t *testing.T) {
	t.Parallel()
	anywhere(t, checkExports)
}

func checkExports(t *testing.T, a shop) {
	t.Helper()
	const orders = 12
	voucher := a.onSale(t, orders)
	want := map[string]string{}
	for n := range orders {
		order := a.buys(t, voucher.ID, a.user(n))
		want[order.ID] = order.UserID
	}
	path := "/admin/vouchers/" + voucher.ID + "/orders"
	got := a.Call(t, http.MethodGet, path+"?format=csv&limit=5", a.Admin(t), nil)
	if got.Status != http.StatusOK || got.Header.Get("Content-Type") != "text/csv; charset=utf-8" || got.Header.Get("X-Request-Id") == "" {
		t.Fatalf("%d %v", got.Status, got.Header)
	}
	rows, err := csv.NewReader(strings.NewReader(string(got.Body))).ReadAll()
	check.Need(t, err == nil && len(rows) == orders+1, "%d rows, %v", len(rows), err)
	column := func(name string) int { return slices.Index(rows[0], name) }
	for _, row := range rows[1:] {
		if want[row[column("id")]] != row[column("user_id")] || row[column("status")] != "unpaid" || row[column("voucher_id")] != voucher.ID || row[column("price")] != "1000" {
			t.Errorf("%v", row)
		}
		delete(want, row[column("id")])
	}
	check.That(t, len(want) == 0, "missing: %v", want)
	paid := a.Call(t, http.MethodGet, path+"?format=csv&status=paid", a.Admin(t), nil)
	check.That(t, paid.Status == http.StatusOK && strings.Count(string(paid.Body), "\n") == 1,
		"%d %s", paid.Status, paid.Body)
	if got := len(a.rows(t, voucher.ID)); got != orders {
		t.Errorf("%d orders as JSON", got)
	}
	refused(t, a.Call(t, http.MethodGet, path+"?format=xml", a.Admin(t), nil), http.StatusUnprocessableEntity, model.CodeValidation)
	refused(t, a.Call(t, http.MethodGet, path+"?status=gone&format=csv", a.Admin(t), nil), http.StatusUnprocessableEntity, model.CodeValidation)
}

// TestReturnedUnitIsSoldOnce: twenty cancellations of one order at once return one unit, one of six users who wait for
// it has it, and who gave it back may buy again.
func TestReturnedUnitIsSoldOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, checkReturnedUnit)
}

func checkReturnedUnit(t *testing.T, a shop) {
	t.Helper()
	const waiting = 6
	voucher := a.onSale(t, 1)
	first := a.buys(t, voucher.ID, a.user(0))
	// buys again and again until there is a unit, or somebody else has it.
	won, over := make(chan string, waiting), make(chan struct{})
	asked := make(chan struct{}, waiting)
	buyers := make(chan struct{})
	go func() {
		defer close(buyers)
		check.Volley(waiting, func(n int) {
			for looks := 0; ; looks++ {
				got, err := a.Place(t, voucher.ID, a.user(n+1))
				if _, sold := orderOf(t, got, voucher.ID, a.user(n+1)); err == nil && sold {
					won <- a.user(n + 1)
					return
				}
				if looks == 0 {
					asked <- struct{}{}
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}()
	for range waiting {
		check.Receive(t, "an answer to each who waits", asked)
	}
	check.Volley(20, func(int) { a.cancels(t, first) })
	winner := check.Receive(t, "one who has the unit", won)
	for range waiting - 1 { // the others go on trying
		if got := a.Insist(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.Token(t, a.user(7), model.RoleUser), nil); got.Code() != model.CodeSoldOut {
			t.Errorf("one more: %d %s", got.Status, got.Body)
		}
	}
	close(over)
	check.Receive(t, "the end of the others", buyers)
	check.Equal(t, "more who bought one unit", len(won), 0)
	page := remote.Decode[model.OrderPage](t, a.Call(t, http.MethodGet, "/orders?voucher_id="+voucher.ID, a.Token(t, winner, model.RoleUser), nil))
	check.Need(t, len(page.Items) == 1, "%+v", page.Items)
	a.cancels(t, a.becomes(t, page.Items[0], model.OrderUnpaid))
	check.Patiently(t, "who gave the unit back has it again", func() bool {
		got, err := a.Place(t, voucher.ID, first.UserID)
		_, sold := orderOf(t, got, voucher.ID, first.UserID)
		return err == nil && sold
	})
	check.Patiently(t, "it adds up", func() bool {
		d := a.Audit(t, voucher.ID).Database
		return d.LiveOrders == 1 && d.Remaining == 0
	})
}
