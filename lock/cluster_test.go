package lock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
	"seckill/lock/driver"
)

// newCluster is a Cluster of two nodes, half of the slots each. No node is ever taken for dead.
func newCluster(t *testing.T) (client *redis.ClusterClient, servers []*testserver.Server, nodes []*redis.Client) {
	t.Helper()
	opt := &redis.ClusterOptions{
		DialTimeout: check.Deadline, ReadTimeout: check.Deadline, WriteTimeout: check.Deadline, PoolTimeout: check.Deadline,
		ContextTimeoutEnabled: true,
	}
	for i := range 2 {
		s := testserver.Redis(t, "--cluster-enabled", "yes", "--appendonly", "no", "--cluster-node-timeout", "600000")
		node := dial(t, s.URL())
		check.Must(t, node.ClusterAddSlotsRange(t.Context(), i*8192, i*8192+8191).Err())
		opt.Addrs, servers, nodes = append(opt.Addrs, s.Addr()), append(servers, s), append(nodes, node)
	}
	host, port, _ := strings.Cut(opt.Addrs[1], ":")
	check.Must(t, nodes[0].ClusterMeet(t.Context(), host, port).Err())
	for _, node := range nodes {
		check.Eventually(t, "the cluster", func() bool {
			info := node.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_assigned:16384")
		})
	}
	client = redis.NewClusterClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client, servers, nodes
}

// TestCluster: locks on a Cluster, whose unlock messages are sharded.
//
//nolint:tparallel // one Cluster, and in the end one of its nodes hangs
func TestCluster(t *testing.T) {
	t.Parallel()
	client, servers, nodes := newCluster(t)
	t.Run("exclusion", func(t *testing.T) {
		one, two := locksOn(t, client), locksOn(t, client)
		const keys = 6 // on both nodes
		var wg sync.WaitGroup
		var counts [keys]int
		var last [keys]int64
		for i := range keys {
			for w := range 4 {
				m := []*lock.Client{one, two}[w%2].Mutex(fmt.Sprint("k", i))
				wg.Go(func() {
					for range 5 {
						lease, err := take(t.Context(), m)
						if err != nil {
							t.Error(err)
							return
						}
						counts[i]++ // the race detector watches
						if lease.Token() <= last[i] {
							t.Errorf("token %d after %d", lease.Token(), last[i])
						}
						last[i] = lease.Token()
						check.Is(t, "extended", lease.Extend(t.Context(), 2*calm), nil)
						mustUnlock(t, lease)
					}
				})
			}
		}
		wg.Wait()
		for i, n := range counts {
			check.Equal(t, fmt.Sprint("turns with key ", i), n, 20)
		}
	})
	t.Run("renewal of keys in different slots", func(t *testing.T) {
		s := &asked{t, redisStore(client)}
		t.Cleanup(func() { _ = s.Close() })
		var all []driver.Request
		for i := range 10 {
			r := request(fmt.Sprint("renewed", i), 1)
			s.acquire("taken", r, driver.StateHeld)
			all = append(all, r, request(fmt.Sprint("nobody's", i), 1))
		}
		for i, err := range s.Renew(t.Context(), all) {
			check.Is(t, all[i].Name, err, []error{nil, lock.ErrLost}[i%2])
		}
	})
	t.Run("message", func(t *testing.T) {
		held := mustLock(t, t.Context(), locksOn(t, client).Mutex("woken"))
		waiter := begin(t.Context(), newLocks(t, redisStore(client), onlyMessages()...).Mutex("woken"))
		check.Eventually(t, "a sharded subscription", func() bool {
			n := 0
			for _, node := range nodes {
				n += len(node.PubSubShardChannels(context.Background(), "redisson_lock__channel:{woken}").Val())
			}
			return n == 1
		})
		mustUnlock(t, held)
		mustUnlock(t, got(t, "the waiter", waiter))
	})
	// The keys of locks with odd names do not share a slot. Taking them is refused at once, and
	// nothing is undone again and again. Guard: CROSSSLOT in classify.
	t.Run("names that miss their slot", func(t *testing.T) {
		for kind, store := range map[string]driver.Store{"redis": redisStore(client), "setnx": lock.NewSetNXStore(client, lock.CallTimeout(check.Deadline))} {
			locks := newLocks(t, store)
			for name, refused := range map[string]error{
				"plain": nil, "{user}:42": nil, "lock:{user}": nil,
				"": lock.ErrRefused, "a}b": lock.ErrRefused, "a{b": lock.ErrRefused, "{}": lock.ErrRefused, "a{}b": lock.ErrRefused,
			} {
				lease, err := take(t.Context(), locks.Mutex(name))
				check.Is(t, fmt.Sprintf("%s %q", kind, name), err, refused)
				if err == nil {
					mustUnlock(t, lease)
				}
			}
		}
	})
	t.Run("a node that hangs", func(t *testing.T) {
		hangs(t, client, servers[0])
	})
}

// hangs: a node of a Cluster that does not answer holds up the locks that lie on it, and no others, neither taking nor
// renewing nor giving back.
func hangs(t *testing.T, client *redis.ClusterClient, server *testserver.Server) {
	t.Helper()
	store := redisStore(client)
	locks := newLocks(t, store)
	const each = 30 // more than pipelines have places
	var stuck, free []string
	for n := 0; len(stuck) < each || len(free) < each; n++ {
		name := fmt.Sprint("lane", n)
		if check.Value(client.MasterForKey(t.Context(), name))(t).Options().Addr == server.Addr() {
			stuck = append(stuck, name)
		} else {
			free = append(free, name)
		}
	}
	for _, name := range []string{stuck[0], free[0]} { // every script is known
		mustUnlock(t, mustLock(t, t.Context(), locks.Mutex(name)))
	}
	server.Pause()
	defer server.Resume()
	var hanging, going []<-chan attempt
	for i := range each {
		hanging = append(hanging, begin(t.Context(), locks.Mutex(stuck[i])))
		going = append(going, begin(t.Context(), locks.Mutex(free[i])))
	}
	for i, waiting := range going {
		lease := got(t, "a lock on the other node", waiting)
		check.Is(t, "renewed for who does not hold it", store.Renew(t.Context(), []driver.Request{request(free[i], 1)})[0], lock.ErrLost)
		mustUnlock(t, lease)
	}
	server.Resume()
	for _, waiting := range hanging {
		mustUnlock(t, got(t, "a lock on the node that hung", waiting))
	}
}
