package repair

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// eventPage is how many events are read at once.
	eventPage = 500
)

// EventStore is the outbox of events.
type EventStore interface {
	// Oldest reads the oldest events.
	Oldest(ctx context.Context, limit int) ([]model.Event, error)
	// Forget removes events that the stream has.
	Forget(ctx context.Context, ids []int64) error
}

// EventStream is where events go.
type EventStream interface {
	// Publish returns how many of the first of the events are in the stream for certain.
	Publish(ctx context.Context, events []model.Event) (published int, err error)
}

// EventRelay publishes the events in the outbox, each at least once, those of one order in
// their order. The one instance that is elected does it: two at once would publish an event
// again that other systems have seen followed by a later one.
type EventRelay struct {
	Store  EventStore
	Stream EventStream
	// Waiting is for how many seconds the oldest event that could not be published has waited.
	Waiting telemetry.Gauge
	Log     *slog.Logger
}

// Run publishes events while this instance is elected, until ctx ends.
func (r *EventRelay) Run(ctx context.Context, by Elector) {
	elected := election{Elector: by, job: "events"}
	looks := &lookout{look: r.relayAll, pause: budget.Glance, rest: budget.Look, fails: "events could not be published; it is tried again", well: "events are published again"}
	elected.run(ctx, func(ctx context.Context) {
		looks.run(ctx, r.Log)
		r.Waiting.Set(0) // whoever is elected next knows
	})
}

// relayAll publishes page after page.
func (r *EventRelay) relayAll(ctx context.Context) (err error) {
	for more := true; more && err == nil && ctx.Err() == nil; {
		more, err = r.relay(ctx)
	}
	return err
}

// relay publishes one page of events, and reports whether there may be more.
func (r *EventRelay) relay(ctx context.Context) (more bool, err error) {
	events, err := r.Store.Oldest(ctx, eventPage)
	if err != nil || len(events) == 0 {
		return false, err
	}
	published, failed := r.Stream.Publish(ctx, events)
	waiting := time.Duration(0)
	if published < len(events) {
		waiting = time.Since(events[published].HappenedAt)
	}
	r.Waiting.Set(waiting.Seconds())
	failpoint.Reach(failpoint.AfterEventsPublished)
	ids := make([]int64, published)
	for i := range ids {
		ids[i] = events[i].ID
	}
	if err := r.Store.Forget(ctx, ids); err != nil {
		return false, fmt.Errorf("note %d published events: %w", published, err)
	}
	return len(events) == eventPage, failed
}
