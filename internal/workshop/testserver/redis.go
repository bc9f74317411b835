package testserver

import (
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

// redisURL is where clients find a server, as engine.url.
const redisURL = "redis://%s/0"

// Redis starts a redis-server of the test's own from deployments/redis.conf. It writes an append-only file
// as in production, so that a killed one comes back with its data. Further arguments win over the file,
// e.g. "--appendonly", "no".
func Redis(t testing.TB, args ...string) *Server {
	t.Helper()
	return Home("").Redis(t, args...)
}

// SharedRedis returns the URL of the Redis that all tests share. Tests use names of their own and never flush it.
func SharedRedis(t testing.TB) string {
	t.Helper()
	return process.redis.get(t, sharedRedis()).URL()
}

// launchSharedRedis starts a server without an append-only file, and thus without a disk: no test kills it.
func launchSharedRedis() (*Server, error) {
	return launch(stderr{}, redisEngine(), []string{"--appendonly", "no"})
}

func redisEngine() engine {
	return engine{
		program: "redis-server",
		apt:     "redis-server",
		url:     redisURL,
		prepare: func(ctx context.Context, data string) error { return copyConfig(ctx, data, "redis.conf") },
		args: func(s *Server) []string {
			args := []string{
				filepath.Join(s.data(), "redis.conf"),
				"--bind", loopback,
				"--port", strconv.Itoa(s.port.number),
				"--dir", s.data(),
				"--daemonize", "no",
				"--logfile", "",
			}
			return append(args, s.extra...)
		},
		ready: redisReady,
	}
}

// copyConfig prepares a directory with a copy of a file in deployments/: Sentinels, and Redis when they tell it
// to (CONFIG REWRITE), write into theirs.
func copyConfig(ctx context.Context, data, name string) error {
	text, err := os.ReadFile(configFile(name))
	if err != nil {
		return fmt.Errorf("read a configuration: %w", err)
	}
	return errors.Join(emptyDirectory(ctx, data), os.WriteFile(filepath.Join(data, filepath.Base(name)), text, 0o600))
}

// redisReady asks for the process id, so that another test's server on the same port is not taken for this one.
func redisReady(ctx context.Context, s *Server) error {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, PoolSize: 1, Protocol: 2, DisableIdentity: true})
	defer client.Close()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return fmt.Errorf("ask redis-server on %s: %w", s.Addr(), err)
	}
	if want := fmt.Sprintf("process_id:%d\r\n", s.child.process.Pid); !strings.Contains(info, want) {
		return fmt.Errorf("another redis-server answers on %s", s.Addr())
	}
	return nil
}

// Redis are the arguments with which a Redis listens for TLS at a port too, and lets in only who shows a certificate.
func (c Certificates) Redis(port string) []string {
	return []string{
		"--tls-port", port, "--tls-ca-cert-file", c.CA, "--tls-cert-file", c.Cert, "--tls-key-file", c.Key, "--tls-auth-clients", "yes",
		// as which it connects to others
		"--tls-client-cert-file", c.ClientCert, "--tls-client-key-file", c.ClientKey,
	}
}

// redisTLS is a group of Redis servers that speak TLS with each other and tell clients who use it each other's ports
// for it. Beside that each listens in plain text, which is how the test itself asks it. The servers of a nil group do
// that alone.
type redisTLS struct {
	files Certificates
	at    map[*Server]string
}

func newRedisTLS(files Certificates) *redisTLS {
	return &redisTLS{files: files, at: make(map[*Server]string)}
}

// start runs a server of the group.
func (r *redisTLS) start(t testing.TB, e engine, args []string) *Server {
	t.Helper()
	if r == nil {
		return start(t, e, args)
	}
	address := Address(t)
	_, port, err := net.SplitHostPort(address)
	check.Must(t, err)
	s := start(t, e, append(append(r.files.Redis(port), "--tls-replication", "yes", "--tls-cluster", "yes"), args...))
	r.at[s] = address
	return s
}

// addr is where the other servers, and the clients, know a server.
func (r *redisTLS) addr(s *Server) string {
	if r == nil {
		return s.Addr()
	}
	return r.at[s]
}

// hostPort are the words of a command that names a server.
func (r *redisTLS) hostPort(t testing.TB, s *Server) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(r.addr(s))
	check.Must(t, err)
	return host, port
}

// scheme begins the URLs of the group.
func (r *redisTLS) scheme() string {
	if r == nil {
		return "redis"
	}
	return "rediss"
}

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

const (
	// SentinelPrimary is the name under which the Sentinels know the primary.
	SentinelPrimary = "shop"
	// UntilDown is the shortest time to give RedisSentinels where they shall replace a primary. Sentinels promote no
	// replica that has been without its primary for more than ten times that, and TILT mode alone is 30 s of it.
	UntilDown = 4 * time.Second
	// undisputed is the silence of a primary that is not replaced while everything starts.
	undisputed = time.Minute
)

// Sentinels are a primary, a replica, and three Sentinels who watch them.
type Sentinels struct {
	Primary, Replica *Server // as they began, or as Settle has found them
	Sentinels        []*Server

	// Lines, where there are any, are the ways to the servers for all but those who know their own addresses.
	Lines map[*Server]*Line

	tls *redisTLS
}

// RedisSentinels starts a primary and its replica from deployments/redis.conf, and three Sentinels from
// deployments/engines/redis-sentinel/sentinel.conf, which promote the replica when the primary has been silent
// for the time given. Further arguments are those of the primary and the replica.
func RedisSentinels(t testing.TB, downAfter time.Duration, args ...string) *Sentinels {
	t.Helper()
	return (&Sentinels{}).start(t, downAfter, args)
}

// RedisSentinelsOverTLS starts them for clients who use TLS, as do all the servers among each other.
func RedisSentinelsOverTLS(t testing.TB, files Certificates, downAfter time.Duration, args ...string) *Sentinels {
	t.Helper()
	return (&Sentinels{tls: newRedisTLS(files)}).start(t, downAfter, args)
}

// RedisSentinelsApart starts them so that a line can cut off a server from the others and its replica, though it lives
// on.
func RedisSentinelsApart(t testing.TB, downAfter time.Duration, args ...string) *Sentinels {
	t.Helper()
	return (&Sentinels{Lines: map[*Server]*Line{}}).start(t, downAfter, args)
}

// addr is where the others find a server.
func (s *Sentinels) addr(server *Server) string {
	if line := s.Lines[server]; line != nil {
		return line.Addr()
	}
	return s.tls.addr(server)
}

func (s *Sentinels) start(t testing.TB, downAfter time.Duration, args []string) *Sentinels {
	t.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	s.Primary, s.Replica = s.tls.start(t, redisEngine(), args), s.tls.start(t, redisEngine(), args)
	if s.Lines != nil {
		for _, server := range []*Server{s.Primary, s.Replica} {
			s.Lines[server] = NewLine(t, server.Addr())
			host, port := s.hostPort(t, server)
			command(t, server, "config", "set", "replica-announce-ip", host, "replica-announce-port", port)
		}
	}
	host, port := s.hostPort(t, s.Primary)
	s.Follow(t)
	for range 3 {
		sentinel := s.tls.start(t, sentinelEngine(), nil)
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
	host, port := s.hostPort(t, s.Primary)
	command(t, s.Replica, "replicaof", host, port)
	check.Eventually(t, "the replica follows", func() bool {
		return strings.Contains(say(t, s.Replica, "info", "replication"), "master_link_status:up")
	})
}

// hostPort are the words of a command that names a server.
func (s *Sentinels) hostPort(t testing.TB, server *Server) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(s.addr(server))
	check.Must(t, err)
	return host, port
}

// Settle waits until the Sentinels agree on a primary that is well and has a replica, and makes Primary and Replica
// those. On a machine that stood still the Sentinels may have replaced the primary that was there in the beginning.
func (s *Sentinels) Settle(t testing.TB) {
	t.Helper()
	well := func(primary, replica *Server) bool {
		for _, sentinel := range s.Sentinels {
			said := say(t, sentinel, "info", "sentinel")
			agrees := strings.Contains(said, "status=ok,address="+s.addr(primary)+",slaves=1,sentinels=3")
			if !agrees || !strings.Contains(said, "sentinel_tilt:0") {
				return false
			}
		}
		return Primary(t, primary) && strings.Contains(say(t, replica, "info", "replication"), "master_link_status:up")
	}
	check.Eventually(t, "the Sentinels agree on a primary", func() bool {
		if well(s.Replica, s.Primary) {
			s.Primary, s.Replica = s.Replica, s.Primary
			return true
		}
		return well(s.Primary, s.Replica)
	})
}

// AwaitPromotion waits until the replica is a primary that takes writes.
func (s *Sentinels) AwaitPromotion(t testing.TB) {
	t.Helper()
	check.Eventually(t, "the Sentinels promote the replica", func() bool { return Primary(t, s.Replica) })
}

// URL is where clients find the Sentinels.
func (s *Sentinels) URL() string {
	hosts := make([]string, len(s.Sentinels))
	for i, sentinel := range s.Sentinels {
		hosts[i] = s.tls.addr(sentinel)
	}
	return s.tls.scheme() + "+sentinel://" + strings.Join(hosts, ",") + "/" + SentinelPrimary + "/0"
}

// sentinelEngine is Debian's redis-sentinel, which is a link to redis-server that means --sentinel.
func sentinelEngine() engine {
	const file = "sentinel.conf"
	return engine{
		program: "redis-server",
		apt:     "redis-server",
		url:     "redis://%s",
		prepare: func(ctx context.Context, data string) error {
			return copyConfig(ctx, data, "engines/redis-sentinel/"+file)
		},
		args: func(s *Server) []string {
			return append([]string{
				filepath.Join(s.data(), file), "--sentinel",
				"--bind", loopback, "--port", strconv.Itoa(s.port.number), "--dir", s.data(), "--logfile", "",
			}, s.extra...)
		},
		ready: redisReady,
	}
}

// Elected reports whether the Sentinels name the replica as the primary, and it takes writes.
func (s *Sentinels) Elected(t testing.TB) bool {
	t.Helper()
	if !Primary(t, s.Replica) {
		return false
	}
	for _, sentinel := range s.Sentinels {
		if strings.Contains(say(t, sentinel, "info", "sentinel"), "address="+s.addr(s.Replica)) {
			return true
		}
	}
	return false
}
