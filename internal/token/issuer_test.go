package token_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

type signer struct {
	id      string
	method  jwt.SigningMethod
	private crypto.Signer
}

func newSigner(t testing.TB, id string, method jwt.SigningMethod) signer {
	t.Helper()
	s := signer{id: id, method: method}
	var err error
	switch method := method.(type) {
	case *jwt.SigningMethodRSA, *jwt.SigningMethodRSAPSS:
		s.private, err = rsa.GenerateKey(rand.Reader, 2048)
	case *jwt.SigningMethodECDSA:
		curve := map[int]elliptic.Curve{
			256: elliptic.P256(), 384: elliptic.P384(),
			521: elliptic.P521(),
		}[method.CurveBits]
		s.private, err = ecdsa.GenerateKey(curve, rand.Reader)
	default:
		_, s.private, err = ed25519.GenerateKey(rand.Reader)
	}
	check.Must(t, err)
	return s
}

// sign signs claims for an issuer; changed ones win over those of a good token.
func (s signer) sign(t testing.TB, issuer string, changed members) string {
	t.Helper()
	claims := members{"iss": issuer}
	maps.Copy(claims, changed)
	return forge(t, s.method, s.private, members{"kid": s.id}, claims)
}

func (s signer) jwk() jose.JSONWebKey {
	return jose.JSONWebKey{Key: s.private.Public(), KeyID: s.id, Use: "sig", Algorithm: s.method.Alg()}
}

func document(t testing.TB, signers ...signer) string {
	t.Helper()
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, s := range signers {
		set.Keys = append(set.Keys, s.jwk())
	}
	text := check.Value(json.Marshal(set))(t)
	return string(text)
}

type publisher struct {
	*httptest.Server
	document atomic.Pointer[string] // nil: it is away
	readings atomic.Int64
	hold     sync.RWMutex // while it is locked there is no answer
}

func newPublisher(t testing.TB, signers ...signer) *publisher {
	t.Helper()
	p := &publisher{}
	p.publish(t, signers...)
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *publisher) publish(t testing.TB, signers ...signer) {
	t.Helper()
	text := document(t, signers...)
	p.document.Store(&text)
}

func (p *publisher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.readings.Add(1)
	p.hold.RLock()
	defer p.hold.RUnlock()
	text := p.document.Load()
	if text == nil {
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte(*text)) // whom it does not reach, reads again
}

type clock struct{ now atomic.Pointer[time.Time] }

func newClock() *clock {
	c, now := &clock{}, time.Now()
	c.now.Store(&now)
	return c
}

func (c *clock) Now() time.Time { return *c.now.Load() }

func (c *clock) advance(d time.Duration) {
	now := c.Now().Add(d)
	c.now.Store(&now)
}

func trusting(t testing.TB, c *clock, issuers ...token.Issuer) *token.Authority {
	t.Helper()
	return authority(t, token.Clock(c.Now), token.Trust(slog.New(slog.NewTextHandler(t.Output(), nil)), issuers...))
}

// accepted and invalid say what Verify has to say.
func accepted(t testing.TB, a *token.Authority, signed string, want token.Claims) {
	t.Helper()
	got, err := a.Verify(t.Context(), signed)
	check.That(t, err == nil && reflect.DeepEqual(got, want), "Verify = %+v, %v; want %+v", got, err, want)
}

func invalid(t testing.TB, a *token.Authority, signed string) {
	t.Helper()
	got, err := a.Verify(t.Context(), signed)
	check.That(t, refused(err) && reflect.ValueOf(got).IsZero(), "Verify = %+v, %v; want it refused", got, err)
}

func unknownYet(t testing.TB, a *token.Authority, signed string) {
	t.Helper()
	got, err := a.Verify(t.Context(), signed)
	check.That(t, unread(err) && reflect.ValueOf(got).IsZero(), "Verify = %+v, %v; want it unread", got, err)
}

func of(issuer string) token.Claims {
	return token.Claims{Subject: "1", Role: model.RoleUser, Issuer: issuer}
}

func TestTokensOfOtherIssuers(t *testing.T) {
	t.Parallel()
	const shop, club = "https://shop.example", "club"
	rs, es := newSigner(t, "r", jwt.SigningMethodRS256), newSigner(t, "e", jwt.SigningMethodES256)
	ed, clubs := newSigner(t, "1", jwt.SigningMethodEdDSA), newSigner(t, "e", jwt.SigningMethodES256)
	c := newClock()
	a := trusting(t, c,
		token.Issuer{Name: shop, Keys: newPublisher(t, rs, es, ed).URL},
		token.Issuer{Name: club, Keys: newPublisher(t, clubs).URL, Admins: true})
	for _, s := range []signer{rs, es, ed} {
		accepted(t, a, s.sign(t, shop, nil), of(shop))
	}
	// Other programs may read something else there.
	for _, role := range []any{nil, "root", "Admin", 1, []any{1, "user"}, members{"admin": true}} {
		accepted(t, a, rs.sign(t, shop, members{"role": role}), of(shop))
	}
	accepted(t, a, clubs.sign(t, club, members{"preferred_username": "x"}),
		token.Claims{Subject: "1", Role: model.RoleUser, Issuer: club, Username: "x"})
	accepted(t, a, clubs.sign(t, club, members{"role": "admin", "ver": 7}),
		token.Claims{Subject: "1", Role: model.RoleAdmin, Level: model.LevelAdmin, Issuer: club})
	accepted(t, a, forge(t, jwt.SigningMethodHS256, []byte(secret), nil, nil), of("")) // ours as before

	const header, plain = `{"alg":"EdDSA","kid":"1"}`, `"iss":"https://shop.example","aud":"seckill","exp":`
	expires := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10) + "}"
	accepted(t, a, signRaw(t, ed.method, ed.private, header, `{"sub":"1","role":"user","Role":"admin",`+plain+expires),
		of(shop))
	unknownYet(t, a, rs.sign(t, club, nil)) // the key of another issuer
	c.advance(10 * time.Second)
	invalid(t, a, rs.sign(t, club, nil))
	for name, forged := range map[string]string{
		"administrator of who may not name one":  rs.sign(t, shop, members{"role": "admin"}),
		"another audience":                       rs.sign(t, shop, members{"aud": "another"}),
		"no audience":                            rs.sign(t, shop, members{"aud": nil}),
		"expired":                                rs.sign(t, shop, members{"exp": time.Now().Add(-time.Minute).Unix()}),
		"no expiry":                              rs.sign(t, shop, members{"exp": nil}),
		"expiry in two years":                    rs.sign(t, shop, members{"exp": time.Now().Add(731 * 24 * time.Hour).Unix()}),
		"administrator for a month":              clubs.sign(t, club, members{"role": "admin", "exp": time.Now().Add(31 * 24 * time.Hour).Unix()}),
		"an issuer nobody knows":                 rs.sign(t, "https://shop.example/", nil),
		"no issuer":                              rs.sign(t, shop, members{"iss": nil}),
		"key of another issuer with the same id": es.sign(t, club, nil),
		"key of another issuer, administrator":   es.sign(t, club, members{"role": "admin"}),
		"ours by the key of another":             ed.sign(t, "seckill", nil),
		"our secret for another":                 forge(t, jwt.SigningMethodHS256, []byte(secret), nil, members{"iss": shop}),
		"no kid":                                 forge(t, rs.method, rs.private, members{"kid": nil}, members{"iss": shop}),
		"alg none":                               forge(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, members{"kid": "r"}, members{"iss": shop}),
		"RS512 by the key for RS256":             forge(t, jwt.SigningMethodRS512, rs.private, members{"kid": "r"}, members{"iss": shop}),
		"PS256 by the key for RS256":             forge(t, jwt.SigningMethodPS256, rs.private, members{"kid": "r"}, members{"iss": shop}),
		"kid of a key of another algorithm":      forge(t, rs.method, rs.private, members{"kid": "e"}, members{"iss": shop}),
		"critical extension":                     forge(t, rs.method, rs.private, members{"kid": "r", "crit": []string{"b64"}, "b64": false}, members{"iss": shop}),
		"two roles":                              signRaw(t, ed.method, ed.private, header, `{"sub":"1","role":"user","role":"user",`+plain+expires),
		"two key ids":                            signRaw(t, ed.method, ed.private, `{"alg":"EdDSA","kid":"1","kid":"1"}`, `{"sub":"1","role":"user",`+plain+expires),
		"keys within the token":                  forge(t, ed.method, newSigner(t, "1", ed.method).private, members{"kid": "1", "jwk": ed.jwk(), "jku": "https://evil.example"}, members{"iss": shop}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			invalid(t, a, forged)
		})
	}
}

// TestAlgorithmsOfIssuers: one algorithm belongs to one key, and is the token's.
func TestAlgorithmsOfIssuers(t *testing.T) {
	t.Parallel()
	for _, method := range []jwt.SigningMethod{
		jwt.SigningMethodRS256, jwt.SigningMethodRS384, jwt.SigningMethodRS512, jwt.SigningMethodPS256,
		jwt.SigningMethodPS384, jwt.SigningMethodPS512,
		jwt.SigningMethodES256, jwt.SigningMethodES384, jwt.SigningMethodES512, jwt.SigningMethodEdDSA,
	} {
		t.Run(method.Alg(), func(t *testing.T) {
			t.Parallel()
			s := newSigner(t, "k", method)
			a := trusting(t, newClock(), token.Issuer{Name: "shop", Keys: newPublisher(t, s).URL})
			accepted(t, a, s.sign(t, "shop", nil), of("shop"))
			for _, other := range []jwt.SigningMethod{jwt.SigningMethodRS256, jwt.SigningMethodRS512, jwt.SigningMethodPS256} {
				if _, isRSA := s.private.(*rsa.PrivateKey); isRSA && other != method {
					invalid(t, a, signer{"k", other, s.private}.sign(t, "shop", nil))
				}
			}
		})
	}
}

// TestPublicKeysAreNoSecrets is the classic confusion: a public key, known to all, taken for an HMAC secret.
func TestPublicKeysAreNoSecrets(t *testing.T) {
	t.Parallel()
	for _, method := range []jwt.SigningMethod{jwt.SigningMethodRS256, jwt.SigningMethodES256, jwt.SigningMethodEdDSA} {
		s := newSigner(t, "k", method)
		a := trusting(t, newClock(), token.Issuer{Name: "shop", Keys: newPublisher(t, s).URL, Admins: true})
		accepted(t, a, s.sign(t, "shop", nil), of("shop"))
		der := check.Value(x509.MarshalPKIXPublicKey(s.private.Public()))(t)
		jwk := check.Value(json.Marshal(s.jwk()))(t)
		for name, secret := range map[string][]byte{
			"DER": der, "PEM": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), "JWK": jwk, "nothing": {},
		} {
			for _, hmac := range []jwt.SigningMethod{jwt.SigningMethodHS256, jwt.SigningMethodHS512} {
				for _, issuer := range []string{"shop", "seckill"} {
					t.Run(method.Alg()+" "+name+" "+hmac.Alg()+" "+issuer, func(t *testing.T) {
						t.Parallel()
						invalid(t, a, forge(t, hmac, secret, members{"kid": "k"},
							members{"iss": issuer, "role": "admin"}))
					})
				}
			}
		}
	}
}

func TestNewKeysNeedNoRestart(t *testing.T) {
	t.Parallel()
	before, after := newSigner(t, "before", jwt.SigningMethodES256), newSigner(t, "after", jwt.SigningMethodES256)
	p, c := newPublisher(t, before), newClock()
	a := trusting(t, c, token.Issuer{Name: "shop", Keys: p.URL})
	accepted(t, a, before.sign(t, "shop", nil), of("shop"))

	p.publish(t, before, after)
	c.advance(10 * time.Second)
	accepted(t, a, after.sign(t, "shop", nil), of("shop"))
	accepted(t, a, before.sign(t, "shop", nil), of("shop"))

	p.publish(t, after) // the old key is withdrawn: whoever stole it has nothing
	c.advance(10 * time.Second)
	invalid(t, a, newSigner(t, "unknown", jwt.SigningMethodES256).sign(t, "shop", nil))
	invalid(t, a, before.sign(t, "shop", nil))
	accepted(t, a, after.sign(t, "shop", nil), of("shop"))

	p.publish(t)
	c.advance(10 * time.Second)
	invalid(t, a, before.sign(t, "shop", nil))
	invalid(t, a, after.sign(t, "shop", nil))
}

// TestANewKeyIsNeverABadToken: a 401 ends sessions, so no unread key causes one: who asks again as told gets in.
func TestANewKeyIsNeverABadToken(t *testing.T) {
	t.Parallel()
	first, second, third := newSigner(t, "1", jwt.SigningMethodES256), newSigner(t, "2", jwt.SigningMethodES256),
		newSigner(t, "3", jwt.SigningMethodES256)
	p, c := newPublisher(t, first), newClock()
	a := trusting(t, c, token.Issuer{Name: "shop", Keys: p.URL})
	accepted(t, a, first.sign(t, "shop", nil), of("shop"))
	c.advance(3 * time.Second)
	unknownYet(t, a, second.sign(t, "shop", nil)) // its key is published a moment later
	p.publish(t, first, second)
	c.advance(3 * time.Second)
	unknownYet(t, a, second.sign(t, "shop", nil))
	_, err := a.Verify(t.Context(), second.sign(t, "shop", nil))
	later, ok := errors.AsType[*token.InvalidError](err)
	check.Need(t, ok && later.Reason == token.Unread && later.RetryAfter == 4*time.Second,
		"asked again too early: %v, %+v", err, later)
	c.advance(later.RetryAfter)
	accepted(t, a, second.sign(t, "shop", nil), of("shop"))

	// A key that was looked for and not found is bad, at once and for everybody, also while nobody may look again.
	unknownYet(t, a, third.sign(t, "shop", nil))
	c.advance(10 * time.Second)
	invalid(t, a, third.sign(t, "shop", nil))
	invalid(t, a, third.sign(t, "shop", nil))
	p.document.Store(nil) // and while its issuer is away
	c.advance(10 * time.Second)
	invalid(t, a, third.sign(t, "shop", nil))
	unknownYet(t, a, newSigner(t, "4", jwt.SigningMethodES256).sign(t, "shop", nil))
}

// TestAFloodOfKeyIDsEndsNoSession: after it the next reading finds a published key; no token is bad before a look.
func TestAFloodOfKeyIDsEndsNoSession(t *testing.T) {
	t.Parallel()
	s, late, c := newSigner(t, "k", jwt.SigningMethodEdDSA), newSigner(t, "late", jwt.SigningMethodEdDSA), newClock()
	p := newPublisher(t, s)
	a := trusting(t, c, token.Issuer{Name: "shop", Keys: p.URL})
	accepted(t, a, s.sign(t, "shop", nil), of("shop"))
	for round := range 3 {
		for n := range 1200 {
			flood := signer{strconv.Itoa(round) + "." + strconv.Itoa(n), s.method, s.private}.sign(t, "shop", nil)
			unknownYet(t, a, flood)
		}
		unknownYet(t, a, late.sign(t, "shop", nil))
		c.advance(9 * time.Second)
		unknownYet(t, a, late.sign(t, "shop", nil))
		c.advance(time.Second)
		invalid(t, a, signer{strconv.Itoa(round) + ".0", s.method, s.private}.sign(t, "shop", nil))
	}
	p.publish(t, s, late)
	c.advance(10 * time.Second)
	accepted(t, a, late.sign(t, "shop", nil), of("shop"))
}

// TestUnknownKeyIDsReadOnceInTenSeconds floods the authority with unknown key ids: issuer and users notice nothing.
func TestUnknownKeyIDsReadOnceInTenSeconds(t *testing.T) {
	t.Parallel()
	s, c := newSigner(t, "k", jwt.SigningMethodEdDSA), newClock()
	p := newPublisher(t, s)
	a := trusting(t, c, token.Issuer{Name: "shop", Keys: p.URL})
	good, bad := s.sign(t, "shop", nil), make([]string, 500)
	for n := range bad {
		bad[n] = signer{strconv.Itoa(n), s.method, s.private}.sign(t, "shop", nil)
	}
	for round, want := range []int64{1, 1, 2, 2, 3} {
		check.Volley(len(bad), func(n int) {
			if _, err := a.Verify(t.Context(), bad[n]); err == nil {
				t.Error("a key id that nobody has is accepted")
			}
		})
		accepted(t, a, good, of("shop"))
		got := p.readings.Load()
		check.That(t, got == want, "after volley %d the keys were read %d times, want %d", round+1, got, want)
		c.advance(5 * time.Second)
	}
}

// TestKnownKeysWaitForNothing has a source that does not answer.
func TestKnownKeysWaitForNothing(t *testing.T) {
	t.Parallel()
	s, other, c := newSigner(t, "k", jwt.SigningMethodEdDSA), newSigner(t, "other", jwt.SigningMethodEdDSA), newClock()
	p := newPublisher(t, s)
	a := trusting(t, c, token.Issuer{Name: "shop", Keys: p.URL})
	good, unknown := s.sign(t, "shop", nil), other.sign(t, "shop", nil)
	accepted(t, a, good, of("shop"))

	p.publish(t, s, other)
	p.hold.Lock()
	c.advance(10 * time.Second)
	ctx, leave := context.WithCancel(t.Context())
	const crowd = 150 // more than may wait
	ended := make(chan error, crowd)
	for range crowd {
		go func() {
			_, err := a.Verify(ctx, unknown)
			ended <- err
		}()
	}
	for range crowd - 100 { // those who may not wait know at once
		if err := <-ended; !unread(err) {
			t.Errorf("too many wait, and the answer is %v", err)
		}
	}
	accepted(t, a, good, of("shop"))
	leave()
	for range 100 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("who leaves hears %v", err)
		}
	}
	late := make(chan error)
	go func() {
		_, err := a.Verify(t.Context(), unknown)
		late <- err
	}()
	p.hold.Unlock()
	if err := <-late; err != nil { // the reading went on without those who began it
		t.Error(err)
	}
	got := p.readings.Load()
	check.That(t, got == 2, "the keys were read %d times, want 2", got)
}

func TestSourceIsAway(t *testing.T) {
	t.Parallel()
	s, c := newSigner(t, "k", jwt.SigningMethodES256), newClock()
	p := newPublisher(t)
	p.document.Store(nil)
	a := trusting(t, c, token.Issuer{Name: "shop", Keys: p.URL})
	good := s.sign(t, "shop", nil)
	unknownYet(t, a, good)
	unknownYet(t, a, good) // without another reading
	accepted(t, a, forge(t, jwt.SigningMethodHS256, []byte(secret), nil, nil), of(""))

	p.publish(t, s)
	c.advance(10 * time.Second)
	accepted(t, a, good, of("shop"))

	another := newSigner(t, "another", jwt.SigningMethodES256)
	for _, away := range []func(){
		func() { p.document.Store(nil) },
		func() { p.document.Store(new("<html>")) },
		func() { p.document.Store(new(`{"error":"no"}`)) },
		func() { p.document.Store(new(document(t, s, another)[:300])) },
		func() { p.document.Store(new(document(t, s, another) + strings.Repeat(" ", 256<<10))) },
		p.Close,
	} {
		away()
		c.advance(10 * time.Second)
		unknownYet(t, a, another.sign(t, "shop", nil)) // its key may be there
		accepted(t, a, good, of("shop"))
	}
}

// FuzzVerify lets an issuer sign whatever it likes with one of its keys, and tries the text itself as a token too.
// Verify never panics, and what it accepts the jwt library accepts with the same claims, whose names it reads exactly.
//
//	go test -run '^$' -fuzz FuzzVerify ./internal/token
func FuzzVerify(f *testing.F) {
	clock := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	now := func() time.Time { return clock }
	signers := []signer{
		newSigner(f, "d", jwt.SigningMethodEdDSA), newSigner(f, "e", jwt.SigningMethodES256),
		newSigner(f, "r", jwt.SigningMethodRS256),
	}
	file := filepath.Join(f.TempDir(), "keys.json")
	check.Must(f, os.WriteFile(file, []byte(document(f, signers...)), 0o600))
	a := authority(f, token.Clock(now), token.Trust(slog.New(slog.DiscardHandler),
		token.Issuer{Name: "shop", Keys: file}))

	for _, claims := range []string{
		`{"sub":"1","role":"user","iss":"shop","aud":"seckill","exp":1893459600}`,
		`{"sub":"1","role":"admin","iss":"seckill","aud":["x","seckill"],"exp":1893459600.5,"iat":"x","nbf":1,"ver":7,"preferred_username":"ü\u00e9"}`,
		`{"sub":"1","role":"user","Role":"admin","iss":"seckill","aud":"seckill","exp":1893459600}`,
		`{"sub":"1","ſub":"2","role":"user","role":"admin","iss":"seckill","aud":"seckill","exp":1893459600}`,
		`{"sub":"1","role":"admin","level":"viewer","iss":"seckill","aud":"seckill","exp":1893459600}`,
		`{"sub":null,"role":[],"iss":{},"aud":[null],"exp":1e300}`,
		`{"sub":"a|b@c","role":["x"],"groups":["a",1,"b"],"iss":"shop","aud":"seckill","exp":1893459600,"x":1e999,"nbf":"1"}`,
		`{"sub":"a","groups":"a b","realm_access":{"roles":["admin"]},"iss":"shop","aud":"seckill","exp":1893459600}`,
	} {
		for _, header := range []string{
			`{"alg":"HS256","kid":"1","typ":"JWT"}`, `{"alg":"HS256","kid":"1","x":{"y":[1,"z"]}}`, `{"alg":"HS256","kid":"1","kid":"d"}`,
			`{"alg":"none","kid":"1"}`, `{"alg":"HS256","kid":"1","crit":["exp"]}`, `{"Alg":"HS256"}`,
		} {
			f.Add(uint8(len(signers)), header, claims)
		}
		for n, s := range signers {
			f.Add(uint8(n), `{"alg":"`+s.method.Alg()+`","kid":"`+s.id+`"}`, claims)
		}
	}
	f.Fuzz(func(t *testing.T, who uint8, header, claims string) {
		ours := signer{"1", jwt.SigningMethodHS256, nil}
		if int(who) < len(signers) {
			s := signers[who]
			checkVerify(t, a, now, s, s.private.Public(), signRaw(t, s.method, s.private, header, claims))
		} else {
			checkVerify(t, a, now, ours, []byte(secret), signRaw(t, ours.method, []byte(secret), header, claims))
		}
		checkVerify(t, a, now, ours, []byte(secret), header+"."+claims)
	})
}

// checkVerify compares Verify with the library's parser, which is told the key.
func checkVerify(t *testing.T, a *token.Authority, now func() time.Time, by signer, key any, signed string) {
	t.Helper()
	got, err := a.Verify(t.Context(), signed)
	if err != nil {
		check.Need(t, reflect.ValueOf(got).IsZero() && refused(err), "Verify(%s) = %+v, %v", signed, got, err)
		return
	}
	// The library rounds an expiry down to a whole second, hence the second of leeway more.
	parser := jwt.NewParser(jwt.WithTimeFunc(now), jwt.WithAudience("seckill"), jwt.WithExpirationRequired(),
		jwt.WithValidMethods([]string{by.method.Alg()}), jwt.WithStrictDecoding(), jwt.WithJSONNumber(),
		jwt.WithLeeway(31*time.Second))
	claims := jwt.MapClaims{}
	parsed, err := parser.ParseWithClaims(signed, claims, func(*jwt.Token) (any, error) { return key, nil })
	if err != nil && !readable(signed) {
		return
	}
	want := token.Claims{
		Subject: text(claims["sub"]), Role: model.Role(text(claims["role"])),
		Username: text(claims["preferred_username"]),
	}
	if want.Issuer = text(claims["iss"]); want.Issuer == "seckill" {
		want.Issuer = ""
		number, _ := claims["ver"].(json.Number)
		if version, err := number.Int64(); err == nil {
			want.Version = version
		}
		if want.Role == model.RoleAdmin {
			want.Level = model.LevelAdmin
			if said, there := claims["level"]; there {
				want.Level = model.Level(text(said))
			}
		}
	} else {
		want.Role = model.RoleUser // of an issuer that may name nobody else
		want.Groups = texts(claims["groups"])
	}
	check.Need(t, err == nil && reflect.DeepEqual(got, want) && parsed.Header["kid"] == by.id,
		"Verify(%s) = %+v; the library reads %v, %v", signed, got, claims, err)
}

// readable says whether encoding/json reads a header: into an interface it reads no number beyond a float64.
func readable(signed string) bool {
	header, _, _ := strings.Cut(signed, ".")
	decoded, err := jwt.NewParser().DecodeSegment(header)
	return err == nil && json.Unmarshal(decoded, new(any)) == nil
}

func texts(claim any) (found []string) {
	list, ok := claim.([]any)
	if !ok {
		list = []any{claim}
	}
	for _, one := range list {
		if text, ok := one.(string); ok {
			found = append(found, text)
		}
	}
	return found
}

func text(claim any) string {
	text, _ := claim.(string)
	return text
}
