//go:build interop

//part:interop

package interop_test

import (
	"strconv"
	"testing"
)

// TestTokensContinue: the fencing tokens of Redisson's RFencedLock and of Go grow in one sequence, whoever comes
// after whom.
func TestTokensContinue(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	java := b.java.thread("fenced")
	for _, first := range []string{"Go", "Java"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			name := name(t)
			last := int64(0)
			next := func(side string, token int64) {
				t.Helper()
				if token <= last {
					t.Fatalf("%s's token is %d, want more than the %d before it", side, token, last)
				}
				last = token
				counter, err := b.redis.Get(t.Context(), "redisson_lock_token:{"+name+"}").Int64()
				if err != nil || counter != token {
					t.Fatalf("the counter stands at %d, error %v; want %s's %d", counter, err, side, token)
				}
				java.begin(t, "token", "fenced", name).want(t, strconv.FormatInt(token, 10))
			}
			goSide := func() {
				t.Helper()
				lease := mustLock(t, b.locks.Mutex(name))
				next("Go", lease.Token())
				inner := mustReenter(t, b, name, lease)
				if inner != lease.Token() {
					t.Fatalf("a re-entry has the token %d, want the same %d", inner, lease.Token())
				}
				mustUnlock(t, lease)
			}
			javaSide := func() {
				t.Helper()
				a := java.begin(t, "locktoken", "fenced", name).wait(t)
				token, err := strconv.ParseInt(a.value, 10, 64)
				if err != nil {
					t.Fatalf("Java's token is %q, error %q", a.value, a.err)
				}
				next("Java", token)
				java.begin(t, "unlock", "fenced", name).want(t, "")
			}
			turns := []func(){goSide, javaSide, javaSide, goSide, goSide, javaSide}
			if first == "Java" {
				turns = turns[1:]
			}
			for _, turn := range turns {
				turn()
			}
			if left := b.ttl(t, "redisson_lock_token:{"+name+"}"); left >= 0 {
				t.Errorf("the counter expires in %v: Java would then begin again at 1", left)
			}
		})
	}
}

// TestTokenOfHandOver: a waiter of Go that is handed the lock inside its process has a new token all the same.
func TestTokenOfHandOver(t *testing.T) {
	t.Parallel()
	b := setup(t, quiet)
	name := name(t)
	first := mustLock(t, b.locks.Mutex(name))
	waiting := begin(t, b.locks.Mutex(name))
	b.waitForWaiters(t, "redisson_lock__channel:{"+name+"}", 1)
	mustUnlock(t, first)
	second := waiting.lease(t)
	if second.Token() <= first.Token() {
		t.Errorf("tokens went from %d to %d, want them to grow", first.Token(), second.Token())
	}
	b.java.thread("reader").begin(t, "token", "fenced", name).want(t, strconv.FormatInt(second.Token(), 10))
	mustUnlock(t, second)
}
