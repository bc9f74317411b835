package handler

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"

	"github.com/gin-gonic/gin"

	"seckill/handler/wire"
	"seckill/model"
)

// problemsPath is where the page of each code is; the type of a problem document is a
// reference to it (RFC 9457, 3.1.1).
const problemsPath = "/problems/"

// problemPath is the page of a code.
func problemPath(code model.Code) string {
	path := make([]byte, 0, 64) //nolint:mnd // longer than any, so that it stays on the stack
	path = append(path, problemsPath...)
	for i := range len(code) {
		switch c := code[i]; {
		case c == '_':
			path = append(path, '-')
		case 'A' <= c && c <= 'Z':
			path = append(path, c-'A'+'a')
		default:
			path = append(path, c)
		}
	}
	return string(path)
}

// problemPolicy lets the page load nothing, not even a script of its own.
const problemPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// problemRoutes serves one page for each code.
func (a *api) problemRoutes() error {
	pages, err := problemPages()
	if err != nil {
		return err
	}
	a.registerPlain(route{
		id: "problem", access: public, method: http.MethodGet, path: problemsPath + "{code}", tag: tagOperations,
		summary: "What a problem means", description: "The page to which the type of a problem document leads.",
		status: http.StatusOK, codes: []model.Code{model.CodeNotFound},
		response: map[string]any{"text/html; charset=utf-8": ""},
	}, func(c *gin.Context) {
		page, ok := pages[problemsPath+c.Param("code")]
		if !ok {
			a.noRoute(c)
			return
		}
		header := c.Writer.Header()
		header.Set("Content-Security-Policy", problemPolicy)
		header.Set("Cache-Control", "max-age=3600") // an upgrade shows within the hour
		c.Data(http.StatusOK, "text/html; charset=utf-8", page)
	})
	return nil
}

// problemPages makes the pages, by path.
func problemPages() (map[string][]byte, error) {
	form, err := template.ParseFS(docsPage, "docs/problem.html")
	if err != nil {
		return nil, fmt.Errorf("read the page of problems: %w", err)
	}
	pages := map[string][]byte{}
	for _, code := range model.Codes() {
		kind := wire.KindOf(code)
		var page bytes.Buffer
		err := form.Execute(&page, map[string]any{
			"Code": code, "Status": kind.Status, "Title": kind.Title, "Means": kind.Means, "ToDo": kind.ToDo,
		})
		if err != nil {
			return nil, fmt.Errorf("make the page of %s: %w", code, err)
		}
		pages[problemPath(code)] = page.Bytes()
	}
	return pages, nil
}
