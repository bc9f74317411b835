package hotcopy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/ratelimit"
)

// limitKey begins the names of quotas. Each expires when it is whole again.
const limitKey = "seckill:v1:limit:"

// Limits keeps the rate limits that the instances share.
type Limits struct {
	client redis.UniversalClient
	script *redis.Script
}

// NewLimits keeps limits over the client given.
func NewLimits(client redis.UniversalClient) *Limits {
	return &Limits{client: client, script: redis.NewScript(luaFile("limit"))}
}

// Take answers asks in order, in one round trip. When one of them failed all have: the caller then limits by itself.
func (l *Limits) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Verdict, error) {
	commands, err := l.send(ctx, asks, l.script.EvalSha)
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // none was carried out; in a Cluster some may have been, and count twice
		commands, err = l.send(ctx, asks, l.script.Eval)
	}
	if err != nil {
		return nil, fmt.Errorf("ask for %d rate limits: %w", len(asks), err)
	}
	verdicts := make([]ratelimit.Verdict, len(asks))
	for i, command := range commands {
		numbers, err := command.Int64Slice()
		if err != nil || len(numbers) != 2 {
			return nil, fmt.Errorf("ask for a rate limit: %w", errors.Join(errReply, err))
		}
		verdicts[i] = ratelimit.Verdict{Wait: time.Duration(numbers[0]) * time.Microsecond, Left: numbers[1]}
	}
	return verdicts, nil
}

// eval is a way to run the script.
type eval func(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

func (l *Limits) send(ctx context.Context, asks []ratelimit.Ask, run eval) ([]*redis.Cmd, error) {
	commands := make([]*redis.Cmd, len(asks))
	pipe := l.client.Pipeline()
	for i, ask := range asks {
		commands[i] = run(ctx, pipe, []string{limitKey + ask.Key}, micros(ask.Emission), micros(ask.Capacity), ask.Used)
	}
	_, err := pipe.Exec(ctx)
	return commands, err
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// limitChannel carries nothing but the news that limits were changed.
const limitChannel = "seckill:v1:limit-changes"

// Announce tells every instance that limits were changed. The message may be lost.
func (l *Limits) Announce(ctx context.Context, deployment string) error {
	if err := announce(ctx, l.client, limitChannel, deployment); err != nil {
		return fmt.Errorf("announce new rate limits: %w", err)
	}
	return nil
}

// Watch calls changed for every announcement; otherwise it is Store.Watch.
func (l *Limits) Watch(ctx context.Context, changed func(deployment string), missed func()) {
	watch(ctx, l.client, limitChannel, listener{told: changed, missed: missed, deaf: func() {}})
}
