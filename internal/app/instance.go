package app

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"seckill/internal/listener"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"seckill/config"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/internal/tracing"
	"seckill/internal/version"
	"seckill/service"
)

// Limits of a stop behind its grace (SECKILL_DRAIN_GRACE).
const (
	// mainPatience is what the requests under way have: the longest answer.
	mainPatience = 5500 * time.Millisecond
	// ordersPatience is what orders behind answered clients have to be decided.
	ordersPatience = 1500 * time.Millisecond
	// cachePatience: no request waits for readings of vouchers any more.
	cachePatience = 100 * time.Millisecond
	// opsPatience: a profile or a scrape does not hold up a stop.
	opsPatience = 100 * time.Millisecond
	// workPatience is what a transaction of the worker has to end; an order that
	// was not acknowledged is delivered again.
	workPatience = 2 * time.Second
	// lookPatience: a reading that was canceled, or a subscription, ends at once.
	lookPatience = 500 * time.Millisecond
	// closeTimeout bounds everything: the requests, then the orders that are being
	// decided, then the worker and the reconciler, the queue, locks, Redis and the database.
	closeTimeout = 8 * time.Second
)

// Instance is one running service.
type Instance struct {
	cfg       config.Config
	log       *slog.Logger
	registry  *prometheus.Registry
	probes    []service.Probe // of the health, while the instance is put together
	health    *service.Health
	main, ops *listener.Listener

	// disagrees says that the database is sold from in another order mode.
	disagrees func(ctx context.Context) error
	// leave tells the requests that wait for orders that the stop has begun.
	leave func()

	closers []closer        // closed last first
	tracer  *tracing.Tracer // nil: nothing is traced

	failed   chan error
	stopOnce sync.Once
}

// closer ends one part; it should be done when ctx ends.
type closer struct {
	name  string
	close func(ctx context.Context) error
}

// newInstance is an instance of nothing yet.
func newInstance(cfg config.Config, log *slog.Logger) *Instance {
	i := &Instance{cfg: cfg, log: log, failed: make(chan error, 4), registry: prometheus.NewRegistry()}
	i.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	telemetry.NewBuild(i.registry, version.Read())
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
		i.close(ctx)
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

// onClose remembers how a part is closed. The last part is closed first. An error is
// logged, and fails nothing.
func (i *Instance) onClose(name string, f func(ctx context.Context) error) {
	i.closers = append(i.closers, closer{name: name, close: f})
}

// onCloseWithin remembers a part that closes without an error, within patience.
func (i *Instance) onCloseWithin(patience time.Duration, name string, f func(ctx context.Context)) {
	i.onClose(name, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		f(ctx)
		return nil
	})
}

// background runs something for the life of the instance. The stop ends its
// context and waits for it as long as patience says; then it is left behind.
func (i *Instance) background(name string, patience time.Duration, run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	i.onClose(name, func(ctx context.Context) error {
		cancel()
		patient, enough := context.WithTimeout(ctx, patience)
		defer enough()
		select {
		case err := <-done:
			return err
		case <-patient.Done():
			i.log.WarnContext(ctx, "left behind at the stop", slog.String("part", name))
			return nil
		}
	})
}

// loop is a background that cannot fail.
func (i *Instance) loop(name string, patience time.Duration, run func(ctx context.Context)) {
	i.background(name, patience, infallible(run))
}

// infallible makes a background of what cannot fail.
func infallible(run func(ctx context.Context)) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		run(ctx)
		return nil
	}
}

// close ends every part, each after those that need it, within closeTimeout.
func (i *Instance) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	for _, c := range slices.Backward(i.closers) {
		done := make(chan error, 1)
		go func() { done <- c.close(ctx) }()
		select {
		case err := <-done:
			if err != nil {
				i.log.WarnContext(ctx, "did not close well at the stop; nothing is lost by it",
					slog.String("part", c.name), slog.Any("error", err))
			}
		case <-ctx.Done():
			i.log.WarnContext(ctx, "left as it is at the stop: it hangs", slog.String("part", c.name))
		}
	}
	i.closers = nil
}
