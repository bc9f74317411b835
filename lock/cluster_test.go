package lock_test

import (
	"context"
	"fmt"
	"strings"
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
		var counts [keys]int
		var last [keys]int64
		check.Volley(4*keys, func(w int) {
			i := w / 4
			m := []*lock.Client{one, two}[w%2].Mutex(fmt.Sprint("k", i))
			for range 5 {
				use(t, m, func(lease *lock.Lease) {
					counts[i]++ // the race detector watches
					wantLater(t, lease.Token(), last[i])
					last[i] = lease.Token()
					check.Is(t, "extended", lease.Extend(t.Context(), 2*calm), nil)
				})
			}
		})
		for i, n := range counts {
			check.Equal(t, fmt.Sprint("turns with key ", i), n, 20)
		}
	})
	t.Run("renewal of keys in different slots", func(t *testing.T) {
		s := newAsked(t, redisStore(client))
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
	// The keys of locks with odd names do not share a slot. Taking them is refused at once, and nothing is undone again
	// and again. Guard: CROSSSLOT in classify.
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
		cycle(t, locks.Mutex(name))
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
	p.follow(t)
	return p
}

// follow makes the replica one, of a primary that is as new.
func (p *pair) follow(t *testing.T) {
	t.Helper()
	replica := dial(t, p.replica.URL())
	host, port, _ := strings.Cut(p.line.Addr(), ":")
	check.Must(t, replica.ReplicaOf(t.Context(), host, port).Err())
	check.Eventually(t, "the replica follows", func() bool {
		return strings.Contains(p.now.Info(t.Context(), "replication").Val(), "state=online") && p.now.Do(t.Context(), "wait", 1, 1).Val() == int64(1)
	})
}

// freeze swallows what the primary says to its replica, and what that acknowledges, from now on.
func (p *pair) freeze() { p.line.Hole() }

// promote makes the replica the primary.
func (p *pair) promote(t *testing.T) {
	t.Helper()
	p.now = dial(t, p.replica.URL())
	check.Eventually(t, "the promotion", func() bool {
		return p.now.ReplicaOf(t.Context(), "NO", "ONE").Err() == nil &&
			strings.Contains(p.now.Info(t.Context(), "replication").Val(), "role:master")
	})
}

func synced(t testing.TB, client redis.UniversalClient, n int) *lock.Client {
	t.Helper()
	return newLocks(t, redisStore(client, lock.Synced(n)), onlyMessages()...)
}

// TestSynced: an acquisition counts when the replica has it, also one that is handed over, and otherwise it is given
// back. Guards: enough in send; Unsynced in Client.got, and in settle.
func TestSynced(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	replica := dial(t, p.replica.URL())
	listening := func(locks *lock.Client, m *lock.Mutex) <-chan attempt {
		next := begin(t.Context(), m)
		check.Eventually(t, "one waits, and listens", func() bool {
			return lock.Waiting(locks, m.Name()) == 1 && subscribed(t, p.now, m.Name()) == 1
		})
		return next
	}
	for what, locks := range map[string]*lock.Client{"all": synced(t, p.now, lock.AllReplicas), "one": synced(t, p.now, 1)} {
		m := locks.Mutex(what)
		first := mustLock(t, t.Context(), m)
		check.Equal(t, "the replica has it", replica.Exists(t.Context(), what).Val(), 1)
		next := listening(locks, m)
		mustUnlock(t, first)
		second := got(t, "the next", next)
		holder, _, err := locks.Holder(t.Context(), what)
		check.Must(t, err)
		check.Equal(t, "the replica has the next one", replica.HExists(t.Context(), what, holder).Val(), true)
		mustUnlock(t, second)
	}
	check.Is(t, "two of one", check.ErrorOf(synced(t, p.now, 2).Mutex("two").TryLock(t.Context())), lock.ErrUnsynced)
	single := synced(t, dial(t, testserver.SharedRedis(t)), lock.AllReplicas)
	cycle(t, single.Mutex(nameOf(t))) // a server without replicas needs none

	all := synced(t, p.now, lock.AllReplicas)
	held := mustLock(t, t.Context(), all.Mutex("handed over"))
	next := listening(all, all.Mutex("handed over"))
	p.freeze()
	mustUnlock(t, held)
	check.Is(t, "handed over, and not confirmed", check.Receive(t, "the next", next).err, lock.ErrUnsynced)
	check.Is(t, "not confirmed", check.ErrorOf(all.Mutex("k").TryLock(t.Context())), lock.ErrUnsynced)
	for _, name := range []string{"two", "handed over", "k"} {
		check.Eventually(t, name+" is given back", func() bool { return p.now.Exists(t.Context(), name).Val() == 0 })
	}
}

// TestSlowCountOfReplicas: who asks alone does not wait long, and asks again in the queue. Guard: ErrNotSent in alone.
func TestSlowCountOfReplicas(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	store := redisStore(dial(t, b.url()), lock.Synced(lock.AllReplicas))
	m := newLocks(t, store).Mutex(b.name)
	for range 20 { // by then an answer was swift
		cycle(t, m)
	}
	b.line.Slow(check.Soon)
	lock.Recount(store)
	cycle(t, m)
}

// TestOnline: a replica that gets its first copy, or is silent, is not waited for. Guards: state, lag.
func TestOnline(t *testing.T) {
	t.Parallel()
	check.Equal(t, "replicas", lock.Online("# Replication\r\nrole:master\r\nconnected_slaves:4\r\n"+
		"slave0:ip=::1,port=1,state=online,offset=14,lag=0\r\nslave1:ip=10.0.0.1,port=2,state=online,offset=14,lag=10\r\n"+
		"slave2:ip=10.0.0.2,port=3,state=online,offset=14,lag=11\r\nslave3:ip=10.0.0.3,port=4,state=wait_bgsave,offset=0,lag=0\r\n"), 2)
}
