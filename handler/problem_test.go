package handler_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

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
