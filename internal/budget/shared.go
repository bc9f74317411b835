package budget

import (
	"context"
	"sync/atomic"
	"time"
)

// coarse is how far the ends of requests may lie apart that share a timer: one for each costs more than what it bounds.
const coarse = 2 * Blink

// Deadlines bound requests by timers that all of a tenth of a second share, so that each lasts up to that much longer.
type Deadlines struct {
	after  time.Duration
	latest atomic.Pointer[deadline]
}

// NewDeadlines makes deadlines that are so long after a request's beginning.
func NewDeadlines(after time.Duration) *Deadlines { return &Deadlines{after: after} }

type deadline struct {
	context.Context //nolint:containedctx // ends by the timer

	last time.Time // beginning of a request that it is for
}

// Bound bounds a request. Its context does not end when the client hangs up: what may wait long for others takes Own.
func (d *Deadlines) Bound(ctx context.Context) context.Context {
	now := time.Now()
	end := d.latest.Load()
	for end == nil || now.After(end.last) {
		timed, stop := context.WithCancel(context.Background())
		next := &deadline{Context: timed, last: now.Add(coarse)}
		if d.latest.CompareAndSwap(end, next) {
			time.AfterFunc(coarse+d.after, stop)
			return &bounded{ctx, next, next.last.Add(d.after)}
		}
		stop()
		end = d.latest.Load()
	}
	return &bounded{ctx, end, end.last.Add(d.after)}
}

// bounded has a request's values and a shared end.
type bounded struct {
	context.Context //nolint:containedctx // the request's

	shared *deadline
	end    time.Time
}

// Deadline implements context.Context.
func (b *bounded) Deadline() (time.Time, bool) { return b.end, true }

// Done implements context.Context.
func (b *bounded) Done() <-chan struct{} { return b.shared.Done() }

// Err implements context.Context.
func (b *bounded) Err() error {
	if b.shared.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// AfterFunc spares package context a goroutine for each context that derives from this one.
func (b *bounded) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(b.shared, f) }

// Own is a context of its own for a request that Deadlines have bound: it ends at the client's hang-up as well.
func Own(ctx context.Context) (context.Context, context.CancelFunc) {
	if b, ok := ctx.(*bounded); ok {
		return context.WithDeadline(b.Context, b.end)
	}
	return context.WithCancel(ctx)
}
