package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"seckill/config"
	"seckill/handler"
	"seckill/model"
	"seckill/service"
)

// Limits of a stop, which together stay below the 10 s that orchestrators give.
const (
	// drainGrace is how long the instance still serves after it said that it
	// is not ready, so that load balancers notice before it refuses.
	drainGrace = time.Second
	// mainPatience is what the requests under way have: the longest answer.
	mainPatience = 5500 * time.Millisecond
	// ordersPatience is what orders behind answered clients have to be decided.
	ordersPatience = 1500 * time.Millisecond
	// copiesPatience: nobody waits for readings of vouchers any more.
	copiesPatience = 100 * time.Millisecond
	// opsPatience: a profile or a scrape does not hold up a stop.
	opsPatience = 100 * time.Millisecond
	// workPatience is what a transaction of the worker has to end; an order that
	// was not acknowledged is delivered again.
	workPatience = 2 * time.Second
	// closeTimeout bounds everything behind the grace: the requests, then the
	// orders that are being decided, then the worker and the reconciler, the
	// queue, locks, Redis and the database.
	closeTimeout = 8 * time.Second
)

// The roles an instance may have.
const (
	roleAPI    = "api"
	roleWorker = "worker"
)

// Instance is one running service.
type Instance struct {
	main, ops *listener
	health    *service.Health
	probes    []service.Probe // of the health, while the instance is put together
	registry  *prometheus.Registry
	log       *slog.Logger

	// disagrees says that the database is sold from in another order mode.
	disagrees func(ctx context.Context) error
	// leave is told that the stop has begun, so that nobody waits in vain.
	leave func()

	closers  []closer // closed last first
	failed   chan error
	stopOnce sync.Once
	stopErr  error
}

// closer ends one part; it should be done when ctx ends.
type closer struct {
	name  string
	close func(ctx context.Context) error
}

// Start brings an instance up, dependencies first, and returns when it
// listens. When something is missing it says what, and leaves nothing behind.
func Start(ctx context.Context, cfg config.Config, log *slog.Logger) (_ *Instance, err error) {
	i := newInstance(log)
	defer func() {
		if err != nil {
			err = errors.Join(err, i.close(ctx))
		}
	}()

	if err := i.claimDataDir(cfg); err != nil {
		return nil, err
	}
	tokens, err := openTokens(ctx, cfg)
	if err != nil {
		return nil, err
	}
	servers, err := i.openServers(ctx, cfg)
	if err != nil {
		return nil, err
	}
	mode, err := i.openMode(ctx, cfg, servers)
	if err != nil {
		return nil, err
	}
	var async *backstage
	if cfg.OrderMode == string(model.ModeAsync) {
		if async, err = i.openBackstage(ctx, cfg, servers, mode); err != nil {
			return nil, err
		}
		i.rebuild(async) //nolint:contextcheck // until the stop
		if cfg.Role != roleAPI {
			i.work(async) //nolint:contextcheck // until the stop
		}
		if cfg.Role == roleWorker {
			i.showBacklog(async) //nolint:contextcheck // until the stop
		}
	}
	if async == nil && cfg.Role == roleWorker {
		log.WarnContext(ctx, "in order mode sync there is no queue: a worker only tidies up")
	}
	i.sweep(servers.db) //nolint:contextcheck // until the stop

	main, err := i.mainHandler(cfg, servers, mode, async, tokens) //nolint:contextcheck // its requests bring their own
	if err != nil {
		return nil, err
	}
	i.ops, err = i.listen(ctx, listenerOptions{
		name: "operations", address: cfg.OpsAddr, handler: handler.NewOperations(i.registry), patience: opsPatience,
	})
	if err != nil {
		return nil, err
	}
	i.main, err = i.listen(ctx, listenerOptions{
		name: "main", address: cfg.HTTPAddr, handler: main, slowest: cfg.LockWait, patience: mainPatience,
	})
	if err != nil {
		return nil, err
	}
	return i, nil
}

// newInstance is an instance of nothing yet.
func newInstance(log *slog.Logger) *Instance {
	i := &Instance{log: log, failed: make(chan error, 4), registry: prometheus.NewRegistry()}
	i.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return i
}

// BaseURL is where the main listener is reached on this machine.
func (i *Instance) BaseURL() string { return i.main.url() }

// OpsURL is where the operations listener is reached on this machine.
func (i *Instance) OpsURL() string { return i.ops.url() }

// Failed reports that a listener, the consumer or the connection to the queue
// ended by itself, which calls for Stop.
func (i *Instance) Failed() <-chan error { return i.failed }

// Stop ends the instance in order: not ready, then, after a moment in which
// load balancers notice, no new requests, then everything behind them. Orders
// under way are decided. It takes less than 10 s, whatever hangs, and is safe
// to call twice; when ctx ends first, the moment is cut short, nothing else.
func (i *Instance) Stop(ctx context.Context) error {
	i.stopOnce.Do(func() {
		i.health.StartLeaving()
		i.log.InfoContext(ctx, "stopping: not ready any more")
		grace := time.NewTimer(drainGrace)
		defer grace.Stop()
		select {
		case <-grace.C:
		case <-ctx.Done():
		}
		i.health.StartDraining()
		if i.leave != nil {
			i.leave()
		}
		i.stopErr = i.close(ctx)
		i.log.InfoContext(ctx, "stopped", slog.Any("error", i.stopErr))
	})
	return i.stopErr
}

// onClose remembers what must be closed, last first.
func (i *Instance) onClose(name string, f func(ctx context.Context) error) {
	i.closers = append(i.closers, closer{name: name, close: f})
}

// within closes something that cannot fail and has so much time.
func within(patience time.Duration, f func(ctx context.Context)) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		f(ctx)
		return nil
	}
}

// close ends every part, each after those that need it, within closeTimeout.
func (i *Instance) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var errs []error
	for _, c := range slices.Backward(i.closers) {
		done := make(chan error, 1)
		go func() { done <- c.close(ctx) }()
		select {
		case err := <-done:
			if err != nil {
				errs = append(errs, fmt.Errorf("close %s: %w", c.name, err))
			}
		case <-ctx.Done():
			i.log.WarnContext(ctx, "left as it is at the stop: it hangs", slog.String("part", c.name))
		}
	}
	i.closers = nil
	return errors.Join(errs...)
}
