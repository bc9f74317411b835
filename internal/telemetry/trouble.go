package telemetry

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// Trouble tells the log once that something begins to fail, and once that it is
// well again, however often it is tried in between. The zero Trouble is well.
type Trouble struct{ failing atomic.Bool }

// Note takes the error of the latest try, nil when it went well, and what to log
// when that is new. The line that something fails is a warning and names the error.
//
//nolint:sloglint // the callers' texts are constants
func (t *Trouble) Note(ctx context.Context, log *slog.Logger, err error, fails, well string, attrs ...slog.Attr) {
	switch {
	case err != nil && t.failing.CompareAndSwap(false, true):
		log.LogAttrs(ctx, slog.LevelWarn, fails, append(attrs, slog.Any("error", err))...)
	case err == nil && t.failing.CompareAndSwap(true, false):
		log.LogAttrs(ctx, slog.LevelInfo, well, attrs...)
	}
}
