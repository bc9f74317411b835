package redisdb

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/conns"
	"seckill/internal/redisurl"
)

// Timeouts of the Redis client. Redis answers in microseconds; one that needs longer than this is stopped, cut off or
// starting, and the request it holds up still has to be answered within its budget.
const (
	// redisPerProcessor connections are enough for a core's worth of concurrent calls; more callers wait for a free one
	// at most budget.Call. Where descriptors are few it is a sixteenth of them: the embedded Redis takes as many again.
	redisPerProcessor = 32
	// redisRetries send a call again after a lost connection. Every script of ours may be sent twice without harm.
	redisRetries = 1
	// redisDials is how often a connection to a server that others may stand in for is tried before its caller hears
	// so: another try finds the same dead server, and each of the library's own five waits 100 ms before the next.
	redisDials = 1
)

// NewClient makes a client for what internal/redisurl reads: one server, a Cluster, or a primary that Sentinels know.
// It does not connect yet. `rediss://` is spoken as secure says; nil leaves it to the URL. The limits of the URL come
// before those given, and then those by default.
func NewClient(url string, secure *tls.Config, given ...redisurl.Limits) (redis.UniversalClient, error) {
	target, err := redisurl.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("the Redis URL %w", err)
	}
	limits := target.Limits
	for _, others := range append(given, defaultLimits()) {
		limits = limits.Or(others)
	}
	config := tlsOf(target, secure)
	common := &redis.UniversalOptions{
		Addrs: target.Hosts, DB: target.Database, Username: target.Username, Password: target.Password, TLSConfig: config, Dialer: dialer(config),
		ContextTimeoutEnabled: true, // otherwise a caller's deadline is ignored on reads
		DialTimeout:           budget.Look,
		ReadTimeout:           limits.Timeout,
		WriteTimeout:          limits.Timeout,
		PoolTimeout:           limits.Timeout,
		PoolSize:              limits.PoolSize, // of each node
		ConnMaxIdleTime:       budget.Survey,
	}
	switch {
	case target.Cluster:
		return newClusterClient(common.Cluster()), nil
	case target.Primary != "":
		return newSentinelClient(common.Failover(), target), nil
	}
	one := common.Simple()
	one.MaxRetries = redisRetries
	return redis.NewClient(one), nil
}

func defaultLimits() redisurl.Limits {
	return redisurl.Limits{
		PoolSize: min(redisPerProcessor*runtime.GOMAXPROCS(0), max(conns.Descriptors()/16, 2)), Timeout: budget.Call,
	}
}

// tlsOf is how servers are spoken to whose URL asks for TLS: as the configuration says
// where one was given. It names no server: each is held to the name of its own host.
func tlsOf(target redisurl.Target, given *tls.Config) *tls.Config {
	switch {
	case !target.TLS:
		return nil
	case given != nil:
		return given.Clone()
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: target.SkipVerify} //nolint:gosec // when asked for
}

// dialer makes connections. The handshake counts for budget.Look and for the caller's deadline too: a server that hangs
// still accepts connections. Where no name was given, a server's certificate is to name the host of its address.
func dialer(config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	// A machine that is gone is found out within 45 s also by who only listens.
	alive := net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}
	plain := &net.Dialer{Timeout: budget.Look, KeepAliveConfig: alive}
	if config == nil {
		return plain.DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, budget.Look)
		defer cancel()
		conn, err := plain.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		own := config.Clone()
		if own.ServerName == "" {
			own.ServerName, _, _ = net.SplitHostPort(addr)
		}
		secured := tls.Client(conn, own)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("TLS handshake with %s: %w", addr, err)
		}
		return secured, nil
	}
}
