package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"seckill/internal/budget"
)

// Trouble tells the log once that something begins to fail, and once that it is well again, however often it is tried
// in between. A failure that stays alone is no trouble: a call that is only late on a busy machine is one. So the first
// is logged as information, and the second one as a warning. The zero Trouble is well.
type Trouble struct {
	mu     sync.Mutex
	first  time.Time // of the failures that are counted; zero: nothing has failed yet
	failed bool      // the latest that was logged is a failure
	warned bool      // and a warning
}

// Note takes the error of the latest try, nil when it went well, and what to log
// when that is new. The line that something fails names the error.
//
//nolint:sloglint // the callers' texts are constants
func (t *Trouble) Note(ctx context.Context, log *slog.Logger, err error, fails, well string, attrs ...slog.Attr) {
	level, news := t.note(err)
	switch {
	case !news:
	case err != nil:
		log.LogAttrs(ctx, level, fails, append(attrs, slog.Any("error", err))...)
	default:
		log.LogAttrs(ctx, level, well, attrs...)
	}
}

// note reports whether a try's outcome is news, and how much it matters.
func (t *Trouble) note(err error) (level slog.Level, news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		news = t.failed
		t.failed, t.warned = false, false
		return slog.LevelInfo, news
	}
	age := time.Since(t.first)
	switch {
	case t.warned, !t.first.IsZero() && age < budget.Brief:
		return level, false
	case t.failed, !t.first.IsZero() && age < budget.Survey:
		t.failed, t.warned = true, true
		return slog.LevelWarn, true
	default:
		t.first, t.failed = time.Now(), true
		return slog.LevelInfo, true
	}
}
