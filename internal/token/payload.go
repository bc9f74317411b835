package token

import (
	"encoding/json"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

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

// unread is a number that is written and never read, whatever others put there.
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

// GetIssuedAt says that the time is absent, which is how it is not enforced.
func (*payload) GetIssuedAt() (*jwt.NumericDate, error) {
	return nil, nil //nolint:nilnil // this is how the interface says "absent"
}
