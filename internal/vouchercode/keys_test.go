package vouchercode

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"seckill/internal/workshop/check"
)

const secret = "a secret that has more than 32 bytes"

func TestKeysNeedASecret(t *testing.T) {
	t.Parallel()
	if _, err := NewKeys(secret[:31]); err == nil {
		t.Error("31 bytes are taken for a secret")
	}
	if _, err := NewKeys(secret[:32]); err != nil {
		t.Errorf("32 bytes: %v", err)
	}
}

func TestACodeIsFoundBySecretAlone(t *testing.T) {
	t.Parallel()
	keys, others := check.Value(NewKeys(secret))(t), check.Value(NewKeys(secret+"!"))(t)
	rapid.Check(t, func(t *rapid.T) {
		code, other := codes.Draw(t, "code"), codes.Draw(t, "another code")
		typed, err := Parse(strings.ToLower(code.Reveal()))
		if err != nil || !bytes.Equal(keys.Hash(code), keys.Hash(typed)) {
			t.Fatalf("the same code has another hash: %v", err)
		}
		if bytes.Equal(keys.Hash(code), others.Hash(code)) {
			t.Fatal("another secret gives the same hash")
		}
		if same := code.Reveal() == other.Reveal(); same != bytes.Equal(keys.Hash(code), keys.Hash(other)) {
			t.Fatal("two codes have one hash")
		}
	})
}

func TestACodeOpensForItsOrder(t *testing.T) {
	t.Parallel()
	keys, others := check.Value(NewKeys(secret))(t), check.Value(NewKeys(secret+"!"))(t)
	rapid.Check(t, func(t *rapid.T) {
		code := codes.Draw(t, "code")
		sealed := keys.Seal(code, "order.1")
		if len(sealed) != 48 || bytes.Contains(sealed, []byte(code.plain())) || bytes.Equal(sealed, keys.Seal(code, "order.1")) {
			t.Fatalf("a sealed code is %x", sealed)
		}
		opened, err := keys.Open(sealed, "order.1")
		if err != nil || opened.Reveal() != code.Reveal() {
			t.Fatalf("opened it is %s, %v", opened.Reveal(), err)
		}
		changed := slices.Clone(sealed)
		changed[rapid.IntRange(0, len(sealed)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		for what, try := range map[string]func() (Code, error){
			"of another order":    func() (Code, error) { return keys.Open(sealed, "order.2") },
			"with another secret": func() (Code, error) { return others.Open(sealed, "order.1") },
			"with a changed bit":  func() (Code, error) { return keys.Open(changed, "order.1") },
			"cut":                 func() (Code, error) { return keys.Open(sealed[:20], "order.1") },
			"missing":             func() (Code, error) { return keys.Open(nil, "order.1") },
		} {
			if got, err := try(); err == nil || !got.IsZero() || strings.Contains(err.Error(), code.plain()) {
				t.Fatalf("a code %s: %s, %v", what, got.Reveal(), err)
			}
		}
	})
}

// What finds codes and what seals them must not be one key, and neither is printed.
func TestKeysAreApartAndSecret(t *testing.T) {
	t.Parallel()
	keys := check.Value(NewKeys(secret))(t)
	code := New()
	if bytes.Contains(keys.Seal(code, ""), keys.Hash(code)[:8]) {
		t.Error("a sealed code has its hash in it")
	}
	printed := fmt.Sprintf("%v %+v %#v %s %x %d", keys, keys, keys, keys, keys, keys)
	if strings.Contains(printed, hex.EncodeToString(keys.lookUp)) || strings.Contains(printed, fmt.Sprintf("%d", keys.lookUp)) {
		t.Error("the key is printed")
	}
}
