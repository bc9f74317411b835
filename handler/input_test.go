package handler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service"
)

func TestWait(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var waited time.Duration
	s.fakes.getOrder = func(_ context.Context, _, orderID string, wait time.Duration) (model.Order, error) {
		waited = wait
		return model.Order{ID: orderID}, nil
	}
	const path = "/api/v1/orders/o1.v1?wait="
	headers := s.as(t, "u", model.RoleUser)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "0s": 0, "10s": 10 * time.Second, "1m": 30 * time.Second, "1h": 30 * time.Second, "1.5s": 1500 * time.Millisecond, "-0s": 0,
	} {
		s.do(t, http.MethodGet, path+text, "", headers...).is(t, http.StatusOK)
		check.Equal(t, text, waited, want)
	}
	for _, text := range []string{"-1s", "10", "soon", "1d", "10s10", "%20"} {
		p := wantProblem(t, s.do(t, http.MethodGet, path+text, "", headers...), http.StatusUnprocessableEntity,
			model.CodeValidation)
		check.That(t, locates(p, "query.wait"), "%q: %v", text, p.Errors)
	}
}

func TestQueries(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var asked model.OrderQuery
	s.fakes.listOrders = func(_ context.Context, query model.OrderQuery) (model.OrderPage, error) {
		asked = query
		return model.OrderPage{}, nil
	}
	headers := s.as(t, "u", model.RoleUser)
	for query, want := range map[string]model.OrderQuery{
		"":                            {UserID: "u", Limit: 20},
		"?limit=100&cursor=abc":       {UserID: "u", Limit: 100, Cursor: "abc"},
		"?status=paid&voucher_id=v1":  {UserID: "u", Limit: 20, Status: model.OrderPaid, VoucherID: "v1"},
		"?limit=1&limit=2&unknown=%0": {UserID: "u", Limit: 1},
		"?cursor=":                    {UserID: "u", Limit: 20},
		"?user_id=somebody-else":      {UserID: "u", Limit: 20},
		"?voucher_id=no%20such%20id":  {}, // is not asked for
	} {
		asked = model.OrderQuery{}
		got := s.do(t, http.MethodGet, "/api/v1/orders"+query, "", headers...)
		check.Equal(t, query, got.body, `{"items":[]}`+"\n")
		check.Equal(t, query, asked, want)
	}
	for location, queries := range map[string][]string{
		"query.limit":  {"limit=0", "limit=101", "limit=-1", "limit=ten", "limit=1.5", "limit=99999999999999999999"},
		"query.status": {"status=lost", "status=Paid"},
		"query.cursor": {"cursor=" + strings.Repeat("c", 513)},
	} {
		for _, query := range queries {
			p := wantProblem(t, s.do(t, http.MethodGet, "/api/v1/orders?"+query, "", headers...),
				http.StatusUnprocessableEntity, model.CodeValidation)
			check.That(t, locates(p, location), "%s: %v", query, p.Errors)
		}
	}
	wantProblem(t, s.do(t, http.MethodGet, "/api/v1/vouchers?phase=over", ""), http.StatusUnprocessableEntity,
		model.CodeValidation)
}

// TestLogin: what is ill-formed is wrong, and only what is absent is not valid.
func TestLogin(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.login = func(_ context.Context, username, password string) (service.Session, error) {
		if username != "somebody" || password != "long enough" {
			return service.Session{}, &model.Error{Code: model.CodeUnauthenticated, Detail: "wrong"}
		}
		return service.Session{AccessToken: "abc", ExpiresIn: 90 * time.Minute}, nil
	}
	login := func(body string) answer { return s.do(t, http.MethodPost, "/api/v1/auth/login", body) }
	good := login(`{"username":"somebody","password":"long enough"}`)
	check.Equal(t, "a session", good.body, `{"access_token":"abc","token_type":"Bearer","expires_in":5400}`+"\n")
	for _, body := range []string{
		`{"username":"somebody","password":"short"}`, `{"username":"","password":""}`, `{"username":"x y","password":"long enough"}`,
		`{"username":"somebody","password":"` + strings.Repeat("x", 1000) + `"}`,
	} {
		got := login(body)
		wantProblem(t, got, http.StatusUnauthorized, model.CodeUnauthenticated)
		check.Equal(t, "the challenge", got.header.Get("WWW-Authenticate"), "Bearer")
	}
	wantProblem(t, login(`{"username":"somebody"}`), http.StatusUnprocessableEntity, model.CodeValidation)
}

// TestOneRepresentation: whatever a client accepts, it gets JSON that says so.
func TestOneRepresentation(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, accept := range []string{"json", "text/html", "application/problem+json", "application/cbor", "*/*", "application/json;q=0"} {
		got := s.do(t, http.MethodGet, "/api/v1/vouchers", "", "Accept", accept)
		got.is(t, http.StatusOK)
		check.Equal(t, accept, got.header.Get("Content-Type"), "application/json")
		wantProblem(t, s.do(t, http.MethodGet, "/api/v1/vouchers?limit=x", "", "Accept", accept),
			http.StatusUnprocessableEntity, model.CodeValidation)
	}
}

// TestEmptyParameters: what a form or a generated client leaves empty is absent.
func TestEmptyParameters(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var asked model.OrderQuery
	s.fakes.listOrders = func(_ context.Context, query model.OrderQuery) (model.OrderPage, error) {
		asked = query
		return model.OrderPage{}, nil
	}
	doc, _ := readDocument(t, s)
	queries := 0
	for template, methods := range doc.Paths {
		var all []string
		for _, parameter := range methods["get"].Parameters {
			if parameter.In == "query" {
				check.That(t, parameter.AllowEmptyValue, "the document lets nobody leave %s of %s empty",
					parameter.Name, template)
				all = append(all, parameter.Name+"=", parameter.Name)
			}
		}
		if len(all) == 0 {
			continue
		}
		for _, query := range append(all, strings.Join(all, "&")) {
			asked = model.OrderQuery{Limit: 20}
			queries++
			s.do(t, http.MethodGet, concrete(template)+"?"+query, "", s.as(t, "a", model.RoleAdmin)...).is(t,
				http.StatusOK)
			check.That(t, asked.Limit == 20 && asked.Status == "" && asked.Cursor == "", "%s?%s asks for %+v", template,
				query, asked)
		}
	}
	check.That(t, queries >= 20, "only %d queries", queries)
}

// A parameter that cannot be read must not vanish: the client would get an answer to another question.
func TestUnreadableParameters(t *testing.T) {
	t.Parallel()
	s := setup(t)
	headers := s.as(t, "a", model.RoleAdmin)
	for path, queries := range map[string][]string{
		"/api/v1/vouchers": {
			"phase=ended%zz", "phase=ended;", "limit=0;", "limit=1&cursor=%", "%70hase=%f", "unknown=1;phase=ended",
			"phase=ended" + strings.Repeat("&", 10_000),
		},
		"/api/v1/orders":                   {"status=paid;", "status;", "voucher_id=v1%", "limit=1;limit=2", "status=%zz&status=paid"},
		"/api/v1/admin/vouchers/v1/orders": {"format=csv%zz", "status=paid;format=csv"},
	} {
		for _, query := range queries {
			got := s.do(t, http.MethodGet, path+"?"+query, "", headers...)
			p := wantProblem(t, got, http.StatusUnprocessableEntity, model.CodeValidation)
			check.That(t, len(p.Errors) == 1 && locates(p, "query"), "%s?%.40s: %v", path, query, p.Errors)
		}
	}
	for _, path := range []string{
		"/api/v1/vouchers?unknown=%zz", "/api/v1/vouchers?unknown=1;2", "/api/v1/vouchers?%zz=1&limit=1",
		"/api/v1/vouchers?;", "/api/v1/vouchers?limit=1&",
		"/api/v1/auth/me?status=paid;", "/api/v1/vouchers/v1?wait=%zz",
	} {
		s.do(t, http.MethodGet, path, "", headers...).is(t, http.StatusOK)
	}
	s.do(t, http.MethodPost, seckill+"?status=paid;&wait=%zz", "", headers...).is(t, http.StatusCreated)
}

func padded(size int) string {
	body := `{"username":"somebody","password":"long enough"}`
	return body + strings.Repeat(" ", size-len(body))
}

func TestBodies(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const good, other = `{"username":"somebody","password":"long enough"}`, "application/merge-patch+json"
	named := func(name string) string { return `{"username":"` + name + `","password":"long enough"}` }
	with := func(password string) string { return `{"username":"somebody","password":"` + password + `"}` }
	for _, test := range []struct {
		contentType string // empty: none
		status      int
		code        model.Code
		location    string
		bodies      []string
	}{
		{"application/json", 201, "", "", []string{good, padded(16 << 10), with(`long enough\uD83D\ude00`), with(`long enough\\ud800\\`), with(strings.Repeat("密", 128))}},
		{"application/json; charset=UTF-8", 201, "", "", []string{good}},
		{"", 201, "", "", []string{good}},
		{"application/json", 413, model.CodePayloadTooLarge, "", []string{padded(16<<10 + 1)}},
		{"text/plain", 413, model.CodePayloadTooLarge, "", []string{padded(20 << 10)}},
		{"text/plain", 415, model.CodeUnsupportedMediaType, "", []string{good}},
		{"application/x-www-form-urlencoded", 415, model.CodeUnsupportedMediaType, "", []string{"username=a"}},
		{other, 415, model.CodeUnsupportedMediaType, "", []string{good}},
		{"application/json; charset=gbk", 415, model.CodeUnsupportedMediaType, "", []string{good}},
		{"", 400, model.CodeValidation, "body", []string{"username=a"}},
		{"application/json", 400, model.CodeValidation, "body", []string{
			"", " \n", good[:20], good + good, good + "x", "\ufeff" + good, named("some\xffbody"),
			strings.Repeat("[", 16<<10),
			// Each is half a character.
			with(`long enough\ud800`), with(`long enough\udc00`), with(`long enough\ud83d\ud83d`),
			with(`long enough\uD83D\u0061`),
			with(`long enough\uD83D\"\\`), strings.Replace(good, "}", `,"\udfff":1}`, 1),
		}},
		{
			"application/json", 422, model.CodeValidation, "body",
			[]string{"null", "[]", strings.Repeat("[", 8<<10) + strings.Repeat("]", 8<<10)},
		},
		{"application/json", 422, model.CodeValidation, "body.password", []string{
			`{"username":"somebody"}`, strings.Replace(good, `"long enough"`, "null", 1), strings.Replace(good, `"long enough"`, "1234567890", 1),
			with(`long enough","password":"another one`), with("9 letters"), with(strings.Repeat("密", 129)),
		}},
		{"application/json", 422, model.CodeValidation, "body.role", []string{with(`long enough","role":"admin`)}},
		{"application/json", 422, model.CodeValidation, "body.Username", []string{`{"Username":"somebody","password":"long enough"}`}},
		{"application/json", 422, model.CodeValidation, "body.username", []string{named("ab"), named(`abc\n`)}},
	} {
		for _, body := range test.bodies {
			got := s.do(t, http.MethodPost, "/api/v1/auth/register", body, "Content-Type", test.contentType)
			if got.is(t, test.status); test.code != "" {
				p := wantProblem(t, got, test.status, test.code)
				check.That(t, test.location == "" || locates(p, test.location), "%.60q: no error at %s in %v", body,
					test.location, p.Errors)
			}
			check.That(t, !strings.Contains(got.body, "long enough"), "the answer repeats a password")
		}
	}
}

func locates(p problem, location string) bool {
	for _, field := range p.Errors {
		if field.Location == location && field.Message != "" {
			return true
		}
	}
	return false
}

// Each refuses an unknown member and a byte order mark (RFC 8259, 8.1). Where no body is taken, null and {} pass.
func TestEveryBody(t *testing.T) {
	t.Parallel()
	s := setup(t)
	doc, _ := readDocument(t, s)
	bodies := 0
	for template, methods := range doc.Paths {
		for method, op := range methods {
			documented := doc.resolve(t, op.RequestBody.Content["application/json"].Schema)
			bare := documented == nil && method == "post"                          // it says everything in its path
			if documented == nil && !bare || op.OperationID == "payment-webhook" { // whose members its sender defines
				continue
			}
			bodies++
			send := func(body string) answer {
				return s.do(t, strings.ToUpper(method), concrete(template), body, s.as(t, "a", model.RoleAdmin)...)
			}
			if bare {
				documented = &schema{}
			}
			for location, body := range doc.withUnknown(t, documented, "body") {
				p := wantProblem(t, send(body), http.StatusUnprocessableEntity, model.CodeValidation)
				check.That(t, locates(p, location), "%s %s: %s is not refused for its unknown member: %v", method,
					template, body, p.Errors)
			}
			wantProblem(t, send("\ufeff{}"), http.StatusBadRequest, model.CodeValidation)
			if !bare {
				wantProblem(t, send("null"), http.StatusUnprocessableEntity, model.CodeValidation)
				continue
			}
			without := send("")
			check.That(t, without.status != http.StatusUnprocessableEntity, "%s: %s", without.asked, without.body)
			send(" null\n").is(t, without.status)
			send("{}").is(t, without.status)
		}
	}
	check.That(t, bodies >= 10, "only %d bodies", bodies)
}

func TestLargeStreams(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, path := range []string{"/api/v1/auth/register", "/api/v1/vouchers/v1/seckill", "/api/v1/admin/vouchers"} {
		// A reader of unknown length makes the client send chunks.
		body := io.MultiReader(bytes.NewReader(make([]byte, 64<<10)))
		got := s.send(t, http.MethodPost, path, body, s.as(t, "a", model.RoleAdmin)...)
		wantProblem(t, got, http.StatusRequestEntityTooLarge, model.CodePayloadTooLarge)
	}
	// What would be larger when it is unpacked is not unpacked.
	got := s.do(t, http.MethodPost, "/api/v1/auth/register", `{}`, "Content-Encoding", "gzip")
	wantProblem(t, got, http.StatusUnsupportedMediaType, model.CodeUnsupportedMediaType)
}

func TestManyErrorsAreCut(t *testing.T) {
	t.Parallel()
	body := `{"username":"somebody","password":"long enough"`
	for i := range 500 {
		body += `,"x` + strconv.Itoa(i) + `":1`
	}
	got := setup(t).do(t, http.MethodPost, "/api/v1/auth/register", body+"}")
	p := wantProblem(t, got, http.StatusUnprocessableEntity, model.CodeValidation)
	check.Equal(t, "errors", len(p.Errors), 20)
}

func declaredCodes(t *testing.T) []model.Code {
	t.Helper()
	file := check.Value(parser.ParseFile(token.NewFileSet(), "../model/error.go", nil, 0))(t)
	var codes []model.Code
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Code" {
			word := check.Value(strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value))(t)
			codes = append(codes, model.Code(word))
		}
		return true
	})
	return codes
}

func TestEveryCodeHasItsPage(t *testing.T) {
	t.Parallel()
	declared, listed := declaredCodes(t), model.Codes()
	slices.Sort(declared)
	slices.Sort(listed)
	check.Need(t, len(declared) >= 19 && slices.Equal(declared, listed), "declared are %v, listed %v", declared, listed)
	s := setup(t)
	pages := map[string]model.Code{}
	for _, code := range declared {
		path := "/problems/" + strings.ToLower(strings.ReplaceAll(string(code), "_", "-"))
		got := s.do(t, http.MethodGet, path, "")
		got.is(t, http.StatusOK)
		check.Equal(t, "the type", got.header.Get("Content-Type"), "text/html; charset=utf-8")
		check.That(t, strings.HasPrefix(got.header.Get("Content-Security-Policy"), "default-src 'none'"), "%v",
			got.header)
		_, said, _ := strings.Cut(got.body, "What it means")
		check.That(t, strings.Contains(got.body, "<code>"+string(code)+"</code>") && pages[said] == "",
			"%s says the same as %s", code, pages[said])
		pages[said] = code
	}
	for _, path := range []string{"/problems/no-such-code", "/problems/SOLD_OUT", "/problems/", "/problems"} {
		wantProblem(t, s.do(t, http.MethodGet, path, ""), http.StatusNotFound, model.CodeNotFound)
	}
}

func TestTypeLeadsToItsPage(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for path, code := range map[string]model.Code{"/nowhere": model.CodeNotFound, "/api/v1/orders": model.CodeUnauthenticated} {
		refused := s.do(t, http.MethodGet, path, "")
		p := wantProblem(t, refused, refused.status, code)
		page := html.UnescapeString(s.do(t, http.MethodGet, p.Type, "").body)
		for _, word := range []string{string(p.Code), "<h1>" + p.Title + "</h1>", "status " + strconv.Itoa(p.Status)} {
			check.That(t, strings.Contains(page, word), "%s: %s", p.Type, page)
		}
	}
}

// Only the title is in the language asked for, wherever a refusal comes from.
func TestTitlesAreInTheLanguageAskedFor(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.getVoucher = func(_ context.Context, id string, _ bool) (model.Voucher, error) {
		switch id {
		case "gone":
			return model.Voucher{}, errors.New("a text of programs")
		case "strange":
			return model.Voucher{}, model.Unavailable("Nobody has ever said this.", nil)
		}
		return model.Voucher{}, model.NotFound("voucher")
	}
	s.fakes.place = func(context.Context, string, string) (model.Order, error) { return model.Order{}, model.SoldOut() }
	admin, buyer := s.as(t, "boss", model.RoleAdmin), s.as(t, "alice", model.RoleUser)
	const body = `{"title":"","price":"x","stock":-1,"begin_at":"yesterday","more":1,"face_value":null}`
	for _, ask := range []struct {
		method, path, body string
		headers            []string
	}{
		{"GET", "/nowhere", "", nil},
		{"DELETE", "/api/v1/vouchers", "", nil},
		{"GET", "/api/v1/vouchers/v1", "", nil},
		{"GET", "/api/v1/vouchers/gone", "", nil},
		{"GET", "/api/v1/vouchers/strange", "", nil},
		{"GET", "/api/v1/orders", "", nil},
		{"GET", "/api/v1/orders", "", []string{"Authorization", "Bearer x"}},
		{"GET", "/api/v1/admin/log", "", buyer},
		{"GET", "/api/v1/orders?limit=0&status=gone", "", buyer},
		{"GET", "/api/v1/orders?status=%zz", "", buyer},
		{"POST", "/api/v1/admin/vouchers", body, admin},
		{"POST", "/api/v1/admin/vouchers", "{", admin},
		{"POST", "/api/v1/admin/vouchers", "", admin},
		{"POST", "/api/v1/admin/vouchers", `"x"`, admin},
		{"POST", "/api/v1/auth/register", `{"username":"a","password":"b"}`, nil},
		{"POST", "/api/v1/auth/register", `{}`, []string{"Content-Type", "text/plain"}},
		{"POST", "/api/v1/auth/register", strings.Repeat(" ", 20_000), nil},
		{"POST", "/api/v1/vouchers/v1/seckill", "", buyer},
		{"POST", "/api/v1/vouchers/v1/seckill", `{"x":1}`, buyer},
		{"POST", "/api/v1/webhooks/payments", `{}`, nil},
		{"PATCH", "/api/v1/admin/settings/limits", `{"user":"many"}`, admin},
	} {
		var both []problem
		for language, accepts := range map[string]string{"en": "en-GB", "zh": "zh-CN,zh;q=0.9,en;q=0.8"} {
			got := s.do(t, ask.method, ask.path, ask.body,
				append([]string{"Accept-Language", accepts}, ask.headers...)...)
			var p problem
			check.Must(t, json.Unmarshal([]byte(got.body), &p))
			check.Equal(t, got.asked+" in", got.header.Get("Content-Language"), language)
			check.That(t, slices.Contains(words(got, "Vary"), "accept-language"), "%s: Vary %q", got.asked,
				got.header.Values("Vary"))
			check.That(t, !mixes(language, p.Title), "%s in %s has the title %q", got.asked, language, p.Title)
			p.Title = ""
			both = append(both, p)
		}
		same := reflect.DeepEqual(both[0], both[1]) && both[0].Detail != "" && both[0].Status >= http.StatusBadRequest
		check.That(t, same, "%s %s: %+v and %+v", ask.method, ask.path, both[0], both[1])
	}
}

// sentence is more than a name, a command or a member in a text.
var sentence = regexp.MustCompile(`[a-z]{2,} [a-z]{2,}`)

func mixes(language, text string) bool {
	chinese := strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Han, r) })
	return text == "" || language == "en" && chinese || language == "zh" && (!chinese || sentence.MatchString(text))
}
