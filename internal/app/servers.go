package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/embedded"
	"seckill/internal/ids"
	"seckill/internal/poll"
	"seckill/model"
	"seckill/repository"
)

const (
	// startTimeout bounds each check of a dependency at the start.
	startTimeout = 10 * time.Second
	// idempotencyAge is how long the answer to an Idempotency-Key is kept: an
	// administrator's script that is repeated after a weekend still gets it.
	idempotencyAge = 7 * 24 * time.Hour
	// janitorEvery is often enough for answers that are kept for days.
	janitorEvery = time.Hour
	// janitorPatience: a statement that was canceled ends at once.
	janitorPatience = time.Second
)

// servers are what everything else stands on.
type servers struct {
	db    *Database
	redis redis.UniversalClient
	// incarnation names an embedded Redis, which has no run_id: each start has
	// another one, so that what an earlier one held is not taken for its own.
	incarnation string
	// sole is nil where several instances may work together.
	sole *soleInstance
}

// claimDataDir makes sure that no other process serves from the same data
// directory: the embedded Redis of one process would not know the locks of the
// other, and two queues must not write the same files.
func (i *Instance) claimDataDir() error {
	if !i.cfg.Embedded() && !i.cfg.EmbeddedQueue() {
		return nil
	}
	claim, err := embedded.ClaimDataDir(i.cfg.DataDir)
	if err != nil {
		return err
	}
	i.onClose("data directory", func(context.Context) error { return claim.Close() })
	return nil
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
	i.probe("database", s.db.Ping)
	i.probe("redis", func(ctx context.Context) error { return s.redis.Ping(ctx).Err() })
	if !i.cfg.Migrate {
		i.probe("schema", schemaProbe(s.db))
	}
	s.sole = i.claimDatabase(s.db) //nolint:contextcheck // the claim outlives the start
	return s, nil
}

// openDatabase opens the database, which also proves that it answers, and
// brings its schema up to date unless that is turned off.
func (i *Instance) openDatabase(ctx context.Context) (*Database, error) {
	opening, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	db, err := OpenDatabase(opening, i.cfg, i.log)
	if err != nil {
		return nil, fmt.Errorf("open the database (SECKILL_DATABASE_DSN): %w", err)
	}
	i.onClose("database", func(context.Context) error { return db.Close() })
	if i.cfg.Migrate {
		return db, db.Migrate(ctx)
	}
	return db, nil
}

// schemaProbe tells an instance that does not migrate by itself when the schema
// is up to date.
func schemaProbe(db *Database) func(ctx context.Context) error {
	var current atomic.Bool // a schema never goes back
	return func(ctx context.Context) error {
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
	}
}

// sweep deletes what is too old to be asked for, now and every hour. Several
// instances may do so at once.
func (i *Instance) sweep(db *Database) {
	i.loop("janitor", janitorPatience, func(ctx context.Context) {
		purge := func() {
			if gone, err := db.PurgeIdempotency(ctx, idempotencyAge); err != nil && ctx.Err() == nil {
				i.log.WarnContext(ctx, "old idempotency keys were not purged", slog.Any("error", err))
			} else if gone > 0 {
				i.log.InfoContext(ctx, "old idempotency keys were purged", slog.Int64("keys", gone))
			}
		}
		purge()
		poll.Every(ctx, janitorEvery, purge)
	})
}

// openRedis connects to Redis, or starts the one inside this process.
func (i *Instance) openRedis(ctx context.Context) (redis.UniversalClient, error) {
	url := i.cfg.RedisURL
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

// adviseExpiry says that a Redis frees what expires in one go: the hot copy of a
// large sale would stop it for most of a second. It says nothing of a Redis that
// does not tell its settings.
func adviseExpiry(ctx context.Context, client redis.UniversalClient, log *slog.Logger) {
	const setting = "lazyfree-lazy-expire"
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	settings, err := client.ConfigGet(ctx, setting).Result()
	switch {
	case err != nil:
		log.DebugContext(ctx, "Redis does not tell how it frees what expires", slog.Any("error", err))
	case settings[setting] == "no":
		log.WarnContext(ctx, "Redis stops while the copy of a large sale expires; set "+setting+" yes")
	}
}

// LogRedis passes the remarks of the Redis client on, which would go to standard
// error in a format of their own. What matters of them comes back as errors too.
func LogRedis(log *slog.Logger) { redis.SetLogger(redisLog{log}) }

type redisLog struct{ log *slog.Logger }

// Printf implements the client's logger.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "Redis client", slog.String("remark", fmt.Sprintf(format, v...)))
}
