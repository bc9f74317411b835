package password

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var anybody = Caller{Address: "192.0.2.1"}

func (h *Hasher) verifies(t *testing.T, typed, phc string, want bool) {
	t.Helper()
	ok, err := h.Verify(t.Context(), anybody, typed, phc)
	check.That(t, ok == want && err == nil, "%+q matches %q: %v, %v", typed, phc, ok, err)
}

func TestHashAndVerify(t *testing.T) {
	t.Parallel()
	h := New(1)
	made := map[string]bool{}
	for _, secret := range []string{"correct horse", "correct horse", "пароль и 密码", strings.Repeat("x", 128), "$argon2id$v=19$"} {
		hash := check.Value(h.Hash(t.Context(), anybody, secret))(t)
		check.That(t, strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") && !made[hash],
			"%q: a salt makes it another one each time", hash)
		made[hash] = true
		h.verifies(t, secret, hash, true)
		h.verifies(t, secret+" ", hash, false)
	}
}

// TestSpellings: a password is the same on every keyboard.
func TestSpellings(t *testing.T) {
	t.Parallel()
	h := New(1)
	for _, same := range [][]string{
		{"caf\u00e9 cr\u00e8me", "cafe\u0301 cre\u0300me", "cafe\u0301 cr\u00e8me"},
		{"\ufb01nancier no \u2461", "financier no 2"},
		{"\uff50\uff41\uff53\uff53\u3000word", "pass word"},
		{"\u1112\u1161\u11ab\u1100\u1173\u11af", "\ud55c\uae00"},
	} {
		for _, made := range same {
			hash := check.Value(h.Hash(t.Context(), anybody, made))(t)
			for _, typed := range same {
				h.verifies(t, typed, hash, true)
			}
			h.verifies(t, made+".", hash, false)
		}
	}
}

// A hash of the reference implementation (`echo -n password | argon2 somesalt -id -t 2 -k 65536 -p 1 -e`).
func TestKnownHash(t *testing.T) {
	t.Parallel()
	const reference = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	New(1).verifies(t, "password", reference, true)
}

// impatient makes a hasher whose callers do not wait for a turn.
func impatient() *Hasher {
	h := New(1)
	h.patience = time.Millisecond
	return h
}

func isBusy(t *testing.T, err error) {
	t.Helper()
	refusal, ok := errors.AsType[*model.Error](err)
	away := ok && refusal.Code == model.CodeRateLimited && refusal.RetryAfter >= budget.Work/2 &&
		refusal.RetryAfter <= budget.Work
	check.That(t, away, "%v, want RATE_LIMITED", err)
}

func TestUnknownUserMatchesNothingAndComputesAllTheSame(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"", "correct horse"} {
		New(1).verifies(t, secret, "", false)
	}
	// That it computes is seen without measuring time: it needs a turn.
	h := impatient()
	h.turns <- struct{}{}
	isBusy(t, check.ErrorOf(h.Verify(t.Context(), anybody, "correct horse", "")))
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
		ok, err := h.Verify(t.Context(), anybody, "password", phc)
		check.That(t, !ok && err != nil, "%s: Verify = %v, %v", name, ok, err)
	}
}

func TestWaitingIsBounded(t *testing.T) {
	t.Parallel()
	h := impatient()
	h.turns <- struct{}{} // a computation that never ends
	isBusy(t, check.ErrorOf(h.Hash(t.Context(), anybody, "correct horse")))
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	check.Is(t, "after the request had ended", check.ErrorOf(h.Hash(canceled, anybody, "correct horse")),
		context.Canceled)
	<-h.turns
	h.patience = check.Deadline
	check.Must(t, check.ErrorOf(h.Hash(t.Context(), anybody, "correct horse")))
}

// cheap makes a hasher whose hashes cost next to nothing, and whose callers wait for as long as they have to.
func cheap(concurrency int) *Hasher {
	h := New(concurrency)
	h.patience = check.Deadline
	h.unknown.memory, h.unknown.iterations = 8, 1
	return h
}

func TestAStormPassesInTurns(t *testing.T) {
	t.Parallel()
	h := cheap(2)
	check.Volley(maxWaiting, func(i int) {
		caller := Caller{Address: strconv.Itoa(i % (maxWaiting / maxOfOne))}
		ok, err := h.Verify(t.Context(), caller, "correct horse", "")
		check.That(t, !ok && err == nil, "Verify = %v, %v", ok, err)
		n := len(h.turns)
		check.That(t, n <= 2, "%d at once", n)
	})
	check.Eventually(t, "turns and places are given back", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.turns) == 0 && h.waiting == 0 && len(h.callers) == 0
	})
}

// Callers beyond the places leave at once. One caller, or those that failed lately, cannot take the others' places.
func TestPlacesAreShared(t *testing.T) {
	t.Parallel()
	h := cheap(1)
	h.turns <- struct{}{} // a computation that never ends
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	wait := func(n int, address string, doubtful bool) {
		t.Helper()
		h.mu.Lock()
		want := h.waiting + n
		h.mu.Unlock()
		for i := range n {
			caller := Caller{Address: address, Doubtful: doubtful}
			if address == "" {
				caller.Address = strconv.Itoa(want + i)
			}
			waiting.Go(func() {
				check.Is(t, "it has a place", check.ErrorOf(h.Hash(ctx, caller, "correct horse")), context.Canceled)
			})
		}
		check.Eventually(t, "they wait", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.waiting == want
		})
	}
	sentAway := func(caller Caller) {
		t.Helper()
		isBusy(t, check.ErrorOf(h.Hash(ctx, caller, "correct horse")))
	}
	wait(maxOfOne, "greedy", false)
	sentAway(Caller{Address: "greedy"})
	wait(maxDoubtful-maxOfOne, "", true)
	sentAway(Caller{Address: "doubtful", Doubtful: true})
	wait(maxWaiting-maxDoubtful, "", false)
	sentAway(Caller{Address: "late"})
	cancel()
	waiting.Wait()
	check.That(t, h.waiting == 0 && len(h.callers) == 0, "%d places were not given back, of %v", h.waiting, h.callers)
}
