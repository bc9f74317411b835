package token_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"seckill/config"
	"seckill/internal/poll"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestKeysInAFile replaces the keys of a running authority, on a clock of its own.
func TestKeysInAFile(t *testing.T) {
	t.Parallel()
	first, second := newSigner(t, "first", jwt.SigningMethodEdDSA), newSigner(t, "second", jwt.SigningMethodEdDSA)
	file := filepath.Join(t.TempDir(), "keys.json")
	synctest.Test(t, func(t *testing.T) {
		a := authority(t, token.Trust(slog.New(slog.DiscardHandler), token.Issuer{Name: "shop", Keys: file}))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.Run(ctx)
		}()
		defer func() {
			stop()
			<-ended
		}()
		synctest.Wait() // the file is not there yet
		unknownYet(t, a, first.sign(t, "shop", nil))

		write(t, file, document(t, first))
		poll.Pause(ctx, 10*time.Second) // nobody asks: the authority looks by itself
		synctest.Wait()
		write(t, file, "")
		accepted(t, a, first.sign(t, "shop", nil), of("shop"))

		write(t, file, document(t, second))
		poll.Pause(ctx, 9*time.Second)
		accepted(t, a, first.sign(t, "shop", nil), of("shop"))
		poll.Pause(ctx, 2*time.Second)
		synctest.Wait()
		invalid(t, a, first.sign(t, "shop", nil))
		accepted(t, a, second.sign(t, "shop", nil), of("shop"))
	})
}

func write(t *testing.T, file, text string) {
	t.Helper()
	check.Must(t, os.WriteFile(file+".new", []byte(text), 0o600))
	check.Must(t, os.Rename(file+".new", file))
}

// TestASourceThatIsAwayIsTriedLessAndLess reads the log on a clock of its own.
func TestASourceThatIsAwayIsTriedLessAndLess(t *testing.T) {
	t.Parallel()
	var tried []time.Duration
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		log := onWrite(func() { tried = append(tried, time.Since(began)/time.Second) })
		a := authority(t, token.Trust(slog.New(slog.NewTextHandler(log, nil)),
			token.Issuer{Name: "shop", Keys: "http://127.0.0.1:1/"}))
		ctx, stop := context.WithTimeout(t.Context(), 1000*time.Second)
		defer stop()
		a.Run(ctx)
	})
	want := []time.Duration{0, 10, 30, 70, 150, 310, 610, 910}
	check.That(t, slices.Equal(tried, want), "tried after so many seconds: %v, want %v", tried, want)
}

type onWrite func()

func (f onWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

func TestKeysAreReadOnlyWhereNobodyChangesThem(t *testing.T) {
	t.Parallel()
	for place, allowed := range map[string]bool{
		"https://shop.example/keys": true, "http://127.0.0.1:8080/keys": true, "http://localhost/keys": true, "http://[::1]/keys": true,
		"/run/secrets/keys.json": true, "keys.json": true,
		"http://shop.example/keys": false, "http://127.0.0.1.shop.example/": false, "http://10.0.0.1/": false,
		"ftp://shop.example/": false, "https:///keys": false, "http://%zz/": false,
	} {
		_, err := token.New([]token.Key{{ID: "1", Secret: secret}}, "seckill", "seckill",
			token.Trust(slog.New(slog.DiscardHandler), token.Issuer{Name: "shop", Keys: place}))
		check.That(t, (err == nil) == allowed, "%s: %v", place, err)
	}
	for _, name := range []string{"", "seckill"} {
		_, err := token.New([]token.Key{{ID: "1", Secret: secret}}, "seckill", "seckill",
			token.Trust(slog.New(slog.DiscardHandler), token.Issuer{Name: name, Keys: "file"}))
		check.That(t, err != nil, "an issuer is named %q", name)
	}
}

func TestRedirectsOfKeys(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k", jwt.SigningMethodEdDSA)
	p := newPublisher(t, s)
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for from, to := range map[string]string{
		"/3": "/2", "/2": "/1", "/1": p.URL, "/4": "/3", "/circle": "/circle", "/plain": "http://shop.example/", "/file": "file:///etc/passwd",
	} {
		mux.Handle(from, http.RedirectHandler(to, http.StatusFound))
	}
	for path, allowed := range map[string]bool{
		"/1": true, "/3": true, "/4": false, "/circle": false, "/plain": false, "/file": false, "/absent": false,
	} {
		a := trusting(t, newClock(), token.Issuer{Name: "shop", Keys: server.URL + path})
		if allowed {
			accepted(t, a, s.sign(t, "shop", nil), of("shop"))
		} else {
			unknownYet(t, a, s.sign(t, "shop", nil))
		}
	}
}

func TestKeysInNoRegularFile(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	check.Must(t, syscall.Mkfifo(pipe, 0o600))
	for _, file := range []string{pipe, filepath.Dir(pipe), pipe + ".absent"} {
		a := trusting(t, newClock(), token.Issuer{Name: "shop", Keys: file})
		unknownYet(t, a, newSigner(t, "k", jwt.SigningMethodEdDSA).sign(t, "shop", nil))
	}
}

// TestKeysThatAreNotUsed publishes keys that must verify nothing beside a good one: only the good one is used.
func TestKeysThatAreNotUsed(t *testing.T) {
	t.Parallel()
	rs, es, ed := newSigner(t, "r", jwt.SigningMethodRS256), newSigner(t, "e", jwt.SigningMethodES256),
		newSigner(t, "d", jwt.SigningMethodEdDSA)
	good := newSigner(t, "good", jwt.SigningMethodEdDSA)
	small := check.Value(rsa.GenerateKey(rand.Reader, 1024))(t)
	p384 := check.Value(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))(t)
	edited := func(s signer, edit func(*jose.JSONWebKey)) string {
		jwk := s.jwk()
		edit(&jwk)
		text := check.Value(json.Marshal(jwk))(t)
		return string(text)
	}
	added := func(s signer, member string) string {
		return "{" + member + "," + edited(s, func(*jose.JSONWebKey) {})[1:]
	}
	unchanged := edited(rs, func(*jose.JSONWebKey) {})
	for name, test := range map[string]struct {
		jwk   string
		token string
		used  bool
	}{
		"as it should be":             {unchanged, rs.sign(t, "shop", nil), true},
		"no use and no alg":           {edited(rs, func(k *jose.JSONWebKey) { k.Use, k.Algorithm = "", "" }), rs.sign(t, "shop", nil), true},
		"for verification":            {added(es, `"key_ops":["verify"]`), es.sign(t, "shop", nil), true},
		"unknown member":              {added(es, `"since":{"year":[1]}`), es.sign(t, "shop", nil), true},
		"a bad certificate":           {added(rs, `"x5c":["`+negativeSerial(t, rs)+`"]`), rs.sign(t, "shop", nil), true},
		"bad thumbprints":             {added(es, `"x5t":1,"x5t#S256":"?","x5u":":"`), es.sign(t, "shop", nil), true},
		"the name of RFC 9864":        {edited(ed, func(k *jose.JSONWebKey) { k.Algorithm = "Ed25519" }), ed.sign(t, "shop", nil), true},
		"the token has that name":     {edited(ed, func(*jose.JSONWebKey) {}), signRaw(t, ed.method, ed.private, `{"alg":"Ed25519","kid":"d"}`, claimsOfShop()), true},
		"a nameless one of two":       {edited(ed, func(k *jose.JSONWebKey) { k.KeyID = "" }), forge(t, ed.method, ed.private, members{"kid": nil}, members{"iss": "shop"}), false},
		"for encryption":              {edited(rs, func(k *jose.JSONWebKey) { k.Use = "enc" }), rs.sign(t, "shop", nil), false},
		"for other operations":        {added(es, `"key_ops":["deriveKey"]`), es.sign(t, "shop", nil), false},
		"for no operation":            {added(es, `"key_ops":[]`), es.sign(t, "shop", nil), false},
		"another algorithm":           {edited(rs, func(k *jose.JSONWebKey) { k.Algorithm = "RS512" }), rs.sign(t, "shop", nil), false},
		"encryption by its algorithm": {edited(rs, func(k *jose.JSONWebKey) { k.Algorithm = "RSA-OAEP" }), rs.sign(t, "shop", nil), false},
		"no id":                       {edited(ed, func(k *jose.JSONWebKey) { k.KeyID = "" }), ed.sign(t, "shop", members{}), false},
		"two ids":                     {added(ed, `"kid":"d"`), ed.sign(t, "shop", nil), false},
		"short":                       {edited(rs, func(k *jose.JSONWebKey) { k.Key = small.Public() }), forge(t, rs.method, small, members{"kid": "r"}, members{"iss": "shop"}), false},
		"another curve": {
			edited(es, func(k *jose.JSONWebKey) { k.Key, k.Algorithm = p384.Public(), "ES256" }),
			forge(t, jwt.SigningMethodES384, p384, members{"kid": "e"}, members{"iss": "shop"}), false,
		},
		"private":            {edited(rs, func(k *jose.JSONWebKey) { k.Key = rs.private }), rs.sign(t, "shop", nil), false},
		"a secret":           {edited(rs, func(k *jose.JSONWebKey) { k.Key, k.Algorithm = []byte(other), "HS256" }), forge(t, jwt.SigningMethodHS256, []byte(other), members{"kid": "r"}, members{"iss": "shop"}), false},
		"of an unknown kind": {`{"kty":"XYZ","kid":"r"}`, rs.sign(t, "shop", nil), false},
		"no object":          {`"r"`, rs.sign(t, "shop", nil), false},
		"cut":                {strings.Replace(unchanged, `"e":"AQAB"`, `"e":""`, 1), rs.sign(t, "shop", nil), false},
		"the id of another":  {edited(signer{"good", rs.method, rs.private}, func(*jose.JSONWebKey) {}), signer{"good", rs.method, rs.private}.sign(t, "shop", nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "keys.json")
			write(t, file, `{"keys":[`+edited(good, func(*jose.JSONWebKey) {})+","+test.jwk+"]}")
			c := newClock()
			a := trusting(t, c, token.Issuer{Name: "shop", Keys: file})
			accepted(t, a, good.sign(t, "shop", nil), of("shop"))
			if test.used {
				accepted(t, a, test.token, of("shop"))
			} else {
				c.advance(10 * time.Second)
				invalid(t, a, test.token)
			}
		})
	}
}

// negativeSerial is a certificate with the key of a signer that package x509 refuses to parse, as some issuers publish.
func negativeSerial(t *testing.T, s signer) string {
	t.Helper()
	of := x509.Certificate{SerialNumber: big.NewInt(1)}
	der := check.Value(x509.CreateCertificate(rand.Reader, &of, &of, s.private.Public(), s.private))(t)
	der = bytes.Replace(der, []byte{2, 1, 2, 0x02, 1, 1}, []byte{2, 1, 2, 0x02, 1, 0x81}, 1)
	if _, err := x509.ParseCertificate(der); err == nil {
		t.Fatal("package x509 takes the certificate")
	}
	return base64.StdEncoding.EncodeToString(der)
}

func claimsOfShop() string {
	return `{"sub":"1","iss":"shop","aud":"seckill","exp":` + strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10) + "}"
}

// TestTheOnlyKeyNeedsNoName: an issuer's only key needs no id, nor do its tokens. The set may begin with a BOM.
func TestTheOnlyKeyNeedsNoName(t *testing.T) {
	t.Parallel()
	only, c := newSigner(t, "", jwt.SigningMethodES256), newClock()
	p := newPublisher(t, only)
	text := "\ufeff" + *p.document.Load()
	p.document.Store(&text)
	a := trusting(t, c, token.Issuer{Name: "shop", Keys: p.URL})
	nameless := func(s signer) string {
		return forge(t, s.method, s.private, members{"kid": nil}, members{"iss": "shop"})
	}
	accepted(t, a, nameless(only), of("shop"))
	invalid(t, a, nameless(newSigner(t, "", jwt.SigningMethodES256)))
	p.publish(t, only, newSigner(t, "", jwt.SigningMethodES256), newSigner(t, "x", jwt.SigningMethodES256))
	c.advance(10 * time.Second)
	invalid(t, a, newSigner(t, "y", jwt.SigningMethodES256).sign(t, "shop", nil)) // has them read
	invalid(t, a, nameless(only))
}

// TestKeysOfTheStandard reads the set that RFC 7517, appendix A.1, prints.
func TestKeysOfTheStandard(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.json")
	write(t, file, `{"keys":[
		{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
		 "y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM","use":"enc","kid":"1"},
		{"kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
		 "e":"AQAB","alg":"RS256","kid":"2011-04-29"}]}`)
	a, read := authorityLogging(t, token.Issuer{Name: "shop", Keys: file})
	invalid(t, a, newSigner(t, "2011-04-29", jwt.SigningMethodRS256).sign(t, "shop", nil))
	if log := read(); !strings.Contains(log, "kids=[2011-04-29]") || !strings.Contains(log, `kid \"1\"`) || !strings.Contains(log, "not for signatures") {
		t.Errorf("the log says\n%s", log)
	}
}

func authorityLogging(t *testing.T, issuer token.Issuer) (*token.Authority, func() string) {
	t.Helper()
	var log lockedBuffer
	return authority(t, token.Trust(slog.New(slog.NewTextHandler(&log, nil)), issuer)), log.String
}

type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func settingOf(t *testing.T, provider string) token.Issuer {
	t.Helper()
	page := string(check.Value(os.ReadFile("../../deployments/identity-providers.md"))(t))
	_, section, found := strings.Cut(page, "\n## "+provider+"\n")
	setting := regexp.MustCompile(`(?m)^(SECKILL_JWT_JWKS_URL)='(.*)'$`).FindStringSubmatch(section)
	check.Need(t, found && setting != nil, "the page has no setting for %s", provider)
	c := check.Value(config.Load([]string{setting[1] + "=" + setting[2]}))(t)
	return c.JWTIssuers[0]
}

// TestTokensOfIdentityProviders tries the page's settings on such claims: EXP, NOW are times, USER, ADMIN roles.
func TestTokensOfIdentityProviders(t *testing.T) {
	t.Parallel()
	for provider, test := range map[string]struct {
		claims string
		roles  [2]string // without and with the administrator's
		want   token.Claims
		others []string // what stands for another shop, and its replacement
	}{
		"Keycloak": {
			`{"exp":EXP,"iat":NOW,"jti":"onrtac:5b1f","iss":"https://id.example/realms/shop","aud":"account","sub":"f3a0e8d2-5c1e-4c0a-9d6e-0d1c5a4f7b11","typ":"Bearer",
			"azp":"shop-web","sid":"9b0e","acr":"1","allowed-origins":["https://shop.example"],"realm_access":{"roles":ROLES},
			"resource_access":{"account":{"roles":["manage-account","view-profile"]}},"scope":"openid email profile","email_verified":true,"name":"Ann Lee",
			"groups":["/gold"],"preferred_username":"ann@shop.example","given_name":"Ann","family_name":"Lee","email":"ann@shop.example"}`,
			[2]string{`["default-roles-shop","offline_access","uma_authorization"]`, `["offline_access","admin"]`},
			token.Claims{
				Subject: "f3a0e8d2-5c1e-4c0a-9d6e-0d1c5a4f7b11", Username: "ann@shop.example",
				Groups: []string{"/gold", "gold"},
			},
			[]string{`"aud":"account"`, `"aud":["broker","realm-management"]`},
		},
		"Auth0": {
			`{"https://shop.example/roles":ROLES,"https://shop.example/groups":["gold","early"],"iss":"https://shop.eu.auth0.com/","sub":"auth0|64b7f0c2a1e9d3f0c8a1b2c3",
			"aud":["https://api.shop.example","https://shop.eu.auth0.com/userinfo"],"iat":NOW,"exp":EXP,"scope":"openid profile email","azp":"k2Vq9","permissions":["read:orders"]}`,
			[2]string{`[]`, `["admin"]`},
			token.Claims{Subject: "auth0|64b7f0c2a1e9d3f0c8a1b2c3", Groups: []string{"gold", "early"}},
			[]string{`"https://api.shop.example"`, `"https://api.other.example"`},
		},
		"Entra": {
			`{"aud":"6e74172b-be56-4843-9ff4-e66a39bb12e3","iss":"https://login.microsoftonline.com/72f988bf-86f1-41af-91ab-2d7cd011db47/v2.0","iat":NOW,"nbf":NOW,"exp":EXP,
			"aio":"AXQAi/8IAAAA","azp":"6e74172b-be56-4843-9ff4-e66a39bb12e3","azpacr":"0","groups":["0e129f8a-3c1f-4d0b-9f0e-1a2b3c4d5e6f"],"name":"Ann Lee",
			"oid":"690222be-ff1a-4d56-abd1-7e4f7d38e474","preferred_username":"ann@shop.example","rh":"I","roles":ROLES,"scp":"access_as_user",
			"sub":"HKZpfaHyWadeOouYlitjrI-KffTm222X5rrV3xDqfKQ","tid":"72f988bf-86f1-41af-91ab-2d7cd011db47","uti":"fqiBqXLPj0eQa82S-IYFAA","ver":"2.0"}`,
			[2]string{`["Buyer"]`, `["Buyer","admin"]`},
			token.Claims{
				Subject: "HKZpfaHyWadeOouYlitjrI-KffTm222X5rrV3xDqfKQ", Username: "ann@shop.example",
				Groups: []string{"0e129f8a-3c1f-4d0b-9f0e-1a2b3c4d5e6f"},
			},
			[]string{`"aud":"6e74172b`, `"aud":"7e74172b`},
		},
		"Cognito": {
			`{"sub":"aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee","device_key":"aaaa","cognito:groups":ROLES,"iss":"https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_A1b2C3d4E",
			"version":2,"client_id":"57cbishk4j24pabc1234567890","origin_jti":"aaaa","event_id":"bbbb","token_use":"access","scope":"phone openid profile aws.cognito.signin.user.admin",
			"auth_time":NOW,"exp":EXP,"iat":NOW,"jti":"cccc","username":"ann"}`,
			[2]string{`["gold"]`, `["gold","admin"]`},
			token.Claims{Subject: "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", Groups: []string{"gold"}},
			[]string{`"client_id":"57`, `"client_id":"58`},
		},
		"Firebase": {
			`{"role":ROLES,"name":"Ann Lee","picture":"https://lh3.example/a","iss":"https://securetoken.google.com/shop-1234","aud":"shop-1234","auth_time":NOW,
			"user_id":"rYx2Yb3pQpWm0u1vT4sK5nL6oJ72","sub":"rYx2Yb3pQpWm0u1vT4sK5nL6oJ72","iat":NOW,"exp":EXP,"email":"ann@shop.example","email_verified":true,
			"firebase":{"identities":{"google.com":["1109"],"email":["ann@shop.example"]},"sign_in_provider":"google.com"}}`,
			[2]string{`null`, `"admin"`},
			token.Claims{Subject: "rYx2Yb3pQpWm0u1vT4sK5nL6oJ72"},
			[]string{`"aud":"shop-1234"`, `"aud":"shop-1235"`},
		},
	} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			setting := settingOf(t, provider)
			s := newSigner(t, "k", jwt.SigningMethodRS256)
			setting.Keys = filepath.Join(t.TempDir(), "keys.json")
			write(t, setting.Keys, document(t, s))
			modest := setting
			modest.Admins = false
			trust := func(issuer token.Issuer) *token.Authority {
				return authority(t, token.Trust(slog.New(slog.DiscardHandler), issuer))
			}
			signed := func(claims, roles string) string {
				now := time.Now()
				claims = strings.NewReplacer("ROLES", roles, "NOW", strconv.FormatInt(now.Unix(), 10), "EXP",
					strconv.FormatInt(now.Add(time.Hour).Unix(), 10)).Replace(claims)
				return signRaw(t, s.method, s.private, `{"alg":"RS256","kid":"k","typ":"JWT"}`, claims)
			}
			test.want.Issuer, test.want.Role = setting.Name, model.RoleUser
			accepted(t, trust(setting), signed(test.claims, test.roles[0]), test.want)
			accepted(t, trust(modest), signed(test.claims, test.roles[0]), test.want)
			invalid(t, trust(modest), signed(test.claims, test.roles[1]))
			invalid(t, trust(modest), signed(strings.Replace(test.claims, test.others[0], test.others[1], 1),
				test.roles[0]))
			got, err := trust(setting).Verify(t.Context(), signed(test.claims, test.roles[1]))
			check.That(t, err == nil && got.Role == model.RoleAdmin, "the administrator is %+v, %v", got, err)
		})
	}
}

// TestTokensOfOtherKinds: with the same keys an issuer signs tokens that are no proof of who calls.
func TestTokensOfOtherKinds(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k", jwt.SigningMethodEdDSA)
	a := trusting(t, newClock(), token.Issuer{Name: "shop", Keys: newPublisher(t, s).URL})
	for _, good := range []struct{ header, claims members }{
		{nil, nil},
		{members{"typ": nil}, nil},
		{members{"typ": "jwt"}, nil},
		{members{"typ": "at+jwt"}, members{"typ": "Bearer"}},
		{members{"typ": "application/AT+JWT"}, members{"typ": "at+jwt"}},
		{nil, members{"typ": "JWT", "events": nil}},
	} {
		accepted(t, a, forge(t, s.method, s.private, with(good.header, members{"kid": "k"}),
			with(good.claims, members{"iss": "shop"})), of("shop"))
	}
	for _, header := range []any{"logout+jwt", "secevent+jwt", "dpop+jwt", "application/logout+jwt", "refresh+jwt", "JOSE", "x"} {
		refusedAs(t, a, token.WrongType, forge(t, s.method, s.private, members{"kid": "k", "typ": header},
			members{"iss": "shop"}))
		// The same holds for our own tokens.
		refusedAs(t, a, token.WrongType, forge(t, jwt.SigningMethodHS256, []byte(secret), members{"typ": header}, nil))
	}
	for _, claims := range []members{
		{"typ": "Refresh"},
		{"typ": "Offline"},
		{"typ": "ID"},
		{"typ": "Logout"},
		{"typ": "refresh"},
		{"typ": []string{"Bearer"}},
		{"events": members{"http://schemas.openid.net/event/backchannel-logout": members{}}},
	} {
		refusedAs(t, a, token.WrongType, s.sign(t, "shop", claims))
	}
}

func with(some, more members) members {
	all := maps.Clone(more)
	maps.Copy(all, some)
	return all
}

// refusedAs refuses a token for one reason, which its bearer is told.
func refusedAs(t *testing.T, a *token.Authority, why token.Reason, signed string) {
	t.Helper()
	_, err := a.Verify(t.Context(), signed)
	invalid, ok := errors.AsType[*token.InvalidError](err)
	check.That(t, ok && invalid.Reason == why && invalid.Detail != "", "Verify = %v, want %s", err, why)
}

// TestWhereOthersSayThings: an option's path leads to a text or a list. Anything else there refuses no token.
func TestWhereOthersSayThings(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k", jwt.SigningMethodEdDSA)
	keys := newPublisher(t, s).URL
	for _, test := range []struct {
		role, groups string
		claims       string
		admin        bool
		in           []string
	}{
		{"", "", `"role":"admin","groups":["a"]`, true, []string{"a"}},
		{"", "", `"role":["user","admin"],"groups":"a b"`, true, []string{"a b"}},
		{"", "", `"role":"not admin"`, false, nil},
		{"", "", `"role":{"admin":true},"groups":{"a":1}`, false, nil},
		{"", "", `"role":null,"groups":[1,"a",null,["b"]]`, false, []string{"a"}},
		{"", "", `"groups":["/gold","gold","/shop/early","//x"]`, false, []string{"/gold", "gold", "/shop/early", "//x", "shop/early", "/x"}},
		{"scope", "", `"scope":"openid admin","role":"user"`, true, nil},
		{"a.scope", "scp", `"a":{"scope":"x  admin"},"scp":"b c"`, true, []string{"b", "c"}},
		{"scope", "", `"scope":"aws.cognito.signin.user.admin"`, false, nil},
		{"a.b.c", "", `"a":{"b":{"c":["admin"]}}`, true, nil},
		{"a.b.c", "", `"a.b":{"c":["admin"]},"a":{"b":{"c":["x"]}}`, true, nil},
		{"a.b.c", "", `"a.b.c":"x","a":{"b":{"c":"admin"}}`, false, nil},
		{"a.b.c", "", `"a":[{"b":{"c":"admin"}}]`, false, nil},
		{"a.b.c", "", `"a":{"b":"admin"}`, false, nil},
		{"realm_access.roles", "", `"role":"admin"`, false, nil},
	} {
		a := trusting(t, newClock(), token.Issuer{
			Name: "shop", Keys: keys, Admins: true, Role: test.role,
			Groups: test.groups,
		})
		signed := signRaw(t, s.method, s.private, `{"alg":"EdDSA","kid":"k"}`,
			`{"sub":"1","iss":"shop","aud":"seckill","exp":`+
				strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)+","+test.claims+"}")
		want := of("shop")
		if want.Groups = test.in; test.admin {
			want.Role, want.Level = model.RoleAdmin, model.LevelAdmin
		}
		if got, err := a.Verify(t.Context(), signed); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("role=%s;groups=%s of {%s}: %+v, %v", test.role, test.groups, test.claims, got, err)
		}
	}
	a := trusting(t, newClock(), token.Issuer{Name: "shop", Keys: keys, Admins: true, Role: "a.b"})
	invalid(t, a, signRaw(t, s.method, s.private, `{"alg":"EdDSA","kid":"k"}`,
		`{"sub":"1","iss":"shop","aud":"seckill","exp":`+
			// Two readers would read different roles.
			strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)+`,"a":{"b":"user","b":"admin"}}`))
}

// TestAudiencesOfIssuers: the option replaces the service's name; only then the client may stand in for an audience.
func TestAudiencesOfIssuers(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k", jwt.SigningMethodEdDSA)
	keys := newPublisher(t, s).URL
	plain := trusting(t, newClock(), token.Issuer{Name: "shop", Keys: keys})
	other := trusting(t, newClock(), token.Issuer{Name: "shop", Keys: keys, Audiences: []string{"account", "web"}})
	for _, test := range []struct {
		changed      members
		plain, other bool
	}{
		{members{"aud": "seckill"}, true, false},
		{members{"aud": "account"}, false, true},
		{members{"aud": []string{"x", "web"}}, false, true},
		{members{"aud": nil}, false, false},
		{members{"aud": []string{}}, false, false},
		{members{"aud": nil, "azp": "web"}, false, true},
		{members{"aud": nil, "client_id": "web"}, false, true},
		{members{"aud": nil, "azp": "seckill"}, false, false},
		{members{"aud": "x", "azp": "web"}, false, false},
		{members{"aud": 1, "azp": "app"}, false, false},
	} {
		for a, good := range map[*token.Authority]bool{plain: test.plain, other: test.other} {
			if _, err := a.Verify(t.Context(), s.sign(t, "shop", test.changed)); (err == nil) != good {
				t.Errorf("%v, with the option %t: %v", test.changed, a == other, err)
			}
		}
	}
}
