package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"seckill/config"
	"seckill/internal/budget"
	"seckill/internal/embedded"
	"seckill/internal/redisdb"
	"seckill/internal/tracing"
	"seckill/internal/userlock"
	"seckill/repository"
	"seckill/repository/hotcopy"
	"seckill/repository/sqldb"
	"seckill/service/guard"
)

// Database is the database of the settings, with what is asked of it.
type Database struct {
	*sqldb.Database
	*repository.Vouchers
	*repository.Orders
	*repository.Releases

	Modes    *repository.Modes
	Epochs   *repository.Epochs
	Payments *repository.Payments
	Refunds  *repository.Refunds
	Draws    *repository.Draws
	AdminLog *repository.AdminLog
	Events   *repository.Events
}

// OpenDatabase opens the database of the settings, real or a file. It needs no running instance, and disturbs none.
func OpenDatabase(ctx context.Context, cfg config.Config, log *slog.Logger) (*Database, error) {
	return openDatabase(ctx, cfg, log, nil)
}

func openDatabase(ctx context.Context, cfg config.Config, log *slog.Logger, trace *tracing.Tracer) (*Database, error) {
	options := sqldb.Options{
		DSN: cfg.DatabaseDSN, Log: log, Events: cfg.Events != "" || len(cfg.EventsURLs) > 0, TLS: cfg.DatabaseTLS.Client(),
		Trace: trace,
	}
	if cfg.Embedded() {
		if err := embedded.MakeDir(cfg.DataDir); err != nil {
			return nil, err
		}
		options.SQLiteFile = embedded.SQLiteFile(cfg.DataDir)
	}
	db, err := sqldb.Open(ctx, options)
	if err != nil {
		return nil, err
	}
	orders, err := repository.NewOrders(db, repository.OrderOptions{
		Strategy: cfg.StockStrategy, PaymentWindow: cfg.PaymentWindow, Mode: cfg.OrderMode,
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	events := &repository.Events{DB: db, URLs: cfg.EventsURLs}
	if cfg.Events != "" {
		events.Stream = "nats:" + cfg.Events
	}
	return &Database{
		Events: events, Database: db, Vouchers: repository.NewVouchers(db, cfg.Currency), Orders: orders,
		Releases: &repository.Releases{DB: db}, Modes: &repository.Modes{DB: db}, Epochs: &repository.Epochs{DB: db},
		Payments: &repository.Payments{DB: db}, Refunds: &repository.Refunds{DB: db},
		AdminLog: &repository.AdminLog{DB: db}, Draws: repository.NewDraws(db, cfg.PaymentWindow),
	}, nil
}

// openDatabase opens the database, and brings its schema up to date unless that is turned off.
func (i *Instance) openDatabase(ctx context.Context) (*Database, error) {
	opening, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	db, err := openDatabase(opening, i.cfg, i.log, i.tracer)
	if err != nil {
		return nil, fmt.Errorf("open the database (%s): %w", inDataDir(i.cfg.Embedded(), "SECKILL_DATABASE_DSN"), err)
	}
	i.parts.OnClose("database", func(context.Context) error { return db.Close() })
	if i.cfg.Migrate {
		return db, db.Migrate(ctx)
	}
	return db, nil
}

// DatabaseExists fails when the embedded database is meant and absent: looking must not leave an empty one.
func DatabaseExists(cfg config.Config) error {
	if !cfg.Embedded() {
		return nil
	}
	return embedded.Exists(embedded.SQLiteFile(cfg.DataDir), "database", "SECKILL_DATABASE_DSN")
}

// openRedis connects to Redis, or starts the one inside this process.
func (i *Instance) openRedis(ctx context.Context) (redis.UniversalClient, error) {
	url := i.cfg.RedisURL
	if url == "" {
		inside, err := embedded.StartRedis()
		if err != nil {
			return nil, fmt.Errorf("start the embedded Redis: %w", err)
		}
		i.parts.OnClose("embedded Redis", func(context.Context) error { inside.Close(); return nil })
		url = inside.URL()
	}
	client, err := redisdb.NewClient(url, i.cfg.RedisTLS.Client(), i.cfg.RedisLimits)
	if err != nil {
		return nil, err
	}
	i.parts.OnClose("Redis client", func(context.Context) error { return client.Close() })
	if err := i.tracer.Redis(client); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	if i.cfg.RedisURL != "" {
		if err := i.inspectRedis(ctx, client); err != nil {
			return nil, fmt.Errorf("use Redis (SECKILL_REDIS_URL): %w", err)
		}
	}
	return client, nil
}

// lockOptions say how the users' locks are made; of a command that looks only at Redis, the database is not known.
func (i *Instance) lockOptions(s servers) userlock.Options {
	o := userlock.Options{
		Mode: i.cfg.LockMode, Lease: i.cfg.LockLease, Synced: i.cfg.LockSynced, Redis: s.redis,
		Embedded:  i.cfg.RedisURL == "",
		Instances: i.cfg.LockRedisURLs, TLS: i.cfg.RedisTLS.Client(), Parts: i.parts, Log: i.log,
	}
	if s.db != nil {
		o.Database = s.db.SQL()
	}
	return o
}

// inspectRedis refuses a Redis that is not what the URL says, or lacks a right. One that is away may come back.
func (i *Instance) inspectRedis(ctx context.Context, client redis.UniversalClient) error {
	if err := redisdb.Inspect(ctx, client); err != nil {
		return err
	}
	err := errors.Join(hotcopy.Rehearse(ctx, client, i.cfg.Async()),
		i.lockOptions(servers{redis: client}).Rehearse(ctx, i.cfg.Async()))
	if err == nil || errors.Is(err, redisdb.ErrRights) {
		return err
	}
	i.log.WarnContext(ctx, "not all of Redis could be tried", slog.Any("error", err))
	return nil
}

// orderMode is how the database is sold from, as this instance knows it.
type orderMode struct {
	deployment string
	guard      guard.Guards
	redis      *guard.Redis // nil where no other instance can have another Redis
}

// openMode adopts this instance's order mode on a database without vouchers, and watches that it keeps it.
func (i *Instance) openMode(ctx context.Context, s servers) (orderMode, error) {
	async := i.cfg.Async()
	starting, cancel := context.WithTimeout(ctx, budget.Step)
	defer cancel()
	watch := guard.NewMode(s.db.Modes.Read, i.cfg.OrderMode, i.log)
	lacks := s.db.SchemaProbe()
	if i.cfg.Migrate {
		lacks = nil
	}
	deployment, err := watch.Adopt(starting, s.db.Modes.Adopt, lacks)
	if err != nil {
		return orderMode{}, err
	}
	i.parts.Loop("order mode", budget.Brief, watch.Run) //nolint:contextcheck // until the stop
	i.probe("order mode", watch.Probe)
	i.Disagrees = watch.Probe
	m := orderMode{deployment: deployment, guard: guard.Guards{watch}}
	if async {
		if !i.cfg.Embedded() {
			m.redis = i.claimRedis(starting, s)
		}
		m.guard = guard.Guards{s.sole, m.redis, watch}
	}
	return m, nil
}

// claimDatabase makes this instance the only one on its database, if it needs to be; else it returns nil.
func (i *Instance) claimDatabase(db *Database) *guard.Sole {
	lacks := i.cfg.LacksForSeveral()
	if lacks == "" {
		return nil
	}
	claim := db.Exclusive("embedded")
	i.parts.OnClose("claim on the database", func(context.Context) error { return claim.Close() })
	sole := guard.NewSole(claim, lacks)
	i.probe("instance", sole.Probe)
	i.parts.Loop("solitude", budget.Look, sole.Run) // in sync too: expiry awaits it
	return sole
}

func (i *Instance) guardRedis(s servers) *guard.Redis {
	identity := func(ctx context.Context) (string, error) {
		if s.incarnation != "" {
			return guard.Embedded + s.incarnation, nil
		}
		return redisdb.Identity(ctx, s.redis)
	}
	return guard.NewRedis(&repository.RedisClaims{DB: s.db.Database}, identity, s.sole, i.log)
}

// claimRedis looks from now on whether this instance uses the Redis of its database.
func (i *Instance) claimRedis(ctx context.Context, s servers) *guard.Redis {
	r := i.guardRedis(s)
	_ = r.Look(ctx) // the next look repeats what failed
	i.probe("redis of the database", func(context.Context) error { return r.Selling() })
	i.parts.Loop("claim for Redis", budget.Look, r.Run) //nolint:contextcheck // until the stop
	return r
}
