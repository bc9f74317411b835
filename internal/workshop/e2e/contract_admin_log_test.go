package e2e_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// TestRebuildsAndLimitsAreLogged: who had a hot copy rebuilt, and who changed the limits from what to what; what is as it
// was is no change.
func TestRebuildsAndLimitsAreLogged(t *testing.T) {
	t.Parallel()
	a := start(t, asyncOnServers(t).with(settings{"SECKILL_RATE_USER": "20/s"}))
	boss, clerk := a.Token(t, "boss", model.RoleAdmin), a.Token(t, "clerk", model.RoleAdmin)
	voucher := a.onSale(t, 1)
	object(t, a.Insist(t, http.MethodPost, "/admin/vouchers/"+voucher.ID+"/rebuild", clerk, nil), http.StatusAccepted)
	for _, body := range []string{`{"user":"7/m"}`, `{"user":"7/m"}`, `{}`, `{"addr":"0"}`, `{"user":"8/m","addr":"0"}`} {
		object(t, a.Call(t, http.MethodPatch, limitsPath, boss, body), http.StatusOK)
	}
	a.quiet(t, voucher.ID)
	var told []string
	for _, entry := range remote.Decode[model.AdminLogPage](t, a.Call(t, http.MethodGet, "/admin/log", boss, nil)).Items {
		told = append(told, strings.Join([]string{entry.Actor, entry.Action, entry.Subject, string(entry.Before), string(entry.After)}, " "))
	}
	want := []string{
		`boss limits.change limits {"user":"7/m","addr":"0"} {"user":"8/m","addr":"0"}`,
		`boss limits.change limits {"user":"7/m"} {"user":"7/m","addr":"0"}`,
		`boss limits.change limits {} {"user":"7/m"}`,
		"clerk voucher.rebuild " + voucher.ID + "  ",
	}
	if len(told) != len(want)+1 || !slices.Equal(told[:len(want)], want) { // and the voucher's creation
		t.Errorf("%q, want %q", told, want)
	}
}

// TestAdminLog: what administrators change is in their log, with who, before and after.
func TestAdminLog(t *testing.T) {
	t.Parallel()
	anywhere(t, checkAdminLog)
}

func checkAdminLog(t *testing.T, a shop) {
	t.Helper()
	boss, clerk := a.Token(t, a.user(1), model.RoleAdmin), a.Token(t, a.user(2), model.RoleAdmin)
	body := `{"title":"Tea","price":1,"face_value":2,"stock":5,"begin_at":"2020-01-01T00:00:00Z","end_at":"2099-01-01T00:00:00Z","payment_window":"90s"}`
	id, _ := object(t, a.Call(t, http.MethodPost, "/admin/vouchers", boss, body), http.StatusCreated)["id"].(string)
	object(t, a.Insist(t, http.MethodPatch, "/admin/vouchers/"+id, clerk, `{"price":7}`), http.StatusOK)
	object(t, a.Insist(t, http.MethodPost, "/admin/vouchers/"+id+"/stock", boss, `{"delta":3}`), http.StatusOK)
	refused(t, a.Call(t, http.MethodPost, "/admin/vouchers/"+id+"/stock", boss, `{"stock":-1}`), http.StatusUnprocessableEntity, model.CodeValidation)

	page := func(query string) model.AdminLogPage {
		return remote.Decode[model.AdminLogPage](t, a.Call(t, http.MethodGet, "/admin/log?limit=1&actor="+query, boss, nil))
	}
	first, changed := page(a.user(1)), page(a.user(2))
	rest := page(a.user(1) + "&cursor=" + first.NextCursor)
	want := []struct{ actor, action, member, before, after string }{
		{a.user(1), model.ActionStockChange, "stock", "5", "8"},
		{a.user(2), model.ActionVoucherChange, "price", "1", "7"},
		{a.user(1), model.ActionVoucherCreate, "payment_window", "", `"1m30s"`},
	}
	all := slices.Concat(first.Items, changed.Items, rest.Items)
	if len(all) != len(want) || rest.NextCursor != "" || changed.NextCursor != "" || all[0].At.Before(all[1].At) || all[1].At.Before(all[2].At) {
		t.Fatalf("%+v", all)
	}
	for i, entry := range all {
		if entry.Actor != want[i].actor || entry.Action != want[i].action || entry.Subject != id {
			t.Errorf("%d: %+v", i, entry)
		}
		for side, document := range map[string]json.RawMessage{want[i].before: entry.Before, want[i].after: entry.After} {
			var members map[string]json.RawMessage
			if len(document) > 0 {
				check.Must(t, json.Unmarshal(document, &members))
			}
			if string(members[want[i].member]) != side {
				t.Errorf("%d: %s is %s in %s, want %s", i, want[i].member, members[want[i].member], document, side)
			}
		}
	}
	refused(t, a.Call(t, http.MethodGet, "/admin/log", a.Token(t, a.user(3), model.RoleUser), nil), http.StatusForbidden, model.CodeForbidden)
	for _, window := range []string{`"500ms"`, `"9000h"`, `"soon"`, `"0s"`} {
		p := refused(t, a.Call(t, http.MethodPost, "/admin/vouchers", boss, body[:len(body)-len(`"90s"}`)]+window+"}"), http.StatusUnprocessableEntity, model.CodeValidation)
		if len(p.Errors) != 1 || p.Errors[0].Location != "body.payment_window" {
			t.Errorf("%s: %+v", window, p.Errors)
		}
	}
}
