package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"seckill/internal/budget"
	"seckill/internal/embedded"
	"seckill/internal/redisdb"
	"seckill/internal/userlock"
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
		Mode: userlock.Mode(i.cfg.LockMode), Lease: i.cfg.LockLease, Synced: i.cfg.LockSynced, Redis: s.redis, Embedded: i.cfg.RedisURL == "",
		Instances: i.cfg.LockRedisURLs, TLS: i.cfg.RedisTLS.Client(), Parts: i.parts, Log: i.log,
	}
	if s.db != nil {
		o.Database = s.db.SQL()
	}
	return o
}

// inspectRedis refuses a Redis that is not what the URL says, and one whose user lacks a
// right. A server of several that is just away is no reason not to start.
func (i *Instance) inspectRedis(ctx context.Context, client redis.UniversalClient) error {
	if err := redisdb.Inspect(ctx, client); err != nil {
		return err
	}
	err := errors.Join(hotcopy.Rehearse(ctx, client, i.cfg.Async()), i.lockOptions(servers{redis: client}).Rehearse(ctx, i.cfg.Async()))
	if err == nil || errors.Is(err, redisdb.ErrRights) {
		return err
	}
	i.log.WarnContext(ctx, "not all of Redis could be tried", slog.Any("error", err))
	return nil
}
