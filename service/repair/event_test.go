package repair

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// mailbox is an outbox of events, and a stream that now and then takes only some.
type mailbox struct {
	telemetry.Gauge // of nothing but Set

	mu     sync.Mutex
	outbox []model.Event
	stream []int64
	take   int // of the next publish; negative: all
	stuck  bool
	wait   float64 // the longest of an event that the stream did not take, in seconds
}

func (m *mailbox) Set(wait float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wait = max(m.wait, wait)
}

func (m *mailbox) Oldest(_ context.Context, limit int) ([]model.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.outbox[:min(limit, len(m.outbox))]), nil
}

func (m *mailbox) Forget(_ context.Context, ids []int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stuck {
		return errors.New("the database is away")
	}
	m.outbox = slices.DeleteFunc(m.outbox, func(e model.Event) bool { return slices.Contains(ids, e.ID) })
	return nil
}

func (m *mailbox) Publish(_ context.Context, events []model.Event) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := events
	if m.take >= 0 && m.take < len(events) {
		taken = events[:m.take]
	}
	for _, event := range taken {
		m.stream = append(m.stream, event.ID)
	}
	if len(taken) < len(events) {
		return len(taken), errors.New("no answer")
	}
	return len(taken), nil
}

// Every event is published, in order and none left out, whatever fails; it is published
// again only when that could not be noted.
func TestEventsAreRelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &mailbox{take: 700, stuck: true}
		for id := range int64(1200) {
			m.outbox = append(m.outbox, model.Event{ID: id + 1, HappenedAt: time.Now()})
		}
		relay := &EventRelay{Store: m, Stream: m, Waiting: m, Log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { relay.Run(ctx, electing(servicetest.NewLocks())) })
		servicetest.Pass(1500 * time.Millisecond) // published twice, noted never
		synctest.Wait()
		m.mu.Lock()
		again := len(m.stream)
		m.stream, m.stuck, m.take = nil, false, 123
		m.mu.Unlock()
		check.Equal(t, "events published that could not be noted", again, 2*eventPage)
		servicetest.Pass(3 * time.Second)
		synctest.Wait()
		m.mu.Lock()
		m.take = -1 // all
		m.mu.Unlock()
		servicetest.Pass(3 * time.Second)
		synctest.Wait()
		stop()
		running.Wait()
		check.Equal(t, "the wait of an event that the stream did not take is told", m.wait >= 1.5, true)
		check.Equal(t, "events left", len(m.outbox), 0)
		for i, id := range m.stream {
			if id != int64(i+1) {
				t.Fatalf("event %d is published as number %d", id, i+1)
			}
		}
		check.Equal(t, "events published", len(m.stream), 1200)
	})
}
