package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"seckill/internal/embedded"
	"seckill/repository/hotcopy"
)

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
	client, err := hotcopy.NewClient(url, i.cfg.RedisTLS.Client())
	if err != nil {
		return nil, err
	}
	i.parts.OnClose("Redis client", func(context.Context) error { return client.Close() })
	if err := i.tracer.Redis(client); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if i.cfg.RedisURL != "" {
		if err := i.inspectRedis(ctx, client); err != nil {
			return nil, fmt.Errorf("use Redis (SECKILL_REDIS_URL): %w", err)
		}
	}
	return client, nil
}

// inspectRedis refuses a Redis that is not what the URL says, and one whose user lacks a
// right. A server of several that is just away is no reason not to start.
func (i *Instance) inspectRedis(ctx context.Context, client redis.UniversalClient) error {
	if err := hotcopy.Inspect(ctx, client); err != nil {
		return err
	}
	err := errors.Join(hotcopy.Rehearse(ctx, client, i.cfg.Async()), i.rehearseLocks(ctx, client))
	if err == nil || errors.Is(err, hotcopy.ErrRights) {
		return err
	}
	i.log.WarnContext(ctx, "not all of Redis could be tried", slog.Any("error", err))
	return nil
}

// adviseCluster says that a Cluster refuses everything while one primary is lost.
func adviseCluster(ctx context.Context, client redis.UniversalClient, log *slog.Logger) {
	const setting = "cluster-require-full-coverage"
	if !hotcopy.IsCluster(client) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if settings, err := client.ConfigGet(ctx, setting).Result(); err == nil && settings[setting] == "yes" {
		log.WarnContext(ctx, "the whole Redis Cluster refuses while one of its primaries is lost; set "+setting+" no on each node")
	}
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
