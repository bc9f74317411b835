package testserver

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// SentinelPrimary is the name under which the Sentinels know the primary.
	SentinelPrimary = "shop"
	// hellos is how long three Sentinels may take to know each other: they say hello every 2 s.
	hellos = 30 * time.Second
)

// Sentinels are a primary, a replica, and three Sentinels who watch them.
type Sentinels struct {
	Primary, Replica *Server // as they began
	Sentinels        []*Server

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

func (s *Sentinels) start(t testing.TB, downAfter time.Duration, args []string) *Sentinels {
	t.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	s.Primary, s.Replica = s.tls.start(t, redisEngine(), args), s.tls.start(t, redisEngine(), args)
	host, port := s.tls.hostPort(t, s.Primary)
	command(t, s.Replica, "replicaof", host, port)
	Eventually(t, "the replica follows", func() bool {
		return strings.Contains(say(t, s.Replica, "info", "replication"), "master_link_status:up")
	})
	for range 3 {
		sentinel := s.tls.start(t, sentinelEngine(), nil)
		command(t, sentinel, "sentinel", "monitor", SentinelPrimary, host, port, 2)
		command(t, sentinel, "sentinel", "set", SentinelPrimary,
			"down-after-milliseconds", downAfter.Milliseconds(), "failover-timeout", (10 * time.Second).Milliseconds())
		s.Sentinels = append(s.Sentinels, sentinel)
	}
	deadline := time.Now().Add(hellos)
	for _, sentinel := range s.Sentinels {
		for !strings.Contains(say(t, sentinel, "info", "sentinel"), "status=ok,address="+s.tls.addr(s.Primary)+",slaves=1,sentinels=3") {
			if time.Now().After(deadline) {
				t.Fatalf("testserver: the Sentinels do not know each other:\n%s", say(t, sentinel, "info", "sentinel"))
			}
			<-time.After(50 * time.Millisecond)
		}
	}
	return s
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
		if strings.Contains(say(t, sentinel, "info", "sentinel"), "address="+s.tls.addr(s.Replica)) {
			return true
		}
	}
	return false
}
