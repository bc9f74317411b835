package repair

import (
	"context"
	"log/slog"
	"time"

	"seckill/internal/poll"
	"seckill/internal/telemetry"
)

// lookout repeats one periodic job, and logs when it begins to fail and when it goes well again.
type lookout struct {
	look        func(ctx context.Context) error
	pause, rest time.Duration // after a look that went well, and after one that failed
	fails, well string        // what the log says
	trouble     telemetry.Trouble
}

// run looks until ctx ends.
func (l *lookout) run(ctx context.Context, log *slog.Logger) {
	for ctx.Err() == nil {
		err := l.look(ctx)
		if ctx.Err() != nil {
			return
		}
		l.trouble.Note(ctx, log, err, l.fails, l.well)
		if err != nil {
			poll.Pause(ctx, l.rest)
		} else {
			poll.Pause(ctx, l.pause)
		}
	}
}
