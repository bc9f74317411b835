package token_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestRefusalsOfOthersSayWhy: as TestVerify has it of our own tokens, the bearer of a token whose signature is good is
// told the claim that is wrong, and the refusal is counted for its issuer.
func TestRefusalsOfOthersSayWhy(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k", jwt.SigningMethodEdDSA)
	var counted []string
	a := authority(t, token.Trust(slog.New(slog.DiscardHandler), token.Issuer{Name: "shop", Keys: newPublisher(t, s).URL}),
		token.Report(slog.New(slog.DiscardHandler), func(issuer string, why token.Reason) { counted = append(counted, issuer+" "+string(why)) }))
	accepted(t, a, s.sign(t, "shop", nil), of("shop")) // its keys are read
	for _, test := range []struct{ token, detail string }{
		{s.sign(t, "shop", members{"role": "admin"}), "its role is admin, which its issuer may not name"},
		{s.sign(t, "shop", members{"exp": 1}), "its exp has passed"},
	} {
		_, err := a.Verify(t.Context(), test.token)
		if invalid, ok := errors.AsType[*token.InvalidError](err); !ok || !strings.Contains(invalid.Detail, test.detail) {
			t.Errorf("Verify = %v, want %q", err, test.detail)
		}
	}
	unknownYet(t, a, newSigner(t, "x", s.method).sign(t, "shop", nil))
	check.Equal(t, "what is counted", strings.Join(counted, ", "), "shop role, shop exp, shop unread")
}

// TestRefusalsAreLoggedOnceAMinute: whoever sends bad tokens fills no log, and hides no other issuer's, nor another
// reason.
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
