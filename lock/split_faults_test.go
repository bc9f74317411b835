//go:build faults

//part:locks

package lock_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// TestSplitBrain: Sentinels promote the replica of a primary that they do not reach, and that lives and takes writes. Who
// reaches it has a lock there, and another one has it at the new primary. With Synced(1) neither primary gives one that its
// replica has not got. ROUNDS says how often.
func TestSplitBrain(t *testing.T) {
	t.Parallel()
	const groups = 4 // side by side, because a round mostly waits for the Sentinels
	rounds := check.Count(t, "ROUNDS", groups, groups) / groups
	var twice, twiceSynced atomic.Int64
	t.Cleanup(func() {
		t.Logf("of %d rounds %d had two holders of one lock, and %d with Synced(1)", groups*rounds, twice.Load(), twiceSynced.Load())
		check.Equal(t, "rounds with two holders, without and with Synced(1)", [2]int64{twice.Load(), twiceSynced.Load()}, [2]int64{int64(groups * rounds), 0})
	})
	for i := range groups {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			s := testserver.RedisSentinelsApart(t, testserver.UntilDown, "--appendonly", "no")
			for range rounds {
				splitBrain(t, s, &twice, &twiceSynced)
			}
		})
	}
}

// splitBrain is one round. In the end both servers are well again, as each other's.
func splitBrain(t *testing.T, s *testserver.Sentinels, twice, twiceSynced *atomic.Int64) {
	t.Helper()
	s.Settle(t)
	old := dial(t, s.Primary.URL())
	plain, left, right := synced(t, old, 0), synced(t, old, 1), synced(t, throughSentinels(t, s), 0)
	ended, end := context.WithCancel(t.Context())
	end()
	defer func() {
		for _, locks := range []*lock.Client{plain, left, right} {
			_ = locks.Close(ended) // their servers will be others
		}
	}()
	mustLock(t, t.Context(), left.Mutex("confirmed"))
	s.Lines[s.Primary].Hole()
	first := mustLock(t, t.Context(), plain.Mutex("k"))
	check.Is(t, "cut off", check.ErrorOf(left.Mutex("s").TryLock(t.Context())), lock.ErrUnsynced)

	s.AwaitPromotion(t)
	for _, each := range s.Sentinels {
		sentinel := dial(t, each.URL())
		check.Eventually(t, "each Sentinel names the new primary", func() bool {
			named, err := sentinel.Do(t.Context(), "sentinel", "get-master-addr-by-name", testserver.SentinelPrimary).StringSlice()
			return err == nil && strings.Join(named, ":") == s.Lines[s.Replica].Addr()
		})
	}
	check.That(t, strings.Contains(old.Info(t.Context(), "replication").Val(), "role:master"), "the old primary is none any more")
	second := mustLock(t, t.Context(), right.Mutex("k"))
	if first.Context().Err() == nil && second.Context().Err() == nil {
		twice.Add(1)
	}
	other := mustLock(t, t.Context(), right.Mutex("s"))
	if _, err := left.Mutex("s").TryLock(t.Context()); err == nil && other.Context().Err() == nil {
		twiceSynced.Add(1)
	}
	check.Is(t, "what the replica had confirmed", check.ErrorOf(right.Mutex("confirmed").TryLock(t.Context())), lock.ErrHeld)

	s.Primary, s.Replica = s.Replica, s.Primary
	s.Lines[s.Replica].Heal()
	s.Follow(t)
	check.Must(t, dial(t, s.Primary.URL()).FlushAll(t.Context()).Err())
}

// throughSentinels is a client of whoever they say is the primary.
func throughSentinels(t *testing.T, s *testserver.Sentinels) *redis.Client {
	t.Helper()
	var addrs []string
	for _, each := range s.Sentinels {
		addrs = append(addrs, each.Addr())
	}
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: testserver.SentinelPrimary, SentinelAddrs: addrs, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}
