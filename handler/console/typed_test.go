package console_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

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
