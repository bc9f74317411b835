package token

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"seckill/model"
)

// ErrInvalid is what every token that cannot be trusted comes to, whatever the
// reason; the text around it is for the log and not for the caller.
var ErrInvalid = errors.New("invalid token")

// Verify tells the claims of a token, or an error that wraps ErrInvalid.
//
// The steps are taken here and not by jwt.Parser, because every request of a
// sale passes through them: the signature is checked before a claim is read,
// and the header, which is the same in all tokens of one key, is not parsed
// again and again. Signature and claims are checked by the jwt library.
func (a *Authority) Verify(token string) (Claims, error) {
	header, rest, ok := strings.Cut(token, ".")
	body, signature, ok2 := strings.Cut(rest, ".")
	if !ok || !ok2 || strings.Contains(signature, ".") {
		return Claims{}, fmt.Errorf("%w: it does not have three parts", ErrInvalid)
	}
	key, ok := a.headers[header]
	if !ok {
		var err error
		if key, err = a.keyOf(header); err != nil {
			return Claims{}, err
		}
	}
	mac, err := decode(signature)
	if err != nil {
		return Claims{}, fmt.Errorf("%w: decode its signature: %w", ErrInvalid, err)
	}
	signed := token[:len(header)+1+len(body)]
	if err := jwt.SigningMethodHS256.Verify(signed, mac, key.secret); err != nil {
		return Claims{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return a.claimsOf(body)
}

// claimsOf reads the second part of a token whose signature is good.
func (a *Authority) claimsOf(body string) (Claims, error) {
	decoded, err := decode(body)
	if err != nil {
		return Claims{}, fmt.Errorf("%w: decode its claims: %w", ErrInvalid, err)
	}
	var p payload
	if err := json.Unmarshal(decoded, &p); err != nil {
		return Claims{}, fmt.Errorf("%w: read its claims: %w", ErrInvalid, err)
	}
	if err := a.validate.Validate(&p); err != nil {
		return Claims{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	claims := Claims{Subject: p.Subject, Role: model.Role(p.Role), Username: p.Username}
	if err := claims.check(); err != nil {
		return Claims{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return claims, nil
}

// header is the first part of a token.
type header struct {
	Algorithm string           `json:"alg"`
	KeyID     string           `json:"kid"`
	Critical  *json.RawMessage `json:"crit"`
}

// keyOf finds the key that a header names. Only HS256 is accepted: a key is
// bound to its algorithm, and never chosen by the token. Extensions marked
// critical must be understood (RFC 7515, section 4.1.11), and none is.
func (a *Authority) keyOf(encoded string) (*signingKey, error) {
	decoded, err := decode(encoded)
	if err != nil {
		return nil, fmt.Errorf("%w: decode its header: %w", ErrInvalid, err)
	}
	var h header
	if err := json.Unmarshal(decoded, &h); err != nil {
		return nil, fmt.Errorf("%w: read its header: %w", ErrInvalid, err)
	}
	if h.Algorithm != jwt.SigningMethodHS256.Alg() {
		return nil, fmt.Errorf("%w: its algorithm is not HS256", ErrInvalid)
	}
	if h.Critical != nil {
		return nil, fmt.Errorf("%w: it needs extensions", ErrInvalid)
	}
	for i := range a.keys {
		if a.keys[i].id == h.KeyID {
			return &a.keys[i], nil
		}
	}
	return nil, fmt.Errorf("%w: its key id is missing or unknown", ErrInvalid)
}

// learnHeaders remembers the header our own tokens have for each key, in the
// two orders of its members that common libraries write.
func (a *Authority) learnHeaders() error {
	a.headers = make(map[string]*signingKey, 2*len(a.keys))
	for i := range a.keys {
		key := &a.keys[i]
		kid, err := json.Marshal(key.id)
		if err != nil {
			return fmt.Errorf("encode the id of a token key: %w", err)
		}
		for _, text := range []string{
			`{"alg":"HS256","kid":` + string(kid) + `,"typ":"JWT"}`,
			`{"alg":"HS256","typ":"JWT","kid":` + string(kid) + `}`,
		} {
			a.headers[base64.RawURLEncoding.EncodeToString([]byte(text))] = key
		}
	}
	return nil
}

// decode is strict: one token has one spelling. The line breaks that package
// base64 skips are no part of it.
func decode(part string) ([]byte, error) {
	if strings.ContainsAny(part, "\r\n") {
		return nil, errors.New("it contains a line break")
	}
	return base64.RawURLEncoding.Strict().DecodeString(part)
}
