package console

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// countEvery is the least time between two counts of orders, and countShare the share of it that they may take:
	// a hundredth.
	countEvery = 5 * time.Second
	countShare = 100
	// countTimeout bounds a count.
	countTimeout = time.Minute
)

// rarely reads what takes long and more and more, such as a count of orders: in the background, and for a small share of
// the time. Everybody is told the latest.
type rarely[T any] struct {
	mu     sync.Mutex
	latest *T
	due    time.Time     // not before
	under  chan struct{} // is closed when the reading under way has ended; nil: none is
}

// get is the latest reading, nil before the first, and begins another one that is due. Who wants it may wait until it has
// ended; nil: none is under way.
func (r *rarely[T]) get(log *slog.Logger, what string, read func(context.Context) (T, error)) (latest *T, next <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under == nil && !time.Now().Before(r.due) {
		r.under = make(chan struct{})
		go r.read(log, what, read)
	}
	return r.latest, r.under
}

func (r *rarely[T]) read(log *slog.Logger, what string, read func(context.Context) (T, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	began := time.Now()
	found, err := read(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.under)
	r.under, r.due = nil, time.Now().Add(max(countEvery, countShare*time.Since(began)))
	if err != nil {
		log.WarnContext(ctx, "nothing could be counted", slog.String("what", what), slog.Any("error", err))
		return
	}
	r.latest = &found
}
