package testserver

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

const (
	// SentinelPrimary is the name under which the Sentinels know the primary.
	SentinelPrimary = "shop"
	// UntilDown is the shortest time to give RedisSentinels where they shall replace a primary. Sentinels promote no replica
	// that has been without its primary for more than ten times that, and TILT mode alone is 30 s of it.
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

// RedisSentinelsApart starts them so that a line can cut off a server from the others and its replica, though it lives on.
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

// Settle waits until the Sentinels agree on a primary that is well and has a replica, and makes Primary and Replica those.
// On a machine that stood still the Sentinels may have replaced the primary that was there in the beginning.
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
