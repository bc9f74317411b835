// Package app puts a running instance together, and the parts of one for the
// commands of an operator. It is the only package that knows all the others.
//
// Start lists the parts in the order in which they start. They stop in the
// opposite order, so that a part ends before what it needs.
package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"

	"seckill/config"
	"seckill/internal/budget"
	"seckill/internal/conns"
	"seckill/internal/embedded"
	"seckill/internal/ids"
	"seckill/internal/listener"
	"seckill/internal/redisdb"
	"seckill/repository"
	"seckill/service/guard"
	"seckill/service/repair"
)

// Start brings an instance up, dependencies first, and returns when it
// listens. When something is missing it says what, and leaves nothing behind.
func Start(ctx context.Context, cfg config.Config, log *slog.Logger) (_ *Instance, err error) {
	i := newInstance(cfg, log)
	defer func() {
		if err != nil {
			i.parts.Close(ctx, budget.Stop)
		}
	}()

	// What everything else stands on.
	if err := i.openTracing(ctx); err != nil {
		return nil, err
	}
	if err := i.claimDataDir(ctx); err != nil {
		return nil, err
	}
	tokens, err := i.openTokens(ctx)
	if err != nil {
		return nil, err
	}
	servers, err := i.openServers(ctx)
	if err != nil {
		return nil, err
	}
	mode, err := i.openMode(ctx, servers)
	if err != nil {
		return nil, err
	}

	// What happens behind the requests.
	var async *AsyncParts // nil in sync
	if cfg.Async() {
		if async, err = i.openAsyncParts(ctx, servers, mode); err != nil {
			return nil, err
		}
		i.runAsyncParts(async) //nolint:contextcheck // until the stop
	} else if cfg.Role == config.RoleWorker {
		log.WarnContext(ctx, "in order mode sync there is no queue: a worker only tidies up")
	}
	pay, err := i.openPayments(ctx, servers.db)
	if err != nil {
		return nil, err
	}
	if err := i.publishEvents(ctx, servers, mode); err != nil {
		return nil, err
	}
	i.parts.Loop("janitor", budget.Brief, repair.Janitor{Store: repository.NewPurges(servers.db.Database), Log: log}.Run) //nolint:contextcheck // until the stop

	// What is served. Now the list of probes is complete.
	guard := conns.New(conns.Options{Name: "main", Exempt: cfg.TrustedProxies, Metrics: i.registry, Log: log})
	i.probe("connections", guard.Probe)
	instances := i.openInstances(servers, mode)
	main, err := i.mainHandler(servers, mode, async, tokens, pay, instances) //nolint:contextcheck // its requests bring their own
	if err != nil {
		return nil, err
	}
	elected := i.openElected(servers, mode, async, pay.asker()) //nolint:contextcheck // until the stop
	if err = i.listenForOperations(ctx); err != nil {
		return nil, err
	}
	i.main, err = i.listen(ctx, listener.Options{
		Name: "main", Address: cfg.HTTPAddr, Handler: main, Leaving: i.health.Leaving, Guard: guard, Slowest: cfg.LockWait, Patience: budget.Answer + budget.Brief,
	})
	if err != nil {
		return nil, err
	}

	if err := i.signIn(instances, async); err != nil { //nolint:contextcheck // until the stop
		return nil, err
	}

	// What ends or begins an order's later life by itself.
	i.runPayments(pay)            //nolint:contextcheck // until the stop
	elected.run(i, servers, mode) //nolint:contextcheck // until the stop
	return i, nil
}

// servers are what everything else stands on.
type servers struct {
	db    *Database
	redis redis.UniversalClient
	// incarnation names an embedded Redis, which has no run_id: each start has
	// another one, so that what an earlier one held is not taken for its own.
	incarnation string
	// sole is nil where several instances may work together.
	sole *guard.Sole
}

// claimDataDir makes sure that no other process serves from the same data
// directory: the embedded Redis of one process would not know the locks of the
// other, and two queues must not write the same files.
func (i *Instance) claimDataDir(ctx context.Context) error {
	if !i.cfg.Embedded() && !i.cfg.EmbeddedQueue() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Look)
	defer cancel()
	claim, err := embedded.ClaimDataDir(ctx, i.cfg.DataDir, i.log)
	if err != nil {
		return err
	}
	i.parts.OnClose("data directory", func(context.Context) error { return claim.Close() })
	return nil
}

// inDataDir is the setting to name when a server fails: its own, or that of the embedded one's files.
func inDataDir(isEmbedded bool, variable string) string {
	if isEmbedded {
		return "SECKILL_DATA_DIR"
	}
	return variable
}

// openServers opens the database and Redis, and begins the list of probes.
func (i *Instance) openServers(ctx context.Context) (s servers, err error) {
	if s.db, err = i.openDatabase(ctx); err != nil {
		return s, err
	}
	if s.redis, err = i.openRedis(ctx); err != nil {
		return s, err
	}
	if i.cfg.RedisURL == "" {
		if s.incarnation, err = ids.New(); err != nil {
			return s, fmt.Errorf("name the embedded Redis: %w", err)
		}
	}
	i.registry.MustRegister(collectors.NewDBStatsCollector(s.db.SQL(), "seckill"))
	redisdb.Observe(i.registry, s.redis)
	i.probePatiently("database", i.cfg.WithoutDatabase(), s.db.Ready)
	i.probe("redis", redisdb.NewReadiness(s.redis).Probe)
	redisdb.AdviseCluster(ctx, s.redis, i.log)
	if !i.cfg.Migrate {
		i.probe("schema", s.db.SchemaProbe())
	}
	s.sole = i.claimDatabase(s.db) //nolint:contextcheck // the claim outlives the start
	return s, nil
}
