package app

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// watch counts the connections to the servers.
func (i *Instance) watch(s servers) {
	redisGauge := func(state, help string, value func() uint32) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "seckill_redis_connections", Help: help, ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(value()) })
	}
	const connections = "Connections to Redis, by state: all that are open, or idle ones."
	i.registry.MustRegister(
		collectors.NewDBStatsCollector(s.db.SQL(), "seckill"),
		redisGauge("open", connections, func() uint32 { return s.redis.PoolStats().TotalConns }),
		redisGauge("idle", connections, func() uint32 { return s.redis.PoolStats().IdleConns }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "seckill_redis_pool_timeouts_total", Help: "Calls that found no free connection to Redis in time.",
		}, func() float64 { return float64(s.redis.PoolStats().Timeouts) }))
}

// checks asks every readiness check.
func (i *Instance) checks() map[string]error {
	all := make(map[string]error)
	for _, check := range i.health.Check(context.Background()) {
		all[check.Name] = check.Err
	}
	return all
}
