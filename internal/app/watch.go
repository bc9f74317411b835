package app

import (
	"context"

	"github.com/prometheus/client_golang/prometheus/collectors"

	"seckill/internal/redisdb"
)

// watch counts the connections to the servers.
func (i *Instance) watch(s servers) {
	i.registry.MustRegister(collectors.NewDBStatsCollector(s.db.SQL(), "seckill"))
	redisdb.Observe(i.registry, s.redis)
}

// checks asks every readiness check.
func (i *Instance) checks() map[string]error {
	all := make(map[string]error)
	for _, check := range i.health.Check(context.Background()) {
		all[check.Name] = check.Err
	}
	return all
}
