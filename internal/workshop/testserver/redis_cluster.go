package testserver

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"seckill/internal/workshop/check"

	"github.com/redis/go-redis/v9"
)

// slots is how many a Redis Cluster has.
const slots = 16384

// Cluster is a Redis Cluster of a test.
type Cluster struct {
	Primaries, Replicas []*Server // as they began: Replicas[i] stands by for Primaries[i]

	tls *redisTLS
}

// RedisCluster starts a Redis Cluster of three primaries from deployments/redis.conf and
// deployments/engines/redis-cluster/node.conf, with a replica each when asked for. Further arguments are those
// of each node.
func RedisCluster(t testing.TB, replicas bool, args ...string) *Cluster {
	t.Helper()
	return (&Cluster{}).start(t, replicas, args)
}

// RedisClusterOverTLS starts one with replicas that clients reach over TLS, and whose nodes speak TLS with each other.
func RedisClusterOverTLS(t testing.TB, files Certificates, args ...string) *Cluster {
	t.Helper()
	return (&Cluster{tls: newRedisTLS(files)}).start(t, true, args)
}

func (c *Cluster) start(t testing.TB, replicas bool, args []string) *Cluster {
	t.Helper()
	const primaries = 3
	args = append([]string{"--include", configFile("engines/redis-cluster/node.conf")}, args...)
	var between []string // ports of the nodes for each other, in the order of their start
	launch := func() *Server {
		t.Helper()
		_, port, err := net.SplitHostPort(Address(t))
		check.Must(t, err)
		between = append(between, port)
		return c.tls.start(t, redisEngine(), append([]string{"--cluster-port", port}, args...))
	}
	for i := range primaries {
		node := launch()
		first, last := i*slots/primaries, (i+1)*slots/primaries-1
		command(t, node, "cluster", "set-config-epoch", i+1)
		command(t, node, "cluster", "addslotsrange", first, last)
		c.Primaries = append(c.Primaries, node)
	}
	if replicas {
		for range primaries {
			c.Replicas = append(c.Replicas, launch())
		}
	}
	nodes := slices.Concat(c.Primaries, c.Replicas)
	for i, node := range nodes[1:] {
		host, port := c.tls.hostPort(t, node)
		command(t, nodes[0], "cluster", "meet", host, port, between[i+1])
	}
	known := fmt.Sprintf("cluster_known_nodes:%d\r", len(nodes))
	for _, node := range nodes {
		check.Eventually(t, "the nodes of the cluster know each other", func() bool {
			info := say(t, node, "cluster", "info")
			return strings.Contains(info, known) && strings.Contains(info, "cluster_slots_ok:16384\r") &&
				!strings.Contains(say(t, node, "cluster", "nodes"), "handshake")
		})
	}
	for i, replica := range c.Replicas {
		primary := c.Primaries[i]
		id := say(t, primary, "cluster", "myid")
		check.Eventually(t, "a replica knows its primary", func() bool { return ask(t, replica, "cluster", "replicate", id) == nil })
	}
	for _, replica := range c.Replicas {
		check.Eventually(t, "a replica follows", func() bool {
			return strings.Contains(say(t, replica, "info", "replication"), "master_link_status:up")
		})
	}
	for _, node := range nodes {
		check.Eventually(t, "there is a cluster", func() bool {
			return strings.Contains(say(t, node, "cluster", "info"), "cluster_state:ok") &&
				strings.Count(say(t, node, "cluster", "nodes"), "slave ") == len(c.Replicas)
		})
	}
	return c
}

// URL is where clients find the Cluster.
func (c *Cluster) URL() string {
	urls := make([]string, len(c.Primaries))
	for i, node := range c.Primaries {
		urls[i] = c.tls.scheme() + "://" + c.tls.addr(node)
	}
	return strings.Join(urls, ",")
}

// Primary tells whether a server takes writes.
func Primary(t testing.TB, server *Server) bool {
	t.Helper()
	return strings.Contains(say(t, server, "info", "replication"), "role:master\r")
}

// Owner is the place among Primaries of the node that a key began on.
func (c *Cluster) Owner(t testing.TB, key string) int {
	t.Helper()
	for _, node := range c.Primaries { // any that lives
		if slot, err := strconv.Atoi(say(t, node, "cluster", "keyslot", key)); err == nil {
			return (slot*len(c.Primaries) + len(c.Primaries) - 1) / slots
		}
	}
	t.Fatalf("testserver: no node tells the slot of %s", key)
	return 0
}

// Move moves the slot of a key, with all that is in it, to another of the primaries, as resharding does.
func (c *Cluster) Move(t testing.TB, key string, to int) {
	t.Helper()
	from, target := c.Primaries[c.Owner(t, key)], c.Primaries[to]
	slot, fromID, targetID := say(t, from, "cluster", "keyslot", key), say(t, from, "cluster", "myid"), say(t, target, "cluster", "myid")
	command(t, target, "cluster", "setslot", slot, "importing", fromID)
	command(t, from, "cluster", "setslot", slot, "migrating", targetID)
	for {
		found, err := reply(from, "cluster", "getkeysinslot", slot, 10)
		keys, ok := found.([]any)
		if err != nil || !ok {
			t.Fatalf("testserver: the keys of slot %s: %v, %v", slot, found, err)
		}
		if len(keys) == 0 {
			break
		}
		command(t, from, append([]any{"migrate", loopback, target.Port(), "", 0, 5000, "keys"}, keys...)...)
	}
	for _, node := range []*Server{target, from} { // the others hear of it from these
		command(t, node, "cluster", "setslot", slot, "node", targetID)
	}
}

// command makes a server do something, or fails the test.
func command(t testing.TB, server *Server, args ...any) {
	t.Helper()
	if err := ask(t, server, args...); err != nil {
		t.Fatalf("testserver: %v on %s: %v", args, server.Addr(), err)
	}
}

func ask(t testing.TB, server *Server, args ...any) error {
	t.Helper()
	_, err := reply(server, args...)
	return err
}

// say is what a server answers; empty when it does not.
func say(t testing.TB, server *Server, args ...any) string {
	t.Helper()
	said, _ := reply(server, args...)
	return fmt.Sprint(said)
}

// reply is a server's answer to one command, over a connection of its own.
func reply(server *Server, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startBudget)
	defer cancel()
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: -1, DialerRetries: 1, PoolSize: 1, Protocol: 2, DisableIdentity: true,
	})
	defer client.Close()
	return client.Do(ctx, args...).Result()
}
