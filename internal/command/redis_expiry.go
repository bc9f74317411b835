package command

import (
	"context"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// adviseExpiry says that a Redis frees what expires in one go: the hot copy of a
// large sale would stop it for most of a second. One that does not tell is left
// alone.
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
