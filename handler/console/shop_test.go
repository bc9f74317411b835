package console_test

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

// The shop window is there for trying out, and asks nothing but the public API.
func TestShopUsesThePublicAPIOnly(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.browser(t)
	got := b.get(t, "/shop")
	if got.status != http.StatusOK {
		t.Fatalf("the shop is %d", got.status)
	}
	want(t, got.header.Get("Content-Security-Policy"), "connect-src 'self'", "script-src 'self'")
	want(t, got.body, "/console/static/shop.js", `data-word="SOLD_OUT"`, `data-word="unpaid"`)
	want(t, b.get(t, "/shop", "Accept-Language", "zh").body, "橱窗", "立即购买")
	b.post(t, "/shop", nil).is(t, http.StatusNotFound)

	var document struct {
		Paths map[string]map[string]any
	}
	check.Must(t, json.Unmarshal([]byte(b.get(t, "/api/v1/openapi.json").body), &document))
	script := check.Value(os.ReadFile("static/shop.js"))(t)
	calls := regexp.MustCompile("call\\('([A-Z]+)', ['`]([^'`?]+)").FindAllStringSubmatch(string(script), -1)
	if len(calls) < 7 {
		t.Fatalf("the script makes only %d calls: the pattern is wrong", len(calls))
	}
	for _, call := range calls {
		path := "/api/v1" + regexp.MustCompile(`\$\{[^}]*\}`).ReplaceAllString(call[2], "{id}")
		if _, ok := document.Paths[path][strings.ToLower(call[1])]; !ok || strings.Contains(path, "/admin/") {
			t.Errorf("the script calls %s %s, which is no part of the public API", call[1], path)
		}
	}
	if strings.Contains(string(script), "innerHTML") || strings.Count(string(script), "fetch(") != 1 {
		t.Error("the script writes HTML, or asks otherwise than through the API")
	}
}

// Where the service is tried out, a voucher is on sale with what the form says by itself.
func TestATrialBeginsAtOnce(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	page := b.page(t, "/console/vouchers/new")
	form := onSale("once", hidden(t, page, "once"))
	for _, name := range []string{"begin_at", "end_at"} {
		found := regexp.MustCompile(`name="` + name + `"[^>]* value="([^"]*)"`).FindStringSubmatch(page)
		if found == nil {
			t.Fatalf("the form has no %s", name)
		}
		form.Set(name, found[1])
	}
	got := b.post(t, "/console/vouchers/new", form)
	id, _, _ := strings.Cut(strings.TrimPrefix(got.header.Get("Location"), "/console/vouchers/"), "?")
	check.Equal(t, "what alice hears", s.buy(t, "alice", id), "OK")
}
