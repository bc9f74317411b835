package hotcopy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
)

// ages is longer than any test waits.
const ages = time.Hour

// patientCluster is a client of a Cluster whose calls wait for an answer longer than the test lasts.
func patientCluster(t *testing.T, cluster *testserver.Cluster) *redis.ClusterClient {
	t.Helper()
	options := &redis.ClusterOptions{ContextTimeoutEnabled: true, DialTimeout: redisDialTimeout, ReadTimeout: ages, WriteTimeout: ages}
	for _, node := range cluster.Primaries {
		options.Addrs = append(options.Addrs, node.Addr())
	}
	client := newClusterClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// keyOn is a key that lies on a primary of the Cluster.
func keyOn(t *testing.T, cluster *testserver.Cluster, primary int) string {
	t.Helper()
	for n := range 1000 {
		if key := fmt.Sprint("key", n); cluster.Owner(t, key) == primary {
			return key
		}
	}
	t.Fatalf("no key is on primary %d", primary)
	return ""
}

// A primary of a Cluster hangs without being dead. The calls that it has taken end once another one has its place, and not
// when their own patience is over.
func TestTheCallsOfAHungPrimaryEndWithItsOffice(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, true, "--cluster-node-timeout", "2000", "--appendonly", "no")
	client, key := patientCluster(t, cluster), keyOn(t, cluster, 0)
	check.Must(t, client.Set(t.Context(), key, "before", 0).Err())

	cluster.Primaries[0].Pause()
	ended := make(chan struct{}, 2)
	go func() { client.Set(t.Context(), key, "one", 0); ended <- struct{}{} }()
	go func() {
		_, _ = client.Pipelined(t.Context(), func(p redis.Pipeliner) error { return p.Set(t.Context(), key, "one of several", 0).Err() })
		ended <- struct{}{}
	}()
	check.Eventually(t, "the replica is promoted", func() bool { return testserver.Primary(t, cluster.Replicas[0]) })
	for range cap(ended) {
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatal("a call still waits for the primary that was replaced")
		}
	}
	check.Eventually(t, "the new primary answers", func() bool { return client.Set(t.Context(), key, "after", 0).Err() == nil })
}

// A primary that is slow and has no successor keeps its calls: each is answered, and made once.
func TestTheCallsOfASlowPrimaryAreAnswered(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, false, "--appendonly", "no")
	client, key := patientCluster(t, cluster), keyOn(t, cluster, 0)
	check.Must(t, client.Set(t.Context(), key, "0", 0).Err())

	cluster.Primaries[0].Pause()
	const calls = 10
	counted := make(chan error, calls)
	for range calls {
		go func() { counted <- client.Incr(t.Context(), key).Err() }()
	}
	<-time.After(8 * nodeLate) // that is how slow it is
	cluster.Primaries[0].Resume()
	for range calls {
		check.Must(t, <-counted)
	}
	check.Equal(t, "counted", client.Get(t.Context(), key).Val(), fmt.Sprint(calls))
}

// The primary hangs, and with it the Sentinel that this client asks, as when both are on one machine. The other Sentinels
// are asked for the new primary.
func TestAHungSentinelIsNotAskedForEver(t *testing.T) {
	t.Parallel()
	sentinels := testserver.RedisSentinels(t, testserver.UntilDown, "--appendonly", "no")
	client := check.Value(NewClient(sentinels.URL(), nil))(t)
	t.Cleanup(func() { _ = client.Close() })
	set := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		return client.Set(ctx, "key", "", 0).Err()
	}
	check.Must(t, set())

	asked := -1
	check.Eventually(t, "a Sentinel has a client that listens", func() bool {
		for i, sentinel := range sentinels.Sentinels {
			beside := redis.NewClient(&redis.Options{Addr: sentinel.Addr(), Protocol: 2, DisableIdentity: true})
			if strings.Contains(fmt.Sprint(beside.Do(t.Context(), "client", "list").Val()), " sub=2 ") {
				asked = i
			}
			_ = beside.Close()
		}
		return asked >= 0
	})
	sentinels.Settle(t)
	sentinels.Sentinels[asked].Pause()
	sentinels.Primary.Pause()
	sentinels.AwaitPromotion(t) // by the others
	check.Eventually(t, "the new primary takes a write", func() bool { return set() == nil })
}

// The user of the URL is the servers'. The Sentinels are asked as nobody, unless the URL says that they know the user too.
func TestTheLoginOfSentinels(t *testing.T) {
	t.Parallel()
	sentinels := testserver.RedisSentinels(t, time.Minute, "--appendonly", "no")
	allow := func(servers ...*testserver.Server) {
		t.Helper()
		for _, server := range servers {
			admin := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2, DisableIdentity: true})
			check.Must(t, admin.Do(t.Context(), "acl", "setuser", "seckill", "on", ">secret", "~*", "&*", "+@all").Err())
			check.Must(t, admin.Close())
		}
	}
	who := func(options string) (string, error) {
		url := strings.Replace(sentinels.URL(), "://", "://seckill:secret@", 1) + options
		client := check.Value(NewClient(url, nil))(t)
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		return client.Do(ctx, "acl", "whoami").Text()
	}
	allow(sentinels.Primary)
	if name, err := who(""); name != "seckill" || err != nil {
		t.Errorf("the Sentinels know nobody: %q, %v", name, err)
	}
	if _, err := who("?sentinel_login=on"); !strings.Contains(fmt.Sprint(err), "WRONGPASS") {
		t.Errorf("a login that the Sentinels do not know: %v", err)
	}
	allow(sentinels.Sentinels...)
	if name, err := who("?sentinel_login=on"); name != "seckill" || err != nil {
		t.Errorf("the Sentinels know the user too: %q, %v", name, err)
	}
}

// What every kind of client does when a server does not answer, in the words of the constants.
func TestTheLimitsOfTheClients(t *testing.T) {
	t.Parallel()
	one := check.Value(NewClient("redis://127.0.0.1:1", nil))(t).(*redis.Client)
	defer one.Close()
	behind := check.Value(NewClient("redis+sentinel://127.0.0.1:1/shop/2", nil))(t).(*redis.Client)
	defer behind.Close()
	for name, client := range map[string]*redis.Client{"one server": one, "a primary behind Sentinels": behind} {
		o := client.Options()
		check.Equal(t, name+": retries", o.MaxRetries, redisRetries)
		check.Equal(t, name+": connections", o.PoolSize, redisPoolSize)
		check.Equal(t, name+": waiting to read", o.ReadTimeout, redisIOTimeout)
		check.Equal(t, name+": waiting to write", o.WriteTimeout, redisIOTimeout)
		check.Equal(t, name+": waiting for a connection", o.PoolTimeout, redisIOTimeout)
		check.Equal(t, name+": the caller's deadline counts", o.ContextTimeoutEnabled, true)
	}
	check.Equal(t, "the database behind Sentinels", behind.Options().DB, 2)
	check.Equal(t, "dials of one server", one.Options().DialerRetries, 5) // nobody stands in for it
	check.Equal(t, "dials behind Sentinels", behind.Options().DialerRetries, redisDials)
	check.Equal(t, "a dial of one server", one.Options().DialTimeout, redisDialTimeout)
	check.Equal(t, "a dial behind Sentinels", behind.Options().DialTimeout, primaryTimeout)

	all := check.Value(NewClient("redis+cluster://127.0.0.1:1", nil))(t).(*redis.ClusterClient)
	defer all.Close()
	o := all.Options()
	check.Equal(t, "a Cluster: redirects and retries", o.MaxRedirects, redisRetries)
	check.Equal(t, "a Cluster: retries by a node", o.MaxRetries, -1) // none
	check.Equal(t, "a Cluster: connections to a node", o.PoolSize, redisPoolSize)
	check.Equal(t, "a Cluster: dials", o.DialerRetries, redisDials)
	check.Equal(t, "a Cluster: waiting to read", o.ReadTimeout, redisIOTimeout)
	check.Equal(t, "a Cluster: the age of what it knows", o.ClusterStateReloadInterval, topologyAge)
	check.Equal(t, "a Cluster: the caller's deadline counts", o.ContextTimeoutEnabled, true)
}
