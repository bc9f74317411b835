//go:build faults

//part:locks

package lock_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// pair is a primary with a replica behind a line of its own.
type pair struct {
	primary, replica *testserver.Server
	line             *testserver.Line
	now              *redis.Client // whoever is primary
}

func newPair(t *testing.T) *pair {
	t.Helper()
	// Redis would wait 5 s for more replicas before it sends a copy.
	args := []string{"--appendonly", "no", "--repl-diskless-sync-delay", "0"}
	p := &pair{primary: testserver.Redis(t, args...), replica: testserver.Redis(t, args...)}
	p.line = testserver.NewLine(t, p.primary.Addr())
	p.now = dial(t, p.primary.URL())
	replica := dial(t, p.replica.URL())
	host, port, _ := strings.Cut(p.line.Addr(), ":")
	check.Must(t, replica.ReplicaOf(t.Context(), host, port).Err())
	check.Must(t, p.now.Set(t.Context(), "hello", "1", 0).Err())
	check.Eventually(t, "the replica follows", func() bool { return replica.Get(t.Context(), "hello").Val() == "1" })
	return p
}

// freeze swallows what the primary acknowledges from now on.
func (p *pair) freeze() { p.line.Hole() }

// fail kills the primary and promotes the replica.
func (p *pair) fail(t *testing.T) {
	t.Helper()
	p.primary.Kill()
	p.now = dial(t, p.replica.URL())
	check.Eventually(t, "the promotion", func() bool {
		return p.now.ReplicaOf(t.Context(), "NO", "ONE").Err() == nil &&
			strings.Contains(p.now.Info(t.Context(), "replication").Val(), "role:master")
	})
}

// TestReplicaPromoted: a primary dies before its replica has seen the lock. A
// lock on that one instance then has two holders. This is what asynchronous
// replication means, and why All and Majority of independent instances exist:
// they never have two.
func TestReplicaPromoted(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (pairs []*pair, parts func() []lock.Locker) {
		t.Helper()
		for range 3 {
			pairs = append(pairs, newPair(t))
		}
		return pairs, func() []lock.Locker {
			var ms []lock.Locker
			for _, p := range pairs {
				ms = append(ms, locksOn(t, p.now).Mutex("k"))
			}
			return ms
		}
	}
	t.Run("single instance", func(t *testing.T) {
		t.Parallel()
		p := newPair(t)
		p.freeze()
		first := mustLock(t, t.Context(), locksOn(t, p.now).Mutex("k"))
		p.fail(t)
		second, err := locksOn(t, p.now).Mutex("k").TryLock(t.Context())
		if err != nil || first.Context().Err() != nil {
			t.Fatalf("this test no longer shows two holders: %v, %v", err, first.Context().Err())
		}
		if second.Token() <= first.Token() {
			t.Errorf("token %d after %d: not even fencing helps", second.Token(), first.Token())
		}
		mustUnlock(t, second)
	})
	for what, join := range joins() {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			pairs, parts := setup(t)
			pairs[0].freeze()
			first := mustLock(t, t.Context(), join(parts()...))
			pairs[0].fail(t)
			if _, err := join(parts()...).TryLock(t.Context()); err == nil {
				t.Error("two holders")
			}
			if err := first.Context().Err(); err != nil {
				t.Errorf("the first holder was cut off already: %v", err)
			}
		})
	}
}
