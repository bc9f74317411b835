package command

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/config"
	"seckill/internal/embedded"
	"seckill/internal/ids"
	"seckill/model"
	"seckill/repository"
	"seckill/service"
)

// startTimeout bounds each check of a dependency at the start.
const startTimeout = 10 * time.Second

// watchPatience: ending a subscription needs no answer.
const watchPatience = 500 * time.Millisecond

// servers are what everything else stands on.
type servers struct {
	db    *repository.Database
	redis redis.UniversalClient
	// incarnation is of an embedded Redis, which has no run_id: another one at
	// each start, so that nobody takes what it holds for what it held before.
	incarnation string
	// solitude is nil where several instances may work together.
	solitude *solitude
}

// openServers opens the database and Redis, and begins the list of probes.
func (i *Instance) openServers(ctx context.Context, cfg config.Config) (servers, error) {
	var s servers
	var err error
	if s.db, err = i.openDatabase(ctx, cfg); err != nil {
		return servers{}, err
	}
	if s.redis, err = i.openRedis(ctx, cfg); err != nil {
		return servers{}, err
	}
	if cfg.RedisURL == "" {
		if s.incarnation, err = ids.New(); err != nil {
			return servers{}, fmt.Errorf("name the embedded Redis: %w", err)
		}
	}
	i.probes = append(i.probes,
		service.Probe{Name: "database", Ask: s.db.Ping},
		service.Probe{Name: "redis", Ask: func(ctx context.Context) error { return s.redis.Ping(ctx).Err() }},
	)
	if !cfg.Migrate {
		i.probes = append(i.probes, schemaProbe(s.db))
	}
	s.solitude = i.claimDatabase(cfg, s.db) //nolint:contextcheck // the claim outlives the start
	return s, nil
}

// openDatabase opens the database, which also proves that it answers, and
// brings its schema up to date unless that is turned off.
func (i *Instance) openDatabase(ctx context.Context, cfg config.Config) (*repository.Database, error) {
	opening, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	db, err := openDatabase(opening, cfg, i.log)
	if err != nil {
		return nil, fmt.Errorf("open the database (SECKILL_DATABASE_DSN): %w", err)
	}
	i.onClose("database", func(context.Context) error { return db.Close() })
	if cfg.Migrate {
		if err := db.Migrate(ctx); err != nil {
			return nil, err
		}
	}
	return db, nil
}

// schemaProbe tells an instance that does not migrate itself when somebody has.
func schemaProbe(db *repository.Database) service.Probe {
	var current atomic.Bool // a schema never goes back
	return service.Probe{Name: "schema", Ask: func(ctx context.Context) error {
		if current.Load() {
			return nil
		}
		migrations, err := db.MigrationStatus(ctx)
		if err != nil {
			return err
		}
		for _, migration := range migrations {
			if !migration.Applied {
				return model.Unavailable("the database lacks "+migration.Name+": run seckill migrate", nil)
			}
		}
		current.Store(true)
		return nil
	}}
}

// openDatabase opens the database of the settings: the real one, or the file
// in the data directory.
func openDatabase(ctx context.Context, cfg config.Config, log *slog.Logger) (*repository.Database, error) {
	options := repository.Options{DSN: cfg.DatabaseDSN, Log: log}
	if cfg.Embedded() {
		options.SQLiteFile = embedded.SQLiteFile(cfg.DataDir)
	}
	return repository.Open(ctx, options)
}

// openRedis connects to Redis, or starts the one inside this process.
func (i *Instance) openRedis(ctx context.Context, cfg config.Config) (redis.UniversalClient, error) {
	url := cfg.RedisURL
	if url == "" {
		inside, err := embedded.StartRedis()
		if err != nil {
			return nil, fmt.Errorf("start the embedded Redis: %w", err)
		}
		i.onClose("embedded Redis", func(context.Context) error { inside.Close(); return nil })
		url = inside.URL()
	}
	client, err := repository.OpenRedis(url)
	if err != nil {
		return nil, err
	}
	i.onClose("Redis client", func(context.Context) error { return client.Close() })
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("reach Redis (SECKILL_REDIS_URL): %w", err)
	}
	return client, nil
}

// claimDataDir makes sure that no other process serves from the same data
// directory: the embedded Redis of the one would not know the locks of the
// other, and two queues must not write the same files.
func (i *Instance) claimDataDir(cfg config.Config) error {
	if !cfg.Embedded() && !embeddedQueue(cfg) {
		return nil
	}
	claim, err := embedded.ClaimDataDir(cfg.DataDir)
	if err != nil {
		return err
	}
	i.onClose("data directory", func(context.Context) error { return claim.Close() })
	return nil
}

// watch keeps this instance's copies of vouchers in step with the changes
// other instances announce.
func (i *Instance) watch(changes *repository.VoucherChanges, copies *service.VoucherCache) {
	i.background("voucher changes", watchPatience, func(ctx context.Context) error {
		return changes.Watch(ctx, copies.Drop, copies.DropAll)
	})
}
