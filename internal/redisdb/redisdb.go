// Package redisdb is Redis as a server, whatever it keeps: the client of one server, of a Cluster (cluster.go) or of
// the primary that Sentinels know, whether it can be sold from and has lost data, and what to set there.
package redisdb

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/conns"
	"seckill/internal/ids"
	"seckill/internal/redisurl"
	"seckill/model"
)

// AdviseCluster says that a Cluster refuses everything while one primary is lost.
func AdviseCluster(ctx context.Context, client redis.UniversalClient, log *slog.Logger) {
	if IsCluster(client) && isSet(ctx, client, log, "cluster-require-full-coverage", "yes") {
		log.WarnContext(ctx, "the whole Redis Cluster refuses while one of its primaries is lost; "+
			"set cluster-require-full-coverage no on each node")
	}
}

// AdviseExpiry warns of a Redis that frees what expires in one go: a large hot copy would stop it for most of a second.
func AdviseExpiry(ctx context.Context, client redis.UniversalClient, log *slog.Logger) {
	if isSet(ctx, client, log, "lazyfree-lazy-expire", "no") {
		log.WarnContext(ctx, "Redis stops while the copy of a large sale expires; set lazyfree-lazy-expire yes")
	}
}

// isSet reports whether a setting of Redis has a value. It is false of a Redis that does not tell its settings.
func isSet(ctx context.Context, client redis.UniversalClient, log *slog.Logger, setting, value string) bool {
	ctx, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	settings, err := client.ConfigGet(ctx, setting).Result()
	if err != nil {
		log.DebugContext(ctx, "Redis does not tell its settings", slog.Any("error", err))
	}
	return settings[setting] == value
}

// Log passes on the Redis client's remarks, which would go to standard error. What matters comes as errors too.
func Log(log *slog.Logger) { redis.SetLogger(remarks{log}) }

type remarks struct{ log *slog.Logger }

func (l remarks) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "Redis client", slog.String("remark", fmt.Sprintf(format, v...)))
}

// Observe counts the connections of a client.
func Observe(registry prometheus.Registerer, client redis.UniversalClient) {
	gauge := func(state, help string, value func() uint32) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "seckill_redis_connections", Help: help, ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(value()) })
	}
	const connections = "Connections to Redis, by state: all that are open, or idle ones."
	registry.MustRegister(
		gauge("open", connections, func() uint32 { return client.PoolStats().TotalConns }),
		gauge("idle", connections, func() uint32 { return client.PoolStats().IdleConns }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "seckill_redis_pool_timeouts_total", Help: "Calls that found no free connection to Redis in time.",
		}, func() float64 { return float64(client.PoolStats().Timeouts) }))
}

// Limits of the Redis client: a request that waits for Redis still has to be answered within its budget.
const (
	// redisPerProcessor connections are enough for a core's worth of concurrent calls; more callers wait for a free one
	// at most budget.Call. Where descriptors are few it is a sixteenth of them: the embedded Redis takes as many again.
	redisPerProcessor = 32
	redisRetries      = 1 // after a lost connection: every script of ours may be sent twice without harm
	// redisDials is 1 where a server has stand-ins: each of the library's five tries finds it dead, 100 ms apart.
	redisDials = 1
)

// NewClient makes a client for what internal/redisurl reads; it does not connect yet. `rediss://` is spoken as secure
// says; nil leaves it to the URL. The URL's limits come before those given, and those before the defaults.
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
		Addrs: target.Hosts, DB: target.Database, Username: target.Username, Password: target.Password,
		TLSConfig: config, Dialer: dialer(config),
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

// tlsOf is how servers of a TLS URL are spoken to: as configured, each held to its own host's name.
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

const (
	// CanaryKey is lost with whatever else a Redis forgets. Its value is another one whenever it was made anew.
	CanaryKey   = "seckill:v1:canary"
	callTimeout = 3 * budget.Look // of one question, which takes microseconds unless Redis is stopped or starting
)

// Identity names a Redis: its run id, of a Cluster that of the node of one key. UNAVAILABLE when it does not answer.
func Identity(ctx context.Context, client redis.UniversalClient) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var node redis.Cmdable = client
	var err error
	if cluster, ok := client.(*redis.ClusterClient); ok {
		node, err = cluster.MasterForKey(ctx, CanaryKey)
	}
	info := ""
	if err == nil {
		info, err = node.Info(ctx, "server").Result()
	}
	if err != nil {
		return "", silent(err)
	}
	return infoField(info, "run_id"), nil
}

// Incarnation changes whenever a Redis may have lost its data: emptied, started again or replaced. Of a Cluster's
// nodes, only the canary's shows that it was emptied. Embedded names a Redis in this process, without ids; empty: none.
func Incarnation(ctx context.Context, client redis.UniversalClient, embedded string) (string, error) {
	nodes, err := []string{embedded}, error(nil)
	if embedded == "" {
		nodes, err = Nodes(ctx, client)
	}
	if err != nil {
		return "", silent(err)
	}
	canary, err := client.Get(ctx, CanaryKey).Result()
	if err == redis.Nil { //nolint:errorlint // it is never wrapped
		if canary, err = ids.New(); err != nil {
			return "", fmt.Errorf("name a canary: %w", err)
		}
		// The slower of two instances sees the other's key next time.
		err = client.SetNX(ctx, CanaryKey, canary, 0).Err()
	}
	if err != nil {
		return "", silent(err)
	}
	return strings.Join(append(nodes, canary), " "), nil
}

// Nodes names every Redis server and its data by two ids: after a failover and back the run id is old, the data not.
func Nodes(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	var mu sync.Mutex
	var nodes []string
	ask := func(ctx context.Context, node *redis.Client) error {
		pipe := node.Pipeline()
		server, replication := pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")
		_, err := pipe.Exec(ctx)
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, infoField(server.Val(), "run_id")+" "+infoField(replication.Val(), "master_replid"))
		return err
	}
	var err error
	switch client := client.(type) {
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, ask)
	case *redis.Client:
		err = ask(ctx, client)
	}
	slices.Sort(nodes)
	return nodes, err
}

func infoField(info, name string) string {
	_, rest, _ := strings.Cut(info, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

func silent(err error) error {
	return model.Unavailable("Redis does not answer.", fmt.Errorf("ask Redis who it is: %w", err))
}

// ErrUnfit says that a Redis is something else than its URL says.
var ErrUnfit = errors.New("the URL does not fit the server")

// What a Redis may be in the place of the one that was meant.
var (
	errIsSentinel = fmt.Errorf("%w: it is a Sentinel: write redis+sentinel://host1,host2,host3/primary/0", ErrUnfit)
	errIsNode     = fmt.Errorf("%w: it is one node of a Redis Cluster, and takes a part of the keys only: write redis+cluster://host:port", ErrUnfit)
	errIsReplica  = fmt.Errorf("%w: it is a replica, which takes no writes: name the primary, or the Sentinels that know it", ErrUnfit)
	errNoCluster  = fmt.Errorf("%w: it is no Redis Cluster: write redis://host:port/0", ErrUnfit)
	errNoSentinel = fmt.Errorf("%w: it is a Redis itself and no Sentinel: write redis://host:port/0", ErrUnfit)
	errWantsTLS   = fmt.Errorf("%w: it ends the connection at the first words, as one does that wants TLS: write rediss:// in the place of redis://", ErrUnfit)
	errUnwatched  = fmt.Errorf("%w: the Sentinels watch no primary of that name", ErrUnfit)
	// ErrRights says that Redis refuses a command, a key or a channel.
	ErrRights = errors.New("the user of this Redis may not do what the service needs; the rights that it needs are in deployments/README.md, \"The rights in Redis\"")
)

// Inspect refuses a server that is none to sell from, and says what it is.
func Inspect(ctx context.Context, client redis.UniversalClient) error {
	switch client := client.(type) {
	case *redis.ClusterClient:
		err := client.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
		if err != nil && strings.Contains(err.Error(), "cluster support disabled") {
			return errNoCluster
		}
		return known(err, client.Options().TLSConfig != nil)
	case *redis.Client:
		info, err := client.Info(ctx, "server").Result()
		if err == nil {
			var replication string
			replication, err = client.Info(ctx, "replication").Result()
			info += replication
		}
		mode := cmp.Or(infoField(info, "redis_mode"), infoField(info, "server_mode")) // the latter is Valkey's
		switch {
		case err != nil:
			return known(err, client.Options().TLSConfig != nil)
		case mode == "sentinel":
			return errIsSentinel
		case mode == "cluster":
			return errIsNode
		case infoField(info, "role") == "slave":
			return errIsReplica
		}
	}
	return nil
}

// known gives what a wrong server answers a meaning. Secured says whether it was asked over TLS.
func known(err error, secured bool) error {
	if err == nil {
		return nil
	}
	text := strings.ToLower(err.Error())
	switch {
	case errors.Is(err, redis.Nil):
		return errUnwatched
	case strings.Contains(text, "unknown command 'sentinel'"):
		return errNoSentinel
	case strings.Contains(text, "accepted by sentinel instances"), strings.Contains(text, "unknown command 'select'"),
		strings.Contains(text, "unknown command 'cluster'"):
		return errIsSentinel
	case strings.Contains(text, "select is not allowed in cluster mode"):
		return errIsNode
	case secured && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("it gave no answer in time, as one does that speaks no TLS: %w", err)
	case !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE):
	case secured:
		return fmt.Errorf("it ends the connection behind the handshake, as one does that does not take the service's certificate: %w", err)
	default:
		return fmt.Errorf("%w (%w)", errWantsTLS, err)
	}
	return Lacking(err)
}

// Lacking adds ErrRights to errors by which Redis says that its user lacks a right, or that a command is unknown.
func Lacking(err error) error {
	if err == nil {
		return nil
	}
	for _, sign := range []string{"NOPERM", "The user executing the script", "ACL failure in script", "unknown command", "Unknown Redis command"} {
		if strings.Contains(err.Error(), sign) {
			return fmt.Errorf("%w: %w", ErrRights, err)
		}
	}
	return err
}

const (
	readyKey = "seckill:v1:ready:" // begins the names of the keys that a look writes
	// rideOut is how long an instance stays ready while Sentinels seek a primary: 5 s of silence (deployments/engines)
	// and a few seconds to agree. Requests get 503 with Retry-After; a load balancer would say less.
	rideOut = 3 * budget.Answer
)

// Readiness tells whether a Redis can be sold from: whether a primary takes a write. It is safe for concurrent use.
type Readiness struct {
	client  redis.UniversalClient
	elected bool // Sentinels find a new primary

	mu   sync.Mutex
	well time.Time // when a primary was found the last time
}

// NewReadiness looks over the client given.
func NewReadiness(client redis.UniversalClient) *Readiness {
	one, ok := client.(*redis.Client)
	return &Readiness{client: client, elected: ok && one.Options().Addr == failoverAddress}
}

const failoverAddress = "FailoverClient" // stands for the address of a client that asks Sentinels

// Probe is UNAVAILABLE when nothing can be sold. A Cluster in which a primary is lost sells on what lies on the others.
func (r *Readiness) Probe(ctx context.Context) error {
	err := r.write(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.well = time.Now()
		return nil
	}
	if r.elected && time.Since(r.well) < rideOut {
		return nil
	}
	return model.Unavailable("no primary of Redis takes a write", err)
}

// write writes to every primary; nil when one of them has taken it.
func (r *Readiness) write(ctx context.Context) error {
	key := func(n int) string { return fmt.Sprintf("%s{%d}", readyKey, n) }
	spots, err := Spots(ctx, r.client, key)
	if err != nil {
		return err
	}
	answers := make(chan error, len(spots))
	for _, n := range spots {
		go func() { answers <- r.client.Set(ctx, key(n), "", budget.Step).Err() }()
	}
	var failed []error
	for range spots {
		failed = append(failed, <-answers)
		if failed[len(failed)-1] == nil {
			return nil
		}
	}
	return errors.Join(append(failed, ctx.Err())...)
}

// primaryTimeout bounds asking for the primary and connecting to it. A Sentinel that hangs is asked twice, then the
// others, then the primary has budget.Look; the library would ask one that hangs for ever if this ended before.
const primaryTimeout = 5*budget.Brief + budget.Look

func newSentinelClient(options *redis.FailoverOptions, target redisurl.Target) *redis.Client {
	options.MasterName = target.Primary
	options.DialerRetries = redisDials
	options.MaxRetries = redisRetries
	options.DialTimeout = primaryTimeout
	options.Dialer = dialAnyway(options.Dialer)
	if target.SentinelLogin {
		options.SentinelUsername, options.SentinelPassword = target.Username, target.Password
	}
	client := redis.NewFailoverClient(options)
	// The library has one set of limits for primary and Sentinels: it has copied the primary's, and reads these later.
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = budget.Brief, budget.Brief, budget.Brief
	options.MaxRetries = -1 // none
	return client
}

// dialAnyway reaches Sentinels, and the primary that they name, which may be dead until they elect another. The
// library's pool stops dialing for a second after as many failures as it has places, and would miss the new primary
// meanwhile. So it sees no failure: it gets a connection on which everything fails with the error of the dial.
func dialAnyway(
	dial func(ctx context.Context, network, addr string) (net.Conn, error),
) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			nowhere, _ := net.Pipe()
			return unreachable{nowhere, err}, nil //nolint:nilerr // see above
		}
		return conn, nil
	}
}

type unreachable struct {
	net.Conn

	err error
}

func (u unreachable) Read([]byte) (int, error) { return 0, u.err }

func (u unreachable) Write([]byte) (int, error) { return 0, u.err }
