package lock_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/lock"
)

// A node of a Cluster that hangs holds up the locks that lie on it, and no others, neither taking nor renewing nor giving
// back.
func TestANodeThatHangsHoldsUpOnlyItsLocks(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, false, "--appendonly", "no", "--cluster-node-timeout", "60000")
	var addrs []string
	for _, node := range cluster.Primaries {
		addrs = append(addrs, node.Addr())
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ReadTimeout: time.Minute, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	store := lock.NewRedisStore(client, lock.CallTimeout(time.Minute))
	locks := newLocks(t, store, lock.WatchdogLease(10*time.Second))
	const each = 30
	var stuck, free []string
	for n := 0; len(stuck) < each || len(free) < each; n++ {
		if name := fmt.Sprint("lane", n); cluster.Owner(t, name) == 0 {
			stuck = append(stuck, name)
		} else {
			free = append(free, name)
		}
	}
	for _, name := range []string{stuck[0], free[0]} { // every script is known
		mustUnlock(t, mustLock(t, t.Context(), locks.Mutex(name)))
	}
	cluster.Primaries[0].Pause()
	var hanging, going sync.WaitGroup
	for i := range each {
		hanging.Go(func() {
			if lease, err := locks.Mutex(stuck[i]).Lock(t.Context(), lock.Wait(time.Minute)); err == nil {
				_ = lease.Unlock()
			}
		})
		going.Go(func() {
			lease, err := locks.Mutex(free[i]).Lock(t.Context(), lock.Wait(time.Minute))
			if err == nil {
				none := lock.Request{Name: free[i], Holder: "none:0", Lease: time.Second}
				if kept := store.Renew(t.Context(), []lock.Request{none})[0]; !errors.Is(kept, lock.ErrLost) {
					t.Errorf("%s: renewed for who does not hold it: %v", free[i], kept)
				}
			}
			if err == nil {
				err = lease.Unlock()
			}
			if err != nil {
				t.Errorf("%s: %v", free[i], err)
			}
		})
	}
	gone := make(chan struct{})
	go func() {
		going.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Error("the locks on the other nodes wait for the one that hangs")
	}
	cluster.Primaries[0].Resume()
	hanging.Wait()
	<-gone
}
