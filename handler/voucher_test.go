package handler_test

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"seckill/handler"
	"seckill/internal/workshop/check"
	"seckill/model"
)

const vouchersPath = "/api/v1/admin/vouchers"

// draftWith is a good voucher with one member replaced or added.
func draftWith(member, value string) string {
	members := map[string]string{
		"title": `"Tea"`, "price": "1000", "face_value": "2000", "stock": "3",
		"begin_at": `"2030-01-01T00:00:00Z"`, "end_at": `"2030-01-02T00:00:00Z"`,
	}
	if member != "" {
		members[member] = value
	}
	var list []string
	for name, value := range members {
		if value != "" {
			list = append(list, `"`+name+`":`+value)
		}
	}
	return "{" + strings.Join(list, ",") + "}"
}

func TestDrafts(t *testing.T) {
	t.Parallel()
	s := setup(t)
	headers := s.as(t, "a", model.RoleAdmin)
	for _, test := range []struct {
		member, value string
		location      string // empty: good
	}{
		{"", "", ""},
		{"title", "", "body.title"},
		{"title", `""`, "body.title"},
		{"title", "null", "body.title"},
		{"title", "1", "body.title"},
		{"description", `null`, "body.description"},
		{"title", `"Tea\u0000"`, "body.title"},
		{"title", `"Tea \ud83c\udf75"`, ""},
		{"description", `"one\r\n\ttwo"`, ""},
		{"description", `"\u0000"`, "body.description"},
		{"price", "0", ""},
		{"price", "1000000000000", ""},
		{"price", "1000000000001", "body.price"},
		{"price", "-1", "body.price"},
		{"price", "1.5", "body.price"},
		{"price", `"1000"`, "body.price"},
		{"price", "true", "body.price"},
		{"price", "1e3", ""},
		{"price", "1.0", ""},
		{"price", "999999999999.99999", "body.price"},
		{"price", "1e400", "body.price"},
		{"price", "99999999999999999999999", "body.price"},
		{"price", "", "body.price"},
		{"face_value", "1e13", "body.face_value"},
		{"stock", "0", ""},
		{"stock", "-0", ""},
		{"stock", "0.1", "body.stock"},
		{"stock", "[]", "body.stock"},
		{"begin_at", `"2030-01-01T08:00:00+08:00"`, ""},
		{"begin_at", `"2030-01-01T00:00:00.123456789Z"`, ""},
		{"begin_at", `"2030-01-02T00:00:00Z"`, "body.end_at"},
		{"begin_at", `"2030-01-02T08:00:00+08:00"`, "body.end_at"},
		{"begin_at", `"2030-01-01"`, "body.begin_at"},
		{"begin_at", `"2030-01-01T00:00:00"`, "body.begin_at"},
		{"begin_at", `"2030-01-01 00:00:00Z"`, "body.begin_at"},
		{"begin_at", `"2030-02-30T00:00:00Z"`, "body.begin_at"},
		{"begin_at", `"2030-01-01T00:00:00,5Z"`, "body.begin_at"},
		{"begin_at", `"2030-01-01T0:00:00Z"`, "body.begin_at"},
		{"begin_at", `"2030-01-01T00:00:00.Z"`, "body.begin_at"},
		{"begin_at", `"2030-01-01T00:00:00+24:00"`, "body.begin_at"},
		{"begin_at", `"2030-01-01T00:00:00-01:60"`, "body.begin_at"},
		{"begin_at", `"2030-01-01T00:00:00+23:59"`, ""},
		{"begin_at", `"0001-01-01T00:00:00Z"`, "body.begin_at"},
		{"begin_at", `1893456000`, "body.begin_at"},
		{"end_at", `"9999-12-31T23:59:59Z"`, ""},
		{"end_at", `"9999-12-31T23:59:59-01:00"`, "body.end_at"},
		{"end_at", `"10000-01-01T00:00:00Z"`, "body.end_at"},
		{"state", `"draft"`, ""},
		{"state", `"archived"`, ""},
		{"state", `"Draft"`, "body.state"},
		{"state", `""`, "body.state"},
		{"shards", "1", "body.shards"},
		{"payment_window", `"15m"`, ""},
		{"payment_window", `"0s"`, "body.payment_window"},
		{"payment_window", `"15"`, "body.payment_window"},
		{"payment_window", `""`, "body.payment_window"},
		{"payment_window", `"soon"`, "body.payment_window"},
		{"payment_window", "900", "body.payment_window"},
		{"payment_window", "null", "body.payment_window"},
		{"groups", `["gold","/eu/staff"]`, ""},
		{"groups", `[]`, ""},
		{"groups", `[""]`, "body.groups[0]"},
		{"groups", `["a","a"]`, "body.groups"},
		{"groups", `["a\u0007"]`, "body.groups"},
		{"groups", `["` + strings.Repeat("g", 129) + `"]`, "body.groups[0]"},
		{"groups", `["` + strings.Repeat(`g","`, 20) + `"]`, "body.groups"},
		{"groups", `"gold"`, "body.groups"},
		{"groups", "null", "body.groups"},
		{"cooldown", `"10m"`, ""},
		{"cooldown", `"0s"`, ""},
		{"cooldown", `"24h"`, ""},
		{"cooldown", `"24h0.001s"`, "body.cooldown"},
		{"cooldown", `"999ms"`, "body.cooldown"},
		{"cooldown", `"-1s"`, "body.cooldown"},
		{"cooldown", `""`, "body.cooldown"},
		{"cooldown", `600`, "body.cooldown"},
		{"cooldown", `null`, "body.cooldown"},
		{"early", `{"groups":["gold"],"begin_at":"2029-12-31T00:00:00Z"}`, ""},
		{"early", `{"groups":[]}`, ""},
		{"early", `{"groups":["gold"],"begin_at":"2030-01-01T00:00:00Z"}`, "body.early.begin_at"},
		{"early", `{"groups":["gold"]}`, "body.early.begin_at"},
		{"early", `{"groups":[],"begin_at":"2029-12-31T00:00:00Z"}`, "body.early.groups"},
		{"early", `{"groups":[" "],"begin_at":"2029-12-31T00:00:00Z"}`, "body.early.groups"},
		{"early", `{"begin_at":"2029-12-31T00:00:00Z"}`, "body.early.groups"},
		{"id", `"v1"`, "body.id"},
		{"remaining", `1`, "body.remaining"},
	} {
		t.Run(test.member+" "+test.value[:min(len(test.value), 30)], func(t *testing.T) {
			t.Parallel()
			got := s.do(t, http.MethodPost, vouchersPath, draftWith(test.member, test.value), headers...)
			if test.location == "" {
				got.is(t, http.StatusCreated)
				return
			}
			if p := wantProblem(t, got, http.StatusUnprocessableEntity, model.CodeValidation); !locates(p, test.location) {
				t.Errorf("errors = %v", p.Errors)
			}
		})
	}
}

func TestDraftBecomesVoucher(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var asked model.VoucherFields
	var who string
	s.fakes.create = func(_ context.Context, v model.VoucherFields, by string, once model.Idempotency) (model.Voucher, error) {
		asked, who = v, by
		if once != (model.Idempotency{}) {
			t.Errorf("once = %v", once)
		}
		return voucher("v9"), nil
	}
	body := `{"title":"Tea","price":1e3,"face_value":2000,"stock":3,"begin_at":"2030-01-01T08:00:00+08:00","end_at":"2030-01-02T00:00:00Z","payment_window":"1h30m",
		"groups":["gold","/eu/staff"],"early":{"groups":["gold"],"begin_at":"2029-12-31T23:00:00Z"},"cooldown":"10m"}`
	got := s.do(t, http.MethodPost, vouchersPath, body, s.as(t, "a", model.RoleAdmin)...)
	if got.status != http.StatusCreated || got.header.Get("Location") != vouchersPath+"/v9" {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
	want := model.VoucherFields{
		Title: "Tea", Price: 1000, FaceValue: 2000, Stock: 3, State: model.VoucherPublished,
		BeginAt: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), EndAt: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC),
		PaymentWindow: model.Window(90 * time.Minute),
		Groups:        model.Groups{"gold", "/eu/staff"}, Early: model.Early{For: model.Groups{"gold"}, From: new(time.Date(2029, 12, 31, 23, 0, 0, 0, time.UTC))},
		Cooldown: model.Window(10 * time.Minute),
	}
	if !reflect.DeepEqual(asked, want) || who != "a" {
		t.Errorf("%+v", asked)
	}
}

func TestPatch(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var asked model.VoucherPatch
	s.fakes.patch = func(_ context.Context, id string, patch model.VoucherPatch) (model.Voucher, error) {
		asked = patch
		return voucher(id), nil
	}
	headers := s.as(t, "a", model.RoleAdmin)
	if got := s.do(t, http.MethodPatch, vouchersPath+"/v1", "{}", headers...); got.status != http.StatusOK || !reflect.DeepEqual(asked, model.VoucherPatch{By: "a"}) {
		t.Errorf("%d %s %+v", got.status, got.body, asked)
	}
	got := s.do(t, http.MethodPatch, vouchersPath+"/v1", `{"description":"","price":0,"state":"paused","end_at":"2030-01-02T00:00:00+01:00"}`, headers...)
	if got.status != http.StatusOK || asked.Title != nil || *asked.Description != "" || *asked.Price != 0 ||
		*asked.State != model.VoucherPaused || !asked.EndAt.Equal(time.Date(2030, 1, 1, 23, 0, 0, 0, time.UTC)) || asked.BeginAt != nil {
		t.Errorf("%d %s %+v", got.status, got.body, asked)
	}
	for body, location := range map[string]string{
		`{"shards":1}`: "body.shards", `{"title":null}`: "body.title", `{"stock":5}`: "body.stock", `{"title":" "}`: "body.title", `{"price":-1}`: "body.price",
		`{"begin_at":"2030-01-02T00:00:00Z","end_at":"2030-01-02T00:00:00Z"}`: "body.end_at", `{"state":"sold_out"}`: "body.state",
		`{"begin_at":"yesterday"}`: "body.begin_at", `{"end_at":"2030-01-01T00:00:00,5Z"}`: "body.end_at",
		`{"title":"\u0000"}`: "body.title", `{"description":"\u0000"}`: "body.description",
	} {
		p := wantProblem(t, s.do(t, http.MethodPatch, vouchersPath+"/v1", body, headers...), http.StatusUnprocessableEntity, model.CodeValidation)
		if !locates(p, location) {
			t.Errorf("%s: %v", body, p.Errors)
		}
	}
	wantProblem(t, s.do(t, http.MethodPatch, vouchersPath+"/v1", "", headers...), http.StatusBadRequest, model.CodeValidation)
}

func TestStock(t *testing.T) {
	t.Parallel()
	s := setup(t)
	headers := s.as(t, "a", model.RoleAdmin)
	for body, good := range map[string]bool{
		`{"delta":5}`: true, `{"delta":-5}`: true, `{"delta":0}`: true, `{"stock":0}`: true, `{"stock":1000000000000}`: true,
		`{}`: false, `{"delta":1,"stock":1}`: false, `{"stock":-1}`: false, `{"stock":1000000000001}`: false,
		`{"delta":1.0000000000000000000001}`: false, `{"delta":1e-400}`: false, `{"delta":-10e-1}`: true,
		`{"delta":1.5}`: false, `{"delta":null}`: false, `{"delta":1,"stock":null}`: false, `{"Delta":1}`: false,
	} {
		got := s.do(t, http.MethodPost, vouchersPath+"/v1/stock", body, headers...)
		if good && got.status != http.StatusOK {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
		if !good {
			wantProblem(t, got, http.StatusUnprocessableEntity, model.CodeValidation)
		}
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var once model.Idempotency
	s.fakes.create = func(_ context.Context, _ model.VoucherFields, _ string, o model.Idempotency) (model.Voucher, error) {
		once = o
		return voucher("v1"), nil
	}
	s.fakes.changeStock = func(_ context.Context, id string, _ model.StockChange, o model.Idempotency) (model.Voucher, error) {
		once = o
		return voucher(id), nil
	}
	ask := func(user, path, body, key string) model.Idempotency {
		once = model.Idempotency{}
		got := s.do(t, http.MethodPost, path, body, append(s.as(t, user, model.RoleAdmin), "Idempotency-Key", key)...)
		if got.status/100 != 2 {
			t.Errorf("%q: %d %s", key, got.status, got.body)
		}
		return once
	}
	first := ask("a", vouchersPath, draftWith("state", `"published"`), "key one")
	if first.Key != "key one" || first.Scope != "a POST "+vouchersPath || len(first.Fingerprint) != 64 {
		t.Errorf("%+v", first)
	}
	for _, same := range []string{
		draftWith("", ""), " " + draftWith("price", "1e3"), draftWith("begin_at", `"2030-01-01T01:00:00+01:00"`),
	} {
		if again := ask("a", vouchersPath, same, "key one"); again != first {
			t.Errorf("%s: %+v, want %+v", same, again, first)
		}
	}
	if ask("a", vouchersPath, draftWith("price", "999"), "key one").Fingerprint == first.Fingerprint {
		t.Error("another price has the same fingerprint")
	}
	if other := ask("b", vouchersPath, draftWith("", ""), "key one"); other.Scope == first.Scope {
		t.Error("another administrator has the same scope")
	}
	one, two := ask("a", vouchersPath+"/v1/stock", `{"delta":1}`, "k"), ask("a", vouchersPath+"/v2/stock", `{"delta":1}`, "k")
	if one.Scope != two.Scope || one.Fingerprint == two.Fingerprint || one.Scope == first.Scope {
		t.Errorf("%+v %+v", one, two)
	}
	ask("a", vouchersPath, draftWith("", ""), strings.Repeat("k", 255))
	for _, key := range []string{strings.Repeat("k", 256), "schlüssel", "tab\there"} {
		got := s.do(t, http.MethodPost, vouchersPath, draftWith("", ""), append(s.as(t, "a", model.RoleAdmin), "Idempotency-Key", key)...)
		if p := wantProblem(t, got, http.StatusUnprocessableEntity, model.CodeValidation); !locates(p, "header.Idempotency-Key") {
			t.Errorf("%v", p.Errors)
		}
	}
	for _, values := range [][]string{{""}, {"a", "b"}} {
		body := strings.NewReader(draftWith("", ""))
		request := s.request(t, t.Context(), http.MethodPost, vouchersPath, body, s.as(t, "a", model.RoleAdmin)...)
		request.Header["Idempotency-Key"] = values
		response, err := http.DefaultTransport.RoundTrip(request)
		check.Must(t, err)
		response.Body.Close()
		if response.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%q: %d", values, response.StatusCode)
		}
	}
}

// What counts a million orders is answered, although no other answer may take so long.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.fakes.slow = time.Minute // as long as either may take
		for _, what := range []string{"/audit", "/report"} {
			got := s.do(t, http.MethodGet, "/api/v1/admin/vouchers/v1"+what, "", "Authorization", "Bearer "+s.token(t, "admin", model.RoleAdmin))
			got.is(t, http.StatusOK)
			check.That(t, strings.Contains(got.body, `"drift":[]`), "%s", got.body)
		}
	}, func(o *handler.Options) {
		o.Report = func(ctx context.Context, id string) (report model.Report, err error) {
			report.Audit, err = o.Vouchers.Audit(ctx, id)
			return report, err
		}
	})
}

// TestChangesAreGuarded: what a client says it has seen reaches the change, and a refusal is a problem document.
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
