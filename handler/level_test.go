package handler_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestLevelsOfAdministrators: of every administrators' operation in the document, those whose level is enough get past
// the check, and everybody else is FORBIDDEN. Whatever is not named here is to be seen by all, or done by the highest alone.
func TestLevelsOfAdministrators(t *testing.T) {
	t.Parallel()
	s := setup(t)
	doc, _ := readDocument(t, s)
	least := map[string]model.Level{
		"redeem-code": model.LevelCashier, "create-voucher": model.LevelOperator, "patch-voucher": model.LevelOperator,
		"change-stock": model.LevelOperator, "refund-order": model.LevelOperator, "set-groups": model.LevelOperator,
	}
	bearers := map[model.Level]string{"": s.token(t, "buyer", model.RoleUser)}
	for _, level := range model.Levels() {
		bearers[level] = check.Value(s.tokens.Issue(token.Claims{Subject: "a", Role: model.RoleAdmin, Level: level}, time.Hour))(t)
	}
	operations := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if !strings.Contains(path, "/admin/") {
				continue
			}
			operations++
			want, named := least[op.OperationID]
			if !named && method == "get" {
				want = model.LevelViewer
			} else if !named {
				want = model.LevelAdmin
			}
			check.Equal(t, "the least level of "+op.OperationID, op.LeastLevel, want)
			for level, bearer := range bearers {
				got := s.do(t, strings.ToUpper(method), strings.ReplaceAll(path, "{id}", "o1.v1"), "", "Authorization", "Bearer "+bearer)
				enough := slices.Index(model.Levels(), level) >= slices.Index(model.Levels(), want)
				if forbidden := got.status == http.StatusForbidden; forbidden == enough || forbidden && !strings.Contains(got.body, `"code":"FORBIDDEN"`) {
					t.Errorf("%s by %q: %d %s", op.OperationID, level, got.status, got.body)
				}
			}
		}
	}
	check.That(t, operations >= 14, "only %d operations", operations)
}
