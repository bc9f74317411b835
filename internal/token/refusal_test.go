package token_test

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestRefusalsSayWhy: the bearer of a token whose signature is good is told the claim that is wrong, and nobody else anything; every
// reason is counted.
func TestRefusalsSayWhy(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k", jwt.SigningMethodEdDSA)
	hs := func(header, claims members) string {
		return forge(t, jwt.SigningMethodHS256, []byte(secret), header, claims)
	}
	now := time.Now()
	for name, test := range map[string]struct {
		token  string
		issuer string
		reason token.Reason
		detail string // a part of it
	}{
		"nonsense":           {"nonsense", token.Stranger, token.Malformed, ""},
		"two subjects":       {signRaw(t, jwt.SigningMethodHS256, []byte(secret), `{"alg":"HS256","kid":"1"}`, `{"sub":"1","sub":"2"}`), token.Stranger, token.Malformed, ""},
		"another issuer":     {hs(nil, members{"iss": "x"}), token.Stranger, token.UnknownIssuer, ""},
		"no issuer":          {hs(nil, members{"iss": 1}), token.Stranger, token.UnknownIssuer, ""},
		"another key":        {hs(members{"kid": "2"}, nil), "seckill", token.UnknownKey, ""},
		"another algorithm":  {hs(members{"alg": "HS512"}, nil), "seckill", token.WrongAlgorithm, ""},
		"another's secret":   {forge(t, jwt.SigningMethodHS256, []byte(other), nil, members{"exp": 1}), "seckill", token.WrongSignature, ""},
		"expired":            {hs(nil, members{"exp": now.Add(-time.Minute).Unix()}), "seckill", token.WrongExpiry, "its exp has passed"},
		"no expiry":          {hs(nil, members{"exp": nil}), "seckill", token.WrongExpiry, "its exp is missing"},
		"expiry is a text":   {hs(nil, members{"exp": "tomorrow"}), "seckill", token.WrongExpiry, "its exp is no time"},
		"milliseconds":       {hs(nil, members{"exp": now.UnixMilli()}), "seckill", token.WrongExpiry, "too far ahead"},
		"not yet":            {hs(nil, members{"nbf": now.Add(time.Minute).Unix()}), "seckill", token.WrongNotBefore, "its nbf is no time, or still ahead"},
		"nbf is a text":      {hs(nil, members{"nbf": "now"}), "seckill", token.WrongNotBefore, "its nbf"},
		"another audience":   {hs(nil, members{"aud": "x"}), "seckill", token.WrongAudience, "its aud does not name this service"},
		"no audience":        {hs(nil, members{"aud": nil}), "seckill", token.WrongAudience, "its aud"},
		"audience is number": {hs(nil, members{"aud": []int{1}}), "seckill", token.WrongAudience, "its aud"},
		"subject":            {hs(nil, members{"sub": "a b"}), "seckill", token.WrongSubject, "its sub is not a user's id, of 1 to 64 of A-Z a-z 0-9 . _ : | @ -"},
		"subject is number":  {hs(nil, members{"sub": 1}), "seckill", token.WrongSubject, "its sub"},
		"no role":            {hs(nil, members{"role": nil}), "seckill", token.WrongRole, "its role is neither user nor admin"},
		"unknown level":      {hs(nil, members{"role": "admin", "level": "root"}), "seckill", token.WrongLevel, "its level is none of"},
		"role is a list":     {hs(nil, members{"role": []string{"admin"}}), "seckill", token.WrongRole, "its role"},
		"administrator":      {s.sign(t, "shop", members{"role": "admin"}), "shop", token.WrongRole, "its role is admin, which its issuer may not name"},
		"expired there":      {s.sign(t, "shop", members{"exp": 1}), "shop", token.WrongExpiry, "its exp has passed"},
		"key is not known":   {newSigner(t, "x", s.method).sign(t, "shop", nil), "shop", token.Unread, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &check.Log{}
			var counted []string
			a := authority(t, token.Trust(slog.New(slog.DiscardHandler), token.Issuer{Name: "shop", Keys: newPublisher(t, s).URL}),
				token.Report(log.Logger(), func(issuer string, why token.Reason) { counted = append(counted, issuer+" "+string(why)) }))
			accepted(t, a, s.sign(t, "shop", nil), of("shop")) // its keys are read
			_, err := a.Verify(t.Context(), test.token)
			invalid, ok := errors.AsType[*token.InvalidError](err)
			if ok != (test.reason != token.Unread) {
				t.Fatalf("Verify = %v", err)
			}
			if ok && (invalid.Reason != test.reason || (invalid.Detail == "") != (test.detail == "") || !strings.Contains(invalid.Detail, test.detail)) {
				t.Errorf("%s: %q, want %s: %q", invalid.Reason, invalid.Detail, test.reason, test.detail)
			}
			if want := []string{test.issuer + " " + string(test.reason)}; !slices.Equal(counted, want) {
				t.Errorf("counted %q, want %q", counted, want)
			}
			if !log.Has("level=INFO", "a token is refused", "issuer="+test.issuer, "reason="+string(test.reason), "error=") {
				t.Errorf("the log says %s", log)
			}
		})
	}
}

// TestRefusalsAreLoggedOnceAMinute: whoever sends bad tokens fills no log, and hides no other issuer's, nor another reason.
func TestRefusalsAreLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	log, c := &check.Log{}, newClock()
	var mu sync.Mutex
	counted := 0
	a := authority(t, token.Clock(c.Now), token.Report(log.Logger(), func(string, token.Reason) {
		mu.Lock()
		defer mu.Unlock()
		counted++
	}))
	expired := forge(t, jwt.SigningMethodHS256, []byte(secret), nil, members{"exp": 1})
	for minute, want := range []int{1, 2, 3} {
		check.Volley(100, func(int) { _, _ = a.Verify(t.Context(), expired) })
		if got := strings.Count(log.String(), "reason=exp"); got != want {
			t.Errorf("minute %d: %d lines\n%s", minute+1, got, log)
		}
		c.advance(59 * time.Second)
		_, _ = a.Verify(t.Context(), expired)
		c.advance(time.Second)
	}
	a.Ended(t.Context(), token.Claims{Subject: "1", Role: model.RoleUser}, errors.New("the password was changed"))
	check.Equal(t, "counted", counted, 304)
	if !log.Has("reason=exp", "not_logged_since=100") || !log.Has("issuer=seckill", "reason=ended", "the password was changed") {
		t.Errorf("the log says\n%s", log)
	}
	check.Equal(t, "lines", strings.Count(log.String(), "\n"), 4)
}

// TestStrangersNamesAreCutShort: what stands in a token that nobody has signed is data.
func TestStrangersNamesAreCutShort(t *testing.T) {
	t.Parallel()
	log := &check.Log{}
	a := authority(t, token.Report(log.Logger(), func(string, token.Reason) {}))
	_, _ = a.Verify(t.Context(), forge(t, jwt.SigningMethodHS256, []byte(other), nil, members{"iss": "x\n" + strings.Repeat("é", 5000)}))
	if line := log.String(); strings.Count(line, "\n") != 1 || len(line) > 600 || !log.Has("reason=iss") {
		t.Errorf("the log says\n%s", line)
	}
}
