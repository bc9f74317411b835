package embedded

import (
	"fmt"
	"log/slog"
	"sync/atomic"
)

// natsLog passes on what the embedded server says: what it is doing as debug,
// what worries it as a warning. The stock logger would end the process at a
// fatal error; this one keeps the first, which is the reason why a start failed.
type natsLog struct {
	log   *slog.Logger
	fatal atomic.Pointer[string]
}

func (l *natsLog) Noticef(format string, args ...any) { l.debug(format, args) }
func (l *natsLog) Debugf(format string, args ...any)  { l.debug(format, args) }
func (l *natsLog) Tracef(format string, args ...any)  { l.debug(format, args) }
func (l *natsLog) Warnf(format string, args ...any)   { l.warn(format, args) }
func (l *natsLog) Errorf(format string, args ...any)  { l.warn(format, args) }

func (l *natsLog) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.fatal.CompareAndSwap(nil, &text)
	l.warn("%s", []any{text})
}

func (l *natsLog) debug(format string, args []any) {
	l.log.Debug("embedded queue", slog.String("says", fmt.Sprintf(format, args...)))
}

func (l *natsLog) warn(format string, args []any) {
	l.log.Warn("embedded queue", slog.String("says", fmt.Sprintf(format, args...)))
}
