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
	"seckill/internal/telemetry"
	"seckill/repository"
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
	// closeTimeout bounds everything behind the grace: the requests, then the
	// orders that are being decided, then locks, Redis and the database.
	closeTimeout = 8 * time.Second
)

// Instance is one running service.
type Instance struct {
	main, ops *listener
	health    *service.Health
	log       *slog.Logger

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
	i := &Instance{log: log, failed: make(chan error, 2)}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.close(ctx))
		}
	}()

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics := telemetry.New(registry)

	if err := i.claimDataDir(cfg); err != nil {
		return nil, err
	}
	tokens, err := openTokens(ctx, cfg)
	if err != nil {
		return nil, err
	}
	db, err := i.openDatabase(ctx, cfg)
	if err != nil {
		return nil, err
	}
	client, err := i.openRedis(ctx, cfg)
	if err != nil {
		return nil, err
	}
	probes := []service.Probe{
		{Name: "database", Ask: db.Ping},
		{Name: "redis", Ask: func(ctx context.Context) error { return client.Ping(ctx).Err() }},
	}
	if !cfg.Migrate {
		probes = append(probes, schemaProbe(db))
	}
	if probe, needed := i.claimDatabase(cfg, db); needed { //nolint:contextcheck // the claim outlives the start
		probes = append(probes, probe)
	}

	vouchers := repository.NewVouchers(db, cfg.Currency)
	orders, err := repository.NewOrders(db, repository.OrderOptions{
		Strategy: repository.StockStrategy(cfg.StockStrategy), PaymentWindow: cfg.PaymentWindow,
	})
	if err != nil {
		return nil, err
	}
	copies, err := service.NewVoucherCache(vouchers, orders, metrics, log) //nolint:contextcheck // it reads until the stop
	if err != nil {
		return nil, err
	}
	i.onClose("voucher copies", within(copiesPatience, copies.Close))
	changes := repository.NewVoucherChanges(client)
	i.watch(changes, copies) //nolint:contextcheck // it watches until the stop

	locks, more, err := i.openLocks(cfg, client, db)
	if err != nil {
		return nil, err
	}
	probes = append(probes, more...)
	selling := service.NewOrders(service.OrderDeps{ //nolint:contextcheck // it commits until the stop
		Store: orders, Copies: copies, Locks: locks, LockWait: cfg.LockWait, Metrics: metrics, Log: log,
	})
	i.onClose("orders", within(ordersPatience, selling.Close))

	i.health = service.NewHealth(probes...)
	api, err := handler.New(handler.Options{ //nolint:contextcheck // its requests bring their own
		Orders:         orderDesk{selling},
		Vouchers:       voucherDesk{service.NewVouchers(vouchers, copies, changes, log)},
		Accounts:       service.NewAccounts(repository.NewAccounts(db), newHasher(), tokens),
		Health:         i.health,
		Tokens:         tokens,
		RateUser:       handler.Rate(cfg.RateUser),
		RateAddr:       handler.Rate(cfg.RateAddr),
		TrustedProxies: cfg.TrustedProxies,
		Currency:       cfg.Currency,
		Log:            log,
		Metrics:        registry,
	})
	if err != nil {
		return nil, err
	}
	i.sweep(db) //nolint:contextcheck // until the stop
	i.ops, err = i.listen(ctx, listenerOptions{
		name: "operations", address: cfg.OpsAddr, handler: handler.NewOperations(registry), patience: opsPatience,
	})
	if err != nil {
		return nil, err
	}
	i.main, err = i.listen(ctx, listenerOptions{
		name: "main", address: cfg.HTTPAddr, handler: api, slowest: cfg.LockWait, patience: mainPatience,
	})
	if err != nil {
		return nil, err
	}
	return i, nil
}

// BaseURL is where the main listener is reached on this machine.
func (i *Instance) BaseURL() string { return i.main.url() }

// OpsURL is where the operations listener is reached on this machine.
func (i *Instance) OpsURL() string { return i.ops.url() }

// Failed reports that a listener ended by itself, which calls for Stop.
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
