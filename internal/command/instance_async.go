package command

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"seckill/config"
	"seckill/internal/embedded"
	"seckill/internal/telemetry"
	"seckill/lock"
	"seckill/model"
	"seckill/queue"
	"seckill/repository"
	"seckill/service"
)

// backlogEvery is often enough for a metric that is scraped every few seconds.
const backlogEvery = time.Second

// reconcilerLease is how long a reconciler that died keeps its successor out. What
// it has left behind is settled within 30 s, and the successor needs a part of them.
const reconcilerLease = 8 * time.Second

// backstage is what asynchronous orders are made of behind the buyers' backs.
type backstage struct {
	deployment string
	guard      seller
	queue      *queue.Queue
	hot        *repository.HotCopies
	records    service.DatabaseCopies
	releases   *repository.Releases
	modes      *repository.Modes
	vouchers   *repository.Vouchers
	orders     *repository.Orders
	rebuilder  *service.Rebuilder
	settler    *service.Settler
	auditor    *service.Auditor
	metrics    *telemetry.Worker
	persister  *service.Persister
	deliveries *telemetry.Delivery
	locks      service.Locker // of the reconciler
	solitude   *solitude
	redis      *redisClaim
}

// embeddedQueue reports whether the queue is inside this process.
func embeddedQueue(cfg config.Config) bool {
	return cfg.OrderMode == string(model.ModeAsync) && cfg.NATSURL == ""
}

// scriptLocks reports whether the hot copies see the users' locks: in lock mode
// redis on one real Redis, where both are. In a Cluster they lie on different
// nodes, and nobody else reaches the embedded one.
func scriptLocks(cfg config.Config) bool {
	return cfg.LockMode == "redis" && cfg.RedisURL != "" && !strings.Contains(cfg.RedisURL, ",")
}

// openQueue connects to the queue, or starts the one inside this process, whose
// files are in the data directory.
func (i *Instance) openQueue(ctx context.Context, cfg config.Config, deployment string) (*queue.Queue, error) {
	options := queue.Options{
		URL: cfg.NATSURL, Deployment: deployment, Replicas: cfg.NATSReplicas, Log: i.log.With(slog.String("part", "queue")),
	}
	if cfg.NATSURL == "" {
		inside, err := embedded.StartNATS(cfg.DataDir, i.log.With(slog.String("part", "nats")))
		if err != nil {
			return nil, fmt.Errorf("start the embedded queue: %w", err)
		}
		i.onClose("embedded queue", func(context.Context) error { inside.Close(); return nil })
		options.InProcess, options.Alone = inside, true
	}
	q, err := queue.Open(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("reach the queue (SECKILL_NATS_URL): %w", err)
	}
	i.onClose("queue", func(ctx context.Context) error { q.Close(ctx); return nil })
	i.probes = append(i.probes, service.Probe{Name: "queue", Ask: q.Ping})
	i.background("connection of the queue", workPatience, func(ctx context.Context) error { //nolint:contextcheck // until the stop
		select {
		case err := <-q.Lost():
			i.failed <- err
		case <-ctx.Done():
		}
		return nil
	})
	return q, nil
}

// openBackstage opens the queue and puts together what works on it. Nothing
// runs yet.
func (i *Instance) openBackstage(ctx context.Context, cfg config.Config, s servers, mode orderMode) (*backstage, error) {
	if cfg.RedisURL != "" {
		adviseExpiry(ctx, s.redis, i.log)
	}
	q, err := i.openQueue(ctx, cfg, mode.deployment)
	if err != nil {
		return nil, err
	}
	orders, err := newOrderStore(cfg, s.db)
	if err != nil {
		return nil, err
	}
	b := &backstage{
		deployment: mode.deployment, guard: mode.guard, queue: q, orders: orders, solitude: s.solitude, redis: mode.redis,
		hot: repository.NewHotCopies(s.redis, repository.HotCopyOptions{
			Identity: s.incarnation, LockKeys: scriptLocks(cfg),
		}),
		records: service.DatabaseCopies{Epochs: repository.NewEpochs(s.db)}, releases: repository.NewReleases(s.db), modes: mode.modes,
		vouchers: repository.NewVouchers(s.db, cfg.Currency), metrics: telemetry.NewWorker(i.registry),
		deliveries: telemetry.NewDelivery(i.registry),
	}
	b.rebuilder = service.NewRebuilder(service.RebuilderDeps{
		Store: b.records, Copies: b.hot, Queue: q, Modes: mode.redis.modes(b.modes), Metrics: b.metrics, Log: i.log,
	})
	b.settler = service.NewSettler(service.SettlerDeps{
		Copies: b.hot, Notes: b.releases, Rebuilds: b.rebuilder, Metrics: b.metrics, Log: i.log,
	})
	b.auditor = service.NewAuditor(service.AuditorDeps{
		Store: b.vouchers, Vouchers: b.vouchers, Orders: orders, Copies: b.hot, Queue: q, Settler: b.settler,
		Rebuilds: b.rebuilder, Log: i.log,
	})
	b.persister = service.NewPersister(service.PersisterDeps{
		Store: orders, Letters: q, Settler: b.settler, Metrics: b.metrics, Log: i.log,
	})
	b.locks = i.reconcilerLocks(cfg, s)
	return b, nil
}

// newOrderStore keeps orders as the settings say.
func newOrderStore(cfg config.Config, db *repository.Database) (*repository.Orders, error) {
	return repository.NewOrders(db, repository.OrderOptions{
		Strategy: repository.StockStrategy(cfg.StockStrategy), PaymentWindow: cfg.PaymentWindow,
		Mode: model.OrderMode(cfg.OrderMode),
	})
}

// reconcilerLocks elect the instance that reconciles: always on the Redis whose
// copies it looks after, whatever the users' locks are.
func (i *Instance) reconcilerLocks(cfg config.Config, s servers) service.Locker {
	cfg.LockLease = reconcilerLease
	if cfg.RedisURL == "" {
		return i.locksOf(cfg, lock.NewMemoryStore(), "")
	}
	return i.locksOf(cfg, lock.NewRedisStore(s.redis, redisLocks()...), "")
}

// rebuild serves the wishes for rebuilds until the stop.
func (i *Instance) rebuild(b *backstage) {
	i.background("rebuilder", workPatience, func(ctx context.Context) error {
		return b.whenAlone(ctx, func(ctx context.Context) error {
			b.rebuilder.Run(ctx)
			return nil
		})
	})
}

// work brings orders from the queue into the database, and puts right what was
// left behind, until the stop: the consumer ends first.
func (i *Instance) work(b *backstage) {
	reconciler := service.NewReconciler(service.ReconcilerDeps{
		Locks: b.locks, Deployment: b.deployment, Mode: b.guard, Releases: b.releases, Records: b.records,
		Vouchers: b.vouchers, Rows: b.orders, Copies: b.hot, Intents: b.vouchers, Queue: b.queue,
		Settler: b.settler, Rebuilds: b.rebuilder, Auditor: b.auditor, Metrics: b.metrics, Log: i.log,
	})
	i.background("reconciler", workPatience, func(ctx context.Context) error {
		return b.whenAlone(ctx, func(ctx context.Context) error {
			reconciler.Run(ctx)
			return nil
		})
	})
	i.consume(b)
}

// consume persists what is queued, until the stop. That it ends before is the
// end of the instance: nobody would keep its promises.
func (i *Instance) consume(b *backstage) {
	i.background("consumer", workPatience, func(ctx context.Context) error {
		return b.whenAlone(ctx, func(ctx context.Context) error {
			err := b.queue.Consume(ctx, b.persister.Persist, queue.ConsumeOptions{Observe: observe(b.deliveries)})
			if err != nil && ctx.Err() == nil {
				i.failed <- fmt.Errorf("the consumer of the queue ended: %w", err)
			}
			return err
		})
	})
}

// whenAlone runs work while no other instance works with other servers.
func (b *backstage) whenAlone(ctx context.Context, work func(ctx context.Context) error) error {
	b.solitude.await(ctx)
	return b.redis.during(ctx, work)
}

// observe counts what the queue hands out.
func observe(metrics *telemetry.Delivery) func(queue.Delivery) {
	return func(d queue.Delivery) {
		metrics.Persisted(d.Orders, d.Took)
		metrics.Messages(d.Acked, d.Delayed, d.Again)
		metrics.Unreadable(d.Buried)
	}
}

// showBacklog shows in the metrics of an instance that only works what waits for
// it; the others look at that anyway before they promise anything.
func (i *Instance) showBacklog(b *backstage) {
	metrics := telemetry.NewAdmission(i.registry)
	i.background("backlog", modePatience, func(ctx context.Context) error {
		ticker := time.NewTicker(backlogEvery)
		defer ticker.Stop()
		for {
			if backlog, err := b.queue.Backlog(ctx); err == nil {
				metrics.Backlog(backlog.Age, backlog.Messages)
			} else {
				metrics.BacklogUnknown()
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
}
