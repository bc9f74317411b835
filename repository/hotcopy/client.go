package hotcopy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/redisurl"
)

// Timeouts of the Redis client. Redis answers in microseconds; one that needs
// longer than this is stopped, cut off or starting, and the request it holds
// up still has to be answered within its budget.
const (
	redisDialTimeout = time.Second
	redisIOTimeout   = 2 * time.Second
	// redisPoolSize connections are enough for two cores' worth of concurrent
	// calls; more callers wait for a free one at most redisIOTimeout.
	redisPoolSize = 64
	// redisRetries send a call again after a lost connection. Every script of
	// ours may be sent twice without harm.
	redisRetries = 1
	// redisDials is how often a connection to a server that others may stand in for is
	// tried before its caller hears so: another try finds the same dead server, and each
	// of the library's own five waits 100 ms before the next.
	redisDials = 1
	// topologyAge is how old the client's picture of a Cluster may get while nothing goes
	// wrong; whatever does has it drawn anew at once.
	topologyAge = time.Second
	// topologyTimeout bounds the question to one node which node has which slots: another
	// node knows too, and the whole is to be known within a second of a failover.
	topologyTimeout = 300 * time.Millisecond
)

// NewClient makes a client for what internal/redisurl reads: one server, a Cluster, or
// a primary that Sentinels know. It does not connect yet. `rediss://` is spoken as secure
// says; nil leaves it to the URL.
func NewClient(url string, secure *tls.Config) (redis.UniversalClient, error) {
	target, err := redisurl.Parse(url)
	if err != nil {
		return nil, fmt.Errorf("the Redis URL %w", err)
	}
	common := &redis.UniversalOptions{
		Addrs: target.Hosts, DB: target.Database, Username: target.Username, Password: target.Password, TLSConfig: tlsOf(target, secure),
		ContextTimeoutEnabled: true, // otherwise a caller's deadline is ignored on reads
		DialTimeout:           redisDialTimeout,
		ReadTimeout:           redisIOTimeout,
		WriteTimeout:          redisIOTimeout,
		PoolTimeout:           redisIOTimeout,
		PoolSize:              redisPoolSize, // of each node
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

// newClusterClient makes a client that learns of a failover or of a slot that has moved
// within moments: see follower.
func newClusterClient(options *redis.ClusterOptions) *redis.ClusterClient {
	options.DialerRetries = redisDials
	options.MaxRedirects = redisRetries // also the number of retries
	options.ClusterStateReloadInterval = topologyAge
	client := redis.NewClusterClient(options)
	client.OnNewNode(func(node *redis.Client) { node.AddHook(follower{client}) })
	return client
}

// follower has a Cluster's topology read again as soon as a node cannot be reached, does
// not answer, or says that the Cluster is in trouble. By itself the client reads it only
// when it is old, or a node names another one. It pauses for 200 ms between two readings.
type follower struct{ cluster *redis.ClusterClient }

// DialHook implements redis.Hook.
func (f follower) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		f.note(ctx, err)
		return conn, err
	}
}

// ProcessHook implements redis.Hook.
func (f follower) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "cluster" {
			limited, cancel := context.WithTimeout(ctx, topologyTimeout)
			defer cancel()
			return next(limited, cmd)
		}
		err := next(ctx, cmd)
		f.note(ctx, err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (f follower) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		f.note(ctx, err)
		for _, cmd := range cmds {
			f.note(ctx, cmd.Err())
		}
		return err
	}
}

// note reads the topology again after an error that another topology may end.
func (f follower) note(ctx context.Context, err error) {
	_, answered := errors.AsType[redis.Error](err)
	switch {
	case err == nil || errors.Is(err, context.Canceled):
	case !answered, redis.IsClusterDownError(err), redis.IsReadOnlyError(err), redis.IsLoadingError(err), redis.IsMasterDownError(err):
		f.cluster.ReloadState(ctx)
	}
}

// newSentinelClient makes a client of the server that the Sentinels name.
func newSentinelClient(options *redis.FailoverOptions, target redisurl.Target) *redis.Client {
	options.MasterName = target.Primary
	options.DialerRetries = redisDials
	options.MaxRetries = redisRetries
	options.Dialer = dialSentinels(options.TLSConfig)
	if target.SentinelLogin {
		options.SentinelUsername, options.SentinelPassword = target.Username, target.Password
	}
	return redis.NewFailoverClient(options)
}

// dialSentinels reaches Sentinels, and the primary that they name. That one may be dead
// until they have elected another. The library's pool stops dialing for a second after
// as many failures as it has places, and would go on not to see the new primary for that
// time. So it is not told that a dial failed: it gets a connection on which everything
// fails with the error of the dial.
func dialSentinels(config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: redisDialTimeout, KeepAlive: 30 * time.Second}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if err == nil && config != nil {
			own := config.Clone()
			if own.ServerName == "" {
				own.ServerName, _, _ = net.SplitHostPort(addr)
			}
			secured := tls.Client(conn, own)
			if err = secured.HandshakeContext(ctx); err == nil {
				return secured, nil
			}
			_ = conn.Close()
		}
		if err != nil {
			return unreachable{err: err}, nil //nolint:nilerr // see above
		}
		return conn, nil
	}
}

// unreachable is a connection to nowhere.
type unreachable struct {
	net.Conn // nil: nothing else is called

	err error // of the dial
}

// Read implements net.Conn.
func (u unreachable) Read([]byte) (int, error) { return 0, u.err }

// Write implements net.Conn.
func (u unreachable) Write([]byte) (int, error) { return 0, u.err }

// Close implements net.Conn.
func (unreachable) Close() error { return nil }

// LocalAddr implements net.Conn.
func (unreachable) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements net.Conn.
func (unreachable) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// SetDeadline implements net.Conn.
func (unreachable) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (unreachable) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (unreachable) SetWriteDeadline(time.Time) error { return nil }

// Node names the server of a voucher's copy, so that calls to different servers can be
// kept apart. It asks no server. Empty: there is only one, or it is not known.
func (s *Store) Node(voucherID string) string {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), topologyTimeout)
	defer cancel()
	node, err := cluster.MasterForKey(ctx, headKey(voucherID))
	if err != nil {
		return ""
	}
	return node.Options().Addr
}

// IsCluster reports whether keys lie on different servers.
func IsCluster(client redis.UniversalClient) bool {
	_, ok := client.(*redis.ClusterClient)
	return ok
}
