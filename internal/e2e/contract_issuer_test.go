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
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

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

// TestOtherIssuers runs the program with two other issuers: a shop whose keys are
// on a web server that is away at the start, and an office whose keys are in a
// file and which may name administrators.
func TestOtherIssuers(t *testing.T) {
	t.Parallel()
	shop, err := rsa.GenerateKey(rand.Reader, 2048)
	check.Must(t, err)
	office, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.Must(t, err)
	next, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.Must(t, err)

	var published atomic.Pointer[[]byte] // nil: away
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if text := published.Load(); text != nil {
			_, _ = w.Write(*text)
			return
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(web.Close)
	file := filepath.Join(t.TempDir(), "office.json")
	place := func(text []byte) {
		check.Must(t, os.WriteFile(file+".new", text, 0o600))
		check.Must(t, os.Rename(file+".new", file))
	}
	place(keySet(t, map[string]any{"o1": office.Public()}))

	p := launch(t, embeddedSettings(t).with(settings{"SECKILL_JWT_JWKS_URL": "shop=" + web.URL + ", office!=" + file}))
	me := func(token string) answer { return p.call(t, http.MethodGet, "/auth/me", token, nil) }
	buyer := signedBy(t, "shop", "s1", jwt.SigningMethodRS256, shop, nil)
	admin := signedBy(t, "office", "o1", jwt.SigningMethodES256, office, jwt.MapClaims{"role": "admin"})

	// It has started and serves; what it cannot know yet, it asks to repeat.
	later := me(buyer)
	refused(t, later, http.StatusServiceUnavailable, model.CodeUnavailable)
	readDocument(t, p.app).check(t, http.MethodGet, "/api/v1/auth/me", later) // with its Retry-After
	if got := me(p.token(t, "ours", model.RoleUser)); got.status != http.StatusOK {
		t.Errorf("our own token while an issuer is away: %d %s", got.status, got.body)
	}

	// The office's administrator puts a voucher up, and the shop's user buys it.
	created := p.call(t, http.MethodPost, "/admin/vouchers", admin, map[string]any{
		"title": "Tea", "price": 1, "face_value": 2, "stock": 1,
		"begin_at": time.Now().Add(-time.Hour).UTC(), "end_at": time.Now().Add(time.Hour).UTC(),
	})
	if created.status != http.StatusCreated {
		t.Fatalf("the office's administrator: %d %s", created.status, created.body)
	}
	published.Store(new(keySet(t, map[string]any{"s1": shop.Public()})))
	until(t, 30*time.Second, "the shop's keys are read", func() bool { return me(buyer).status == http.StatusOK })
	bought := p.call(t, http.MethodPost, "/vouchers/"+decode[model.Voucher](t, created).ID+"/seckill", buyer, nil)
	if bought.status != http.StatusCreated || decode[model.Order](t, bought).UserID != "shop:1" {
		t.Errorf("the shop's user: %d %s", bought.status, bought.body)
	}

	pem := x509.MarshalPKCS1PublicKey(&shop.PublicKey)
	for name, forged := range map[string]string{
		"administrator of the shop":  signedBy(t, "shop", "s1", jwt.SigningMethodRS256, shop, jwt.MapClaims{"role": "admin"}),
		"the office by the shop":     signedBy(t, "office", "s1", jwt.SigningMethodRS256, shop, jwt.MapClaims{"role": "admin"}),
		"the service by the office":  signedBy(t, "seckill", "o1", jwt.SigningMethodES256, office, nil),
		"another audience":           signedBy(t, "shop", "s1", jwt.SigningMethodRS256, shop, jwt.MapClaims{"aud": "shop"}),
		"a public key as the secret": signedBy(t, "shop", "s1", jwt.SigningMethodHS256, pem, nil),
		"our secret for the shop":    signedBy(t, "shop", "1", jwt.SigningMethodHS256, []byte(secret), nil),
		"an unknown key":             signedBy(t, "shop", "s2", jwt.SigningMethodRS256, shop, nil),
		"an unknown issuer":          signedBy(t, "stranger", "s1", jwt.SigningMethodRS256, shop, nil),
		"alg none":                   signedBy(t, "shop", "s1", jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil),
	} {
		got := me(forged)
		refused(t, got, http.StatusUnauthorized, model.CodeUnauthenticated)
		if t.Failed() {
			t.Fatal(name)
		}
	}

	// The office changes its key: the old one is out, without a restart. The web
	// server is gone, and the shop's users stay in.
	published.Store(nil)
	place(keySet(t, map[string]any{"o2": next.Public()}))
	until(t, 30*time.Second, "the office's new key is read", func() bool {
		return me(signedBy(t, "office", "o2", jwt.SigningMethodES256, next, nil)).status == http.StatusOK
	})
	refused(t, me(admin), http.StatusUnauthorized, model.CodeUnauthenticated)
	if got := me(buyer); got.status != http.StatusOK {
		t.Errorf("the shop is away: %d %s", got.status, got.body)
	}
}
