package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"seckill/internal/workshop/remote"
	"seckill/model"
)

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
			if len(items) > 3 || len(items) < 3 && !strings.Contains(path, "phase") || pages > 50 {
				t.Fatalf("%s: page %d has %d items", path, pages, len(items))
			}
			cursor = next
		}
		got = slices.DeleteFunc(got, func(id string) bool { return !slices.Contains(*all, id) }) // of other tests
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %v\nwant %v", path, got, want)
		}
	}
	for _, path := range []string{"/vouchers", "/orders", "/admin/vouchers", "/admin/vouchers/" + vouchers[0] + "/orders"} {
		for _, query := range []string{"cursor=nonsense", "cursor=%00", "cursor=" + strings.Repeat("A", 100)} {
			got := a.Call(t, http.MethodGet, path+"?"+query, a.Admin(t), nil)
			p := refused(t, got, http.StatusUnprocessableEntity, model.CodeValidation)
			location := "query." + query[:strings.Index(query, "=")]
			if len(p.Errors) != 1 || p.Errors[0].Location != location {
				t.Errorf("%s?%s: %v", path, query, p.Errors)
			}
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
