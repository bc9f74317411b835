package handler_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/handler/wire"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// A good signature opens nothing once the accounts say that a token has ended. What everybody may see stays visible.
func TestEndedTokensOpenNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var asked []bool
	s.fakes.admit = func(_ context.Context, claims token.Claims, asAdmin bool) error {
		asked = append(asked, asAdmin)
		return map[string]error{
			"ended":   &model.Error{Code: model.CodeUnauthenticated, Detail: "ended"},
			"demoted": &model.Error{Code: model.CodeForbidden, Detail: "demoted"},
			"unknown": model.Unavailable("away", errors.New("the database is away")),
		}[claims.Subject]
	}
	admin := false
	s.fakes.getVoucher = func(_ context.Context, id string, asAdmin bool) (model.Voucher, error) {
		admin = asAdmin
		return voucher(id), nil
	}
	public := func(bearer ...string) bool {
		s.do(t, http.MethodGet, "/api/v1/vouchers/v1", "", bearer...).is(t, http.StatusOK)
		return admin
	}
	for subject, code := range map[string]model.Code{
		"ended": model.CodeUnauthenticated, "demoted": model.CodeForbidden, "unknown": model.CodeUnavailable, "good": "",
	} {
		asked = nil
		bearer := s.as(t, subject, model.RoleAdmin)
		for _, path := range []string{"/api/v1/admin/vouchers", "/api/v1/auth/me"} {
			got := s.do(t, http.MethodGet, path, "", bearer...)
			if code == "" {
				got.is(t, http.StatusOK)
				continue
			}
			wantProblem(t, got, wire.KindOf(code).Status, code)
		}
		check.Equal(t, subject+" sees as an administrator", public(bearer...), subject == "good")
		check.That(t, slices.Equal(asked, []bool{true, false, true}), "%s: asked as an administrator: %v", subject,
			asked)
	}
	for _, bearer := range [][]string{nil, {"Authorization", "Bearer nonsense"}, s.as(t, "u", model.RoleUser)} {
		check.Equal(t, "anybody else sees as an administrator", public(bearer...), false)
	}
}

// Operations that are not named here are visible to all, or for the highest level alone.
func TestLevelsOfAdministrators(t *testing.T) {
	t.Parallel()
	s := setup(t)
	doc, _ := readDocument(t, s)
	least := map[string]model.Level{
		"redeem-code": model.LevelCashier, "unredeem-order": model.LevelCashier, "pay-elsewhere": model.LevelCashier, "refund-paid-back": model.LevelOperator,
		"create-voucher": model.LevelOperator, "patch-voucher": model.LevelOperator,
		"change-stock": model.LevelOperator, "refund-order": model.LevelOperator, "set-groups": model.LevelOperator,
		"replay-events": model.LevelOperator,
		"enter-beacon":  model.LevelOperator,
		"user-data":     model.LevelAdmin,
	}
	bearers := map[model.Level]string{"": s.token(t, "buyer", model.RoleUser)}
	for _, level := range model.Levels() {
		bearers[level] = check.Value(s.tokens.Issue(token.Claims{Subject: "a", Role: model.RoleAdmin, Level: level},
			time.Hour))(t)
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
				got := s.do(t, strings.ToUpper(method), strings.ReplaceAll(path, "{id}", "o1.v1"), "", "Authorization",
					"Bearer "+bearer)
				enough := slices.Index(model.Levels(), level) >= slices.Index(model.Levels(), want)
				if forbidden := got.status == http.StatusForbidden; forbidden == enough || forbidden && !strings.Contains(got.body, `"code":"FORBIDDEN"`) {
					t.Errorf("%s by %q: %d %s", op.OperationID, level, got.status, got.body)
				}
			}
		}
	}
	check.That(t, operations >= 14, "only %d operations", operations)
}
