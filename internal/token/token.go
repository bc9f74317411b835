// Package token signs and verifies the JSON Web Tokens by which callers prove
// who they are. Our own are signed with a secret (HS256). Those of other
// issuers are verified with public keys (RS256, ES256 or EdDSA), which cannot
// mint any. Subject, role, issuer, audience and expiry are always required.
//
// Every key belongs to one issuer and to one algorithm; a token chooses neither.
// The members of a token count by their exact names, and no name may come twice,
// so that no two readers of one token read different claims.
package token

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"seckill/model"
)

const (
	// MinSecret is the shortest secret in bytes: RFC 7518, section 3.2, requires a
	// key of at least the size of the hash, and SHA-256 has 32 bytes.
	MinSecret = 32
	// maxLifetime is how far ahead the expiry of a user's token may lie: 400 days,
	// because an app may keep its users logged in for as long as a browser keeps a
	// cookie (RFC 6265bis, section 5.5). An expiry further ahead is a mistake, such
	// as milliseconds, or means "never".
	maxLifetime = 400 * 24 * time.Hour
	// maxLifetimeAdmin is the same for administrators: a week, because a token that
	// lies forgotten in a script must not open the shop a year later, and a week
	// is longer than any sale.
	maxLifetimeAdmin = 7 * 24 * time.Hour
)

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
	Version  int64      // of the account, see model.Account; 0: the token is of no account
	Issuer   string     // the other issuer that says so; empty: we do
}

// Authority issues and verifies tokens. It is safe for concurrent use.
type Authority struct {
	signs    Key
	issuers  map[string]*issuer // by the `iss` of their tokens; we are one of them
	headers  map[string]header  // of our own tokens, by their usual spellings
	validate *jwt.Validator
	name     string // the `iss` of our own tokens
	audience string
	now      func() time.Time
	log      *slog.Logger
	trusted  []Issuer
}

// Option changes how an Authority works.
type Option func(*Authority)

// Clock replaces the clock by which tokens expire and keys grow old.
func Clock(now func() time.Time) Option {
	return func(a *Authority) { a.now = now }
}

// Trust accepts the tokens of other issuers too. Their keys are read as long as
// Run runs, and when a token names a key that is not known; the log hears of
// new keys and of every failure to read them.
func Trust(log *slog.Logger, issuers ...Issuer) Option {
	return func(a *Authority) { a.log, a.trusted = log, issuers }
}

// New makes an Authority whose own tokens bear the issuer's name. The first key
// signs; all of them verify, so that a secret can be replaced without logging
// users out.
func New(keys []Key, issuer, audience string, options ...Option) (*Authority, error) {
	a := &Authority{name: issuer, audience: audience, now: time.Now}
	for _, option := range options {
		option(a)
	}
	if issuer == "" || audience == "" {
		return nil, errors.New("a token authority needs an issuer and an audience")
	}
	if err := a.learnIssuers(keys); err != nil {
		return nil, err
	}
	a.signs = keys[0]
	// The validator is not told an issuer: the issuer of a token is found by name.
	a.validate = jwt.NewValidator(
		jwt.WithAudience(audience),
		jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(a.now),
	)
	var err error
	a.headers, err = usualHeaders(keys)
	return a, err
}

func (a *Authority) learnIssuers(keys []Key) error {
	ours, err := ourselves(keys)
	if err != nil {
		return err
	}
	a.issuers = map[string]*issuer{a.name: ours}
	for _, trusted := range a.trusted {
		if _, twice := a.issuers[trusted.Name]; twice || trusted.Name == "" {
			return fmt.Errorf("the name of the token issuer %q is taken or empty", trusted.Name)
		}
		other, err := newIssuer(trusted, a.now, a.log)
		if err != nil {
			return fmt.Errorf("the token issuer %q: %w", trusted.Name, err)
		}
		a.issuers[trusted.Name] = other
	}
	return nil
}

// Issue signs a token that is valid for ttl from now on; JWT counts whole
// seconds.
func (a *Authority) Issue(claims Claims, ttl time.Duration) (string, error) {
	if err := claims.check(); err != nil {
		return "", fmt.Errorf("issue a token: %w", err)
	}
	if most := Longest(claims.Role); ttl < time.Second || ttl > most {
		return "", fmt.Errorf("issue a token: a lifetime of %s for the role %s is not from 1s to %s", ttl, claims.Role, most)
	}
	now := a.now()
	unsigned := jwt.NewWithClaims(jwt.SigningMethodHS256, &payload{
		Subject:  claims.Subject,
		Role:     string(claims.Role),
		Username: claims.Username,
		Version:  version(claims.Version),
		Issuer:   a.name,
		Audience: audience{a.audience},
		IssuedAt: unread(seconds(now)),
		Expires:  seconds(now.Add(ttl)),
	})
	unsigned.Header["kid"] = a.signs.ID
	signed, err := unsigned.SignedString([]byte(a.signs.Secret))
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

// Longest is how far ahead the expiry of a token may lie.
func Longest(role model.Role) time.Duration {
	if role == model.RoleAdmin {
		return maxLifetimeAdmin
	}
	return maxLifetime
}

var (
	// ErrInvalid is the error of every token that cannot be trusted. The reason
	// around it is for the log and not for the caller.
	ErrInvalid = errors.New("invalid token")
	// ErrNoKeys is the error of a token whose issuer is trusted, but whose keys
	// could not be read so far: the token may be good, and the caller asks later.
	ErrNoKeys = errors.New("the keys of the token's issuer could not be read yet")
)

// Verify tells the claims of a token, or an error that wraps ErrInvalid or
// ErrNoKeys. It waits only for a token of another issuer that names an unknown
// key, and then for one reading of that issuer's keys, within its limits and
// ctx.
//
// The steps are taken here and not by jwt.Parser, which takes far longer (see
// BenchmarkVerify) and knows neither exact names nor crit. Signature and claims
// are checked by the jwt library, JSON is read by that of go-jose.
func (a *Authority) Verify(ctx context.Context, token string) (Claims, error) {
	claims, err := a.read(ctx, token)
	switch {
	case err == nil:
		return claims, nil
	case errors.Is(err, ErrNoKeys):
		return Claims{}, err
	default:
		return Claims{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
}

func (a *Authority) read(ctx context.Context, token string) (Claims, error) {
	first, rest, _ := strings.Cut(token, ".")
	body, last, ok := strings.Cut(rest, ".")
	if !ok || strings.Contains(last, ".") {
		return Claims{}, errors.New("it does not have three parts")
	}
	h, ok := a.headers[first]
	if !ok {
		var err error
		if h, err = readHeader(first); err != nil {
			return Claims{}, err
		}
	}
	p, err := readPayload(body)
	if err != nil {
		return Claims{}, err
	}
	signature, err := decode(last)
	if err != nil {
		return Claims{}, fmt.Errorf("decode its signature: %w", err)
	}

	// Nothing that was read so far is believed before the signature is checked.
	from, ok := a.issuers[p.Issuer]
	if !ok {
		return Claims{}, errors.New("its issuer is missing or unknown")
	}
	key, err := from.key(ctx, h.KeyID)
	if err != nil {
		return Claims{}, err
	}
	if h.Algorithm != key.method.Alg() {
		return Claims{}, errors.New("its algorithm is not that of its key")
	}
	if err := key.method.Verify(token[:len(first)+1+len(body)], signature, key.material); err != nil {
		return Claims{}, err
	}
	return a.claims(&p, from)
}

// claims checks what a token says whose signature is good.
func (a *Authority) claims(p *payload, from *issuer) (Claims, error) {
	if err := a.validate.Validate(p); err != nil {
		return Claims{}, err
	}
	claims := Claims{Subject: p.Subject, Role: model.Role(p.Role), Username: p.Username, Issuer: from.name}
	if from.name == "" { // others know no version of our accounts
		claims.Version = int64(p.Version)
	}
	if err := claims.check(); err != nil {
		return Claims{}, err
	}
	if p.Expires > seconds(a.now().Add(Longest(claims.Role))) {
		return Claims{}, errors.New("its expiry is too far ahead")
	}
	if claims.Role == model.RoleAdmin && !from.admins {
		return Claims{}, errors.New("its issuer may not name administrators")
	}
	return claims, nil
}

// Run keeps the keys of other issuers up to date until ctx ends.
func (a *Authority) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, from := range a.issuers {
		if from.source != nil {
			running.Go(func() { from.run(ctx) })
		}
	}
	running.Wait()
}
