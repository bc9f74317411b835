package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestGroupsOfAnAccount: an administrator finds an account by its name or id, sees its groups and changes them, and it may
// buy what is for them. What is no group is refused beside the field, with what was typed.
func TestGroupsOfAnAccount(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	_, made := s.call(t, http.MethodPost, "/auth/register", "", map[string]string{"username": "Grouped.One", "password": password})
	id := fmt.Sprint(made["id"])
	path := "/console/accounts/" + id
	for _, words := range []string{" grouped.one ", id} {
		got := b.get(t, "/console/accounts?q="+url.QueryEscape(words))
		check.Equal(t, words+" leads to", got.header.Get("Location"), path)
	}
	unknown := b.get(t, "/console/accounts?q=nobody")
	unknown.is(t, http.StatusNotFound)
	want(t, unknown.body, `value="nobody"`, `id="q-wrong" role="alert">There is no such account.`)
	b.get(t, "/console/accounts/unknown").is(t, http.StatusNotFound)
	b.post(t, "/console/accounts/unknown/groups", nil).is(t, http.StatusNotFound)

	status, in := s.call(t, http.MethodPost, "/auth/login", "", map[string]string{"username": "grouped.one", "password": password})
	check.Equal(t, "the login", status, http.StatusOK)
	voucher := s.onSale(t, map[string]any{"groups": []string{"gold"}})
	buy := func() any {
		_, heard := s.call(t, http.MethodPost, "/vouchers/"+voucher+"/seckill", fmt.Sprint(in["access_token"]), nil)
		return heard["code"]
	}
	check.Equal(t, "who is in no group hears", buy(), any(string(model.CodeNotEligible)))
	for typed, wrong := range map[string]string{
		"gold\nstaff\ngold":       "must not name a group twice",
		"a\u200bb":                "must not have control or invisible characters",
		strings.Repeat("x", 129):  "must not name a group with more than 128 characters",
		strings.Repeat("\nx", 21): "must name at most 20 groups",
	} {
		got := b.post(t, path+"/groups", url.Values{"groups": {typed}})
		got.is(t, http.StatusUnprocessableEntity)
		want(t, got.body, `aria-invalid="true" aria-describedby="groups-wrong groups-hint"`, wrong, strings.TrimPrefix(typed, "\n")+"</textarea>")
	}
	want(t, b.page(t, path), "\n</textarea>") // as before
	got := b.post(t, path+"/groups", url.Values{"groups": {"gold\r\n staff \r\n\r\n"}})
	check.Equal(t, "saved leads to", got.header.Get("Location"), path)
	want(t, b.page(t, path), "Grouped.One", "gold\nstaff</textarea>", "The groups are saved.", "Within a second the account can buy")
	check.Equal(t, "who is in the group hears", buy(), nil)
	want(t, b.page(t, "/console/log"), "changed the groups of an account", `<span class="note">Groups</span>`, `href="`+path+`"`)
	if page := s.signedIn(t, "viewer").page(t, path); strings.Contains(page, "<textarea") || !strings.Contains(page, "gold\nstaff</dd>") {
		t.Errorf("a viewer sees %s", page)
	}
}
