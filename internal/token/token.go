// Package token signs and verifies the JSON Web Tokens by which callers prove who they are: our own with a secret
// (HS256), other issuers' with keys whose public halves verify them (RS, PS and ES 256, 384 and 512, or EdDSA).
// Subject, issuer, audience and expiry are always required, and of our own tokens a role; see Issuer. Every key belongs
// to one issuer and one algorithm; a token chooses neither. Members count by their exact names, and none may come
// twice, so that no two readers read different claims.
package token

import (
	"cmp"
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"seckill/internal/budget"
	"seckill/internal/redact"
	"seckill/model"
)

const (
	// MinSecret is the shortest secret in bytes: RFC 7518, 3.2, requires the size of the hash, 32 bytes of SHA-256.
	MinSecret = 32
	// maxLifetime of a user's token is 400 days, as of cookies (RFC 6265bis, 5.5). Beyond is a mistake, or "never".
	maxLifetime = 400 * budget.Day
)

// Key is one secret and the id by which tokens name it.
type Key struct {
	ID     string // the `kid` of the header
	Secret string // at least MinSecret bytes
}

// String shows the id and not the secret.
func (k Key) String() string { return k.ID + "=" + redact.Mark }

// GoString keeps %#v from showing the secret.
func (k Key) GoString() string { return k.String() }

// Claims is what a token says of its bearer.
type Claims struct {
	Subject  string      // user id, see model.ValidUserID
	Role     model.Role  // user or admin
	Level    model.Level // what an administrator may do; without one, everything
	Username string      // may be empty: other issuers need not tell one
	Version  int64       // of the account, see model.Account; 0: the token is of no account
	Issuer   string      // the other issuer that says so; empty: we do
	Groups   []string    // that the issuer puts the user into

	// SignedInAt is when an administrator gave a password, in s; zero: unknown. ExpiresAt is when such a token ends.
	SignedInAt, ExpiresAt time.Time
}

// Authority issues and verifies tokens. It is safe for concurrent use.
type Authority struct {
	signs    Key
	first    string             // the header of the tokens that it signs
	issuers  map[string]*issuer // by the `iss` of their tokens; we are one of them
	headers  map[string]header  // of our own tokens, by their usual spellings
	refusals *refusals          // nil: nobody hears of them
	name     string             // the `iss` of our own tokens
	audience []string           // the one of our own tokens
	now      func() time.Time
	log      *slog.Logger
	trusted  []Issuer
}

// Option changes how an Authority works.
type Option func(*Authority)

// Clock replaces the clock by which tokens expire and keys grow old.
func Clock(now func() time.Time) Option { return func(a *Authority) { a.now = now } }

// Trust accepts the tokens of other issuers, whose keys are read while Run runs and when a token names an unknown one.
func Trust(log *slog.Logger, issuers ...Issuer) Option {
	return func(a *Authority) { a.log, a.trusted = log, issuers }
}

// New makes an Authority under its name as an issuer. The first key signs, all verify: secrets can be replaced.
func New(keys []Key, name, audience string, options ...Option) (*Authority, error) {
	a := &Authority{name: name, audience: []string{audience}, now: time.Now}
	for _, option := range options {
		option(a)
	}
	if len(keys) == 0 {
		return nil, errors.New("a token authority needs at least one key")
	}
	known := make(map[string]key, len(keys))
	for _, k := range keys {
		if len(k.Secret) < MinSecret {
			return nil, fmt.Errorf("the secret of token key %q has %d bytes and needs at least %d", k.ID, len(k.Secret),
				MinSecret)
		}
		known[k.ID] = key{jwt.SigningMethodHS256, []byte(k.Secret)}
	}
	ours := &issuer{Issuer: Issuer{Admins: true}}
	ours.keys.Store(&known)
	a.issuers = map[string]*issuer{name: ours}
	for _, trusted := range a.trusted {
		if _, twice := a.issuers[trusted.Name]; twice || trusted.Name == "" {
			return nil, fmt.Errorf("the name of the token issuer %q is taken or empty", trusted.Name)
		}
		other, err := newIssuer(trusted, a.now, a.log)
		if err != nil {
			return nil, fmt.Errorf("the token issuer %q: %w", trusted.Name, err)
		}
		a.issuers[trusted.Name] = other
	}
	a.signs = keys[0]
	var err error
	a.first, a.headers, err = usualHeaders(keys)
	return a, err
}

// Issue signs a token that is valid for ttl from now on; JWT counts whole seconds.
func (a *Authority) Issue(claims Claims, ttl time.Duration) (string, error) {
	claims.grade(claims.Level)
	if err := claims.check(); err != nil {
		return "", fmt.Errorf("issue a token: %w", err)
	}
	if most := Longest(claims.Role); ttl < time.Second || ttl > most {
		return "", fmt.Errorf("issue a token: a lifetime of %s for the role %s is not from 1s to %s", ttl, claims.Role,
			most)
	}
	now := a.now()
	says := payload{
		Subject: claims.Subject, Role: string(claims.Role), Level: string(claims.Level), Username: claims.Username,
		Version: claims.Version, Groups: claims.Groups, Issuer: a.name, Audience: a.audience,
		IssuedAt: float64(now.Unix()), Expires: float64(now.Add(ttl).Unix()),
	}
	if !claims.SignedInAt.IsZero() {
		says.SignedIn = float64(claims.SignedInAt.Unix())
	}
	body, err := json.Marshal(says)
	if err != nil {
		return "", fmt.Errorf("issue a token: %w", err)
	}
	unsigned := a.first + "." + base64.RawURLEncoding.EncodeToString(body)
	signature, err := jwt.SigningMethodHS256.Sign(unsigned, []byte(a.signs.Secret))
	if err != nil {
		return "", fmt.Errorf("issue a token: %w", err)
	}
	return unsigned + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

// Invite signs what lets somebody set the password of an account within a day, as long as its version is this one. No
// token for access looks like it.
func (a *Authority) Invite(id string, version int64) (string, error) {
	return a.invite(id, version, a.now().Add(budget.Day).Unix())
}

func (a *Authority) invite(id string, version, until int64) (string, error) {
	says := fmt.Sprintf("invite.%s.%d.%d", id, version, until)
	signature, err := jwt.SigningMethodHS256.Sign(says, []byte(a.signs.Secret))
	return says + "." + base64.RawURLEncoding.EncodeToString(signature), err
}

// Invited is whom an invitation is for; false: it is none of ours, or too old.
func (a *Authority) Invited(invitation string) (id string, version int64, ok bool) {
	parts := strings.Split(invitation, ".")
	if len(parts) != 5 { //nolint:mnd // see invite
		return "", 0, false
	}
	version, _ = strconv.ParseInt(parts[2], 10, 64) // what is wrong is signed otherwise
	until, _ := strconv.ParseInt(parts[3], 10, 64)
	signed, err := a.invite(parts[1], version, until)
	ok = err == nil && hmac.Equal([]byte(signed), []byte(invitation)) && a.now().Unix() < until
	return parts[1], version, ok
}

// grade gives an administrator a level, and nobody else. None stands for admin; check refuses what is no level.
func (c *Claims) grade(said model.Level) {
	c.Level = ""
	if c.Role == model.RoleAdmin {
		c.Level = cmp.Or(said, model.LevelAdmin)
	}
}

func (c Claims) check() error {
	if !model.ValidUserID(c.Subject) {
		return wrongClaim(WrongSubject, fmt.Sprintf("is not a user's id, of 1 to %d of A-Z a-z 0-9 . _ : | @ -",
			model.MaxIDLength))
	}
	if c.Role != model.RoleUser && c.Role != model.RoleAdmin {
		return wrongClaim(WrongRole, "is neither user nor admin")
	}
	if c.Role == model.RoleAdmin && !slices.Contains(model.Levels(), c.Level) {
		return wrongClaim(WrongLevel, "is none of viewer, cashier, operator and admin")
	}
	return nil
}

// Longest is how far ahead the expiry of a token may lie.
func Longest(role model.Role) time.Duration {
	if role == model.RoleAdmin {
		return budget.Week
	}
	return maxLifetime
}

// Verify tells the claims of a token, or an InvalidError. For a token of another issuer that names an unknown key it
// waits for one reading of that issuer's keys, within its limits and ctx. jwt.Parser takes four times as long, and knows
// neither exact names nor crit.
func (a *Authority) Verify(ctx context.Context, token string) (Claims, error) {
	claims, issuer, err := a.read(ctx, token)
	if err != nil {
		a.refused(ctx, issuer, err)
		return Claims{}, err
	}
	return claims, nil
}

// Ended takes note that a good token has ended with its account.
func (a *Authority) Ended(ctx context.Context, claims Claims, err error) {
	a.refused(ctx, cmp.Or(claims.Issuer, a.name), &InvalidError{Reason: AccountChanged, cause: err})
}

func (a *Authority) refused(ctx context.Context, issuer string, err error) {
	if a.refusals == nil {
		return
	}
	why := Unread
	if invalid, ok := errors.AsType[*InvalidError](err); ok {
		why = invalid.Reason
	}
	a.refusals.note(ctx, a.now(), refused{cmp.Or(issuer, Stranger), why}, err)
}

// parts are the parts of a token. Nothing of it is believed.
type parts struct {
	header
	payload

	body      string // which the payload was read from
	signed    string
	signature []byte
}

func (a *Authority) parse(token string) (p parts, err error) {
	first, rest, _ := strings.Cut(token, ".")
	body, last, ok := strings.Cut(rest, ".")
	if !ok || strings.Contains(last, ".") {
		return p, errors.New("it does not have three parts")
	}
	p.body, p.signed = body, token[:len(first)+1+len(body)]
	if p.header, ok = a.headers[first]; !ok {
		if p.header, err = readHeader(first); err != nil {
			return p, err
		}
	}
	if p.payload, err = readPayload(body); err != nil {
		return p, err
	}
	if p.signature, err = decode(last); err != nil {
		return p, fmt.Errorf("decode its signature: %w", err)
	}
	return p, nil
}

// read also tells the issuer, if it is one that is known.
func (a *Authority) read(ctx context.Context, token string) (_ Claims, issuer string, _ error) {
	p, err := a.parse(token)
	if err != nil {
		return Claims{}, "", invalid(Malformed, "%w", err)
	}
	from, ok := a.issuers[p.Issuer]
	if !ok {
		return Claims{}, "", invalid(UnknownIssuer, "its issuer %.100q is missing or unknown", p.Issuer)
	}
	issuer = p.Issuer
	key, err := from.key(ctx, p.KeyID)
	if err != nil {
		return Claims{}, issuer, err
	}
	if p.Algorithm != key.method.Alg() {
		return Claims{}, issuer, invalid(WrongAlgorithm, "its algorithm is not that of its key, %s", key.method.Alg())
	}
	if err := key.method.Verify(p.signed, p.signature, key.material); err != nil {
		return Claims{}, issuer, invalid(WrongSignature, "%w", err)
	}
	claims, err := a.claims(&p, from)
	return claims, issuer, err
}

func (a *Authority) claims(p *parts, from *issuer) (Claims, error) {
	if !p.accesses() {
		return Claims{}, wrongClaim(WrongType, "names another kind of token")
	}
	claims := Claims{Subject: p.Subject, Role: model.Role(p.Role), Username: p.Username, Issuer: from.Name}
	if from.source == nil { // others know no version of our accounts
		claims.Version, claims.Groups = p.Version, p.Groups
		if p.SignedIn != 0 {
			claims.SignedInAt, claims.ExpiresAt = instant(p.SignedIn), instant(p.Expires)
		}
	} else if err := from.tell(p, &claims); err != nil {
		return Claims{}, err
	}
	claims.grade(model.Level(p.Level))
	audiences := a.audience
	if len(from.Audiences) > 0 {
		audiences = from.Audiences
	}
	now := a.now()
	switch wrong := claims.check(); {
	case p.Expires == 0:
		return Claims{}, wrongClaim(WrongExpiry, "is missing")
	case now.Add(-budget.Settled).Compare(instant(p.Expires)) >= 0:
		return Claims{}, wrongClaim(WrongExpiry, "has passed")
	case p.NotBefore != 0 && now.Add(budget.Settled).Before(instant(p.NotBefore)):
		return Claims{}, wrongClaim(WrongNotBefore, "is no time, or still ahead")
	case !slices.ContainsFunc(p.Audience, func(name string) bool { return slices.Contains(audiences, name) }):
		return Claims{}, wrongClaim(WrongAudience, "does not name this service")
	case wrong != nil:
		return Claims{}, wrong
	case now.Add(Longest(claims.Role) + budget.Settled).Before(instant(p.Expires)):
		return Claims{}, wrongClaim(WrongExpiry, "is no time, or too far ahead")
	case claims.Role == model.RoleAdmin && !from.Admins:
		return Claims{}, wrongClaim(WrongRole, "is admin, which its issuer may not name")
	}
	return claims, nil
}

// instant is a time of a token. No clock reaches the year 9999; beyond it the product would overflow.
func instant(seconds float64) time.Time {
	const year9999 = 253402300799
	return time.UnixMicro(int64(min(max(seconds, 0), year9999) * 1e6))
}

func (i *issuer) tell(p *parts, claims *Claims) error {
	said := p.said
	if said == nil {
		decoded, _ := decode(p.body)
		said, _ = readStatement(decoded) // what is usual can be read
	}
	if !said.accesses() {
		return wrongClaim(WrongType, "names another kind of token")
	}
	claims.Role, claims.Groups = said.role(i.Role), said.groups(i.Groups)
	if len(i.Audiences) > 0 && len(p.Audience) == 0 {
		p.Audience = append(said.texts("azp"), said.texts("client_id")...) // OpenID Connect; RFC 9068
	}
	return nil
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
