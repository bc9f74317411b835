package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// keySet is the JWK Set of public keys, by their ids.
func keySet(t *testing.T, public map[string]any) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for id, key := range public {
		set.Keys = append(set.Keys, jose.JSONWebKey{KeyID: id, Key: key, Use: "sig"})
	}
	text, err := json.Marshal(set)
	check.Must(t, err)
	return text
}

// signedBy signs for another issuer; changed claims win over those of a user.
func signedBy(t *testing.T, issuer, kid string, method jwt.SigningMethod, key any, changed jwt.MapClaims) string {
	t.Helper()
	claims := jwt.MapClaims{"iss": issuer, "role": "user", "sub": issuer + ":1"}
	maps.Copy(claims, changed)
	return forge(t, method, key, map[string]any{"kid": kid}, claims)
}

// TestOtherIssuers runs the program with three other issuers: a shop whose keys are on a web server, an office whose keys
// are in a file and which may name administrators, and one whose server is away. (How keys change while it runs, package
// token tells.)
func TestOtherIssuers(t *testing.T) {
	t.Parallel()
	shop := check.Value(rsa.GenerateKey(rand.Reader, 2048))(t)
	office := check.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	keys := keySet(t, map[string]any{"s1": shop.Public()})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = w.Write(keys)
	}))
	t.Cleanup(web.Close)
	file := filepath.Join(t.TempDir(), "office.json")
	check.Must(t, os.WriteFile(file, keySet(t, map[string]any{"o1": office.Public()}), 0o600))

	a := start(t, embeddedSettings(t).with(settings{"SECKILL_JWT_JWKS_URL": "shop=" + web.URL + ", office!=" + file + ", gone=" + web.URL + "/away"}))
	me := func(token string) api.Answer { return a.Call(t, http.MethodGet, "/auth/me", token, nil) }
	buyer := signedBy(t, "shop", "s1", jwt.SigningMethodRS256, shop, jwt.MapClaims{"sub": "auth0|ann@shop.example", "role": nil})
	admin := signedBy(t, "office", "o1", jwt.SigningMethodES256, office, jwt.MapClaims{"role": "admin"})

	// It has started and serves; what it cannot know yet, it asks to repeat.
	later := me(signedBy(t, "gone", "s1", jwt.SigningMethodRS256, shop, nil))
	refused(t, later, http.StatusServiceUnavailable, model.CodeUnavailable)
	readDocument(t, a).check(t, http.MethodGet, "/api/v1/auth/me", later) // with its Retry-After
	if got := me(a.Token(t, "ours", model.RoleUser)); got.Status != http.StatusOK {
		t.Errorf("our own token while an issuer is away: %d %s", got.Status, got.Body)
	}

	// The office's administrator puts a voucher up, and the shop's user buys it.
	created := a.Insist(t, http.MethodPost, "/admin/vouchers", admin, map[string]any{
		"title": "Tea", "price": 1, "face_value": 2, "stock": 1,
		"begin_at": time.Now().Add(-time.Hour).UTC(), "end_at": time.Now().Add(time.Hour).UTC(),
	})
	if created.Status != http.StatusCreated {
		t.Fatalf("the office's administrator: %d %s", created.Status, created.Body)
	}
	bought := a.Insist(t, http.MethodPost, "/vouchers/"+remote.Decode[model.Voucher](t, created).ID+"/seckill", buyer, nil)
	if bought.Status != http.StatusCreated || remote.Decode[model.Order](t, bought).UserID != "auth0|ann@shop.example" {
		t.Errorf("the shop's user: %d %s", bought.Status, bought.Body)
	}

	pem := x509.MarshalPKCS1PublicKey(&shop.PublicKey)
	for name, forged := range map[string]string{
		"administrator of the shop":  signedBy(t, "shop", "s1", jwt.SigningMethodRS256, shop, jwt.MapClaims{"role": "admin"}),
		"the office by the shop":     signedBy(t, "office", "s1", jwt.SigningMethodRS256, shop, jwt.MapClaims{"role": "admin"}),
		"the service by the office":  signedBy(t, "seckill", "o1", jwt.SigningMethodES256, office, nil),
		"another audience":           signedBy(t, "shop", "s1", jwt.SigningMethodRS256, shop, jwt.MapClaims{"aud": "shop"}),
		"a public key as the secret": signedBy(t, "shop", "s1", jwt.SigningMethodHS256, pem, nil),
		"our secret for the shop":    signedBy(t, "shop", "1", jwt.SigningMethodHS256, []byte(secret), nil),
		"an unknown issuer":          signedBy(t, "stranger", "s1", jwt.SigningMethodRS256, shop, nil),
		"alg none":                   signedBy(t, "shop", "s1", jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil),
	} {
		refused(t, me(forged), http.StatusUnauthorized, model.CodeUnauthenticated)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

// TestTokensOfAProvider: the options of a setting say where an issuer's tokens name the role and the audience, clocks may differ, and who is
// refused is told why, and the operator too.
func TestTokensOfAProvider(t *testing.T) {
	t.Parallel()
	key := check.Value(rsa.GenerateKey(rand.Reader, 2048))(t)
	file := filepath.Join(t.TempDir(), "keys.json")
	check.Must(t, os.WriteFile(file, keySet(t, map[string]any{"k": key.Public()}), 0o600))
	a := start(t, embeddedSettings(t).with(settings{"SECKILL_JWT_JWKS_URL": "shop!=" + file + ";aud=account;role=realm_access.roles"}))
	ask := func(path string, changed jwt.MapClaims) api.Answer {
		claims := jwt.MapClaims{"role": nil, "aud": "account", "realm_access": map[string]any{"roles": []string{"offline_access"}}}
		maps.Copy(claims, changed)
		return a.Call(t, http.MethodGet, path, signedBy(t, "shop", "k", jwt.SigningMethodRS256, key, claims), nil)
	}
	for name, claims := range map[string]jwt.MapClaims{
		"as it is": {}, "expired a moment ago": {"exp": time.Now().Add(-time.Second).Unix()}, "valid in a moment": {"nbf": time.Now().Add(time.Second).Unix()},
	} {
		if got := ask("/auth/me", claims); got.Status != http.StatusOK {
			t.Errorf("%s: %d %s", name, got.Status, got.Body)
		}
	}
	refused(t, ask("/admin/vouchers", nil), http.StatusForbidden, model.CodeForbidden)
	if got := ask("/admin/vouchers", jwt.MapClaims{"realm_access": map[string]any{"roles": []string{"x", "admin"}}}); got.Status != http.StatusOK {
		t.Errorf("the administrator: %d %s", got.Status, got.Body)
	}
	expired := refused(t, ask("/auth/me", jwt.MapClaims{"exp": 1}), http.StatusUnauthorized, model.CodeUnauthenticated)
	check.Equal(t, "the detail", expired.Detail, "The token is not accepted: its exp has passed.")
	stranger := refused(t, a.Call(t, http.MethodGet, "/auth/me", signedBy(t, "shop", "k", jwt.SigningMethodHS256, []byte("x"), jwt.MapClaims{"exp": 1}), nil),
		http.StatusUnauthorized, model.CodeUnauthenticated)
	check.Equal(t, "the detail", stranger.Detail, "A valid bearer token is needed.")
	for _, series := range []string{`issuer="shop",reason="exp"} 1`, `issuer="shop",reason="alg"} 1`, `issuer="seckill",reason="exp"} 0`, `issuer="unknown",reason="iss"} 0`} {
		if !strings.Contains(a.metrics(t), "seckill_tokens_refused_total{"+series) {
			t.Errorf("no %s", series)
		}
	}
}

// TestUsersOfIdentityProviders: an id as an identity provider makes it goes all the way an order goes, and stays what it is.
func TestUsersOfIdentityProviders(t *testing.T) {
	t.Parallel()
	anywhere(t, checkUsersOfIdentityProviders)
}

func checkUsersOfIdentityProviders(t *testing.T, a shop) {
	t.Helper()
	users := []string{"auth0|" + a.user(1), a.user(2) + "@shop.example", "@" + a.user(3) + "|", "|:@." + a.user(4)}
	voucher := a.onSale(t, len(users)+1)
	for _, user := range users {
		order := a.buys(t, voucher.ID, user)
		token := a.Token(t, user, model.RoleUser)
		again := refused(t, a.Insist(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", token, nil), http.StatusConflict, model.CodeAlreadyOrdered)
		mine := remote.Decode[model.OrderPage](t, a.Call(t, http.MethodGet, "/orders?voucher_id="+voucher.ID, token, nil))
		detail := remote.Decode[model.OrderDetail](t, a.Call(t, http.MethodGet, "/admin/orders/"+order.ID, a.Admin(t), nil))
		if again.OrderID != order.ID || len(mine.Items) != 1 || mine.Items[0].UserID != user || detail.UserID != user || detail.History[0].By != user {
			t.Errorf("%s: again %+v, mine %+v, the administrator's %+v", user, again, mine, detail)
		}
	}
	canceled := remote.Decode[model.OrderPage](t, a.Call(t, http.MethodGet, "/orders", a.Token(t, users[0], model.RoleUser), nil)).Items[0]
	if got := a.Insist(t, http.MethodPost, "/orders/"+canceled.ID+"/cancel", a.Token(t, users[0], model.RoleUser), nil); got.Status != http.StatusOK {
		t.Errorf("%s cancels: %d %s", users[0], got.Status, got.Body)
	}
	export := string(a.Call(t, http.MethodGet, "/admin/vouchers/"+voucher.ID+"/orders?format=csv", a.Admin(t), nil).Body)
	for _, user := range users {
		if !strings.Contains(export, user+",") {
			t.Errorf("%s is not in the export", user)
		}
	}
	a.quiet(t, voucher.ID)
	audit := remote.Decode[model.Audit](t, a.Call(t, http.MethodGet, "/admin/vouchers/"+voucher.ID+"/audit", a.Admin(t), nil))
	check.Equal(t, "live orders", audit.Database.LiveOrders, int64(len(users)-1))
	check.Equal(t, "balanced", audit.Balanced, true)
}
