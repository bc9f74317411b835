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
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

	"seckill/internal/poll"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
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

// write puts a file in the place of another one, as a whole.
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
		a := authority(t, token.Trust(slog.New(slog.NewTextHandler(log, nil)), token.Issuer{Name: "shop", Keys: "http://127.0.0.1:1/"}))
		ctx, stop := context.WithTimeout(t.Context(), 1000*time.Second)
		defer stop()
		a.Run(ctx)
	})
	if want := []time.Duration{0, 10, 30, 70, 150, 310, 610, 910}; !slices.Equal(tried, want) {
		t.Errorf("tried after so many seconds: %v, want %v", tried, want)
	}
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
		if (err == nil) != allowed {
			t.Errorf("%s: %v", place, err)
		}
	}
	for _, name := range []string{"", "seckill"} {
		_, err := token.New([]token.Key{{ID: "1", Secret: secret}}, "seckill", "seckill",
			token.Trust(slog.New(slog.DiscardHandler), token.Issuer{Name: name, Keys: "file"}))
		if err == nil {
			t.Errorf("an issuer is named %q", name)
		}
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

// TestKeysThatAreNotUsed publishes keys that must verify nothing beside one that
// may: they are left out and the rest of the set is used.
func TestKeysThatAreNotUsed(t *testing.T) {
	t.Parallel()
	rs, es, ed := newSigner(t, "r", jwt.SigningMethodRS256), newSigner(t, "e", jwt.SigningMethodES256), newSigner(t, "d", jwt.SigningMethodEdDSA)
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

// TestTheOnlyKeyNeedsNoName: where an issuer publishes one key, neither that nor its tokens need an id. The set may
// begin with a byte order mark.
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

// authorityLogging trusts one issuer and tells what the log says.
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
