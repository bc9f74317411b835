//part:races

package e2e_test

import (
	"encoding/csv"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/model"
)

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
		if !maps.Equal(order, want) {
			t.Errorf("%v", order)
		}
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
		if !maps.Equal(got, order) {
			t.Errorf("%s: %v", path, got)
		}
	}
	detail := object(t, a.Call(t, http.MethodGet, "/admin/orders/"+id, a.Admin(t), nil), http.StatusOK)
	history, _ := detail["history"].([]any)
	delete(detail, "history")
	moves := []string{"unpaid"}
	if a.mode == model.ModeAsync {
		moves = []string{"processing", "unpaid"}
	}
	if !maps.Equal(detail, order) || len(history) != len(moves) {
		t.Fatalf("%v %v", detail, history)
	}
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
	if err != nil || len(rows) != orders+1 {
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
	paid := a.Call(t, http.MethodGet, path+"?format=csv&status=paid", a.Admin(t), nil)
	if paid.Status != http.StatusOK || strings.Count(string(paid.Body), "\n") != 1 {
		t.Errorf("%d %s", paid.Status, paid.Body)
	}
	if got := len(a.rows(t, voucher.ID)); got != orders {
		t.Errorf("%d orders as JSON", got)
	}
	refused(t, a.Call(t, http.MethodGet, path+"?format=xml", a.Admin(t), nil), http.StatusUnprocessableEntity, model.CodeValidation)
	refused(t, a.Call(t, http.MethodGet, path+"?status=gone&format=csv", a.Admin(t), nil), http.StatusUnprocessableEntity, model.CodeValidation)
}
