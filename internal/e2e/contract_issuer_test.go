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
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"seckill/internal/workshop/api"
	"seckill/internal/workshop/check"
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
	buyer := signedBy(t, "shop", "s1", jwt.SigningMethodRS256, shop, nil)
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
	bought := a.Insist(t, http.MethodPost, "/vouchers/"+api.Decode[model.Voucher](t, created).ID+"/seckill", buyer, nil)
	if bought.Status != http.StatusCreated || api.Decode[model.Order](t, bought).UserID != "shop:1" {
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
