package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/queue"
)

func TestWhatCannotBePersistedNowComesAgain(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]error{
		"unavailable": model.Unavailable("down", nil),
		"unknown":     fmt.Errorf("commit: %w", model.ErrUnknownOutcome),
		"deadline":    fmt.Errorf("commit: %w", context.DeadlineExceeded),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			published := some("a", 20)
			must(t, f.Publish(t.Context(), published[:10]))
			must(t, f.Publish(t.Context(), published[10:]))
			victim := published[4].ID
			l := ledger{verdict: func(r model.Reservation, times int) error {
				if r.ID == victim && times < 4 {
					return verdict
				}
				return nil
			}}
			begun := time.Now()
			consume(t, f.Queue, l.persist, queue.ConsumeOptions{MaxOrders: 10})
			drained(t, f.Queue)
			seen := l.seen()
			if seen[victim] != 4 || seen[published[0].ID] != 4 || seen[published[15].ID] != 1 {
				t.Errorf("handed out: the victim %d times, an order beside it %d, one of another message %d; want 4, 4, 1",
					seen[victim], seen[published[0].ID], seen[published[15].ID])
			}
			// 100, 200 and 400 ms.
			if took := time.Since(begun); took < 700*time.Millisecond {
				t.Errorf("three redeliveries took %s: they were not delayed", took)
			}
			if f.log.Has("level=ERROR") {
				t.Errorf("what heals by itself was logged as an error:\n%s", f.log)
			}
		})
	}
}

// No accepted order is lost for a bug: the bug is logged, and the order comes again.
func TestBugsNeverLoseAnOrder(t *testing.T) {
	t.Parallel()
	for name, persist := range map[string]func([]model.Reservation) []error{
		"refusal": func(all []model.Reservation) []error {
			verdicts := make([]error, len(all))
			verdicts[0] = model.Unavailable("and one that heals", nil)
			verdicts[1] = errors.New("what is this")
			return verdicts
		},
		"panic":     func([]model.Reservation) []error { panic("what is this") },
		"too short": func([]model.Reservation) []error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			must(t, f.Publish(t.Context(), some("a", 3)))
			var calls atomic.Int64
			var first time.Time
			var l ledger
			consume(t, f.Queue, func(ctx context.Context, all []model.Reservation) []error {
				if calls.Add(1) == 1 {
					first = time.Now()
					return persist(all)
				}
				return l.persist(ctx, all)
			}, queue.ConsumeOptions{Workers: 1})
			drained(t, f.Queue)
			if took := time.Since(first); took < 4*time.Second {
				t.Errorf("it came again after %s, want about 5 s", took)
			}
			l.handedOut(t, 3)
			if !f.log.Has("level=ERROR", "cannot be persisted") {
				t.Errorf("no error in the log:\n%s", f.log)
			}
		})
	}
}

// While the database is down the worker rests: it does not walk the backlog.
func TestBacklogIsNotTakenForAWalk(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	for i := range 200 {
		must(t, f.Publish(t.Context(), some(fmt.Sprintf("m%d", i), 1)))
	}
	var calls atomic.Int64
	down := atomic.Bool{}
	down.Store(true)
	consume(t, f.Queue, func(_ context.Context, all []model.Reservation) []error {
		verdicts := make([]error, len(all))
		if down.Load() {
			calls.Add(1)
			for i := range verdicts {
				verdicts[i] = model.Unavailable("down", nil)
			}
		}
		return verdicts
	}, queue.ConsumeOptions{Workers: 1, MaxOrders: 1})
	<-time.After(time.Second)
	if n := calls.Load(); n > 10 {
		t.Errorf("%d calls in a second while the database is down", n)
	}
	down.Store(false)
	drained(t, f.Queue)
}

// A call that lasts longer than the server waits for an ack is not repeated
// elsewhere, and neither is what waits behind it.
func TestSlowCallsAreNotRepeated(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil) // with the AckWait of production, 6 s: a shorter one is missed by a machine that stands still
	const messages = 3
	for i := range messages {
		must(t, f.Publish(t.Context(), some(fmt.Sprintf("m%d", i), 2)))
	}
	slow := func(l *ledger) queue.Persist {
		return func(ctx context.Context, all []model.Reservation) []error {
			<-time.After(6500 * time.Millisecond)
			return l.persist(ctx, all)
		}
	}
	var one, other ledger
	consume(t, f.Queue, slow(&one), queue.ConsumeOptions{Workers: 1, MaxOrders: 2})
	consume(t, f.open(t, nil), slow(&other), queue.ConsumeOptions{Workers: 1, MaxOrders: 2})
	check.Eventually(t, "all but the last are done", func() bool { return len(one.seen())+len(other.seen()) >= 2*(messages-1) })
	drained(t, f.Queue)
	all := map[string]int{} // one of them may have got everything
	for _, l := range []*ledger{&one, &other} {
		for id, times := range l.seen() {
			all[id] += times
		}
	}
	for id, times := range all {
		check.Equal(t, "times that order "+id+" was handed out", times, 1)
	}
	check.Equal(t, "orders handed out", len(all), 2*messages)
}

// What a dead worker had in hand goes to another one after AckWait.
func TestWorkOfADeadWorkerIsTakenOver(t *testing.T) {
	t.Parallel()
	const ackWait = 5 * time.Second // long enough for the one that takes over, also where the machine stands still
	f := newFixture(t, func(o *queue.Options) { o.AckWait = ackWait })
	must(t, f.Publish(t.Context(), some("a", 2)))
	worker := check.Value(f.js.Consumer(t.Context(), orders, "worker"))(t)
	begun := time.Now()                                                   // before the server begins to wait
	must(t, check.ErrorOf(worker.Next(jetstream.FetchMaxWait(patience)))) // and dies
	var l ledger
	var again atomic.Int64
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{Observe: func(d queue.Delivery) { again.Add(int64(d.Again)) }})
	drained(t, f.Queue)
	if took := time.Since(begun); took < ackWait/2 || len(l.seen()) != 2 {
		t.Errorf("after %s: %v", took, l.seen())
	}
	check.Eventually(t, "the redelivery is counted", func() bool { return again.Load() == 1 })
}

// At the end, calls under way are finished and acknowledged, and the other messages
// are given to other instances at once.
func TestEndGivesBackWhatWasNotBegun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil) // with the AckWait of production, longer than the test is patient
	const messages = 10
	for i := range messages {
		must(t, f.Publish(t.Context(), some(fmt.Sprintf("m%d", i), 1)))
	}
	begun, held := make(chan struct{}), make(chan struct{})
	finish := sync.OnceFunc(func() { close(held) })
	defer finish() // also when the test fails
	var once sync.Once
	var first, second ledger
	stop := consume(t, f.Queue, func(ctx context.Context, all []model.Reservation) []error {
		once.Do(func() { close(begun) })
		<-held
		if ctx.Err() != nil {
			t.Error("a call under way was canceled")
		}
		return first.persist(ctx, all)
	}, queue.ConsumeOptions{Workers: 1, MaxOrders: 1})
	<-begun
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	consume(t, f.open(t, nil), second.persist, queue.ConsumeOptions{})
	at := time.Now()
	check.Eventually(t, "the others have what was not begun", func() bool { return len(second.seen()) == messages-1 })
	if took := time.Since(at); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	finish()
	<-stopped
	drained(t, f.Queue)
	first.handedOut(t, 1)
	for id, times := range second.seen() {
		if times != 1 || first.seen()[id] != 0 {
			t.Errorf("order %s was handed out again", id)
		}
	}
}

// A call that does not end in time is canceled, and the end comes.
func TestEndIsBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	must(t, f.Publish(t.Context(), some("a", 1)))
	begun := make(chan struct{})
	stop := consume(t, f.Queue, func(ctx context.Context, all []model.Reservation) []error {
		close(begun)
		<-ctx.Done()
		return []error{ctx.Err()}
	}, queue.ConsumeOptions{})
	<-begun
	at := time.Now()
	stop()
	if took := time.Since(at); took > 9*time.Second {
		t.Errorf("the end took %s", took)
	}
	if f.log.Has("level=ERROR") || strings.Contains(f.log.String(), "panic") {
		t.Errorf("log:\n%s", f.log)
	}
}
