package token

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
	"github.com/golang-jwt/jwt/v5"
)

// minRSA is the shortest RSA key in bits: RFC 7518, section 3.3.
const minRSA = 2048

// parseKeys reads a JWK Set. Keys that cannot be used are left out, as RFC 7517, section 5, asks, and it says why.
func parseKeys(document []byte) (known map[string]key, refused []error, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	document = bytes.TrimPrefix(document, []byte("\ufeff")) // some editors begin a file with it
	if err := json.Unmarshal(document, &set); err != nil {
		return nil, nil, fmt.Errorf("parse a JWK Set: %w", err)
	}
	if set.Keys == nil { // an empty list withdraws all keys; this is something else
		return nil, nil, errors.New("parse a JWK Set: it has no member keys")
	}
	known = make(map[string]key, len(set.Keys))
	for n, text := range set.Keys {
		id, usable, err := parseKey(text)
		if _, twice := known[id]; err == nil && twice {
			err = errors.New("another key has the same id")
		}
		if err != nil {
			refused = append(refused, fmt.Errorf("key %d of the set (kid %q): %w", n+1, id, err))
			continue
		}
		known[id] = usable
	}
	if _, nameless := known[""]; nameless && len(known) > 1 { // which key a token means must not be guessed
		delete(known, "")
		refused = append(refused, errors.New("a key of the set has no id and is not the only one"))
	}
	return known, refused, nil
}

// parseKey reads one JWK. Its certificates say nothing that counts here, and issuers publish some that package x509
// refuses (a negative serial number): they are not read.
func parseKey(text []byte) (id string, _ key, _ error) {
	var of struct {
		ID         string   `json:"kid"`
		Operations []string `json:"key_ops"` // which go-jose does not read
	}
	if err := json.Unmarshal(text, &of); err != nil {
		return "", key{}, err
	}
	var members map[string]*json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return of.ID, key{}, err
	}
	maps.DeleteFunc(members, func(name string, _ *json.RawMessage) bool { return strings.HasPrefix(name, "x5") })
	text, err := json.Marshal(members)
	if err != nil {
		return of.ID, key{}, err
	}
	var parsed jose.JSONWebKey
	if err := json.Unmarshal(text, &parsed); err != nil {
		return of.ID, key{}, err
	}
	made, err := keyOf(parsed.Key, algorithm(parsed.Algorithm))
	switch {
	case err != nil:
	case parsed.Use != "" && parsed.Use != "sig", of.Operations != nil && !slices.Contains(of.Operations, "verify"):
		err = errors.New("it is not for signatures")
	}
	return of.ID, made, err
}

// algorithm is the name by which the jwt library knows an algorithm: RFC 9864 gives EdDSA with the only curve that is
// taken here another one.
func algorithm(named string) string {
	if named == "Ed25519" {
		return jwt.SigningMethodEdDSA.Alg()
	}
	return named
}

// keyOf chooses the one algorithm that belongs to a public key: the one that it
// names if that fits, or else the usual one of its kind.
func keyOf(public any, named string) (key, error) {
	var fitting []jwt.SigningMethod // the usual one first
	switch public := public.(type) {
	case *rsa.PublicKey:
		if bits := public.N.BitLen(); bits < minRSA {
			return key{}, fmt.Errorf("it has %d bits and needs at least %d", bits, minRSA)
		}
		fitting = []jwt.SigningMethod{
			jwt.SigningMethodRS256, jwt.SigningMethodRS384, jwt.SigningMethodRS512,
			jwt.SigningMethodPS256, jwt.SigningMethodPS384, jwt.SigningMethodPS512,
		}
	case *ecdsa.PublicKey:
		for _, method := range []*jwt.SigningMethodECDSA{jwt.SigningMethodES256, jwt.SigningMethodES384, jwt.SigningMethodES512} {
			if method.CurveBits == public.Params().BitSize {
				fitting = append(fitting, method)
			}
		}
	case ed25519.PublicKey:
		fitting = []jwt.SigningMethod{jwt.SigningMethodEdDSA}
	}
	if len(fitting) == 0 { // a secret, a private key that its issuer gave away, or one of another kind
		return key{}, errors.New("it is not a public key for RS, PS or ES 256, 384 or 512, or for EdDSA")
	}
	for _, method := range fitting {
		if named == "" || named == method.Alg() {
			return key{method, public}, nil
		}
	}
	return key{}, fmt.Errorf("it is not a key for its algorithm %.20q", named)
}
