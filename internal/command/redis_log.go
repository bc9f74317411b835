package command

import (
	"context"
	"fmt"
	"log/slog"
)

// redisLog passes the remarks of the Redis client on, which would go to
// standard error in a format of their own. What matters of them comes back as
// errors too.
type redisLog struct{ log *slog.Logger }

// Printf implements the client's logger.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "Redis client", slog.String("remark", fmt.Sprintf(format, v...)))
}
