package password

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"seckill/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHashAndVerify(t *testing.T) {
	t.Parallel()
	h := New(1)
	for _, secret := range []string{"correct horse", "пароль и 密码", strings.Repeat("x", 128), "$argon2id$v=19$"} {
		hash, err := h.Hash(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
			t.Errorf("the hash is %q", hash)
		}
		if ok, err := h.Verify(t.Context(), secret, hash); !ok || err != nil {
			t.Errorf("its own password: %v, %v", ok, err)
		}
		if ok, err := h.Verify(t.Context(), secret+" ", hash); ok || err != nil {
			t.Errorf("another password: %v, %v", ok, err)
		}
	}
}

func TestTwoHashesOfOnePasswordDiffer(t *testing.T) {
	t.Parallel()
	h := New(2)
	first, err := h.Hash(t.Context(), "correct horse")
	if err != nil {
		t.Fatal(err)
	}
	second, err := h.Hash(t.Context(), "correct horse")
	if err != nil {
		t.Fatal(err)
	}
	if first == second {
		t.Error("the salt is not random")
	}
}

// A hash that another implementation made: the reference one
// (`echo -n password | argon2 somesalt -id -t 2 -k 65536 -p 1 -e`).
func TestKnownHash(t *testing.T) {
	t.Parallel()
	const reference = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	if ok, err := New(1).Verify(t.Context(), "password", reference); !ok || err != nil {
		t.Errorf("Verify = %v, %v", ok, err)
	}
}

func TestUnknownUserMatchesNothingAndComputesAllTheSame(t *testing.T) {
	t.Parallel()
	h := New(1, Patience(time.Millisecond))
	for _, secret := range []string{"", "correct horse"} {
		if ok, err := h.Verify(t.Context(), secret, ""); ok || err != nil {
			t.Errorf("Verify(%q) = %v, %v", secret, ok, err)
		}
	}
	// That it computes is seen without measuring time: it needs a turn.
	h.turns <- struct{}{}
	if _, err := h.Verify(t.Context(), "correct horse", ""); model.CodeOf(err) != model.CodeUnavailable {
		t.Errorf("without a turn: %v", err)
	}
}

func TestStoredHashesAreBounded(t *testing.T) {
	t.Parallel()
	const tail = "$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	h := New(1)
	for name, phc := range map[string]string{
		"plain":           "correct horse",
		"argon2i":         "$argon2i$v=19$m=65536,t=2,p=1" + tail,
		"old version":     "$argon2id$v=16$m=65536,t=2,p=1" + tail,
		"much memory":     "$argon2id$v=19$m=4194304,t=2,p=1" + tail,
		"little memory":   "$argon2id$v=19$m=1,t=2,p=1" + tail,
		"many iterations": "$argon2id$v=19$m=65536,t=99,p=1" + tail,
		"no iterations":   "$argon2id$v=19$m=65536,t=0,p=1" + tail,
		"no lanes":        "$argon2id$v=19$m=65536,t=2,p=0" + tail,
		"lanes overflow":  "$argon2id$v=19$m=65536,t=2,p=257" + tail,
		"trailing text":   "$argon2id$v=19$m=65536,t=2,p=1,x=1" + tail,
		"no key":          "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$",
		"short salt":      "$argon2id$v=19$m=65536,t=2,p=1$c29t$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
		"bad base64":      "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$!!!",
	} {
		if ok, err := h.Verify(t.Context(), "password", phc); ok || err == nil {
			t.Errorf("%s: Verify = %v, %v", name, ok, err)
		}
	}
}

func TestWaitingIsBounded(t *testing.T) {
	t.Parallel()
	h := New(1, Patience(time.Millisecond))
	h.turns <- struct{}{} // a computation that never ends
	if _, err := h.Hash(t.Context(), "correct horse"); model.CodeOf(err) != model.CodeUnavailable {
		t.Errorf("Hash: %v, want UNAVAILABLE", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Hash(canceled, "correct horse"); !errors.Is(err, context.Canceled) {
		t.Errorf("Hash after the request had ended: %v", err)
	}
	<-h.turns
	if _, err := h.Hash(t.Context(), "correct horse"); err != nil {
		t.Errorf("Hash after the turn came free: %v", err)
	}
}

func TestAStormPassesInTurns(t *testing.T) {
	t.Parallel()
	h := New(2, Patience(time.Minute))
	var storm sync.WaitGroup
	for range 12 {
		storm.Go(func() {
			if ok, err := h.Verify(t.Context(), "correct horse", ""); ok || err != nil {
				t.Errorf("Verify = %v, %v", ok, err)
			}
			if n := len(h.turns); n > 2 {
				t.Errorf("%d at once", n)
			}
		})
	}
	storm.Wait()
	if len(h.turns) != 0 {
		t.Error("a turn was not given back")
	}
}

func BenchmarkVerify(b *testing.B) {
	h := New(1)
	for b.Loop() {
		if _, err := h.Verify(b.Context(), "correct horse", ""); err != nil {
			b.Fatal(err)
		}
	}
}
