package handler_test

import (
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// declaredCodes reads the constants of the type Code from their source.
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

// TestEveryCodeHasItsPage, and none is forgotten in the list of codes.
func TestEveryCodeHasItsPage(t *testing.T) {
	t.Parallel()
	declared := declaredCodes(t)
	listed := model.Codes()
	slices.Sort(declared)
	slices.Sort(listed)
	if len(declared) < 19 || !slices.Equal(declared, listed) {
		t.Fatalf("declared are %v, listed %v", declared, listed)
	}
	s := setup(t)
	pages := map[string]model.Code{}
	for _, code := range declared {
		path := "/problems/" + strings.ToLower(strings.ReplaceAll(string(code), "_", "-"))
		got := s.do(t, http.MethodGet, path, "")
		if got.status != http.StatusOK || got.header.Get("Content-Type") != "text/html; charset=utf-8" ||
			!strings.HasPrefix(got.header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %d %v", path, got.status, got.header)
		}
		if !strings.Contains(got.body, "<code>"+string(code)+"</code>") {
			t.Errorf("%s does not name its code", path)
		}
		_, said, _ := strings.Cut(got.body, "What it means")
		if other, twice := pages[said]; twice {
			t.Errorf("%s and %s say the same", code, other)
		}
		pages[said] = code
	}
	for _, path := range []string{"/problems/no-such-code", "/problems/SOLD_OUT", "/problems/", "/problems"} {
		wantProblem(t, s.do(t, http.MethodGet, path, ""), http.StatusNotFound, model.CodeNotFound)
	}
}

// TestTypeLeadsToItsPage follows the type of real problem documents.
func TestTypeLeadsToItsPage(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for path, code := range map[string]model.Code{"/nowhere": model.CodeNotFound, "/api/v1/orders": model.CodeUnauthenticated} {
		refused := s.do(t, http.MethodGet, path, "")
		p := wantProblem(t, refused, refused.status, code)
		page := s.do(t, http.MethodGet, p.Type, "")
		if text := html.UnescapeString(page.body); page.status != http.StatusOK || !strings.Contains(text, p.Code) ||
			!strings.Contains(text, "<h1>"+p.Title+"</h1>") || !strings.Contains(text, "status "+strconv.Itoa(p.Status)) {
			t.Errorf("%s: %d %s", p.Type, page.status, page.body)
		}
	}
}

// TestTitlesAreInTheLanguageAskedFor: the title is, wherever a refusal comes from; the code, the detail and what is
// wrong with each field are the same in both.
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
		var both [2]problem
		for i, language := range []string{"en", "zh"} {
			headers := append([]string{"Accept-Language", map[string]string{"en": "en-GB", "zh": "zh-CN,zh;q=0.9,en;q=0.8"}[language]}, ask.headers...)
			got := s.do(t, ask.method, ask.path, ask.body, headers...)
			p := &both[i]
			check.Must(t, json.Unmarshal([]byte(got.body), p))
			if got.header.Get("Content-Language") != language || !strings.Contains(strings.Join(got.header.Values("Vary"), ","), "Accept-Language") {
				t.Errorf("%s in %s: Content-Language %q, Vary %q", got.asked, language, got.header.Get("Content-Language"), got.header.Values("Vary"))
			}
			if mixes(language, p.Title) {
				t.Errorf("%s in %s has the title %q", got.asked, language, p.Title)
			}
		}
		if both[0].Detail == "" || both[0].Detail != both[1].Detail || !slices.Equal(both[0].Errors, both[1].Errors) {
			t.Errorf("%s %s: in English %q %v, in Chinese %q %v", ask.method, ask.path, both[0].Detail, both[0].Errors, both[1].Detail, both[1].Errors)
		}
		if both[0].Code != both[1].Code || both[0].Status != both[1].Status || len(both[0].Errors) != len(both[1].Errors) || both[0].Status < http.StatusBadRequest {
			t.Errorf("%s %s: %+v and %+v", ask.method, ask.path, both[0], both[1])
		}
	}
}

// sentence is more than a name, a command or a member in a text.
var sentence = regexp.MustCompile(`[a-z]{2,} [a-z]{2,}`)

func mixes(language, text string) bool {
	chinese := strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Han, r) })
	return text == "" || language == "en" && chinese || language == "zh" && (!chinese || sentence.MatchString(text))
}
