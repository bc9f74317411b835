//go:build faults

//part:locks

package lock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// fail kills the primary and promotes the replica.
func (p *pair) fail(t *testing.T) {
	t.Helper()
	p.primary.Kill()
	p.promote(t)
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

// TestPromotedAtRandom: a line to the replica fails somewhere among many acquisitions, the primary freezes, and the replica
// takes its place. Without Synced locks have two holders then; with it none ever has. ROUNDS says how often.
func TestPromotedAtRandom(t *testing.T) {
	t.Parallel()
	const pairs = 4 // side by side, because a round waits for confirmations that do not come
	rounds := check.Count(t, "ROUNDS", 8, 100) / pairs
	for what, n := range map[string]int{"asynchronous": 0, "synced": lock.AllReplicas} {
		var twice, none atomic.Int64
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				t.Logf("%s: of %d rounds %d had two holders of one lock", what, pairs*rounds, twice.Load())
				check.Equal(t, "rounds that are right", [2]int64{twice.Load(), none.Load()},
					map[bool][2]int64{true: {int64(pairs * rounds), 0}, false: {0, int64(pairs * rounds)}}[n == 0])
			})
			for i := range pairs {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					random := check.Seeded(t)
					p := newPair(t)
					for range rounds {
						if p.twoHolders(t, n, random.IntN(20)) {
							twice.Add(1)
						} else {
							none.Add(1)
						}
						p.swap(t)
					}
				})
			}
		})
	}
}

// twoHolders has the line fail after so many acquisitions and tells whether any lock then has two holders.
func (p *pair) twoHolders(t *testing.T, n, after int) (two bool) {
	t.Helper()
	first, held := synced(t, p.now, n), []*lock.Lease{}
	ended, end := context.WithCancel(t.Context())
	end()
	defer func() { _ = first.Close(ended) }() // its server is out of reach
	for i := range after + 3 {
		if i == after {
			p.freeze()
		}
		lease, err := first.Mutex(fmt.Sprint("k", i)).TryLock(t.Context())
		if n != 0 && i >= after {
			check.Is(t, "not confirmed", err, lock.ErrUnsynced)
			continue
		}
		check.Must(t, err)
		held = append(held, lease)
	}
	p.primary.Pause()
	p.promote(t)
	second := synced(t, p.now, 0)
	for _, lease := range held {
		_, err := second.Mutex(lease.Name()).TryLock(t.Context())
		two = two || err == nil && lease.Context().Err() == nil
	}
	return two
}

// swap lets the old primary run again, empty, and follow the new one.
func (p *pair) swap(t *testing.T) {
	t.Helper()
	p.primary.Resume()
	check.Must(t, dial(t, p.primary.URL()).FlushAll(t.Context()).Err())
	check.Must(t, p.now.FlushAll(t.Context()).Err())
	p.primary, p.replica = p.replica, p.primary
	p.line = testserver.NewLine(t, p.primary.Addr())
	p.follow(t)
}

// TestSyncedElsewhere: behind Sentinels, and in a Cluster, where a replica that hangs is the trouble of its primary's locks.
func TestSyncedElsewhere(t *testing.T) {
	t.Parallel()
	t.Run("Sentinels", func(t *testing.T) {
		t.Parallel()
		s := testserver.RedisSentinels(t, check.Deadline)
		locks := synced(t, throughSentinels(t, s), lock.AllReplicas)
		mustUnlock(t, mustLock(t, t.Context(), locks.Mutex("k")))
		s.Replica.Pause()
		check.Is(t, "the replica hangs", check.ErrorOf(locks.Mutex("k").TryLock(t.Context())), lock.ErrUnsynced)
		s.Replica.Resume()
		mustUnlock(t, mustLock(t, t.Context(), locks.Mutex("other")))
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		c := testserver.RedisCluster(t, true, "--appendonly", "no", "--cluster-node-timeout", "600000")
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.Primaries[0].Addr()}, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
		locks := synced(t, client, lock.AllReplicas)
		for i := range 12 {
			mustUnlock(t, mustLock(t, t.Context(), locks.Mutex(fmt.Sprint("k", i))))
		}
		c.Move(t, "moved", (c.Owner(t, "moved")+1)%3)
		mustUnlock(t, mustLock(t, t.Context(), locks.Mutex("moved")))
		c.Replicas[0].Pause()
		for i := range 12 {
			name, want := fmt.Sprint("k", i), error(nil)
			if c.Owner(t, name) == 0 {
				want = lock.ErrUnsynced
			}
			check.Is(t, name, check.ErrorOf(locks.Mutex(name).TryLock(t.Context())), want)
		}
		c.Replicas[0].Resume()
	})
}
