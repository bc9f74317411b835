// Package redisdb is Redis as a server, whatever is kept in it. Read client.go first: it makes the client of one
// server, of a Cluster (cluster.go follows its primaries) or of the primary that Sentinels know (sentinel.go). fit.go
// refuses a server that is none to sell from, identity.go tells one that has lost its data from the one before, and
// ready.go tells whether a primary takes a write. This file is what an operator should set there, what the client
// remarks, and how many connections it has.
package redisdb

import (
	"context"
	"fmt"
	"log/slog"

	"seckill/internal/budget"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// AdviseCluster says that a Cluster refuses everything while one primary is lost.
func AdviseCluster(ctx context.Context, client redis.UniversalClient, log *slog.Logger) {
	const setting = "cluster-require-full-coverage"
	if _, cluster := client.(*redis.ClusterClient); !cluster {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	if settings, err := client.ConfigGet(ctx, setting).Result(); err == nil && settings[setting] == "yes" {
		log.WarnContext(ctx, "the whole Redis Cluster refuses while one of its primaries is lost; set "+setting+" no on each node")
	}
}

// AdviseExpiry says that a Redis frees what expires in one go: the hot copy of a large sale would stop it for most of a
// second. It says nothing of a Redis that does not tell its settings.
func AdviseExpiry(ctx context.Context, client redis.UniversalClient, log *slog.Logger) {
	const setting = "lazyfree-lazy-expire"
	ctx, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	settings, err := client.ConfigGet(ctx, setting).Result()
	switch {
	case err != nil:
		log.DebugContext(ctx, "Redis does not tell how it frees what expires", slog.Any("error", err))
	case settings[setting] == "no":
		log.WarnContext(ctx, "Redis stops while the copy of a large sale expires; set "+setting+" yes")
	}
}

// Log passes the remarks of the Redis client on, which would go to standard
// error in a format of their own. What matters of them comes back as errors too.
func Log(log *slog.Logger) { redis.SetLogger(remarks{log}) }

type remarks struct{ log *slog.Logger }

// Printf implements the client's logger.
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
