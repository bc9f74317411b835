package e2e_test

import (
	"crypto/rand"
	"crypto/rsa"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// forge signs whatever claims with whatever key. Changed claims win over those
// of a good token; nil removes one.
func forge(t *testing.T, method jwt.SigningMethod, key any, header map[string]any, changed jwt.MapClaims) string {
	t.Helper()
	claims := jwt.MapClaims{
		"sub": "forger", "role": "admin", "iss": "seckill", "aud": "seckill", "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(claims, changed)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	made := jwt.NewWithClaims(method, claims)
	made.Header["kid"] = "1"
	maps.Copy(made.Header, header)
	maps.DeleteFunc(made.Header, func(_ string, value any) bool { return value == nil })
	return check.Value(made.SignedString(key))(t)
}

// forgeries are tokens that must open nothing.
func forgeries(t *testing.T) map[string]string {
	t.Helper()
	rsaKey := check.Value(rsa.GenerateKey(rand.Reader, 2048))(t)
	hs256 := func(header map[string]any, changed jwt.MapClaims) string {
		return forge(t, jwt.SigningMethodHS256, []byte(secret), header, changed)
	}
	good := hs256(nil, nil)
	parts := strings.Split(good, ".")
	none := forge(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil)
	return map[string]string{
		"none at all":            "",
		"no JWT":                 "nonsense",
		"alg none":               none,
		"alg none, signed":       strings.TrimSuffix(none, ".") + "." + parts[2],
		"signature missing":      parts[0] + "." + parts[1] + ".",
		"signature of another":   parts[0] + "." + strings.Split(hs256(nil, jwt.MapClaims{"sub": "x"}), ".")[1] + "." + parts[2],
		"HS384":                  forge(t, jwt.SigningMethodHS384, []byte(secret), nil, nil),
		"HS512":                  forge(t, jwt.SigningMethodHS512, []byte(secret), nil, nil),
		"RS256":                  forge(t, jwt.SigningMethodRS256, rsaKey, nil, nil),
		"another key":            forge(t, jwt.SigningMethodHS256, []byte("another secret of 32 bytes or more"), nil, nil),
		"empty key":              forge(t, jwt.SigningMethodHS256, []byte{}, nil, nil),
		"unknown kid":            hs256(map[string]any{"kid": "2"}, nil),
		"no kid":                 hs256(map[string]any{"kid": nil}, nil),
		"kid of another type":    hs256(map[string]any{"kid": 1}, nil),
		"expired":                hs256(nil, jwt.MapClaims{"exp": time.Now().Add(-time.Minute).Unix()}),
		"no exp":                 hs256(nil, jwt.MapClaims{"exp": nil}),
		"exp as text":            hs256(nil, jwt.MapClaims{"exp": "2099-01-01"}),
		"no iss":                 hs256(nil, jwt.MapClaims{"iss": nil}),
		"another iss":            hs256(nil, jwt.MapClaims{"iss": "somebody"}),
		"no aud":                 hs256(nil, jwt.MapClaims{"aud": nil}),
		"another aud":            hs256(nil, jwt.MapClaims{"aud": []string{"somebody", "else"}}),
		"no sub":                 hs256(nil, jwt.MapClaims{"sub": nil}),
		"empty sub":              hs256(nil, jwt.MapClaims{"sub": ""}),
		"sub with a space":       hs256(nil, jwt.MapClaims{"sub": "a b"}),
		"sub beyond ASCII":       hs256(nil, jwt.MapClaims{"sub": "Bób"}),
		"sub too long":           hs256(nil, jwt.MapClaims{"sub": strings.Repeat("a", 65)}),
		"sub as number":          hs256(nil, jwt.MapClaims{"sub": 42}),
		"no role":                hs256(nil, jwt.MapClaims{"role": nil}),
		"unknown role":           hs256(nil, jwt.MapClaims{"role": "root"}),
		"role in capitals":       hs256(nil, jwt.MapClaims{"role": "ADMIN"}),
		"several roles":          hs256(nil, jwt.MapClaims{"role": []string{"admin"}}),
		"something behind":       good + ".x",
		"space behind the token": good + " x",
	}
}

// TestForgedTokens tries every forgery on every route that needs a token. The
// routes come from the OpenAPI document, so that a new one is tried as well.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	within(t, "sync embedded", checkForgedTokens)
}

func checkForgedTokens(t *testing.T, a shop) {
	t.Helper()
	voucher := a.onSale(t, 1)
	doc := readDocument(t, a.app)
	routes := doc.routes(func(r route) bool { return r.operation.protected() })
	everybodys := []string{
		"/livez", "/readyz", "/api/v1/docs", "/api/v1/openapi.json", "/api/v1/auth/register", "/api/v1/auth/login",
		"/api/v1/vouchers", "/api/v1/vouchers/{id}", "/api/v1/vouchers/{id}/draw", "/api/v1/vouchers/{id}/draw/entries", "/problems/{code}",
		"/api/v1/webhooks/payments", // its signature says whose it is
	}
	for _, r := range doc.routes(func(r route) bool { return !r.operation.protected() }) {
		if !slices.Contains(everybodys, r.path) {
			t.Errorf("%s %s is open to everybody", r.method, r.path)
		}
	}
	for name, forged := range forgeries(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, r := range routes {
				got := check.Value(api.Send(t.Context(), a.Client, r.method, a.URL+concrete(r.path, voucher.ID), forged, nil))(t)
				refused(t, got, http.StatusUnauthorized, model.CodeUnauthenticated)
			}
		})
	}
	good := []jwt.MapClaims{
		{},
		{"iat": time.Now().Add(time.Hour).Unix()}, // not enforced
		{"aud": []string{"other", "seckill"}},
		{"sub": strings.Repeat("a", 64)},
		{"sub": "github:42", "preferred_username": "octocat"},
		{"sub": "google-oauth2|1109"},
		{"sub": "ann@shop.example"},
	}
	for _, claims := range good {
		token := forge(t, jwt.SigningMethodHS256, []byte(secret), nil, claims)
		for _, r := range routes {
			got := check.Value(api.Send(t.Context(), a.Client, r.method, a.URL+concrete(r.path, "none"), token, nil))(t)
			if got.Status == http.StatusUnauthorized || got.Status == http.StatusForbidden {
				t.Errorf("%v: %s %s: %d", claims, r.method, r.path, got.Status)
			}
		}
	}
}

// TestNobodyTouchesAnothersOrder tries every protected route as everybody.
func TestNobodyTouchesAnothersOrder(t *testing.T) {
	t.Parallel()
	anywhere(t, checkNobodyTouchesAnothersOrder)
}

func checkNobodyTouchesAnothersOrder(t *testing.T, a shop) {
	t.Helper()
	voucher := a.onSale(t, 5)
	owner, other, admin := a.Token(t, a.user(1), model.RoleUser), a.Token(t, a.user(2), model.RoleUser), a.Admin(t)
	order := a.buys(t, voucher.ID, a.user(1))
	absent := a.Call(t, http.MethodGet, "/orders/"+model.OrderID("01aaaaaaaaaaaaaaaaaaaaaaaa", voucher.ID), other, nil)
	refused(t, absent, http.StatusNotFound, model.CodeNotFound)

	// The order's own routes, by who asks.
	for name, test := range map[string]struct {
		token  string
		status int
	}{
		"nobody": {"", http.StatusUnauthorized}, "owner": {owner, http.StatusOK},
		"other": {other, http.StatusNotFound}, "administrator": {admin, http.StatusNotFound},
	} {
		for _, wait := range []string{"", "?wait=1s"} {
			got := a.Call(t, http.MethodGet, "/orders/"+order.ID+wait, test.token, nil)
			if got.Status != test.status {
				t.Errorf("%s: %d %s", name, got.Status, got.Body)
			}
			if test.status == http.StatusNotFound && string(got.Body) != string(absent.Body) {
				t.Errorf("%s can tell that the order exists: %s", name, got.Body)
			}
		}
	}
	for _, query := range []string{"", "?voucher_id=" + voucher.ID, "?status=unpaid", "?user_id=" + a.user(1)} {
		for _, token := range []string{other, admin} {
			got := a.Call(t, http.MethodGet, "/orders"+query, token, nil)
			if page := remote.Decode[model.OrderPage](t, got); got.Status != http.StatusOK || len(page.Items) != 0 {
				t.Errorf("%s lists another's order: %s", query, got.Body)
			}
		}
	}

	// Every route and every method on it, by somebody else.
	doc := readDocument(t, a.app)
	for _, r := range doc.routes(func(r route) bool { return r.operation.protected() }) {
		isAdmins := strings.Contains(r.path, "/admin/")
		for _, id := range []string{order.ID, voucher.ID} {
			for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
				got := check.Value(api.Send(t.Context(), a.Client, method, a.URL+concrete(r.path, id), other, nil))(t)
				if isAdmins && method == r.method {
					refused(t, got, http.StatusForbidden, model.CodeForbidden)
				}
				if strings.Contains(string(got.Body), order.ID) || strings.Contains(string(got.Body), a.user(1)) {
					t.Errorf("%s %s tells of another's order: %s", method, r.path, got.Body)
				}
			}
		}
	}
	if now := remote.Decode[model.Order](t, a.Call(t, http.MethodGet, "/orders/"+order.ID, owner, nil)); now.Status != order.Status || now.UserID != a.user(1) {
		t.Errorf("the order became %+v", now)
	}

	// Ids are compared byte for byte.
	if page := remote.Decode[model.OrderPage](t, a.Call(t, http.MethodGet, "/orders", a.Token(t, strings.ToUpper(a.user(1)), model.RoleUser), nil)); len(page.Items) != 0 {
		t.Error("a user whose id differs in case sees the order")
	}
}
