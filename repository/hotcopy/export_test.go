package hotcopy

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
)

// Give makes the first half of a transfer, as a process does that dies before the second.
func (s *Store) Give(ctx context.Context, voucherID string, epoch int64, from, to int, units int64) error {
	_, err := s.give(ctx, voucherID, epoch, []transfer{{from, to, units}})
	return err
}

// PatientClient is a client of one server that waits for as long as a busy machine needs.
func PatientClient(t testing.TB, url string) *redis.Client {
	t.Helper()
	options := check.Value(redis.ParseURL(url))(t)
	options.ContextTimeoutEnabled, options.MaxRetries, options.PoolSize = true, redisRetries, redisPoolSize
	options.DialTimeout, options.ReadTimeout = check.Deadline, check.Deadline
	options.WriteTimeout, options.PoolTimeout = check.Deadline, check.Deadline
	client := redis.NewClient(options)
	t.Cleanup(func() { check.Must(t, client.Close()) })
	return client
}

// OnPipeline is a hook on a client's pipelines. All scripts are called in such.
type OnPipeline func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error

// DialHook implements redis.Hook.
func (OnPipeline) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (OnPipeline) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (h OnPipeline) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h(ctx, cmds, next) }
}
