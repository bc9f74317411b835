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

// TestDrafts: values of one member, good ones and wrong ones; an empty value leaves the member out.
func TestDrafts(t *testing.T) {
	t.Parallel()
	s := setup(t)
	headers := s.as(t, "a", model.RoleAdmin)
	long, longest := `["`+strings.Repeat(`g","`, 20)+`"]`, `["`+strings.Repeat("g", 129)+`"]`
	for _, test := range []struct {
		location string // of what is wrong
		good     []string
		wrong    []string
	}{
		{"title", []string{`"Tea \ud83c\udf75"`}, []string{"", `""`, "null", "1", `"Tea\u0000"`}},
		{"description", []string{`"one\r\n\ttwo"`}, []string{"null", `"\u0000"`}},
		{"price", []string{"0", "1000000000000", "1e3", "1.0"}, []string{
			"", "1000000000001", "-1", "1.5", `"1000"`, "true", "999999999999.99999", "1e400", "99999999999999999999999",
		}},
		{"face_value", nil, []string{"1e13"}},
		{"stock", []string{"0", "-0"}, []string{"0.1", "[]"}},
		{"begin_at", []string{`"2030-01-01T08:00:00+08:00"`, `"2030-01-01T00:00:00.123456789Z"`, `"2030-01-01T00:00:00+23:59"`}, []string{
			`"2030-01-01"`, `"2030-01-01T00:00:00"`, `"2030-01-01 00:00:00Z"`, `"2030-02-30T00:00:00Z"`, `"2030-01-01T00:00:00,5Z"`,
			`"2030-01-01T0:00:00Z"`, `"2030-01-01T00:00:00.Z"`, `"2030-01-01T00:00:00+24:00"`, `"2030-01-01T00:00:00-01:60"`,
			`"0001-01-01T00:00:00Z"`, `1893456000`,
		}},
		{"begin_at: end_at", nil, []string{`"2030-01-02T00:00:00Z"`, `"2030-01-02T08:00:00+08:00"`}},
		{"end_at", []string{`"9999-12-31T23:59:59Z"`}, []string{`"9999-12-31T23:59:59-01:00"`, `"10000-01-01T00:00:00Z"`}},
		{"state", []string{`"draft"`, `"archived"`}, []string{`"Draft"`, `""`}},
		{"payment_window", []string{`"15m"`}, []string{`"0s"`, `"15"`, `""`, `"soon"`, "900", "null"}},
		{"groups", []string{`["gold","/eu/staff"]`, `[]`}, []string{`["a","a"]`, `["a\u0007"]`, long, `"gold"`, "null"}},
		{"groups: groups[0]", nil, []string{`[""]`, longest}},
		{"cooldown", []string{`"10m"`, `"0s"`, `"24h"`}, []string{`"24h0.001s"`, `"999ms"`, `"-1s"`, `""`, "600", "null"}},
		{"early", []string{`{"groups":["gold"],"begin_at":"2029-12-31T00:00:00Z"}`, `{"groups":[]}`}, nil},
		{"early: early.begin_at", nil, []string{`{"groups":["gold"],"begin_at":"2030-01-01T00:00:00Z"}`, `{"groups":["gold"]}`}},
		{"early: early.groups", nil, []string{
			`{"groups":[],"begin_at":"2029-12-31T00:00:00Z"}`, `{"groups":[" "],"begin_at":"2029-12-31T00:00:00Z"}`, `{"begin_at":"2029-12-31T00:00:00Z"}`,
		}},
		{"shards", nil, []string{"1"}},
		{"id", nil, []string{`"v1"`}},
		{"remaining", nil, []string{"1"}},
	} {
		member, place, elsewhere := strings.Cut(test.location, ": ")
		if !elsewhere {
			place = member
		}
		for _, value := range test.good {
			s.do(t, http.MethodPost, vouchersPath, draftWith(member, value), headers...).is(t, http.StatusCreated)
		}
		for _, value := range test.wrong {
			got := s.do(t, http.MethodPost, vouchersPath, draftWith(member, value), headers...)
			p := wantProblem(t, got, http.StatusUnprocessableEntity, model.CodeValidation)
			check.That(t, locates(p, "body."+place), "%s %s: %v", member, value, p.Errors)
		}
	}
}

func TestDraftBecomesVoucher(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var asked model.VoucherFields
	s.fakes.create = func(_ context.Context, v model.VoucherFields, by string, once model.Idempotency) (model.Voucher, error) {
		asked = v
		check.Equal(t, "who", by, "a")
		check.Equal(t, "once", once, model.Idempotency{})
		return voucher("v9"), nil
	}
	body := `{"title":"Tea","price":1e3,"face_value":2000,"stock":3,"begin_at":"2030-01-01T08:00:00+08:00","end_at":"2030-01-02T00:00:00Z","payment_window":"1h30m",
		"groups":["gold","/eu/staff"],"early":{"groups":["gold"],"begin_at":"2029-12-31T23:00:00Z"},"cooldown":"10m"}`
	got := s.do(t, http.MethodPost, vouchersPath, body, s.as(t, "a", model.RoleAdmin)...)
	got.is(t, http.StatusCreated)
	check.Equal(t, "the place", got.header.Get("Location"), vouchersPath+"/v9")
	want := model.VoucherFields{
		Title: "Tea", Price: 1000, FaceValue: 2000, Stock: 3, State: model.VoucherPublished,
		BeginAt: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), EndAt: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC),
		PaymentWindow: model.Window(90 * time.Minute), Cooldown: model.Window(10 * time.Minute),
		Groups: model.Groups{"gold", "/eu/staff"},
		Early:  model.Early{For: model.Groups{"gold"}, From: new(time.Date(2029, 12, 31, 23, 0, 0, 0, time.UTC))},
	}
	check.That(t, reflect.DeepEqual(asked, want), "%+v", asked)
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
	for body, want := range map[string]model.VoucherPatch{
		"{}": {By: "a"},
		`{"description":"","price":0,"state":"paused","end_at":"2030-01-02T00:00:00+01:00"}`: {
			Description: new(""), Price: new(int64), State: new(model.VoucherPaused),
			EndAt: new(time.Date(2030, 1, 1, 23, 0, 0, 0, time.UTC)), By: "a",
		},
	} {
		s.do(t, http.MethodPatch, vouchersPath+"/v1", body, headers...).is(t, http.StatusOK)
		check.That(t, reflect.DeepEqual(asked, want), "%s: %+v", body, asked)
	}
	for body, location := range map[string]string{
		`{"shards":1}`: "body.shards", `{"title":null}`: "body.title", `{"stock":5}`: "body.stock", `{"title":" "}`: "body.title", `{"price":-1}`: "body.price",
		`{"begin_at":"2030-01-02T00:00:00Z","end_at":"2030-01-02T00:00:00Z"}`: "body.end_at", `{"state":"sold_out"}`: "body.state",
		`{"begin_at":"yesterday"}`: "body.begin_at", `{"end_at":"2030-01-01T00:00:00,5Z"}`: "body.end_at",
		`{"title":"\u0000"}`: "body.title", `{"description":"\u0000"}`: "body.description",
	} {
		p := wantProblem(t, s.do(t, http.MethodPatch, vouchersPath+"/v1", body, headers...),
			http.StatusUnprocessableEntity, model.CodeValidation)
		check.That(t, locates(p, location), "%s: %v", body, p.Errors)
	}
	wantProblem(t, s.do(t, http.MethodPatch, vouchersPath+"/v1", "", headers...), http.StatusBadRequest,
		model.CodeValidation)
}

func TestStock(t *testing.T) {
	t.Parallel()
	s := setup(t)
	headers := s.as(t, "a", model.RoleAdmin)
	for status, bodies := range map[int][]string{
		200: {`{"delta":5}`, `{"delta":-5}`, `{"delta":0}`, `{"stock":0}`, `{"stock":1000000000000}`, `{"delta":-10e-1}`},
		422: {
			`{}`, `{"delta":1,"stock":1}`, `{"stock":-1}`, `{"stock":1000000000001}`, `{"delta":1.0000000000000000000001}`, `{"delta":1e-400}`,
			`{"delta":1.5}`, `{"delta":null}`, `{"delta":1,"stock":null}`, `{"Delta":1}`,
		},
	} {
		for _, body := range bodies {
			s.do(t, http.MethodPost, vouchersPath+"/v1/stock", body, headers...).is(t, status)
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
		got := s.do(t, http.MethodPost, path, body, append(s.as(t, user, model.RoleAdmin), "Idempotency-Key", key)...)
		check.That(t, got.status/100 == 2, "%q: %d %s", key, got.status, got.body)
		return once
	}
	first := ask("a", vouchersPath, draftWith("state", `"published"`), "key one")
	check.That(t, first.Key == "key one" && first.Scope == "a POST "+vouchersPath && len(first.Fingerprint) == 64,
		"%+v", first)
	for _, same := range []string{
		draftWith("", ""), " " + draftWith("price", "1e3"), draftWith("begin_at", `"2030-01-01T01:00:00+01:00"`),
	} {
		check.Equal(t, same, ask("a", vouchersPath, same, "key one"), first)
	}
	another := ask("a", vouchersPath, draftWith("price", "999"), "key one")
	check.That(t, another.Fingerprint != first.Fingerprint, "another price has the same fingerprint")
	other := ask("b", vouchersPath, draftWith("", ""), "key one")
	check.That(t, other.Scope != first.Scope, "another administrator has the same scope")
	one, two := ask("a", vouchersPath+"/v1/stock", `{"delta":1}`, "k"),
		ask("a", vouchersPath+"/v2/stock", `{"delta":1}`, "k")
	check.That(t, one.Scope == two.Scope && one.Fingerprint != two.Fingerprint && one.Scope != first.Scope, "%+v %+v",
		one, two)
	ask("a", vouchersPath, draftWith("", ""), strings.Repeat("k", 255))
	for _, keys := range [][]string{{strings.Repeat("k", 256)}, {"schlüssel"}, {"tab\there"}, {""}, {"a", "b"}} {
		got := s.several(t, http.MethodPost, vouchersPath, draftWith("", ""), "Idempotency-Key", keys,
			s.as(t, "a", model.RoleAdmin))
		p := wantProblem(t, got, http.StatusUnprocessableEntity, model.CodeValidation)
		check.That(t, locates(p, "header.Idempotency-Key"), "%q: %v", keys, p.Errors)
	}
}

// What counts a million orders is answered, although no other answer may take so long.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.fakes.slow = time.Minute // as long as either may take
		for _, what := range []string{"/audit", "/report"} {
			got := s.do(t, http.MethodGet, "/api/v1/admin/vouchers/v1"+what, "", "Authorization",
				"Bearer "+s.token(t, "admin", model.RoleAdmin))
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

func TestChangesAreGuarded(t *testing.T) {
	t.Parallel()
	s := setup(t)
	now := voucher("v1")
	var asked model.Tags
	s.fakes.patch = func(_ context.Context, _ string, patch model.VoucherPatch) (model.Voucher, error) {
		asked = patch.IfMatch
		return now, asked.Check(now)
	}
	s.fakes.changeStock = func(_ context.Context, _ string, change model.StockChange, _ model.Idempotency) (model.Voucher, error) {
		asked = change.IfMatch
		return now, asked.Check(now)
	}
	admin := s.as(t, "a", model.RoleAdmin)
	current := s.do(t, http.MethodGet, vouchersPath+"/v1", "", admin...).header.Get("ETag")
	check.Equal(t, "the tag", current, `"`+now.Tag()+`"`)
	for _, call := range []struct{ method, path, body string }{
		{http.MethodPatch, vouchersPath + "/v1", `{"price":1}`}, {http.MethodPost, vouchersPath + "/v1/stock", `{"delta":1}`},
	} {
		// nginx adds W/ when it compresses; several lines are one list.
		for status, matches := range map[int][][]string{
			200: {nil, {"*"}, {current}, {`"other", ` + current}, {"W/" + current}, {`"other"`, current}},
			412: {{`"other"`}, {"other"}, {`"", W/"x"`}, {","}, {current[:9] + `"`}, {`"other"`, `"another"`}},
			422: {{""}}, // an empty header protects nobody
		} {
			for _, match := range matches {
				asked = model.Tags{"unasked"}
				got := s.several(t, call.method, call.path, call.body, "If-Match", match, admin)
				got.is(t, status)
				if status == 412 {
					wantProblem(t, got, status, model.CodePreconditionFailed)
				}
				check.Equal(t, "the new tag", got.header.Get("ETag") == current, status == 200)
				all := len(match) == 0 || match[0] == "*"
				check.That(t, !all || asked == nil, "%s If-Match: %q asks for %v", call.path, match, asked)
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
	const path = "/api/v1/vouchers/v1"
	for template, methods := range doc.Paths {
		if _, ok := methods["get"]; !ok || !strings.HasPrefix(template, "/api/v1/") ||
			strings.Contains(template, "/docs") || strings.HasSuffix(template, ".json") {
			continue // is the document, and its page
		}
		want := map[bool]string{true: "private, max-age=1", false: "no-store"}[template == "/api/v1/vouchers" ||
			concrete(template) == path]
		got := s.do(t, http.MethodGet, concrete(template), "", user...)
		check.Equal(t, template, strings.Join(got.header.Values("Cache-Control"), "; "), want)
	}
	unchanged := s.do(t, http.MethodGet, path, "", "If-None-Match", "*")
	unchanged.is(t, http.StatusNotModified)
	check.Equal(t, "unchanged", unchanged.header.Get("Cache-Control"), "max-age=1")
	for what, got := range map[string]answer{
		"an administrator's": s.do(t, http.MethodGet, path, "", admin...), "none": s.do(t, http.MethodGet, "/api/v1/vouchers/none", ""),
		"a wrong query": s.do(t, http.MethodGet, "/api/v1/vouchers?limit=0", ""),
	} {
		check.Equal(t, what, got.header.Get("Cache-Control"), "no-store")
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
	first.is(t, http.StatusOK)
	check.Need(t, strings.HasPrefix(seen, `W/"`), "ETag = %s", seen)
	now.ServerTime = time.Now()
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		for _, match := range []string{seen, seen[2:], `"other", ` + seen, "*"} {
			got := s.do(t, method, path, "", "If-None-Match", match)
			got.is(t, http.StatusNotModified)
			check.That(t, got.body == "" && got.header.Get("ETag") == seen && got.header.Get("X-Request-Id") != "",
				"%s: %v %q", match, got.header, got.body)
		}
	}
	for what, change := range map[string]func(){
		"a sale": func() { now.Remaining-- }, "the end": func() { now.Phase = model.PhaseEnded }, "an administrator": func() { now.Price++ },
	} {
		change()
		got := s.do(t, http.MethodGet, path, "", "If-None-Match", seen)
		got.is(t, http.StatusOK)
		check.That(t, got.header.Get("ETag") != seen && got.body != "", "%s: %v", what, got.header)
		seen = got.header.Get("ETag")
	}
	// An administrator's view is always sent: its tag does not cover what sales change.
	admin := s.as(t, "a", model.RoleAdmin)
	shown := s.do(t, http.MethodGet, vouchersPath+"/v1", "", admin...)
	got := s.do(t, http.MethodGet, vouchersPath+"/v1", "", append(admin, "If-None-Match", shown.header.Get("ETag"))...)
	got.is(t, http.StatusOK)
}
