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
	if contentType := got.Header.Get("Content-Type"); got.Status != status || contentType != "application/json" {
		t.Fatalf("%d %s %s, want %d", got.Status, contentType, got.Body, status)
	}
	return remote.Decode[map[string]any](t, got)
}

// members are the names of an object's members, sorted.
func members(o map[string]any) []string { return slices.Sorted(maps.Keys(o)) }

// instant reads a time that must be RFC 3339 in UTC.
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
	got := a.Insist(t, http.MethodPost, "/auth/register", "", map[string]string{"username": username, "password": rightPassword})
	check.Need(t, got.Status == http.StatusCreated, "register %s: %d %s", username, got.Status, got.Body)
}

// login is the answer to a login, once there is one for good: the machine may have much to hash.
func (a *app) login(t testing.TB, username, password string) api.Answer {
	t.Helper()
	return a.Insist(t, http.MethodPost, "/auth/login", "", map[string]string{"username": username, "password": password})
}

// session logs in and returns the token, and how long it is good for.
func (a *app) session(t testing.TB, username, password string) (token string, lasts time.Duration) {
	t.Helper()
	got := a.login(t, username, password)
	session := remote.Decode[struct {
		Token   string `json:"access_token"`
		Expires int    `json:"expires_in"`
	}](t, got)
	check.Need(t, got.Status == http.StatusOK, "login of %s: %d %s", username, got.Status, got.Body)
	return session.Token, time.Duration(session.Expires) * time.Second
}

// stayAway holds an answer to what a refusal for too many requests says, which is never more than 30 s.
func stayAway(t testing.TB, got api.Answer) {
	t.Helper()
	seconds, err := strconv.Atoi(got.Header.Get("Retry-After"))
	if got.Status != http.StatusTooManyRequests || got.Code() != model.CodeRateLimited || err != nil || seconds < 1 || seconds > 30 {
		t.Errorf("%d %s, Retry-After %q", got.Status, got.Body, got.Header.Get("Retry-After"))
	}
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	anywhere(t, checkAccounts)
}

func checkAccounts(t *testing.T, in shop) {
	t.Helper()
	a, alice := in.elsewhere(t), in.name("Alice.W_1-x")
	credentials := map[string]any{"username": alice, "password": rightPassword}
	registered := object(t, a.Insist(t, http.MethodPost, "/auth/register", "", credentials), http.StatusCreated)
	if !slices.Equal(members(registered), []string{"id", "role", "username"}) || registered["username"] != alice || registered["role"] != "user" {
		t.Errorf("%v", registered)
	}
	credentials["username"] = strings.ToLower(alice) // without regard to case
	session := object(t, a.Insist(t, http.MethodPost, "/auth/login", "", credentials), http.StatusOK)
	token, _ := session["access_token"].(string)
	lasts, _ := session["expires_in"].(float64)
	if !slices.Equal(members(session), []string{"access_token", "expires_in", "token_type"}) || session["token_type"] != "Bearer" || lasts < 60 {
		t.Errorf("%v", session)
	}
	me := object(t, a.Call(t, http.MethodGet, "/auth/me", token, nil), http.StatusOK)
	check.That(t, maps.Equal(me, registered), "me = %v, registered = %v", me, registered)
	// A buyer needs no account, and nobody becomes an administrator by asking.
	stranger := object(t, a.Call(t, http.MethodGet, "/auth/me", a.Token(t, "github:42", model.RoleUser), nil), http.StatusOK)
	check.That(t, stranger["id"] == "github:42" && stranger["role"] == "user" && stranger["username"] == nil,
		"%v", stranger)
	refused(t, a.Call(t, http.MethodGet, "/admin/vouchers", token, nil), http.StatusForbidden, model.CodeForbidden)
	credentials["role"] = "admin"
	refused(t, a.Call(t, http.MethodPost, "/auth/register", "", credentials), http.StatusUnprocessableEntity, model.CodeValidation)

	for _, wrong := range []string{"correct horse ", "Correct horse", "", "x", strings.Repeat("x", 5000)} {
		refused(t, in.elsewhere(t).login(t, alice, wrong), http.StatusUnauthorized, model.CodeUnauthenticated)
	}
	for _, nobody := range []string{"nobody", "", "Älice", "a b", strings.Repeat("x", 5000), alice + "\x00"} {
		refused(t, in.elsewhere(t).login(t, nobody, rightPassword), http.StatusUnauthorized, model.CodeUnauthenticated)
	}
	for body, location := range map[string]string{
		`{"username":"ab","password":"correct horse"}`:                              "body.username",
		`{"username":"` + strings.Repeat("a", 33) + `","password":"correct horse"}`: "body.username",
		`{"username":"a b c","password":"correct horse"}`:                           "body.username",
		`{"username":"Bób","password":"correct horse"}`:                             "body.username",
		`{"username":"shorty","password":"123456789"}`:                              "body.password",
		`{"username":"longy","password":"` + strings.Repeat("p", 129) + `"}`:        "body.password",
		`{"username":"shorty"}`:                                                     "body.password",
	} {
		p := refused(t, a.Call(t, http.MethodPost, "/auth/register", "", body), http.StatusUnprocessableEntity, model.CodeValidation)
		check.That(t, len(p.Errors) == 1 && p.Errors[0].Location == location, "%s: %v", body, p.Errors)
	}
}

// TestWrongPasswordsLockNobodyOut tries passwords of an account, and of none, from an address each: both addresses are
// made to wait in the same words. The account's owner, who comes from another one, does not notice.
func TestWrongPasswordsLockNobodyOut(t *testing.T) {
	t.Parallel()
	within(t, "sync on servers", func(t *testing.T, a shop) {
		t.Helper()
		alice, owner := a.name("alice"), a.elsewhere(t)
		owner.register(t, alice)
		check.Volley(2, func(n int) {
			attacker, tried := a.elsewhere(t), map[string]string{"username": []string{alice, a.name("nobody")}[n], "password": "wrong horse"}
			check.Eventually(t, "the attacker is made to wait", func() bool {
				got := attacker.Call(t, http.MethodPost, "/auth/login", "", tried)
				if got.Status != http.StatusUnauthorized {
					stayAway(t, got)
				}
				return got.Status == http.StatusTooManyRequests
			})
		})
		owner.session(t, alice, rightPassword)
		for _, outcome := range []string{"OK", "UNAUTHENTICATED", "RATE_LIMITED"} {
			if name := `seckill_account_attempts_total{action="login",outcome="` + outcome + `"}`; !strings.Contains(a.metrics(t), name) {
				t.Errorf("there is no metric %s", name)
			}
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

// TestForgedTokens tries every forgery on every route that needs a token. The routes come from the OpenAPI document, so
// that a new one is tried as well.
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
		check.That(t, slices.Contains(everybodys, r.path), "%s %s is open to everybody", r.method, r.path)
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
			check.That(t, got.Status == test.status, "%s: %d %s", name, got.Status, got.Body)
			check.That(t, test.status != http.StatusNotFound || string(got.Body) == string(absent.Body),
				"%s can tell that the order exists: %s", name, got.Body)
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
				check.That(t, !strings.Contains(string(got.Body), order.ID) && !strings.Contains(string(got.Body), a.user(1)),
					"%s %s tells of another's order: %s", method, r.path, got.Body)
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

// TestOtherIssuers runs the program with three other issuers: a shop whose keys are on a web server, an office whose
// keys are in a file and which may name administrators, and one whose server is away. (How keys change while it runs,
// package token tells.)
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
	check.Need(t, created.Status == http.StatusCreated, "the office's administrator: %d %s", created.Status, created.Body)
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

// TestTokensOfAProvider: the options of a setting say where an issuer's tokens name the role and the audience, clocks
// may differ, and who is refused is told why, and the operator too.
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
		check.That(t, strings.Contains(a.metrics(t), "seckill_tokens_refused_total{"+series), "no %s", series)
	}
}

// TestUsersOfIdentityProviders: an id as an identity provider makes it goes all the way an order goes, and stays what
// it is.
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
		check.That(t, strings.Contains(export, user+","), "%s is not in the export", user)
	}
	a.quiet(t, voucher.ID)
	audit := remote.Decode[model.Audit](t, a.Call(t, http.MethodGet, "/admin/vouchers/"+voucher.ID+"/audit", a.Admin(t), nil))
	check.Equal(t, "live orders", audit.Database.LiveOrders, int64(len(users)-1))
	check.Equal(t, "balanced", audit.Balanced, true)
}
