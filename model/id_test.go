package model_test

import (
	"strings"
	"testing"

	"seckill/model"
)

// TestIDs: users are named by identity providers, everything else by us.
func TestIDs(t *testing.T) {
	t.Parallel()
	for id, of := range map[string]struct{ user, other bool }{
		"a": {true, true}, "A-1_z.9": {true, true}, strings.Repeat("x", 64): {true, true},
		"github:42": {true, false}, "auth0|64b7f0c2": {true, false}, "google-oauth2|1109": {true, false}, "ann@shop.example": {true, false}, "@|:": {true, false},
		"": {false, false}, strings.Repeat("x", 65): {false, false}, "a b": {false, false}, "a/b": {false, false}, "a{b}": {false, false}, "a*": {false, false},
		"ä": {false, false}, "a\x00": {false, false}, "a+b@shop.example": {false, false}, "a%b": {false, false}, "a'b": {false, false}, "~": {false, false}, "}": {false, false},
	} {
		if user, other := model.ValidUserID(id), model.ValidID(id); user != of.user || other != of.other {
			t.Errorf("%q: of a user %t, of something else %t", id, user, other)
		}
	}
}
