//go:build faults

//part:clusters

package redisdb

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// ages is longer than any test waits.
const ages = time.Hour

// patientCluster is a client of a Cluster whose calls wait for an answer longer than the test lasts.
func patientCluster(t *testing.T, cluster *testserver.Cluster) *redis.ClusterClient {
	t.Helper()
	options := &redis.ClusterOptions{
		ContextTimeoutEnabled: true, DialTimeout: budget.Look, ReadTimeout: ages,
		WriteTimeout: ages,
	}
	for _, node := range cluster.Primaries {
		options.Addrs = append(options.Addrs, node.Addr())
	}
	client := newClusterClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func keyOn(t *testing.T, cluster *testserver.Cluster, primary int) string {
	t.Helper()
	for n := range 1000 {
		if key := fmt.Sprint("key", n); cluster.Owner(key) == primary {
			return key
		}
	}
	t.Fatalf("no key is on primary %d", primary)
	return ""
}

// A primary of a Cluster hangs without being dead: its calls end once it is replaced, before their own time-out.
func TestTheCallsOfAHungPrimaryEndWithItsOffice(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, true, "--cluster-node-timeout", "2000", "--appendonly", "no")
	client, key := patientCluster(t, cluster), keyOn(t, cluster, 0)
	check.Must(t, client.Set(t.Context(), key, "before", 0).Err())

	cluster.Primaries[0].Pause()
	ended := make(chan struct{}, 2)
	go func() { client.Set(t.Context(), key, "one", 0); ended <- struct{}{} }()
	go func() {
		_, _ = client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			return p.Set(t.Context(), key,
				"one of several", 0).Err()
		})
		ended <- struct{}{}
	}()
	check.Eventually(t, "the replica is promoted", func() bool { return testserver.Primary(t, cluster.Replicas[0]) })
	for range cap(ended) {
		check.Receive(t, "the end of a call to the primary that was replaced", ended)
	}
	check.Eventually(t, "the new primary answers",
		func() bool { return client.Set(t.Context(), key, "after", 0).Err() == nil })
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
	before := topologies(t, cluster.Primaries[1:])
	check.Eventually(t, "the Cluster was asked for another primary, again and again", func() bool {
		return topologies(t, cluster.Primaries[1:]) >= before+4
	})
	check.Equal(t, "calls that ended while the primary was stopped", len(counted), 0)
	cluster.Primaries[0].Resume()
	for range calls {
		check.Must(t, check.Receive(t, "the end of a call to the slow primary", counted))
	}
	check.Equal(t, "counted", client.Get(t.Context(), key).Val(), fmt.Sprint(calls))
}

func topologies(t *testing.T, nodes []*testserver.Server) (asked int) {
	t.Helper()
	for _, node := range nodes {
		client := redis.NewClient(&redis.Options{Addr: node.Addr(), DisableIdentity: true})
		stats := check.Value(client.Info(t.Context(), "commandstats").Result())(t)
		check.Must(t, client.Close())
		for _, count := range regexp.MustCompile(`cmdstat_cluster\|\w+:calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
			asked += check.Value(strconv.Atoi(count[1]))(t)
		}
	}
	return asked
}

// The primary hangs, and with it this client's Sentinel, as on one machine: the client asks the other Sentinels.
func TestAHungSentinelIsNotAskedForEver(t *testing.T) {
	t.Parallel()
	sentinels := testserver.RedisSentinels(t, testserver.UntilDown, "--appendonly", "no")
	client := newClient(t, sentinels.URL())
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

// The URL's user is the servers'. The client asks the Sentinels as nobody, unless the URL says that they know the user.
func TestTheLoginOfSentinels(t *testing.T) {
	t.Parallel()
	sentinels := testserver.RedisSentinels(t, time.Minute, "--appendonly", "no")
	allow := func(servers ...*testserver.Server) {
		t.Helper()
		for _, server := range servers {
			admin := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2, DisableIdentity: true})
			check.Must(t, admin.Do(t.Context(), "acl", "setuser", "seckill", "on", ">secret", "~*", "&*",
				"+@all").Err())
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

// A Cluster is ready while one of its primaries takes writes.
func TestAClusterIsReadyWhileAPrimaryIs(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, false, "--appendonly", "no")
	r := readiness(t, cluster.URL())
	check.Eventually(t, "it is ready", func() bool { return asked(t, r) == nil })
	spots, err := Spots(t.Context(), r.client, func(n int) string { return fmt.Sprint("{", n, "}") })
	check.That(t, err == nil && len(spots) == len(cluster.Primaries), "the primaries are at %v, %v", spots, err)
	cluster.Primaries[0].Kill()
	check.Eventually(t, "it is ready with two primaries", func() bool { return asked(t, r) == nil })
	cluster.Primaries[1].Pause()
	cluster.Primaries[2].Pause()
	check.Eventually(t, "it is not ready when none answers", func() bool { return asked(t, r) != nil })
	cluster.Primaries[1].Resume()
	cluster.Primaries[2].Resume()
	check.Eventually(t, "it is ready again", func() bool { return asked(t, r) == nil })
}
