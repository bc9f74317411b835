// Package app puts a running instance together, and parts of one for the commands. It alone knows all other packages.
// Start lists the parts in the order of their start. They stop in the opposite order: a part ends before what it needs.
package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"

	"seckill/config"
	"seckill/handler"
	"seckill/internal/budget"
	"seckill/internal/conns"
	"seckill/internal/embedded"
	"seckill/internal/ids"
	"seckill/internal/listener"
	"seckill/internal/parts"
	"seckill/internal/poll"
	"seckill/internal/redisdb"
	"seckill/internal/telemetry"
	"seckill/internal/tracing"
	"seckill/internal/version"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/hotcopy"
	"seckill/service"
	"seckill/service/guard"
	"seckill/service/repair"
)

// Start brings an instance up, and returns when it listens. An error says what is missing, and nothing is left behind.
func Start(ctx context.Context, cfg config.Config, log *slog.Logger) (_ *Instance, err error) {
	i := newInstance(cfg, log)
	defer func() {
		if err != nil {
			i.parts.Close(ctx, budget.Stop)
		}
	}()

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
	pay, err := i.openPayments(ctx, servers.db)
	if err != nil {
		return nil, err
	}

	var async *AsyncParts // nil in sync
	if cfg.Async() {
		if async, err = i.openAsyncParts(ctx, servers, mode); err != nil {
			return nil, err
		}
		i.runAsyncParts(async) //nolint:contextcheck // until the stop
	} else if cfg.Role == config.RoleWorker {
		log.WarnContext(ctx, "in order mode sync there is no queue: a worker only tidies up")
	}
	if err := i.publishEvents(ctx, servers, mode); err != nil {
		return nil, err
	}
	i.parts.Loop("janitor", budget.Brief, repair.Janitor{Store: &repository.Purges{DB: servers.db.Database}, Log: log}.Run) //nolint:contextcheck // until the stop

	// What is served. Now the list of probes is complete.
	guard := conns.New(conns.Options{Name: "main", Exempt: cfg.TrustedProxies, Metrics: i.registry, Log: log})
	i.probe("connections", guard.Probe)
	instances := i.openInstances(servers, mode)
	main, err := i.mainHandler(servers, mode, async, tokens, pay, instances) //nolint:contextcheck // its requests bring their own
	if err != nil {
		return nil, err
	}
	runElected := i.openElected(servers, mode, async, pay.asker()) //nolint:contextcheck // until the stop
	if err = i.listenForOperations(ctx); err != nil {
		return nil, err
	}
	i.main, err = i.listen(ctx, listener.Options{
		Name: "main", Address: cfg.HTTPAddr, Handler: main, Leaving: i.health.Leaving, Guard: guard,
		Slowest: cfg.LockWait, Patience: budget.Answer + budget.Brief,
	})
	if err != nil {
		return nil, err
	}

	if err := i.signIn(instances, async); err != nil { //nolint:contextcheck // until the stop
		return nil, err
	}

	i.runPayments(pay) //nolint:contextcheck // until the stop
	runElected()
	return i, nil
}

type servers struct {
	db          *Database
	redis       redis.UniversalClient
	incarnation string      // names an embedded Redis, without a run_id: what an earlier start held is not this one's
	sole        *guard.Sole // nil where several instances may work together
}

// claimDataDir keeps a second process out: its Redis would not know our locks, and its queue has the same files.
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
	i.probes = append(i.probes, service.Probe{Name: "database", Ask: s.db.Ready, Patience: i.cfg.WithoutDatabase()})
	i.probe("redis", redisdb.NewReadiness(s.redis).Probe)
	redisdb.AdviseCluster(ctx, s.redis, i.log)
	if !i.cfg.Migrate {
		i.probe("schema", s.db.SchemaProbe())
	}
	s.sole = i.claimDatabase(s.db) //nolint:contextcheck // the claim outlives the start
	return s, nil
}

// Instance is one running service.
type Instance struct {
	cfg       config.Config
	log       *slog.Logger
	registry  *prometheus.Registry
	elections *telemetry.Gauges
	probes    []service.Probe // of the health, while the instance is put together
	health    *service.Health
	main, ops *listener.Listener

	// Disagrees is why this instance sells nothing in its order mode, which is not the database's; nil when it is.
	Disagrees func(ctx context.Context) error
	leave     func() // tells the requests that wait for orders that the stop has begun

	parts  *parts.Parts    // in the order in which they started
	tracer *tracing.Tracer // nil: nothing is traced

	failed   chan error
	stopOnce sync.Once
}

func newInstance(cfg config.Config, log *slog.Logger) *Instance {
	i := &Instance{
		cfg: cfg, log: log, parts: parts.New(log), failed: make(chan error, 4),
		registry: prometheus.NewRegistry(),
	}
	i.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	telemetry.NewBuild(i.registry, version.Read())
	i.elections = telemetry.NewElections(i.registry)
	return i
}

// BaseURL is where the main listener is reached on this machine.
func (i *Instance) BaseURL() string { return i.main.URL() }

// OpsURL is where the operations listener is reached on this machine.
func (i *Instance) OpsURL() string { return i.ops.URL() }

// Failed reports that a listener, the consumer or the connection to the queue ended by itself, which calls for Stop.
func (i *Instance) Failed() <-chan error { return i.failed }

// Stop ends the instance in order. It is not ready any more, and serves on, closing connections, for the grace in which
// load balancers notice. Then it takes no new connections, and ends what is under way, in less than 10 s more even when
// a part hangs. It is safe to call twice; when ctx ends first, only the grace is cut short. It cannot fail: what was
// answered is durable, others do what is left behind, and a part that closes badly is logged. Failed has what ends an
// instance badly.
func (i *Instance) Stop(ctx context.Context) {
	i.stopOnce.Do(func() {
		i.health.StartLeaving()
		i.log.InfoContext(ctx, "stopping: not ready any more", slog.Duration("grace", i.cfg.DrainGrace))
		poll.Pause(ctx, i.cfg.DrainGrace)
		i.health.StartDraining()
		if i.leave != nil {
			i.leave()
		}
		i.parts.Close(ctx, budget.Stop)
		i.log.InfoContext(ctx, "stopped")
	})
}

func (i *Instance) probe(name string, ask func(ctx context.Context) error) {
	i.probes = append(i.probes, service.Probe{Name: name, Ask: ask})
}

// openInstances makes the list of the instances that are alive. This one is in it from the moment it listens.
func (i *Instance) openInstances(s servers, mode orderMode) *hotcopy.Instances {
	return hotcopy.NewInstances(s.redis, i.deployment(s, mode))
}

// deployment tells the name that the instances of a deployment have in common.
func (*Instance) deployment(s servers, mode orderMode) func(ctx context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if mode.deployment != "" {
			return mode.deployment, nil
		}
		record, err := s.db.Modes.Read(ctx) // it was not known at the start: there was no schema
		return record.Deployment, err
	}
}

// signIn gives signs of life until the stop, with what this instance sees.
func (i *Instance) signIn(list *hotcopy.Instances, async *AsyncParts) error {
	id, err := ids.New()
	if err != nil {
		return err
	}
	self := model.Instance{
		ID: id, Name: i.main.OnMachine(), Version: version.Read().Version,
		Role: string(i.cfg.Role), Mode: i.cfg.OrderMode,
	}
	see := func(ctx context.Context, self *model.Instance) {
		var unready []string
		for _, check := range i.health.Check(ctx) {
			if check.Err != nil && !i.health.Leaving() { // one that is told to stop is well
				unready = append(unready, check.Name)
			}
		}
		self.Unready = strings.Join(unready, ",")
		if async != nil {
			drifted := async.parts.Metrics.Drift.IDs()
			self.Drifted = strings.Join(drifted[:min(len(drifted), maxDrifted)], ",")
		}
	}
	i.parts.Loop("signs of life", budget.Brief, func(ctx context.Context) { list.Sign(ctx, self, see) })
	return nil
}

const maxDrifted = 20 // vouchers that a sign names

// listenForOperations opens the operations listener, whose clients may read metrics and cause profiles unasked.
func (i *Instance) listenForOperations(ctx context.Context) (err error) {
	i.registry.MustRegister(telemetry.NewChecks(func() map[string]error { //nolint:contextcheck // asked when read
		all := make(map[string]error)
		for _, check := range i.health.Check(context.Background()) {
			all[check.Name] = check.Err
		}
		return all
	}))
	operations := handler.NewOperations(i.registry)
	if i.ops, err = i.listenInside(ctx, "operations", "operations", i.cfg.OpsAddr, operations); err == nil {
		i.ops.AdviseInner(ctx)
	}
	return err
}

// listenInside serves the inner network until the stop. Connections is the name of the listener in their metrics.
func (i *Instance) listenInside(
	ctx context.Context, name, connections, address string, h http.Handler,
) (*listener.Listener, error) {
	const enough = 100 // for some scrapers and profiles
	return i.listen(ctx, listener.Options{
		Name: name, Address: address, Patience: budget.Blink, Handler: listener.KnownHosts(h, address),
		Guard: conns.New(conns.Options{
			Name: connections, Max: enough, PerNetwork: enough, Metrics: i.registry, Log: i.log,
		}),
	})
}

// listen serves until the stop. That a listener ends before ends the instance.
func (i *Instance) listen(ctx context.Context, o listener.Options) (*listener.Listener, error) {
	o.Log, o.Failed = i.log, func(err error) { i.failed <- err }
	l, err := listener.Open(ctx, o)
	if err == nil {
		i.parts.OnClose(o.Name+" listener", l.Stop)
	}
	return l, err
}

// openTracing begins to trace where the settings ask for it. A nil tracer records nothing.
func (i *Instance) openTracing(ctx context.Context) (err error) {
	metrics := telemetry.NewTracing(i.registry)
	if !i.cfg.Tracing.On {
		return nil
	}
	tracing.LogTo(i.log)
	i.tracer, err = tracing.Start(ctx, tracing.Options{
		Ratio: i.cfg.Tracing.Ratio, ParentBased: i.cfg.Tracing.ParentBased, Metrics: metrics, Log: i.log,
	})
	if err != nil {
		return err
	}
	i.parts.OnCloseWithin(budget.Brief, "tracing", i.tracer.Stop)
	i.log.InfoContext(ctx, "requests are traced", slog.Float64("ratio", i.cfg.Tracing.Ratio))
	return nil
}
