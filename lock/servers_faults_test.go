//go:build faults

//part:locks

package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// giveUpAfter ends the wait of two callers that hold a part each for the other's. A late call is made again.
const giveUpAfter = 300 * time.Millisecond

// Instances are killed and stopped in turn: never two holders, always another. A restarted instance keeps its data, as
// Redlock demands (or it must stay away for a lease).
func TestQuorumExclusion(t *testing.T) {
	t.Parallel()
	var servers []*testserver.Server
	for range 3 {
		servers = append(servers, testserver.Redis(t, "--appendonly", "yes", "--appendfsync", "always"))
	}
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	var processes sync.WaitGroup
	var turns atomic.Int64
	n, last := 0, int64(0) // the race detector watches
	for range 4 {
		var parts []lock.Locker // clients of its own
		for _, s := range servers {
			parts = append(parts, newLocks(t, redisStore(dial(t, s.URL()), lock.CallTimeout(giveUpAfter))).Mutex("k"))
		}
		q := lock.Majority(parts...)
		processes.Go(func() {
			for ctx.Err() == nil {
				lease, err := take(ctx, q)
				if err != nil {
					continue // an instance is gone, and says so
				}
				n++
				wantLater(t, lease.Token(), last)
				last = lease.Token()
				turns.Add(1)
				ctx, cancel := context.WithTimeout(context.Background(), check.Soon)
				_ = lease.UnlockContext(ctx) // what is not answered goes on in the background
				cancel()
			}
		})
	}
	more := func(what string) {
		t.Helper()
		before := turns.Load()
		check.Eventually(t, what, func() bool { return turns.Load() > before })
	}
	for i := range check.Count(t, "ROUNDS", 6, 12) {
		s := servers[i%3]
		strike, mend := s.Pause, s.Resume
		if i%2 == 1 {
			strike, mend = s.Kill, s.Start
		}
		strike()
		more("a majority of two goes on")
		mend()
		more("all go on")
	}
	enough()
	processes.Wait()
	t.Logf("%d acquisitions", n)
	for _, s := range servers {
		direct := dial(t, s.URL())
		check.Eventually(t, "no orphan", func() bool {
			n, err := direct.Exists(context.Background(), "k").Result()
			return err == nil && n == 0
		})
	}
}

// A replica is promoted beside a frozen primary: two hold a lock; with Synced never. ROUNDS sets how often.
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
		m := first.Mutex(fmt.Sprint("k", i))
		lease, err := m.TryLock(t.Context())
		for i < after && errors.Is(err, lock.ErrUnsynced) { // the replica lives, on a busy machine
			lease, err = take(t.Context(), m)
		}
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
		next, err := second.Mutex(lease.Name()).TryLock(t.Context())
		if err == nil && lease.Context().Err() == nil {
			two = true
			wantLater(t, next.Token(), lease.Token()) // else not even fencing would help
		}
	}
	return two
}

func (p *pair) swap(t *testing.T) {
	t.Helper()
	p.primary.Resume()
	check.Must(t, dial(t, p.primary.URL()).FlushAll(t.Context()).Err())
	check.Must(t, p.now.FlushAll(t.Context()).Err())
	p.primary, p.replica = p.replica, p.primary
	p.line = testserver.NewLine(t, p.primary.Addr())
	p.follow(t)
}

// Behind Sentinels, and in a Cluster, where a hanging replica troubles only its primary's locks.
func TestSyncedElsewhere(t *testing.T) {
	t.Parallel()
	t.Run("Sentinels", func(t *testing.T) {
		t.Parallel()
		s := testserver.RedisSentinels(t, check.Deadline)
		locks := synced(t, throughSentinels(t, s), lock.AllReplicas)
		cycle(t, locks.Mutex("k"))
		s.Replica.Pause()
		check.Is(t, "the replica hangs", check.ErrorOf(locks.Mutex("k").TryLock(t.Context())), lock.ErrUnsynced)
		s.Replica.Resume()
		cycle(t, locks.Mutex("other"))
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		c := testserver.RedisCluster(t, true, "--appendonly", "no", "--cluster-node-timeout", "600000")
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs:                 []string{c.Primaries[0].Addr()},
			ContextTimeoutEnabled: true,
		})
		t.Cleanup(func() { _ = client.Close() })
		locks := synced(t, client, lock.AllReplicas)
		for i := range 12 {
			cycle(t, locks.Mutex(fmt.Sprint("k", i)))
		}
		c.Move(t, "moved", (c.Owner("moved")+1)%3)
		cycle(t, locks.Mutex("moved"))
		c.Replicas[0].Pause()
		for i := range 12 {
			name, want := fmt.Sprint("k", i), error(nil)
			if c.Owner(name) == 0 {
				want = lock.ErrUnsynced
			}
			check.Is(t, name, check.ErrorOf(locks.Mutex(name).TryLock(t.Context())), want)
		}
		c.Replicas[0].Resume()
	})
}

// Sentinels promote a replica although its unreachable primary takes writes: a lock has two holders then. With
// Synced(1) neither primary gives one that its replica lacks. ROUNDS sets how often.
func TestSplitBrain(t *testing.T) {
	t.Parallel()
	const groups = 4 // side by side, because a round mostly waits for the Sentinels
	rounds := check.Count(t, "ROUNDS", groups, groups) / groups
	var twice, twiceSynced atomic.Int64
	t.Cleanup(func() {
		t.Logf("of %d rounds %d had two holders of one lock, and %d with Synced(1)", groups*rounds, twice.Load(),
			twiceSynced.Load())
		check.Equal(t, "rounds with two holders, without and with Synced(1)",
			[2]int64{twice.Load(), twiceSynced.Load()}, [2]int64{int64(groups * rounds), 0})
	})
	for i := range groups {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			apart := testserver.Sentinels{Lines: map[*testserver.Server]*testserver.Line{}}
			s := apart.Start(t, testserver.UntilDown, "--appendonly", "no")
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
			named, err := sentinel.Do(t.Context(), "sentinel", "get-master-addr-by-name",
				testserver.SentinelPrimary).StringSlice()
			return err == nil && strings.Join(named, ":") == s.Lines[s.Replica].Addr()
		})
	}
	check.That(t, strings.Contains(old.Info(t.Context(), "replication").Val(), "role:master"),
		"the old primary is none any more")
	second := mustLock(t, t.Context(), right.Mutex("k"))
	if first.Context().Err() == nil && second.Context().Err() == nil {
		twice.Add(1)
	}
	other := mustLock(t, t.Context(), right.Mutex("s"))
	if _, err := left.Mutex("s").TryLock(t.Context()); err == nil && other.Context().Err() == nil {
		twiceSynced.Add(1)
	}
	wantBusy(t, "what the replica had confirmed", right.Mutex("confirmed"))

	s.Primary, s.Replica = s.Replica, s.Primary
	s.Lines[s.Replica].Heal()
	s.Follow(t)
	check.Must(t, dial(t, s.Primary.URL()).FlushAll(t.Context()).Err())
}

func throughSentinels(t *testing.T, s *testserver.Sentinels) *redis.Client {
	t.Helper()
	var addrs []string
	for _, each := range s.Sentinels {
		addrs = append(addrs, each.Addr())
	}
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    testserver.SentinelPrimary,
		SentinelAddrs: addrs, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}
