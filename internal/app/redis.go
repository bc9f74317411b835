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
	client, err := hotcopy.NewClient(url, i.cfg.RedisTLS.Client(), i.cfg.RedisLimits)
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
