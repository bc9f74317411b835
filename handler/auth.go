package handler

import (
	"context"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"seckill/internal/token"
	"seckill/model"
)

// access is who may call a route.
type access int

const (
	// undecided is a mistake: a route must say who may call it, and forgetting
	// it must not make it public.
	undecided access = iota
	// public routes do not look at tokens.
	public
	// recognised routes are public, but show more to an administrator. A token
	// that is no good counts as none: it takes nothing away.
	recognised
	// users need a token.
	users
	// administrators need a token with the role admin.
	administrators
)

// authenticate makes the check in front of a route.
func (a *api) authenticate(who access) gin.HandlerFunc {
	return func(c *gin.Context) {
		claims, err := a.claims(c.Request.Header)
		switch {
		case err == nil:
			callOf(c.Request.Context()).claims = &claims
		case who == recognised:
			return
		default:
			a.abort(c, err)
			return
		}
		if who == administrators && claims.Role != model.RoleAdmin {
			a.abort(c, &model.Error{Code: model.CodeForbidden, Detail: "Only an administrator may do this."})
		}
	}
}

// claims reads the bearer token. Why one is refused stays between the server
// and its log: the client's remedy is the same.
func (a *api) claims(header http.Header) (token.Claims, error) {
	refused := &model.Error{Code: model.CodeUnauthenticated, Detail: "A valid bearer token is needed."}
	values := header.Values("Authorization")
	if len(values) != 1 {
		return token.Claims{}, refused
	}
	scheme, credentials, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return token.Claims{}, refused
	}
	claims, err := a.options.Tokens.Verify(strings.TrimLeft(credentials, " "))
	if err != nil {
		refused.Cause = err
		return token.Claims{}, refused
	}
	return claims, nil
}

// subject is the user who calls a route that needs a token.
func subject(ctx context.Context) string {
	if claims := callOf(ctx).claims; claims != nil {
		return claims.Subject
	}
	return ""
}

// isAdmin reports whether an administrator calls.
func isAdmin(ctx context.Context) bool {
	claims := callOf(ctx).claims
	return claims != nil && claims.Role == model.RoleAdmin
}
