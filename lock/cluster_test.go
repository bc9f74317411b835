package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/lock"
)

// newCluster is a Cluster of two nodes, half of the slots each.
func newCluster(t *testing.T) (*redis.ClusterClient, []*redis.Client) {
	t.Helper()
	var addrs []string
	var nodes []*redis.Client
	for i := range 2 {
		s := testserver.Redis(t, "--cluster-enabled", "yes", "--appendonly", "no")
		node := dial(t, s.URL())
		if err := node.ClusterAddSlotsRange(t.Context(), i*8192, i*8192+8191).Err(); err != nil {
			t.Fatal(err)
		}
		addrs, nodes = append(addrs, s.Addr()), append(nodes, node)
	}
	host, port, _ := strings.Cut(addrs[1], ":")
	if err := nodes[0].ClusterMeet(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		eventually(t, 30*time.Second, "the cluster", func() bool {
			info := node.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_assigned:16384")
		})
	}
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}), nodes
}

// TestCluster: locks on a Cluster, whose unlock messages are sharded.
func TestCluster(t *testing.T) {
	t.Parallel()
	client, nodes := newCluster(t)
	t.Cleanup(func() { _ = client.Close() })
	one, two := locksOn(t, client), locksOn(t, client)
	const keys = 20 // on both nodes
	var wg sync.WaitGroup
	var counts [keys]int
	var last [keys]int64
	for i := range keys {
		for w := range 4 {
			locks := []*lock.Client{one, two}[w%2]
			wg.Go(func() {
				for range 5 {
					lease, err := locks.Mutex(fmt.Sprint("k", i)).Lock(t.Context(), lock.Wait(30*time.Second))
					if err != nil {
						t.Error(err)
						return
					}
					counts[i]++ // the race detector watches
					if lease.Token() <= last[i] {
						t.Errorf("token %d after %d", lease.Token(), last[i])
					}
					last[i] = lease.Token()
					mustUnlock(t, lease)
				}
			})
		}
	}
	wg.Wait()
	for i, n := range counts {
		if n != 20 {
			t.Errorf("key %d: %d of 20", i, n)
		}
	}

	// A waiter is woken by a message, not by asking.
	held := mustLock(t, t.Context(), one.Mutex("woken"))
	patient := newLocks(t, lock.NewRedisStore(client), lock.PollEvery(time.Hour), lock.ProbeEvery(time.Hour))
	got := make(chan error, 1)
	go func() {
		lease, err := patient.Mutex("woken").Lock(t.Context(), lock.Wait(20*time.Second))
		if err == nil {
			err = lease.Unlock()
		}
		got <- err
	}()
	eventually(t, 10*time.Second, "a sharded subscription", func() bool {
		n := 0
		for _, node := range nodes {
			n += len(node.PubSubShardChannels(context.Background(), "redisson_lock__channel:{woken}").Val())
		}
		return n == 1
	})
	mustUnlock(t, held)
	if err := <-got; err != nil {
		t.Error(err)
	}

	// Renewals of keys in different slots.
	const leaseTime = 300 * time.Millisecond
	short := locksOn(t, client, lock.WatchdogLease(leaseTime))
	undisturbed(t, leaseTime, "renewed", func(name string) error {
		var leases []*lock.Lease
		for i := range 10 {
			lease, err := take(t.Context(), short.Mutex(fmt.Sprint(name, i)))
			if err != nil {
				return err
			}
			leases = append(leases, lease)
		}
		sleepFor(t.Context(), time.Second)
		var all []error
		for _, l := range leases {
			all = append(all, context.Cause(l.Context()), l.Unlock())
		}
		return errors.Join(all...)
	})
}

// The keys of locks with odd names do not share a slot. Taking them is refused at once, and
// nothing is undone again and again. Guard: CROSSSLOT in classify.
func TestClusterRefusesNamesThatMissTheirSlot(t *testing.T) {
	t.Parallel()
	client, _ := newCluster(t)
	t.Cleanup(func() { _ = client.Close() })
	for kind, store := range map[string]lock.Store{"redis": lock.NewRedisStore(client), "setnx": lock.NewSetNXStore(client)} {
		locks := newLocks(t, store)
		for name, refused := range map[string]bool{
			"plain": false, "{user}:42": false, "lock:{user}": false,
			"": true, "a}b": true, "a{b": true, "{}": true, "a{}b": true,
		} {
			lease, err := locks.Mutex(name).Lock(t.Context(), lock.Wait(5*time.Second))
			if refused != errors.Is(err, lock.ErrRefused) || !refused && err != nil {
				t.Errorf("%s %q: %v", kind, name, err)
			}
			if err == nil {
				mustUnlock(t, lease)
			}
		}
	}
}
