package service

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// backlogEvery is between two looks at the queue: the age may grow past its
	// limit by this much before orders are refused.
	backlogEvery = 250 * time.Millisecond
	// backlogTimeout bounds one look.
	backlogTimeout = time.Second
	// backlogUnknownAfter is how long the queue may not tell its backlog before
	// orders are refused: time to elect a leader or to restart, in which clients
	// wait rather than come again.
	backlogUnknownAfter = 3 * time.Second
	// maxBacklogRetry bounds what clients are told to wait: a backlog of hours
	// may be gone in minutes.
	maxBacklogRetry = 30 * time.Second
)

// backlogWatch knows how long orders wait in the queue, so that nothing is
// promised that cannot be kept soon.
//
// While the queue does not even tell, orders are refused before they are
// reserved. Reserving them would leak nothing, because the reconciler publishes
// them again. But every one of them would take a unit from somebody who can be
// served by then, make its user wait for the whole time that a publish may take
// to hear "unknown", and arrive in a storm of republished orders.
type backlogWatch struct {
	queue   BacklogReader
	maxAge  time.Duration
	latest  atomic.Pointer[backlogSeen]
	metrics *telemetry.Admission
	log     *slog.Logger
}

// backlogSeen is one look at the queue.
type backlogSeen struct {
	age      time.Duration
	messages int64
	at       time.Time
}

func newBacklogWatch(
	queue BacklogReader, maxAge time.Duration, metrics *telemetry.Admission, log *slog.Logger,
) *backlogWatch {
	w := &backlogWatch{queue: queue, maxAge: maxAge, metrics: metrics, log: log}
	w.latest.Store(&backlogSeen{at: time.Now()}) // the start has just found the queue there
	return w
}

// run looks at the queue until ctx ends.
func (w *backlogWatch) run(ctx context.Context) {
	ticker := time.NewTicker(backlogEvery)
	defer ticker.Stop()
	told := true
	for {
		err := w.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if told != (err == nil) {
			told = err == nil
			if told {
				w.log.InfoContext(ctx, "the queue tells its backlog again")
			} else {
				w.log.WarnContext(ctx, "the queue does not tell its backlog; before long orders are refused", slog.Any("error", err))
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (w *backlogWatch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, backlogTimeout)
	defer cancel()
	asked := time.Now()
	backlog, err := w.queue.Backlog(ctx)
	if err != nil {
		w.metrics.BacklogUnknown()
		return err
	}
	w.metrics.Backlog(backlog.Age, backlog.Messages)
	w.latest.Store(&backlogSeen{age: backlog.Age, messages: backlog.Messages, at: asked})
	return nil
}

// refusal says why nothing may be promised now; nil while it may.
func (w *backlogWatch) refusal() error {
	seen := w.latest.Load()
	switch late := seen.age - w.maxAge; {
	case late > 0:
		w.metrics.RefusedForBacklog()
		refused := model.Unavailable("Too many orders are waiting to be made.", nil)
		refused.RetryAfter = min(max(late, time.Second), maxBacklogRetry)
		return refused
	case time.Since(seen.at) > backlogUnknownAfter:
		w.metrics.RefusedForBacklog()
		return model.Unavailable("The queue of orders cannot be reached.", nil)
	default:
		return nil
	}
}

// empty reports whether nothing waits in the queue.
func (w *backlogWatch) empty() bool {
	seen := w.latest.Load()
	return seen.messages == 0 && time.Since(seen.at) < backlogUnknownAfter
}
