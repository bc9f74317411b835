package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"seckill/config"
	"seckill/internal/budget"
	"seckill/internal/listener"
	"seckill/internal/parts"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/internal/tracing"
	"seckill/internal/version"
	"seckill/service"
)

// Instance is one running service.
type Instance struct {
	cfg       config.Config
	log       *slog.Logger
	registry  *prometheus.Registry
	elections *telemetry.Gauges
	probes    []service.Probe // of the health, while the instance is put together
	health    *service.Health
	main, ops *listener.Listener

	// disagrees says that the database is sold from in another order mode.
	disagrees func(ctx context.Context) error
	// leave tells the requests that wait for orders that the stop has begun.
	leave func()

	parts  *parts.Parts    // in the order in which they started
	tracer *tracing.Tracer // nil: nothing is traced

	failed   chan error
	stopOnce sync.Once
}

// newInstance is an instance of nothing yet.
func newInstance(cfg config.Config, log *slog.Logger) *Instance {
	i := &Instance{cfg: cfg, log: log, parts: parts.New(log), failed: make(chan error, 4), registry: prometheus.NewRegistry()}
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

// Disagrees is the reason why this instance sells nothing in its order mode,
// which is not the database's; nil when it is.
func (i *Instance) Disagrees(ctx context.Context) error { return i.disagrees(ctx) }

// Failed reports that a listener, the consumer or the connection to the queue
// ended by itself, which calls for Stop.
func (i *Instance) Failed() <-chan error { return i.failed }

// Stop ends the instance in order. From now on it is not ready, and every answer closes
// its connection; it serves on for the grace in which load balancers notice. Then it
// takes no new connections, and ends what is under way: requests, orders, and everything
// behind them. It takes the grace and less than 10 s, also when a part hangs, and is
// safe to call twice; when ctx ends first, only the grace is cut short.
//
// It cannot fail. What was answered is durable by then, in the database or in the
// queue, and what is left behind is done by others: a part that does not close
// well, such as a connection that its server closed before, loses no work, and is
// logged. What does end an instance badly comes over Failed.
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

// probe adds a question to the readiness check.
func (i *Instance) probe(name string, ask func(ctx context.Context) error) {
	i.probePatiently(name, 0, ask)
}

// probePatiently is probe for a dependency without which sales go on for some time.
func (i *Instance) probePatiently(name string, patience time.Duration, ask func(ctx context.Context) error) {
	i.probes = append(i.probes, service.Probe{Name: name, Ask: ask, Patience: patience})
}
