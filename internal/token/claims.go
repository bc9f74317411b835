package token

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/json"
	"github.com/golang-jwt/jwt/v5"
)

// header is the first part of a token.
type header struct {
	Algorithm string          `json:"alg"`
	KeyID     string          `json:"kid"`
	Type      string          `json:"typ"`
	Critical  json.RawMessage `json:"crit"`
}

// readHeader reads the first part of a token. Extensions that are marked
// critical must be understood (RFC 7515, section 4.1.11), and none is.
func readHeader(part string) (header, error) {
	var h header
	if err := read(part, &h); err != nil {
		return header{}, fmt.Errorf("read its header: %w", err)
	}
	if h.Critical != nil {
		return header{}, errors.New("it needs extensions")
	}
	h.Algorithm = algorithm(h.Algorithm)
	return h, nil
}

// accesses reports whether a `typ` is that of a token for access. An issuer signs others with the same keys, for
// the same people: logout tokens, security events, refresh tokens. Each kind has a name (RFC 8725, section 3.11).
func (h header) accesses() bool {
	name := strings.ToLower(h.Type)
	name, _ = strings.CutPrefix(name, "application/") // RFC 7515, section 4.1.9
	return name == "" || name == "jwt" || name == "at+jwt"
}

// usualHeaders are the headers our own tokens have, in the two orders of the
// members that common libraries write: they need not be read again and again.
func usualHeaders(keys []Key) (map[string]header, error) {
	usual := make(map[string]header, 2*len(keys))
	for _, key := range keys {
		kid, err := json.Marshal(key.ID)
		if err != nil {
			return nil, fmt.Errorf("encode the id of a token key: %w", err)
		}
		for _, text := range []string{
			`{"alg":"HS256","kid":` + string(kid) + `,"typ":"JWT"}`,
			`{"alg":"HS256","typ":"JWT","kid":` + string(kid) + `}`,
		} {
			part := base64.RawURLEncoding.EncodeToString([]byte(text))
			if usual[part], err = readHeader(part); err != nil {
				return nil, err
			}
		}
	}
	return usual, nil
}

// payload is the second part of a token, as it is written. A claim of a wrong type counts as absent, so that who may be
// told what is wrong with a token is told which claim that is; what must not count as absent is a time, see instant.
type payload struct {
	Subject   words    `json:"sub"`
	Role      words    `json:"role"`
	Level     level    `json:"level,omitempty"` // beside the role admin
	Username  words    `json:"preferred_username,omitempty"`
	Version   version  `json:"ver,omitempty"`
	Groups    audience `json:"groups,omitempty"` // of our own tokens
	Issuer    words    `json:"iss"`
	Audience  audience `json:"aud"`
	IssuedAt  unread   `json:"iat,omitempty"`       // written for people, never enforced
	SignedIn  instant  `json:"auth_time,omitempty"` // of our own tokens: when a password was given (OpenID Connect Core, 2)
	NotBefore instant  `json:"nbf,omitempty"`
	Expires   instant  `json:"exp"`
}

func readPayload(part string) (payload, error) {
	decoded, err := decode(part)
	if err == nil {
		if usual, ok := readUsual(string(decoded)); ok {
			return usual, nil
		}
	}
	var p payload
	if err == nil {
		err = json.Unmarshal(decoded, &p)
	}
	if err != nil {
		return payload{}, fmt.Errorf("read its claims: %w", err)
	}
	return p, nil
}

// read reads the JSON of one part of a token. The JSON library is that of go-jose, because encoding/json takes "Role"
// and "ſub" for "role" and "sub", and the last of several members of one name for the right one.
func read(part string, into any) error {
	decoded, err := decode(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(decoded, into)
}

// decode is strict: one token has one spelling. The line breaks that package base64 skips are no part of it.
func decode(part string) ([]byte, error) {
	if strings.ContainsAny(part, "\r\n") {
		return nil, errors.New("it contains a line break")
	}
	return base64.RawURLEncoding.Strict().DecodeString(part)
}

var _ jwt.Claims = (*payload)(nil)

// words is a text.
type words string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, (*string)(w)) != nil {
		*w = ""
	}
	return nil
}

// level is a text that must not count as absent where it is none, because an
// administrator without a level may do everything.
type level string

// noLevel is that of a claim that says none.
const noLevel level = "none"

// UnmarshalJSON implements json.Unmarshaler.
func (l *level) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, (*string)(l)) != nil || *l == "" {
		*l = noLevel
	}
	return nil
}

// instant is a time as JWT counts it: seconds since 1970; zero: absent. What is no
// number lies ahead of all times, so that it is neither valid yet nor an expiry.
type instant float64

func instantOf(at time.Time) instant { return instant(at.Unix()) }

// UnmarshalJSON implements json.Unmarshaler.
func (i *instant) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, (*float64)(i)) != nil {
		*i = math.MaxFloat64
	}
	return nil
}

// unread is a number that is written and never read, because other issuers may write anything there.
type unread float64

// UnmarshalJSON implements json.Unmarshaler.
func (*unread) UnmarshalJSON([]byte) error { return nil }

// version is a number of ours. Whatever else stands there (of some issuers it is
// the text "2.0") says nothing about an account.
type version int64

// UnmarshalJSON implements json.Unmarshaler.
func (v *version) UnmarshalJSON(text []byte) error {
	number, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		number = 0
	}
	*v = version(number)
	return nil
}

// date is a time as the jwt library wants it: nil when it is absent.
func (i instant) date() *jwt.NumericDate {
	if i == 0 {
		return nil
	}
	// No clock reaches the year 9999; beyond it the product would overflow.
	const year9999 = 253402300799
	return &jwt.NumericDate{Time: time.UnixMicro(int64(min(max(i, 0), year9999) * 1e6))}
}

func (p *payload) GetExpirationTime() (*jwt.NumericDate, error) { return p.Expires.date(), nil }
func (p *payload) GetNotBefore() (*jwt.NumericDate, error)      { return p.NotBefore.date(), nil }
func (p *payload) GetIssuer() (string, error)                   { return string(p.Issuer), nil }
func (p *payload) GetSubject() (string, error)                  { return string(p.Subject), nil }
func (p *payload) GetAudience() (jwt.ClaimStrings, error)       { return jwt.ClaimStrings(p.Audience), nil }

// GetIssuedAt says that the time is absent, so that it is not enforced.
func (*payload) GetIssuedAt() (*jwt.NumericDate, error) {
	return nil, nil //nolint:nilnil // this is how the interface says "absent"
}

// audience is one name or a list of them: RFC 7519, section 4.1.3, allows both. Groups are written alike.
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audience{one}
	} else if json.Unmarshal(text, (*[]string)(a)) != nil {
		*a = nil
	}
	return nil
}
