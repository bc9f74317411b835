package handler_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestOrdersAreSearchedOverHTTP: what is asked for gets to the search, and viewers see no codes.
func TestOrdersAreSearchedOverHTTP(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const path = "/api/v1/admin/orders"
	for level, sees := range map[model.Level]bool{model.LevelViewer: false, model.LevelCashier: true} {
		bearer := check.Value(s.tokens.Issue(token.Claims{Subject: "a", Role: model.RoleAdmin, Level: level}, time.Hour))(t)
		got := s.do(t, http.MethodGet, path+"?q=%20green%20tea%20&status=paid&limit=7&cursor=c", "", "Authorization", "Bearer "+bearer)
		got.is(t, http.StatusOK)
		want := model.OrderSearch{Words: "green tea", Status: model.OrderPaid, Limit: 7, Cursor: "c"}
		if s.fakes.searched.Words != want.Words || s.fakes.searched.Status != want.Status || s.fakes.searched.Limit != want.Limit || s.fakes.searched.Cursor != want.Cursor {
			t.Errorf("asked for %+v, want %+v", s.fakes.searched, want)
		}
		check.Equal(t, "a "+string(level)+" sees the code", strings.Contains(got.body, "SECRET"), sees)
	}
	admin := s.as(t, "a", model.RoleAdmin)
	for _, query := range []string{"?status=gone", "?limit=0", "?q=" + strings.Repeat("x", 201)} {
		wantProblem(t, s.do(t, http.MethodGet, path+query, "", admin...), http.StatusUnprocessableEntity, model.CodeValidation)
	}
}
