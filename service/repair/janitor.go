package repair

import (
	"context"
	"log/slog"
	"time"

	"seckill/internal/poll"
)

const (
	// idempotencyAge is how long the answer to an Idempotency-Key is kept: an
	// administrator's script that is repeated after a weekend still gets it.
	idempotencyAge = 7 * 24 * time.Hour
	// messageAge is how long a webhook's message is known again: longer than any provider
	// repeats one.
	messageAge = 30 * 24 * time.Hour
	// janitorEvery is often enough for answers that are kept for days.
	janitorEvery = time.Hour
)

// Janitor deletes what is too old to be asked for. Several instances may do so at once.
type Janitor struct {
	Store interface {
		PurgeIdempotency(ctx context.Context, age time.Duration) (int64, error)
		PurgeMessages(ctx context.Context, age time.Duration) (int64, error)
	}
	Log *slog.Logger
}

// Run deletes now and every hour, until ctx ends.
func (j Janitor) Run(ctx context.Context) {
	j.purge(ctx)
	poll.Every(ctx, janitorEvery, func() { j.purge(ctx) })
}

func (j Janitor) purge(ctx context.Context) {
	if gone, err := j.Store.PurgeIdempotency(ctx, idempotencyAge); err != nil && ctx.Err() == nil {
		j.Log.WarnContext(ctx, "old idempotency keys were not purged", slog.Any("error", err))
	} else if gone > 0 {
		j.Log.InfoContext(ctx, "old idempotency keys were purged", slog.Int64("keys", gone))
	}
	if _, err := j.Store.PurgeMessages(ctx, messageAge); err != nil && ctx.Err() == nil {
		j.Log.WarnContext(ctx, "old webhook messages were not purged", slog.Any("error", err))
	}
}
