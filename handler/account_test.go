package handler_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"seckill/internal/token"
	"seckill/model"
)

// TestEndedTokensOpenNothing: a good signature is not enough where the accounts say
// that a token has ended. What everybody may see stays visible.
func TestEndedTokensOpenNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var asked []bool
	s.fakes.admit = func(_ context.Context, claims token.Claims, asAdmin bool) error {
		asked = append(asked, asAdmin)
		switch claims.Subject {
		case "ended":
			return &model.Error{Code: model.CodeUnauthenticated, Detail: "ended"}
		case "demoted":
			return &model.Error{Code: model.CodeForbidden, Detail: "demoted"}
		case "unknown":
			return model.Unavailable("away", errors.New("the database is away"))
		}
		return nil
	}
	admin := false
	s.fakes.getVoucher = func(_ context.Context, id string, asAdmin bool) (model.Voucher, error) {
		admin = asAdmin
		return voucher(id), nil
	}
	for subject, test := range map[string]struct {
		status int
		code   model.Code
	}{
		"ended":   {http.StatusUnauthorized, model.CodeUnauthenticated},
		"demoted": {http.StatusForbidden, model.CodeForbidden},
		"unknown": {http.StatusServiceUnavailable, model.CodeUnavailable},
		"good":    {},
	} {
		asked = nil
		bearer := s.as(t, subject, model.RoleAdmin)
		for _, path := range []string{"/api/v1/admin/vouchers", "/api/v1/auth/me"} {
			got := s.do(t, http.MethodGet, path, "", bearer...)
			if test.status == 0 {
				got.is(t, http.StatusOK)
				continue
			}
			wantProblem(t, got, test.status, test.code)
		}
		if got := s.do(t, http.MethodGet, "/api/v1/vouchers/v1", "", bearer...); got.status != http.StatusOK || admin != (subject == "good") {
			t.Errorf("%s: a voucher for everybody: %d, as an administrator: %v", subject, got.status, admin)
		}
		if len(asked) != 3 || !asked[0] || asked[1] || !asked[2] {
			t.Errorf("%s: asked as an administrator: %v", subject, asked)
		}
	}
}
