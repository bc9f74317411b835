package token_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// FuzzVerify lets an issuer sign whatever it likes with one of its keys, and tries the text itself as a token too.
// Verify never panics, and what it accepts the jwt library accepts with the same claims, whose names it reads exactly.
//
//	go test -run '^$' -fuzz FuzzVerify ./internal/token
func FuzzVerify(f *testing.F) {
	clock := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	now := func() time.Time { return clock }
	signers := []signer{
		newSigner(f, "d", jwt.SigningMethodEdDSA), newSigner(f, "e", jwt.SigningMethodES256), newSigner(f, "r", jwt.SigningMethodRS256),
	}
	file := filepath.Join(f.TempDir(), "keys.json")
	check.Must(f, os.WriteFile(file, []byte(document(f, signers...)), 0o600))
	a := authority(f, token.Clock(now), token.Trust(slog.New(slog.DiscardHandler), token.Issuer{Name: "shop", Keys: file}))

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
		if !reflect.ValueOf(got).IsZero() || !errors.Is(err, token.ErrInvalid) {
			t.Fatalf("Verify(%s) = %+v, %v", signed, got, err)
		}
		return
	}
	// The library rounds an expiry down to a whole second, hence the second of leeway more.
	parser := jwt.NewParser(jwt.WithTimeFunc(now), jwt.WithAudience("seckill"), jwt.WithExpirationRequired(),
		jwt.WithValidMethods([]string{by.method.Alg()}), jwt.WithStrictDecoding(), jwt.WithJSONNumber(), jwt.WithLeeway(31*time.Second))
	claims := jwt.MapClaims{}
	parsed, err := parser.ParseWithClaims(signed, claims, func(*jwt.Token) (any, error) { return key, nil })
	if err != nil && !readable(signed) {
		return
	}
	want := token.Claims{Subject: text(claims["sub"]), Role: model.Role(text(claims["role"])), Username: text(claims["preferred_username"])}
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
	if err != nil || !reflect.DeepEqual(got, want) || parsed.Header["kid"] != by.id {
		t.Fatalf("Verify(%s) = %+v; the library reads %v, %v", signed, got, claims, err)
	}
}

// readable says whether encoding/json can read a header: into an interface it
// reads no number beyond those of a float64, even where nobody asks for it.
func readable(signed string) bool {
	header, _, _ := strings.Cut(signed, ".")
	decoded, err := jwt.NewParser().DecodeSegment(header)
	return err == nil && json.Unmarshal(decoded, new(any)) == nil
}

// texts are a text, or those of a list.
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
