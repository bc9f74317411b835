package handler_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestChangesAreGuarded: what a client says it has seen reaches the change, and a
// refusal is a problem document.
func TestChangesAreGuarded(t *testing.T) {
	t.Parallel()
	s := setup(t)
	now := voucher("v1")
	var asked model.Tags
	s.fakes.patch = func(_ context.Context, _ string, patch model.VoucherPatch) (model.Voucher, error) {
		asked = patch.IfMatch
		return now, patch.IfMatch.Check(now)
	}
	s.fakes.changeStock = func(_ context.Context, _ string, change model.StockChange, _ model.Idempotency) (model.Voucher, error) {
		asked = change.IfMatch
		return now, change.IfMatch.Check(now)
	}
	admin := s.as(t, "a", model.RoleAdmin)
	current := s.do(t, http.MethodGet, vouchersPath+"/v1", "", admin...).header.Get("ETag")
	if current != `"`+now.Tag()+`"` {
		t.Fatalf("ETag = %s", current)
	}
	for _, call := range []struct{ method, path, body string }{
		{http.MethodPatch, vouchersPath + "/v1", `{"price":1}`}, {http.MethodPost, vouchersPath + "/v1/stock", `{"delta":1}`},
	} {
		for match, status := range map[string]int{
			"": 200, "*": 200, current: 200, `"other", ` + current: 200,
			"W/" + current:    200, // as nginx has it when it compresses
			`"other"`:         412,
			"other":           412,
			`"", W/"x"`:       412,
			",":               412,
			current[:9] + `"`: 412,
		} {
			asked = model.Tags{"unasked"}
			got := s.do(t, call.method, call.path, call.body, append(admin, "If-Match", match)...)
			got.is(t, status)
			switch {
			case status == 412:
				wantProblem(t, got, status, model.CodePreconditionFailed)
			case got.header.Get("ETag") != current:
				t.Errorf("%s: ETag = %s", call.path, got.header.Get("ETag"))
			case (match == "" || match == "*") && asked != nil:
				t.Errorf("%s If-Match: %q asks for %v", call.path, match, asked)
			}
		}
		// An empty header protects nobody; several lines are one list.
		for status, lines := range map[int][]string{422: {""}, 200: {`"other"`, current}, 412: {`"other"`, `"another"`}} {
			request := s.request(t, t.Context(), call.method, call.path, strings.NewReader(call.body), admin...)
			request.Header["If-Match"] = lines
			response, err := http.DefaultTransport.RoundTrip(request)
			check.Must(t, err)
			response.Body.Close()
			if response.StatusCode != status {
				t.Errorf("%s If-Match: %q: %d, want %d", call.path, lines, response.StatusCode, status)
			}
		}
	}
}

// TestCachesKeepWhatEverybodySees for a second, with its ETag, and nothing else.
func TestCachesKeepWhatEverybodySees(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.getVoucher = func(_ context.Context, id string, _ bool) (model.Voucher, error) {
		if id == "none" {
			return model.Voucher{}, model.NotFound("voucher")
		}
		return voucher(id), nil
	}
	doc, _ := readDocument(t, s)
	user, admin := s.as(t, "u", model.RoleUser), s.as(t, "a", model.RoleAdmin)
	for template, methods := range doc.Paths {
		if _, ok := methods["get"]; !ok || !strings.HasPrefix(template, "/api/v1/") || strings.Contains(template, "/docs") || strings.HasSuffix(template, ".json") {
			continue // is the document, and its page
		}
		want := map[bool]string{true: "private, max-age=1", false: "no-store"}[template == "/api/v1/vouchers" || template == "/api/v1/vouchers/{id}"]
		if got := s.do(t, http.MethodGet, concrete(template), "", user...); got.header.Get("Cache-Control") != want || len(got.header.Values("Cache-Control")) != 1 {
			t.Errorf("%s: %d, Cache-Control: %q", template, got.status, got.header.Values("Cache-Control"))
		}
	}
	const path = "/api/v1/vouchers/v1"
	unchanged := s.do(t, http.MethodGet, path, "", "If-None-Match", "*")
	if unchanged.status != http.StatusNotModified || unchanged.header.Get("Cache-Control") != "max-age=1" {
		t.Errorf("unchanged: %d %v", unchanged.status, unchanged.header)
	}
	for what, got := range map[string]answer{
		"an administrator's": s.do(t, http.MethodGet, path, "", admin...), "none": s.do(t, http.MethodGet, "/api/v1/vouchers/none", ""),
		"a wrong query": s.do(t, http.MethodGet, "/api/v1/vouchers?limit=0", ""),
	} {
		if caching := got.header.Get("Cache-Control"); caching != "no-store" {
			t.Errorf("%s: %d, Cache-Control: %q", what, got.status, caching)
		}
	}
}

// TestUnchangedVoucherIsNotSentAgain: 304 means that nothing but the time has changed.
func TestUnchangedVoucherIsNotSentAgain(t *testing.T) {
	t.Parallel()
	s := setup(t)
	now := voucher("v1")
	now.Remaining = 5
	s.fakes.getVoucher = func(context.Context, string, bool) (model.Voucher, error) { return now, nil }
	const path = "/api/v1/vouchers/v1"
	first := s.do(t, http.MethodGet, path, "")
	seen := first.header.Get("ETag")
	if first.status != http.StatusOK || len(seen) < 5 || seen[:3] != `W/"` {
		t.Fatalf("%d, ETag = %s", first.status, seen)
	}
	now.ServerTime = time.Now()
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		for _, match := range []string{seen, seen[2:], `"other", ` + seen, "*"} {
			got := s.do(t, method, path, "", "If-None-Match", match)
			if got.status != http.StatusNotModified || got.body != "" || got.header.Get("ETag") != seen || got.header.Get("X-Request-Id") == "" {
				t.Errorf("%s If-None-Match: %s: %d %v %q", method, match, got.status, got.header, got.body)
			}
		}
	}
	for what, change := range map[string]func(){
		"a sale": func() { now.Remaining-- }, "the end": func() { now.Phase = model.PhaseEnded }, "an administrator": func() { now.Price++ },
	} {
		change()
		got := s.do(t, http.MethodGet, path, "", "If-None-Match", seen)
		if got.status != http.StatusOK || got.header.Get("ETag") == seen || got.body == "" {
			t.Errorf("%s: %d %v", what, got.status, got.header)
		}
		seen = got.header.Get("ETag")
	}
	// An administrator's view is always sent: its tag does not cover what sales change.
	admin := s.as(t, "a", model.RoleAdmin)
	shown := s.do(t, http.MethodGet, vouchersPath+"/v1", "", admin...)
	got := s.do(t, http.MethodGet, vouchersPath+"/v1", "", append(admin, "If-None-Match", shown.header.Get("ETag"))...)
	if got.status != http.StatusOK || got.body == "" {
		t.Errorf("%d %q", got.status, got.body)
	}
}
