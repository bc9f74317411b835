package token

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4/json"
	"github.com/golang-jwt/jwt/v5"

	"seckill/internal/budget"
)

type header struct {
	Algorithm string          `json:"alg"`
	KeyID     string          `json:"kid"`
	Type      string          `json:"typ"`
	Critical  json.RawMessage `json:"crit"`
}

// readHeader reads a token's first part. Critical extensions must be understood (RFC 7515, 4.1.11), and none is.
func readHeader(part string) (header, error) {
	var h header
	decoded, err := decode(part)
	if err == nil {
		err = json.Unmarshal(decoded, &h) // by go-jose: encoding/json takes "Role" for "role", and the last of several
	}
	if err != nil {
		return header{}, fmt.Errorf("read its header: %w", err)
	}
	if h.Critical != nil {
		return header{}, errors.New("it needs extensions")
	}
	h.Algorithm = algorithm(h.Algorithm)
	return h, nil
}

// accesses reports whether a `typ` is that of a token for access. The same keys sign others (RFC 8725, section 3.11).
func (h header) accesses() bool {
	name := strings.ToLower(h.Type)
	name, _ = strings.CutPrefix(name, "application/") // RFC 7515, section 4.1.9
	return name == "" || name == "jwt" || name == "at+jwt"
}

// usualHeaders are our own tokens' headers in the two orders of common libraries, and the one that the first key writes.
func usualHeaders(keys []Key) (first string, usual map[string]header, _ error) {
	usual = make(map[string]header, 2*len(keys))
	for _, key := range keys {
		kid, err := json.Marshal(key.ID)
		if err != nil {
			return "", nil, fmt.Errorf("encode the id of a token key: %w", err)
		}
		for _, text := range []string{
			`{"alg":"HS256","kid":` + string(kid) + `,"typ":"JWT"}`,
			`{"alg":"HS256","typ":"JWT","kid":` + string(kid) + `}`,
		} {
			part := base64.RawURLEncoding.EncodeToString([]byte(text))
			first = cmp.Or(first, part)
			usual[part] = header{Algorithm: jwt.SigningMethodHS256.Alg(), KeyID: key.ID, Type: "JWT"}
		}
	}
	return first, usual, nil
}

// payload is the second part of a token. A claim of a wrong type counts as absent, so that who may be told what is wrong
// with a token is told which claim that is; what must not count as absent are a time and a level. Times are seconds
// since 1970; zero: absent.
type payload struct {
	Subject  string   `json:"sub"`
	Role     string   `json:"role"`
	Level    string   `json:"level,omitempty"` // beside the role admin
	Username string   `json:"preferred_username,omitempty"`
	Version  int64    `json:"ver,omitempty"`    // other issuers may mean something else
	Groups   []string `json:"groups,omitempty"` // of our own tokens
	Issuer   string   `json:"iss"`
	Audience []string `json:"aud"`
	IssuedAt float64  `json:"iat,omitempty"` // written for people, never enforced
	// SignedIn is when a password was given (OpenID Connect Core, 2), in our own tokens.
	SignedIn  float64 `json:"auth_time,omitempty"`
	NotBefore float64 `json:"nbf,omitempty"`
	Expires   float64 `json:"exp"`

	said statement // what it was read from; nil: it was usual
}

func readPayload(part string) (payload, error) {
	decoded, err := decode(part)
	if err != nil {
		return payload{}, fmt.Errorf("read its claims: %w", err)
	}
	if usual, ok := readUsual(string(decoded)); ok {
		return usual, nil
	}
	said, err := readStatement(decoded)
	if err != nil {
		return payload{}, fmt.Errorf("read its claims: %w", err)
	}
	return said.payload(), nil
}

// noLevel is that of a claim that says none: an administrator without a level may do all.
const noLevel = "none"

// decode is strict: one token has one spelling. The line breaks that package base64 skips are no part of it.
func decode(part string) ([]byte, error) {
	if strings.ContainsAny(part, "\r\n") {
		return nil, errors.New("it contains a line break")
	}
	return base64.RawURLEncoding.Strict().DecodeString(part)
}

// Reason is why a token is refused: a step that failed, or the claim that is wrong where the signature is good.
type Reason string

// The reasons.
const (
	Malformed      Reason = "malformed" // it is no JWT, or names a member twice
	UnknownIssuer  Reason = "iss"
	UnknownKey     Reason = "kid"
	WrongAlgorithm Reason = "alg"
	WrongSignature Reason = "signature"
	WrongExpiry    Reason = "exp"
	WrongNotBefore Reason = "nbf"
	WrongAudience  Reason = "aud"
	WrongSubject   Reason = "sub"
	WrongRole      Reason = "role"
	WrongLevel     Reason = "level"
	WrongType      Reason = "typ"    // it is a token of another kind
	AccountChanged Reason = "ended"  // its account has changed since, see Authority.Ended
	Unread         Reason = "unread" // its issuer is trusted, but its key is unknown and was not read since
)

// Stranger stands for the issuers that are not known, whatever their tokens say.
const Stranger = "unknown"

// Reasons lists every reason.
func Reasons() []Reason {
	return []Reason{
		Malformed, UnknownIssuer, UnknownKey, WrongAlgorithm, WrongSignature, WrongExpiry, WrongNotBefore,
		WrongAudience,
		WrongSubject, WrongRole, WrongLevel, WrongType, AccountChanged, Unread,
	}
}

// InvalidError is the error of every token that cannot be trusted, with a text for the log. Detail is for the bearer,
// empty without a good signature. RetryAfter is when to ask again what is Unread.
type InvalidError struct {
	Reason     Reason
	Detail     string
	RetryAfter time.Duration

	cause error
}

func (e *InvalidError) Error() string { return fmt.Sprintf("invalid token: %v", e.cause) }

// Unwrap gives the cause.
func (e *InvalidError) Unwrap() error { return e.cause }

// invalid refuses a token without a word to its bearer, who need not be its owner.
func invalid(why Reason, format string, args ...any) error {
	return &InvalidError{Reason: why, cause: fmt.Errorf(format, args...)}
}

func wrongClaim(claim Reason, says string) error {
	text := fmt.Sprintf("its %s %s", claim, says)
	return &InvalidError{
		Reason: claim, Detail: fmt.Sprintf("The token is not accepted: %s.", text),
		cause: errors.New(text),
	}
}

type refusals struct {
	log   *slog.Logger
	count func(issuer string, why Reason)

	mu   sync.Mutex
	told map[refused]telling
}

type refused struct {
	issuer string
	why    Reason
}

type telling struct {
	at     time.Time
	unsaid int // refusals since
}

// Report counts refused tokens, and logs one a minute for each issuer and reason: anybody can send bad ones.
func Report(log *slog.Logger, count func(issuer string, why Reason)) Option {
	return func(a *Authority) {
		a.refusals = &refusals{log: log, count: count, told: map[refused]telling{}}
	}
}

func (r *refusals) note(ctx context.Context, now time.Time, what refused, err error) {
	r.count(what.issuer, what.why)
	r.mu.Lock()
	last, seen := r.told[what]
	quiet := seen && now.Sub(last.at) < budget.Survey
	if quiet {
		r.told[what] = telling{last.at, last.unsaid + 1}
	} else {
		r.told[what] = telling{at: now}
	}
	r.mu.Unlock()
	if !quiet {
		r.log.InfoContext(ctx, "a token is refused", slog.String("issuer", what.issuer),
			slog.String("reason", string(what.why)), slog.Int("not_logged_since", last.unsaid), slog.Any("error", err))
	}
}

// readUsual reads most tokens in a fortieth of the library's time: a flat object without blanks, known
// members, each once, plain ASCII strings, whole numbers. All else is for the JSON library, with the same claims.
func readUsual(text string) (payload, bool) {
	u := usual{rest: text}
	ok := u.skip('{')
	for ok && u.member() && u.skip(',') {
	}
	ok = ok && !u.odd && u.skip('}') && u.rest == ""
	return u.payload, ok
}

// usual is a text that is being read from its beginning.
type usual struct {
	payload

	rest string
	seen int  // a bit for each member
	odd  bool // it is for the library
}

// member reads one member. It reports whether another one may follow.
func (u *usual) member() bool {
	name := u.text()
	u.need(':')
	bit := 0
	switch name {
	case "sub":
		bit, u.Subject = 1, u.text()
	case "role":
		bit, u.Role = 1<<1, u.text()
	case "level":
		bit, u.Level = 1<<9, cmp.Or(u.text(), noLevel)
	case "preferred_username":
		bit, u.Username = 1<<2, u.text()
	case "iss":
		bit, u.Issuer = 1<<3, u.text()
	case "aud":
		bit, u.Audience = 1<<4, u.list()
	case "ver":
		bit, u.Version = 1<<5, u.number()
	case "iat":
		bit, u.IssuedAt = 1<<6, float64(u.number())
	case "nbf":
		bit, u.NotBefore = 1<<7, float64(u.number())
	case "exp":
		bit, u.Expires = 1<<8, float64(u.number())
	default:
		u.odd = true
	}
	u.odd = u.odd || u.seen&bit != 0
	u.seen |= bit
	return !u.odd
}

func (u *usual) skip(c byte) bool {
	if u.rest == "" || u.rest[0] != c {
		return false
	}
	u.rest = u.rest[1:]
	return true
}

func (u *usual) need(c byte) { u.odd = !u.skip(c) || u.odd }

func (u *usual) text() string {
	u.need('"')
	end := strings.IndexByte(u.rest, '"')
	if end < 0 {
		u.odd = true
		return ""
	}
	text := u.rest[:end]
	u.rest = u.rest[end+1:]
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '\\' {
			u.odd = true
		}
	}
	return text
}

func (u *usual) list() []string {
	several := u.skip('[')
	one := []string{u.text()}
	if several {
		u.need(']')
	}
	return one
}

const maxDigits = 15 // of a number: they fit into a float64 exactly

func (u *usual) number() (n int64) {
	digits := 0
	for ; digits < len(u.rest) && u.rest[digits]-'0' <= 9; digits++ {
		n = 10*n + int64(u.rest[digits]-'0')
		if digits == maxDigits {
			break
		}
	}
	if digits == 0 || digits == maxDigits || digits > 1 && u.rest[0] == '0' {
		u.odd = true
	}
	u.rest = u.rest[digits:]
	return n
}
