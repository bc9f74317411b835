package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestGroupsOfAnAccount: an administrator finds an account by its name or id, sees its groups and changes them, and it
// may buy what is for them. What is no group is refused beside the field, with what was typed.
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

// hiddenFields are those of a page's form that begin with a prefix, without it.
func hiddenFields(page, prefix string) url.Values {
	fields := url.Values{}
	for _, found := range regexp.MustCompile(`<input type="hidden" name="`+regexp.QuoteMeta(prefix)+`([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		fields.Set(found[1], html.UnescapeString(found[2]))
	}
	return fields
}

// resume signs in on the page that answers a form, and follows the button back to the form.
func (b *browser) resume(t *testing.T, asked answer, path string) string {
	t.Helper()
	if asked.status != http.StatusUnauthorized || asked.header.Get("Location") != "" {
		t.Fatalf("a form without a session is %d", asked.status)
	}
	want(t, asked.body, `role="alert"`, "The session has ended.", "Nothing was changed.")
	kept := hiddenFields(asked.body, "")
	kept.Set("username", "ada")
	kept.Set("password", "a wrong password")
	wrong := b.post(t, "/console/sign-in", kept)
	if wrong.status != http.StatusUnauthorized {
		t.Fatalf("a wrong password is %d", wrong.status)
	}
	kept = hiddenFields(wrong.body, "") // a mistyped password does not lose it either
	kept.Set("username", "ada")
	kept.Set("password", password)
	in := b.post(t, "/console/sign-in", kept)
	if in.status != http.StatusOK || strings.Contains(in.body, password) {
		t.Fatalf("signing in: %d %s", in.status, in.body)
	}
	want(t, in.body, `<form method="post" action="`+path+`">`, "Back to the form")
	_, form, _ := strings.Cut(in.body, `<form method="post" action="`+path+`">`)
	back := b.post(t, path, hiddenFields(form, ""))
	if back.status != http.StatusOK {
		t.Fatalf("back to the form: %d %s", back.status, back.body)
	}
	return back.body
}

// A voucher that was typed in while the session ended is there again after the sign-in, and
// is made once, when the form is sent again. Nothing of it was in a URL, or made before.
func TestAFormOutlivesItsSession(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.administrator(t, "ada")
	b := s.browser(t)
	description := "Two lines,\r\n\"quoted\" <b>&amp;</b> 咖啡" + strings.Repeat("茶", 3_900)
	typed := onSale("title", `Tea & "more" <i>`, "description", description, "price", "12.5x", "payment_window", "7", "once", "a-key-of-this-form")
	page := b.resume(t, b.post(t, "/console/vouchers/new", typed), "/console/vouchers/new")
	want(t, page, `value="Tea &amp; &#34;more&#34; &lt;i&gt;"`, `value="12.5x"`, `value="7"`, "咖啡茶", `value="a-key-of-this-form"`)
	if strings.Contains(page, `role="alert"`) {
		t.Error("the form was judged before it was sent again")
	}
	if list := b.page(t, "/console"); strings.Contains(list, "Tea &amp;") {
		t.Error("a voucher was made on the way")
	}
	typed.Set("price", "12.50")
	got := b.post(t, "/console/vouchers/new", typed)
	id, ok := strings.CutPrefix(got.header.Get("Location"), "/console/vouchers/")
	id, _, _ = strings.Cut(id, "?")
	if !ok {
		t.Fatalf("create: %d %s", got.status, got.body)
	}
	if made := s.voucher(t, id); made["description"] != strings.ReplaceAll(description, "\r\n", "\n") {
		t.Errorf("it was made of something else: %q", made["description"])
	}

	away := s.browser(t)
	edit := typed
	edit.Set("title", "Tea for three")
	edit.Set("tag", hidden(t, b.page(t, "/console/vouchers/"+id+"/edit"), "tag"))
	want(t, away.resume(t, away.post(t, "/console/vouchers/"+id+"/edit", edit), "/console/vouchers/"+id+"/edit"), "Edit voucher", "Tea for three")

	away = s.browser(t)
	page = away.resume(t, away.post(t, "/console/vouchers/"+id+"/stock", url.Values{"delta": {"+17"}}), "/console/vouchers/"+id+"/stock")
	want(t, page, `<dialog id="stock" aria-labelledby="stock-title" data-open>`, `value="&#43;17"`)
	away = s.browser(t)
	end := time.Now().Add(5 * time.Hour).UTC().Format("2006-01-02T15:04:05")
	page = away.resume(t, away.post(t, "/console/vouchers/"+id+"/end", url.Values{"end_at": {end}, "zone": {"UTC"}}), "/console/vouchers/"+id+"/end")
	want(t, page, `<dialog id="end" aria-labelledby="end-title" data-open>`, `value="`+end+`"`)
	if strings.Contains(page, "aria-invalid") {
		t.Error("what was not judged is called wrong")
	}
	if now := s.voucher(t, id); now["title"] != `Tea & "more" <i>` || now["stock"] != 10.0 {
		t.Errorf("something was changed on the way: %v", now)
	}
}

// A button that was pressed too late leads back to its page, and says that nothing was done.
func TestALateButtonSaysSo(t *testing.T) {
	s := shared(t)
	t.Parallel()
	ada := s.signedIn(t, "ada")
	path := "/console/vouchers/" + ada.create(t)
	late := s.browser(t)
	for referer, next := range map[string]string{
		s.url + path:                  url.QueryEscape(path),
		"https://evil.example" + path: "",
	} {
		got := late.post(t, path+"/state", url.Values{"to": {"paused"}}, "Referer", referer)
		to := got.header.Get("Location")
		if got.status != http.StatusSeeOther || !strings.HasPrefix(to, "/console/sign-in") || strings.Contains(to, "next="+url.QueryEscape(path)) != (next != "") {
			t.Errorf("from %s: %d to %q", referer, got.status, to)
		}
		want(t, late.page(t, to), "The session had ended. Nothing was changed.")
	}
}
