package repair

import (
	"cmp"
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
	tries       int           // this many failures in a row end the term; 0: electionTries
	trouble     telemetry.Trouble
}

// run looks until ctx ends, or too many looks in a row have failed: another instance may be able to do it.
func (l *lookout) run(ctx context.Context, log *slog.Logger) {
	for failed := 0; ctx.Err() == nil; {
		err := l.look(ctx)
		if ctx.Err() != nil {
			return
		}
		l.trouble.Note(ctx, log, err, l.fails, l.well)
		if err == nil {
			failed = 0
			poll.Pause(ctx, l.pause)
		} else if failed++; failed < cmp.Or(l.tries, electionTries) {
			poll.Pause(ctx, l.rest)
		} else {
			return
		}
	}
}
