package testserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
)

const redisURL = "redis://%s/0" // as engine.url

// Redis starts a redis-server of the test's own from deployments/redis.conf, with an append-only file as in production:
// a killed one comes back with its data. Further arguments win over the file, e.g. "--appendonly", "no".
func Redis(t testing.TB, args ...string) *Server {
	t.Helper()
	return Home("").Redis(t, args...)
}

// Redis starts a Redis or Valkey of this version, as the function of that name.
func (h Home) Redis(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, h.redis("redis.conf"), args)
}

// SharedRedis returns the URL of the Redis that all tests share. Tests use names of their own and never flush it.
func SharedRedis(t testing.TB) string {
	t.Helper()
	return sharedRedis.get(t).URL()
}

// redis is a server with its own copy of a file in deployments/, into which it writes (CONFIG REWRITE).
func (h Home) redis(file string, more ...string) engine {
	own := func(data string) string { return filepath.Join(data, filepath.Base(file)) }
	return engine{
		program: h.program("redis-server"), apt: "redis-server", url: redisURL, ask: "PING\r\n", answer: "+PONG",
		prepare: func(_ context.Context, data string) error {
			text, err := os.ReadFile(configFile(file))
			return errors.Join(err, os.MkdirAll(data, 0o700), os.WriteFile(own(data), text, 0o600))
		},
		args: func(s *Server) []string {
			return slices.Concat([]string{own(s.data())}, more,
				[]string{"--bind", loopback, "--port", strconv.Itoa(s.port.number), "--dir", s.data(), "--logfile", ""},
				s.extra)
		},
	}
}

// Redis are the arguments with which a Redis listens for TLS at a port too, and lets in only who shows a certificate.
func (c Certificates) Redis(port string) []string {
	return []string{
		"--tls-port", port, "--tls-ca-cert-file", c.CA, "--tls-cert-file", c.Cert, "--tls-key-file", c.Key,
		"--tls-auth-clients", "yes",
		"--tls-client-cert-file", c.ClientCert, "--tls-client-key-file", c.ClientKey, // as which it connects to others
	}
}

// startSecured starts a server with plain text for the test and, given certificates, TLS for clients and its kind.
func startSecured(t testing.TB, e engine, files *Certificates, args []string) *Server {
	t.Helper()
	if files == nil {
		return start(t, e, args)
	}
	known := Address(t)
	_, port := split(t, known)
	s := start(t, e, slices.Concat(files.Redis(port), []string{"--tls-replication", "yes", "--tls-cluster", "yes"},
		args))
	s.known = known
	return s
}

// where is the address at which other servers, and clients, know a server.
func (s *Server) where() string { return cmp.Or(s.known, s.Addr()) }

func split(t testing.TB, address string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	check.Must(t, err)
	return host, port
}

func scheme(files *Certificates) string {
	if files == nil {
		return "redis"
	}
	return "rediss"
}

const slots = 16384 // of a Redis Cluster

// Cluster is a Redis Cluster of a test.
type Cluster struct {
	Primaries, Replicas []*Server // as they began: Replicas[i] stands by for Primaries[i]

	Files *Certificates // with which clients and nodes speak TLS with the nodes; nil: plain text
}

// RedisCluster starts a Redis Cluster of three primaries, each with a replica if asked for, from deployments/redis.conf
// and deployments/engines/redis-cluster/node.conf. Further arguments are those of each node.
func RedisCluster(t testing.TB, replicas bool, args ...string) *Cluster {
	t.Helper()
	return (&Cluster{}).Start(t, replicas, args...)
}

// Start is RedisCluster, over TLS where there are Files.
func (c *Cluster) Start(t testing.TB, replicas bool, args ...string) *Cluster {
	t.Helper()
	const primaries = 3
	nodes := make([]*Server, map[bool]int{false: primaries, true: 2 * primaries}[replicas])
	for i := range nodes {
		_, between := split(t, Address(t))
		own := append([]string{"--include", configFile("engines/redis-cluster/node.conf"), "--cluster-port", between},
			args...)
		nodes[i] = startSecured(t, Home("").redis("redis.conf"), c.Files, own)
		if i < primaries {
			command(t, nodes[i], "cluster", "set-config-epoch", i+1)
			command(t, nodes[i], "cluster", "addslotsrange", i*slots/primaries, (i+1)*slots/primaries-1)
		}
		if i > 0 {
			host, port := split(t, nodes[i].where())
			command(t, nodes[0], "cluster", "meet", host, port, between)
		}
	}
	c.Primaries, c.Replicas = nodes[:primaries], nodes[primaries:]
	for _, node := range nodes {
		check.Eventually(t, "the nodes of the cluster know each other", func() bool {
			info := say(node, "cluster", "info")
			return strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(nodes))) &&
				strings.Contains(info, "cluster_slots_ok:16384\r") &&
				!strings.Contains(say(node, "cluster", "nodes"), "handshake")
		})
	}
	for i, replica := range c.Replicas {
		id := say(c.Primaries[i], "cluster", "myid")
		check.Eventually(t, "a replica knows its primary",
			func() bool { return check.ErrorOf(reply(replica, "cluster", "replicate", id)) == nil })
	}
	for i, node := range nodes {
		check.Eventually(t, "there is a cluster", func() bool {
			return strings.Contains(say(node, "cluster", "info"), "cluster_state:ok") &&
				strings.Count(say(node, "cluster", "nodes"), "slave ") == len(c.Replicas) &&
				(i < primaries || follows(node))
		})
	}
	return c
}

// URL is where clients find the Cluster.
func (c *Cluster) URL() string {
	url := func(node *Server) string { return scheme(c.Files) + "://" + node.where() }
	return strings.Join(each(c.Primaries, url), ",")
}

// Primary tells whether a server takes writes.
func Primary(t testing.TB, server *Server) bool {
	t.Helper()
	return strings.Contains(say(server, "info", "replication"), "role:master\r")
}

func follows(replica *Server) bool {
	return strings.Contains(say(replica, "info", "replication"), "master_link_status:up")
}

// Owner is the place among Primaries of the node that a key began on.
func (c *Cluster) Owner(key string) int {
	return (slotOf(key)*len(c.Primaries) + len(c.Primaries) - 1) / slots
}

// slotOf is the slot of a key, as Redis computes it: CRC16 (XMODEM) of what stands in its braces.
func slotOf(key string) int {
	if _, behind, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(behind, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			crc = crc<<1 ^ 0x1021*(crc>>15)
		}
	}
	return int(crc) % slots
}

// Move moves the slot of a key, with all that is in it, to another of the primaries, as resharding does.
func (c *Cluster) Move(t testing.TB, key string, to int) {
	t.Helper()
	from, target, slot := c.Primaries[c.Owner(key)], c.Primaries[to], slotOf(key)
	fromID, targetID := say(from, "cluster", "myid"), say(target, "cluster", "myid")
	command(t, target, "cluster", "setslot", slot, "importing", fromID)
	command(t, from, "cluster", "setslot", slot, "migrating", targetID)
	for {
		found, err := reply(from, "cluster", "getkeysinslot", slot, 10)
		keys, ok := found.([]any)
		check.Need(t, err == nil && ok, "testserver: the keys of slot %d: %v, %v", slot, found, err)
		if len(keys) == 0 {
			break
		}
		command(t, from, append([]any{"migrate", loopback, target.Port(), "", 0, 5000, "keys"}, keys...)...)
	}
	for _, node := range []*Server{target, from} { // the others hear of it from these
		command(t, node, "cluster", "setslot", slot, "node", targetID)
	}
}

func command(t testing.TB, server *Server, args ...any) {
	t.Helper()
	_, err := reply(server, args...)
	check.Need(t, err == nil, "testserver: %v on %s: %v", args, server.Addr(), err)
}

func say(server *Server, args ...any) string {
	said, _ := reply(server, args...)
	return fmt.Sprint(said)
}

func reply(server *Server, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startBudget)
	defer cancel()
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: -1, DialerRetries: 1, PoolSize: 1, Protocol: 2, DisableIdentity: true,
	})
	defer client.Close()
	return client.Do(ctx, args...).Result()
}

const (
	// SentinelPrimary is the name under which the Sentinels know the primary.
	SentinelPrimary = "shop"
	// UntilDown is the shortest time to give RedisSentinels where they shall replace a primary. Sentinels promote no
	// replica that has been without its primary for more than ten times that, and TILT mode alone is 30 s of it.
	UntilDown  = 4 * time.Second
	undisputed = time.Minute // silence of a primary that is not replaced while everything starts
)

// Sentinels are a primary, a replica, and three Sentinels who watch them.
type Sentinels struct {
	Primary, Replica *Server // as they began, or as Settle has found them
	Sentinels        []*Server

	// Lines are the ways to the servers for all but those who know their own addresses: one can cut off a server from
	// all others, though it lives on. Start makes them in a map that is not nil.
	Lines map[*Server]*Line
	Files *Certificates // with which clients and servers speak TLS with the servers; nil: plain text
}

// RedisSentinels starts a primary and a replica (deployments/redis.conf, args) and three Sentinels
// (deployments/engines/redis-sentinel/sentinel.conf), which promote the replica after so long a silence.
func RedisSentinels(t testing.TB, downAfter time.Duration, args ...string) *Sentinels {
	t.Helper()
	return (&Sentinels{}).Start(t, downAfter, args...)
}

// Start is RedisSentinels, over TLS where there are Files, and through Lines.
func (s *Sentinels) Start(t testing.TB, downAfter time.Duration, args ...string) *Sentinels {
	t.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	pair := [2]*Server{}
	for i := range pair {
		server := startSecured(t, Home("").redis("redis.conf"), s.Files, args)
		if s.Lines != nil {
			s.Lines[server] = NewLine(t, server.Addr())
			server.known = s.Lines[server].Addr()
			host, port := split(t, server.known)
			command(t, server, "config", "set", "replica-announce-ip", host, "replica-announce-port", port)
		}
		pair[i] = server
	}
	s.Primary, s.Replica = pair[0], pair[1]
	s.Follow(t)
	host, port := split(t, s.Primary.where())
	for range 3 {
		// Debian's redis-sentinel is a link to redis-server that means --sentinel.
		sentinel := startSecured(t, Home("").redis("engines/redis-sentinel/sentinel.conf", "--sentinel"), s.Files, nil)
		command(t, sentinel, "sentinel", "monitor", SentinelPrimary, host, port, 2)
		command(t, sentinel, "sentinel", "set", SentinelPrimary,
			"down-after-milliseconds", undisputed.Milliseconds(), "failover-timeout", (10 * time.Second).Milliseconds())
		s.Sentinels = append(s.Sentinels, sentinel)
	}
	s.Settle(t)
	for _, sentinel := range s.Sentinels {
		command(t, sentinel, "sentinel", "set", SentinelPrimary, "down-after-milliseconds", downAfter.Milliseconds())
	}
	return s
}

// Follow makes the replica one of the primary, and waits until it has its data.
func (s *Sentinels) Follow(t testing.TB) {
	t.Helper()
	host, port := split(t, s.Primary.where())
	command(t, s.Replica, "replicaof", host, port)
	check.Eventually(t, "the replica follows", func() bool { return follows(s.Replica) })
}

// Settle waits until the Sentinels agree on a well primary with a replica, and sets both; a stalled machine swaps them.
func (s *Sentinels) Settle(t testing.TB) {
	t.Helper()
	well := func(primary, replica *Server) bool {
		for _, sentinel := range s.Sentinels {
			said := say(sentinel, "info", "sentinel")
			if !strings.Contains(said, "status=ok,address="+primary.where()+",slaves=1,sentinels=3") ||
				!strings.Contains(said, "sentinel_tilt:0") {
				return false
			}
		}
		return Primary(t, primary) && follows(replica)
	}
	check.Eventually(t, "the Sentinels agree on a primary", func() bool {
		if well(s.Replica, s.Primary) {
			s.Primary, s.Replica = s.Replica, s.Primary
			return true
		}
		return well(s.Primary, s.Replica)
	})
}

// AwaitPromotion waits until the replica takes writes, and a Sentinel names it as the primary.
func (s *Sentinels) AwaitPromotion(t testing.TB) {
	t.Helper()
	names := func(sentinel *Server) bool {
		return strings.Contains(say(sentinel, "info", "sentinel"), "address="+s.Replica.where())
	}
	check.Eventually(t, "the Sentinels promote the replica", func() bool {
		return Primary(t, s.Replica) && slices.ContainsFunc(s.Sentinels, names)
	})
}

// URL is where clients find the Sentinels.
func (s *Sentinels) URL() string {
	hosts := strings.Join(each(s.Sentinels, (*Server).where), ",")
	return scheme(s.Files) + "+sentinel://" + hosts + "/" + SentinelPrimary + "/0"
}
