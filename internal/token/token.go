// Package token signs and verifies the JSON Web Tokens by which callers prove
// who they are: HS256 and nothing else, with a key id in the header, and with
// subject, role, issuer, audience and expiry all required.
package token

import (
	"errors"
	"fmt"
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
