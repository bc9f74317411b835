package command

import (
	"context"
	"log/slog"
	"time"

	"seckill/repository"
)

const (
	// idempotencyAge is how long the answer to an Idempotency-Key is kept: an
	// administrator's script that is repeated after a weekend still gets it.
	idempotencyAge = 7 * 24 * time.Hour
	// janitorEvery is often enough for answers that are kept for days.
	janitorEvery = time.Hour
	// janitorPatience: a statement that was canceled ends at once.
	janitorPatience = time.Second
)

// sweep deletes what is too old to be asked for, now and every hour. Several
// instances may do so at once.
func (i *Instance) sweep(db *repository.Database) {
	i.background("janitor", janitorPatience, func(ctx context.Context) error {
		ticker := time.NewTicker(janitorEvery)
		defer ticker.Stop()
		for {
			if gone, err := db.PurgeIdempotency(ctx, idempotencyAge); err != nil && ctx.Err() == nil {
				i.log.WarnContext(ctx, "old idempotency keys were not purged", slog.Any("error", err))
			} else if gone > 0 {
				i.log.InfoContext(ctx, "old idempotency keys were purged", slog.Int64("keys", gone))
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
}
