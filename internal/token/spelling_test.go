package token_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// One token has one spelling. Its last character holds bits that say nothing: were they not looked at, whoever has a
// token could write others that mean the same, and a list of tokens that were taken back would not know them.
func TestATokenHasOneSpelling(t *testing.T) {
	t.Parallel()
	a := authority(t)
	good := check.Value(a.Issue(token.Claims{Subject: "1", Role: model.RoleUser}, time.Minute))(t)
	check.Must(t, check.ErrorOf(a.Verify(t.Context(), good)))
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, good[len(good)-1])
	for other := range len(alphabet) {
		if other == last {
			continue
		}
		spelt := good[:len(good)-1] + alphabet[other:other+1]
		if _, err := a.Verify(t.Context(), spelt); !errors.Is(err, token.ErrInvalid) {
			t.Errorf("with %c at the end instead of %c: %v", alphabet[other], alphabet[last], err)
		}
	}
	for _, spelt := range []string{good + "=", good + "\n", strings.Replace(good, ".", ".\r\n", 1)} {
		if _, err := a.Verify(t.Context(), spelt); !errors.Is(err, token.ErrInvalid) {
			t.Errorf("%q: %v", spelt, err)
		}
	}
}
