// Package token signs and verifies the JSON Web Tokens by which callers prove
// who they are: HS256 and nothing else, with a key id in the header, and with
// subject, role, issuer, audience and expiry all required.
package token

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"seckill/model"
)

// MinSecret is the shortest secret in bytes: RFC 7518, section 3.2, requires a
// key of at least the size of the hash, and SHA-256 has 32 bytes.
const MinSecret = 32

// Key is one secret and the id by which tokens name it.
type Key struct {
	ID     string // the `kid` of the header
	Secret string // at least MinSecret bytes
}

// Claims is what a token says of its bearer.
type Claims struct {
	Subject  string     // user id, see model.ValidUserID
	Role     model.Role // user or admin
	Username string     // may be empty: other issuers need not tell one
}

// Authority issues and verifies tokens. It is safe for concurrent use.
type Authority struct {
	keys     []signingKey // the first signs, all verify
	headers  map[string]*signingKey
	validate *jwt.Validator
	issuer   string
	audience string
	now      func() time.Time
}

type signingKey struct {
	id     string
	secret []byte
}

// Option changes how an Authority works.
type Option func(*Authority)

// Clock replaces the clock by which tokens expire.
func Clock(now func() time.Time) Option {
	return func(a *Authority) { a.now = now }
}

// New makes an Authority. The first key signs; all of them verify, so that a
// secret can be replaced without logging users out.
func New(keys []Key, issuer, audience string, options ...Option) (*Authority, error) {
	a := &Authority{issuer: issuer, audience: audience, now: time.Now}
	for _, option := range options {
		option(a)
	}
	if len(keys) == 0 {
		return nil, errors.New("a token authority needs at least one key")
	}
	if issuer == "" || audience == "" {
		return nil, errors.New("a token authority needs an issuer and an audience")
	}
	seen := make(map[string]bool, len(keys))
	for _, key := range keys {
		switch {
		case key.ID == "":
			return nil, errors.New("a token key needs an id")
		case seen[key.ID]:
			return nil, fmt.Errorf("two token keys have the id %q", key.ID)
		case len(key.Secret) < MinSecret:
			return nil, fmt.Errorf("the secret of token key %q has %d bytes and needs at least %d",
				key.ID, len(key.Secret), MinSecret)
		}
		seen[key.ID] = true
		a.keys = append(a.keys, signingKey{id: key.ID, secret: []byte(key.Secret)})
	}
	a.validate = jwt.NewValidator(
		jwt.WithIssuer(issuer),
		jwt.WithAudience(audience),
		jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(a.now),
	)
	return a, a.learnHeaders()
}

// Issue signs a token that is valid for ttl from now on; JWT counts whole
// seconds.
func (a *Authority) Issue(claims Claims, ttl time.Duration) (string, error) {
	if err := claims.check(); err != nil {
		return "", fmt.Errorf("issue a token: %w", err)
	}
	if ttl < time.Second {
		return "", fmt.Errorf("issue a token: a lifetime of %s is shorter than one second", ttl)
	}
	now := a.now()
	key := a.keys[0]
	unsigned := jwt.NewWithClaims(jwt.SigningMethodHS256, &payload{
		Subject:  claims.Subject,
		Role:     string(claims.Role),
		Username: claims.Username,
		Issuer:   a.issuer,
		Audience: audience{a.audience},
		IssuedAt: unread(seconds(now)),
		Expires:  seconds(now.Add(ttl)),
	})
	unsigned.Header["kid"] = key.id
	signed, err := unsigned.SignedString(key.secret)
	if err != nil {
		return "", fmt.Errorf("issue a token: %w", err)
	}
	return signed, nil
}

func (c Claims) check() error {
	if !model.ValidUserID(c.Subject) {
		return errors.New("the subject is no user id")
	}
	if c.Role != model.RoleUser && c.Role != model.RoleAdmin {
		return errors.New("the role is neither user nor admin")
	}
	return nil
}

// ErrInvalid is the error of every token that cannot be trusted. The reason
// around it is for the log and not for the caller.
var ErrInvalid = errors.New("invalid token")

// Verify tells the claims of a token, or an error that wraps ErrInvalid.
//
// The steps are taken here and not by jwt.Parser, because every request of a
// sale passes through them: the signature is checked before a claim is read,
// and the header, which is the same in all tokens of one key, is not parsed
// again and again. Signature and claims are checked by the jwt library.
func (a *Authority) Verify(token string) (Claims, error) {
	claims, err := a.read(token)
	if err != nil {
		return Claims{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return claims, nil
}

func (a *Authority) read(token string) (Claims, error) {
	header, rest, ok := strings.Cut(token, ".")
	body, signature, ok2 := strings.Cut(rest, ".")
	if !ok || !ok2 || strings.Contains(signature, ".") {
		return Claims{}, errors.New("it does not have three parts")
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
		return Claims{}, fmt.Errorf("decode its signature: %w", err)
	}
	signed := token[:len(header)+1+len(body)]
	if err := jwt.SigningMethodHS256.Verify(signed, mac, key.secret); err != nil {
		return Claims{}, err
	}
	return a.claimsOf(body)
}

// claimsOf reads the second part of a token after its signature was checked.
func (a *Authority) claimsOf(body string) (Claims, error) {
	decoded, err := decode(body)
	if err != nil {
		return Claims{}, fmt.Errorf("decode its claims: %w", err)
	}
	var p payload
	if err := json.Unmarshal(decoded, &p); err != nil {
		return Claims{}, fmt.Errorf("read its claims: %w", err)
	}
	if err := a.validate.Validate(&p); err != nil {
		return Claims{}, err
	}
	claims := Claims{Subject: p.Subject, Role: model.Role(p.Role), Username: p.Username}
	return claims, claims.check()
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
		return nil, fmt.Errorf("decode its header: %w", err)
	}
	var h header
	if err := json.Unmarshal(decoded, &h); err != nil {
		return nil, fmt.Errorf("read its header: %w", err)
	}
	if h.Algorithm != jwt.SigningMethodHS256.Alg() {
		return nil, errors.New("its algorithm is not HS256")
	}
	if h.Critical != nil {
		return nil, errors.New("it needs extensions")
	}
	for i := range a.keys {
		if a.keys[i].id == h.KeyID {
			return &a.keys[i], nil
		}
	}
	return nil, errors.New("its key id is missing or unknown")
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

// payload is the second part of a token, as it is written.
type payload struct {
	Subject   string   `json:"sub"`
	Role      string   `json:"role"`
	Username  string   `json:"preferred_username,omitempty"`
	Issuer    string   `json:"iss"`
	Audience  audience `json:"aud"`
	IssuedAt  unread   `json:"iat,omitempty"` // written for people, never enforced
	NotBefore float64  `json:"nbf,omitempty"`
	Expires   float64  `json:"exp"`
}

var _ jwt.Claims = (*payload)(nil)

// seconds is a time as JWT counts it: whole seconds since 1970.
func seconds(at time.Time) float64 { return float64(at.Unix()) }

// unread is a number that is written and never read, because other issuers may
// write anything there.
type unread float64

// UnmarshalJSON implements json.Unmarshaler.
func (*unread) UnmarshalJSON([]byte) error { return nil }

// date is a time as the jwt library wants it: nil when it is absent.
func date(seconds float64) *jwt.NumericDate {
	if seconds == 0 {
		return nil
	}
	return &jwt.NumericDate{Time: time.UnixMicro(int64(seconds * 1e6))}
}

func (p *payload) GetExpirationTime() (*jwt.NumericDate, error) { return date(p.Expires), nil }
func (p *payload) GetNotBefore() (*jwt.NumericDate, error)      { return date(p.NotBefore), nil }
func (p *payload) GetIssuer() (string, error)                   { return p.Issuer, nil }
func (p *payload) GetSubject() (string, error)                  { return p.Subject, nil }
func (p *payload) GetAudience() (jwt.ClaimStrings, error)       { return jwt.ClaimStrings(p.Audience), nil }

// audience is one name or a list of them: RFC 7519, section 4.1.3, allows both.
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '[' {
		return json.Unmarshal(text, (*[]string)(a))
	}
	var one string
	if err := json.Unmarshal(text, &one); err != nil {
		return err
	}
	*a = audience{one}
	return nil
}

// GetIssuedAt says that the time is absent, so that it is not enforced.
func (*payload) GetIssuedAt() (*jwt.NumericDate, error) {
	return nil, nil //nolint:nilnil // this is how the interface says "absent"
}
