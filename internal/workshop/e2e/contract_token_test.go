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
	"slices"
	"strconv"
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

// object reads an answer as what is written in it, so that members a struct would default are seen to be there or not.
func object(t *testing.T, got api.Answer, status int) map[string]any {
	t.Helper()
	contentType := got.Header.Get("Content-Type")
	check.Need(t, got.Status == status && contentType == "application/json", "%d %s", got.Status, got.Body)
	return remote.Decode[map[string]any](t, got)
}

func instant(t *testing.T, o map[string]any, member string) time.Time {
	t.Helper()
	text, _ := o[member].(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	check.That(t, err == nil && strings.HasSuffix(text, "Z"), "%s = %q is no RFC 3339 time in UTC", member, text)
	return at
}

const rightPassword = "correct horse"

func (a *app) register(t testing.TB, username string) {
	t.Helper()
	got := a.does(t, "POST /auth/register", "", map[string]string{"username": username, "password": rightPassword})
	check.Need(t, got.Status == http.StatusCreated, "register %s: %d %s", username, got.Status, got.Body)
}

// login is the answer to a login, once there is one for good: the machine may have much to hash.
func (a *app) login(t testing.TB, username, password string) api.Answer {
	t.Helper()
	return a.does(t, "POST /auth/login", "", map[string]string{"username": username, "password": password})
}

func (a *app) session(t testing.TB, username, password string) (token string, lasts time.Duration) {
	t.Helper()
	got := a.login(t, username, password)
	check.Need(t, got.Status == http.StatusOK, "login of %s: %d %s", username, got.Status, got.Body)
	session := remote.Decode[struct {
		Token   string `json:"access_token"`
		Expires int    `json:"expires_in"`
	}](t, got)
	return session.Token, time.Duration(session.Expires) * time.Second
}

// stayAway holds an answer to what a refusal for too many requests says, which is never more than 30 s.
func stayAway(t testing.TB, got api.Answer) {
	t.Helper()
	seconds, err := strconv.Atoi(got.Header.Get("Retry-After"))
	check.That(t, got.Status == http.StatusTooManyRequests && got.Code() == model.CodeRateLimited && err == nil &&
		seconds >= 1 && seconds <= 30, "%d %s, Retry-After %q", got.Status, got.Body, got.Header.Get("Retry-After"))
}

func TestAccounts(t *testing.T) { t.Parallel(); anywhere(t, checkAccounts) }

func checkAccounts(t *testing.T, in shop) {
	a, alice := in.elsewhere(t), in.name("Alice.W_1-x")
	credentials := map[string]any{"username": alice, "password": rightPassword}
	registered := object(t, a.does(t, "POST /auth/register", "", credentials), http.StatusCreated)
	want := map[string]any{"id": registered["id"], "username": alice, "role": "user"}
	check.That(t, maps.Equal(registered, want), "%v", registered)
	credentials["username"] = strings.ToLower(alice) // without regard to case
	refused(t, a.does(t, "POST /auth/register", "", credentials), model.CodeConflict)
	session := object(t, a.does(t, "POST /auth/login", "", credentials), http.StatusOK)
	token, _ := session["access_token"].(string)
	lasts, _ := session["expires_in"].(float64)
	check.That(t, len(session) == 3 && session["token_type"] == "Bearer" && token != "" && lasts >= 60, "%v", session)
	me := func(token string) map[string]any {
		return object(t, a.once(t, "GET /auth/me", token, nil), http.StatusOK)
	}
	check.That(t, maps.Equal(me(token), registered), "me = %v, registered = %v", me(token), registered)
	// A buyer needs no account, and nobody becomes an administrator by asking.
	stranger := me(a.as(t, "github:42"))
	check.That(t, maps.Equal(stranger, map[string]any{"id": "github:42", "role": "user"}), "%v", stranger)
	refused(t, a.once(t, "GET /admin/vouchers", token, nil), model.CodeForbidden)
	credentials["role"] = "admin"
	refused(t, a.does(t, "POST /auth/register", "", credentials), model.CodeValidation)

	for _, wrong := range []string{"correct horse ", "Correct horse", ""} {
		refused(t, in.elsewhere(t).login(t, alice, wrong), model.CodeUnauthenticated)
	}
	refused(t, in.elsewhere(t).login(t, "nobody", rightPassword), model.CodeUnauthenticated)
	for body, location := range map[string]string{
		`"username":"ab","password":"correct horse"`:                              "username",
		`"username":"` + strings.Repeat("a", 33) + `","password":"correct horse"`: "username",
		`"username":"a b c","password":"correct horse"`:                           "username",
		`"username":"Bób","password":"correct horse"`:                             "username",
		`"username":"shorty","password":"123456789"`:                              "password",
		`"username":"longy","password":"` + strings.Repeat("p", 129) + `"`:        "password",
		`"username":"shorty"`:                                                     "password",
	} {
		invalid(t, a.once(t, "POST /auth/register", "", "{"+body+"}"), "body."+location)
	}
}

// TestWrongPasswordsLockNobodyOut: a guesser waits, alike for an account and for none; the owner elsewhere does not.
func TestWrongPasswordsLockNobodyOut(t *testing.T) {
	t.Parallel()
	within(t, "sync on servers", func(t *testing.T, a shop) {
		alice, owner := a.name("alice"), a.elsewhere(t)
		owner.register(t, alice)
		check.Volley(2, func(n int) {
			attacker := a.elsewhere(t)
			tried := map[string]string{"username": []string{alice, a.name("nobody")}[n], "password": "wrong horse"}
			check.Eventually(t, "the attacker is made to wait", func() bool {
				got := attacker.once(t, "POST /auth/login", "", tried)
				if got.Status != http.StatusUnauthorized {
					stayAway(t, got)
				}
				return got.Status == http.StatusTooManyRequests
			})
		})
		owner.session(t, alice, rightPassword)
		for _, outcome := range []string{"OK", "UNAUTHENTICATED", "RATE_LIMITED"} {
			name := `seckill_account_attempts_total{action="login",outcome="` + outcome + `"}`
			check.That(t, strings.Contains(a.metrics(t), name), "there is no metric %s", name)
		}
	})
}

// forge signs whatever claims with whatever key. Changed claims win over those of a good token; nil removes one.
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

// forgeries are tokens that must open nothing. (TestVerify of internal/token has every kind.)
func forgeries(t *testing.T) map[string]string {
	t.Helper()
	with := func(changed jwt.MapClaims) string {
		return forge(t, jwt.SigningMethodHS256, []byte(secret), nil, changed)
	}
	return map[string]string{
		"none at all": "",
		"no JWT":      "nonsense",
		"alg none":    forge(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil, nil),
		"another key": forge(t, jwt.SigningMethodHS256, []byte("another secret of 32 bytes or more"), nil, nil),
		"unknown kid": forge(t, jwt.SigningMethodHS256, []byte(secret), map[string]any{"kid": "2"}, nil),
		"expired":     with(jwt.MapClaims{"exp": time.Now().Add(-time.Minute).Unix()}),
		"no role":     with(jwt.MapClaims{"role": nil}),
	}
}

// TestForgedTokens tries every forgery on every protected route of the OpenAPI document, and so on new ones.
func TestForgedTokens(t *testing.T) { t.Parallel(); within(t, "sync embedded", checkForgedTokens) }

func checkForgedTokens(t *testing.T, a shop) {
	voucher, doc := a.onSale(t, 1), readDocument(t, a.app)
	everybodys := []string{
		"/livez", "/readyz", "/api/v1/docs", "/api/v1/openapi.json", "/api/v1/auth/register", "/api/v1/auth/login",
		"/api/v1/vouchers", "/api/v1/vouchers/{id}", "/api/v1/vouchers/{id}/draw", "/api/v1/vouchers/{id}/draw/entries",
		"/api/v1/vouchers/{id}/report", "/api/v1/vouchers/{id}/replay",
		"/problems/{code}", "/api/v1/webhooks/payments", // whose signature says whose it is
	}
	for _, r := range doc.routes(func(r route) bool { return !r.operation.protected() }) {
		check.That(t, slices.Contains(everybodys, r.path), "%s %s is open to everybody", r.method, r.path)
	}
	routes := doc.routes(func(r route) bool { return r.operation.protected() })
	for name, forged := range forgeries(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, r := range routes {
				got := check.Value(api.Send(t.Context(), a.Client, r.method, a.URL+concrete(r.path, voucher.ID), forged,
					nil))(t)
				refused(t, got, model.CodeUnauthenticated)
			}
		})
	}
	for _, claims := range []jwt.MapClaims{
		{},
		{"iat": time.Now().Add(time.Hour).Unix()}, // not enforced
		{"aud": []string{"other", "seckill"}},
		{"sub": strings.Repeat("a", 64)},
		{"sub": "github:42", "preferred_username": "octocat"},
		{"sub": "google-oauth2|1109"},
		{"sub": "ann@shop.example"},
	} {
		token := forge(t, jwt.SigningMethodHS256, []byte(secret), nil, claims)
		for _, r := range routes {
			got := check.Value(api.Send(t.Context(), a.Client, r.method, a.URL+concrete(r.path, "none"), token, nil))(t)
			check.That(t, got.Status != http.StatusUnauthorized && got.Status != http.StatusForbidden,
				"%v: %s %s: %d", claims, r.method, r.path, got.Status)
		}
	}
}

// TestNobodyTouchesAnothersOrder tries every protected route as everybody.
func TestNobodyTouchesAnothersOrder(t *testing.T) {
	t.Parallel()
	anywhere(t, checkNobodyTouchesAnothersOrder)
}

func checkNobodyTouchesAnothersOrder(t *testing.T, a shop) {
	voucher := a.onSale(t, 5)
	owner, other, admin := a.as(t, a.user(1)), a.as(t, a.user(2)), a.Admin(t)
	order := a.buys(t, voucher.ID, a.user(1))
	absent := a.once(t, "GET /orders/"+model.OrderID("01aaaaaaaaaaaaaaaaaaaaaaaa", voucher.ID), other, nil)
	refused(t, absent, model.CodeNotFound)

	for token, status := range map[string]int{"": 401, owner: 200, other: 404, admin: 404} {
		for _, wait := range []string{"", "?wait=1s"} {
			got := a.once(t, "GET /orders/"+order.ID+wait, token, nil)
			check.That(t, got.Status == status &&
				(status != http.StatusNotFound || string(got.Body) == string(absent.Body)),
				"who should hear %d can tell that the order exists: %d %s", status, got.Status, got.Body)
		}
	}
	capitals := a.as(t, strings.ToUpper(a.user(1))) // ids are compared byte for byte
	for _, query := range []string{"", "?voucher_id=" + voucher.ID, "?status=unpaid", "?user_id=" + a.user(1)} {
		for _, token := range []string{other, admin, capitals} {
			got := a.once(t, "GET /orders"+query, token, nil)
			check.Equal(t, query, strings.TrimSpace(string(got.Body)), `{"items":[]}`)
		}
	}

	doc := readDocument(t, a.app)
	for _, r := range doc.routes(func(r route) bool { return r.operation.protected() }) {
		for _, id := range []string{order.ID, voucher.ID} {
			for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
				got := check.Value(api.Send(t.Context(), a.Client, method, a.URL+concrete(r.path, id), other, nil))(t)
				if strings.Contains(r.path, "/admin/") && method == r.method {
					refused(t, got, model.CodeForbidden)
				}
				said := string(got.Body)
				check.That(t, !strings.Contains(said, order.ID) && !strings.Contains(said, a.user(1)),
					"%s %s tells of another's order: %s", method, r.path, said)
			}
		}
	}
	now := a.now(t, order)
	check.That(t, now.Status == order.Status && now.UserID == a.user(1), "the order became %+v", now)
}

func keySet(t *testing.T, public map[string]any) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for id, key := range public {
		set.Keys = append(set.Keys, jose.JSONWebKey{KeyID: id, Key: key, Use: "sig"})
	}
	return check.Value(json.Marshal(set))(t)
}

func signedBy(t *testing.T, issuer, kid string, method jwt.SigningMethod, key any, changed jwt.MapClaims) string {
	t.Helper()
	claims := jwt.MapClaims{"iss": issuer, "role": "user", "sub": issuer + ":1"}
	maps.Copy(claims, changed)
	return forge(t, method, key, map[string]any{"kid": kid}, claims)
}

func keyFile(t *testing.T, kid string, public any) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.json")
	check.Must(t, os.WriteFile(file, keySet(t, map[string]any{kid: public}), 0o600))
	return file
}

// TestOtherIssuers has three: a shop with keys on a web server, an office with keys in a file, which may name
// administrators and puts the role elsewhere, and one that is away. (Package token has their changes.)
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
	a := start(t, embeddedSettings(t).with(settings{
		"SECKILL_JWT_JWKS_URL": "shop=" + web.URL + ", gone=" + web.URL + "/away, office!=" +
			keyFile(t, "o1", office.Public()) + ";aud=desk;role=realm.roles",
	}))
	me := func(token string) api.Answer { return a.once(t, "GET /auth/me", token, nil) }
	shops := func(issuer string, changed jwt.MapClaims) string {
		return signedBy(t, issuer, "s1", jwt.SigningMethodRS256, shop, changed)
	}

	// It has started and serves; what it cannot know yet, it asks to repeat.
	later := me(shops("gone", nil))
	refused(t, later, model.CodeUnavailable)
	readDocument(t, a).check(t, http.MethodGet, "/api/v1/auth/me", later) // with its Retry-After
	check.Equal(t, "our own token while an issuer is away", me(a.as(t, "ours")).Status, http.StatusOK)

	// The office's administrator puts a voucher up, and the shop's user buys it.
	clerk := jwt.MapClaims{"role": nil, "aud": "desk", "realm": map[string]any{"roles": []string{"x", "admin"}}}
	admin := signedBy(t, "office", "o1", jwt.SigningMethodES256, office, clerk)
	made := object(t, a.does(t, "POST /admin/vouchers", admin, map[string]any{
		"title": "Tea", "price": 1, "face_value": 2, "stock": 1, "begin_at": "2020-01-01T00:00:00Z", "end_at": "2099-01-01T00:00:00Z",
	}), http.StatusCreated)
	id, _ := made["id"].(string)
	buyer := shops("shop", jwt.MapClaims{"sub": "auth0|ann@shop.example", "role": nil})
	bought := object(t, a.does(t, "POST /vouchers/"+id+"/seckill", buyer, nil), http.StatusCreated)
	check.Equal(t, "the shop's user", bought["user_id"], any("auth0|ann@shop.example"))

	pem := x509.MarshalPKCS1PublicKey(&shop.PublicKey)
	for name, forged := range map[string]string{
		"administrator of the shop":  shops("shop", jwt.MapClaims{"role": "admin"}),
		"the office by the shop":     shops("office", clerk),
		"the service by the office":  signedBy(t, "seckill", "o1", jwt.SigningMethodES256, office, nil),
		"another audience":           shops("shop", jwt.MapClaims{"aud": "shop"}),
		"a public key as the secret": signedBy(t, "shop", "s1", jwt.SigningMethodHS256, pem, nil),
		"our secret for the shop":    signedBy(t, "shop", "1", jwt.SigningMethodHS256, []byte(secret), nil),
		"an unknown issuer":          shops("stranger", nil),
		"alg none":                   signedBy(t, "shop", "s1", jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil),
	} {
		refused(t, me(forged), model.CodeUnauthenticated)
		check.Need(t, !t.Failed(), "%s", name)
	}
}
