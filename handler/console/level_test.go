package console_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestLevelsInTheConsole: what an administrator's level does not include is refused, whatever the page shows. Levels
// are by wire.LeastLevel, as those of the API.
func TestLevelsInTheConsole(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.onSale(t, nil)
	order := s.paid(t, "alice", id)
	_, shown := s.call(t, http.MethodGet, "/orders/"+order, s.token(t, "alice", model.RoleUser), nil)
	code, _ := shown["code"].(string)
	sees := map[model.Level]bool{model.LevelCashier: true, model.LevelOperator: true, model.LevelAdmin: true}
	acts := []struct {
		path  string
		least model.Level
	}{
		{"/redemptions", model.LevelCashier},
		{"/vouchers/new", model.LevelOperator},
		{"/vouchers/" + id + "/edit", model.LevelOperator},
		{"/vouchers/" + id + "/state", model.LevelOperator},
		{"/vouchers/" + id + "/stock", model.LevelOperator},
		{"/vouchers/" + id + "/end", model.LevelOperator},
		{"/orders/" + order + "/refund", model.LevelOperator},
		{"/orders/" + order + "/cancel", model.LevelOperator},
		{"/accounts/unknown/groups", model.LevelOperator},
		{"/vouchers/" + id + "/repair", model.LevelAdmin},
		{"/vouchers/" + id + "/rebuild", model.LevelAdmin},
		{"/dead-letters/1/replay", model.LevelAdmin},
		{"/dead-letters/1/drop", model.LevelAdmin},
	}
	for _, level := range model.Levels()[:3] {
		b := s.signedIn(t, string(level))
		for _, path := range []string{"", "/vouchers", "/vouchers/" + id, "/orders/" + order, "/vouchers/" + id + "/audit", "/orders", "/refunds", "/system", "/log", "/accounts", "/accounts/" + s.account(t, string(level))} {
			got := b.get(t, "/console"+path)
			got.is(t, http.StatusOK)
			if _, main, _ := strings.Cut(got.body, "<main"); level == model.LevelViewer && strings.Contains(main, `method="post"`) {
				t.Errorf("a viewer sees what cannot be done on %q: %s", path, main)
			}
		}
		page := b.page(t, "/console/orders/"+order)
		check.Equal(t, "a "+string(level)+" sees the code", strings.Contains(page, code), sees[level])
		for _, act := range acts {
			enough := slices.Index(model.Levels(), level) >= slices.Index(model.Levels(), act.least)
			if enough {
				continue
			}
			b.post(t, "/console"+act.path, nil).is(t, http.StatusForbidden)
		}
	}
	got := s.signedIn(t, "cashier").post(t, "/console/redemptions", map[string][]string{"code": {code}})
	check.That(t, got.status < http.StatusBadRequest, "a cashier redeems: %d %s", got.status, got.body)
}
