package backlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/budget"
	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// floorQueue is a queue with messages of many vouchers. Each question takes a millisecond.
type floorQueue struct {
	mu       sync.Mutex
	messages map[string][]uint64 // not acknowledged, of each voucher
	last     uint64
	away     error // of the question for all vouchers at once
	lost     error // of every question
	calls    map[string]int
}

func (q *floorQueue) with(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
}

// asked is how often the queue was asked.
func (q *floorQueue) asked(names ...string) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range names {
		n += q.calls[name]
	}
	return n
}

func (q *floorQueue) ask(name string) (unlock func()) {
	servicetest.Pass(time.Millisecond)
	q.mu.Lock()
	q.calls[name]++
	return q.mu.Unlock
}

func (q *floorQueue) BacklogOf(_ context.Context, voucherID string) (model.Backlog, error) {
	defer q.ask("BacklogOf")()
	b := model.Backlog{LastSequence: q.last, AckFloor: q.last}
	if shared := q.messages[model.AnyVoucher]; len(shared) > 0 {
		b.AckFloor, b.Messages = slices.Min(shared)-1, int64(len(shared))
	}
	if own := q.messages[voucherID]; len(own) > 0 {
		b.AckFloor, b.Messages = min(b.AckFloor, slices.Min(own)-1), int64(len(own))
	}
	return b, q.lost
}

func (q *floorQueue) Waiting(context.Context) (map[string]int64, error) {
	defer q.ask("Waiting")()
	named := map[string]int64{}
	for id, own := range q.messages {
		if len(own) > 0 {
			named[id] = int64(len(own))
		}
	}
	return named, cmp.Or(q.away, q.lost)
}

// publish puts a message of a voucher into the queue.
func (q *floorQueue) publish(voucherID string) {
	q.with(func() {
		q.last++
		q.messages[voucherID] = append(q.messages[voucherID], q.last)
	})
}

func (q *floorQueue) Backlog(ctx context.Context) (model.Backlog, error) {
	b, err := q.BacklogOf(ctx, "")
	q.with(func() {
		b.Messages = 0
		for _, own := range q.messages {
			b.Messages += int64(len(own))
		}
	})
	return b, err
}

// acknowledge ends the oldest message of each of the vouchers.
func (q *floorQueue) acknowledge(voucherIDs ...string) {
	q.with(func() {
		for _, id := range voucherIDs {
			q.messages[id] = q.messages[id][1:]
		}
	})
}

// floorWaits are rebuilds that wait for their vouchers' messages.
type floorWaits struct {
	*floorQueue

	vouchers []string
	waits    sync.WaitGroup
	mu       sync.Mutex
	ended    map[string]time.Time
}

// besideWaits runs a test beside so many rebuilds, each of which waits for a message.
// Also are vouchers with a message before that, for which no rebuild waits.
func besideWaits(t *testing.T, rebuilds int, test func(*testing.T, *floorWaits), also ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &floorWaits{floorQueue: &floorQueue{messages: map[string][]uint64{}, calls: map[string]int{}}, ended: map[string]time.Time{}}
		watch := New(w.floorQueue, 0, nil, slog.New(slog.DiscardHandler))
		for i := range rebuilds {
			w.vouchers = append(w.vouchers, fmt.Sprint("v", i))
			w.publish(w.vouchers[i])
		}
		for _, id := range also {
			w.publish(id)
		}
		barrier := w.last
		for _, id := range w.vouchers {
			w.waits.Go(func() {
				if err := watch.Await(t.Context(), id, barrier); err != nil {
					t.Errorf("%s: %v", id, err)
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				w.ended[id] = time.Now()
			})
		}
		test(t, w)
		w.waits.Wait()
	})
}

// within checks that the waits of some vouchers end now.
func (w *floorWaits) within(t *testing.T, limit time.Duration, vouchers ...string) {
	t.Helper()
	servicetest.Pass(limit)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range vouchers {
		if w.ended[id].IsZero() {
			t.Fatalf("%s waits still", id)
		}
	}
	check.Equal(t, "waits that have ended", len(w.ended), len(vouchers))
}

// A thousand rebuilds that wait ask the queue some hundred times a second together, and
// each of them learns at once that its messages are done.
func TestManyRebuildsWaitAtTheCostOfAFew(t *testing.T) {
	t.Parallel()
	besideWaits(t, 1000, func(t *testing.T, w *floorWaits) {
		servicetest.Pass(10 * time.Second)
		before := w.asked("BacklogOf", "Waiting")
		servicetest.Pass(30 * time.Second)
		if each := (w.asked("BacklogOf", "Waiting") - before) / 30; each > 150 {
			t.Errorf("%d questions a second", each)
		}
		w.acknowledge("v7")
		w.within(t, 2*budget.Glance+10*time.Millisecond, "v7")
		w.acknowledge(w.vouchers[10:]...)
		w.within(t, 2*budget.Glance+10*time.Millisecond, append(w.vouchers[10:], "v7")...)
		w.acknowledge(slices.DeleteFunc(slices.Clone(w.vouchers[:10]), func(id string) bool { return id == "v7" })...)
	})
}

// Who waits beside a few others learns of it as soon as who waits alone.
func TestAFewRebuildsWaitAsIfAlone(t *testing.T) {
	t.Parallel()
	for _, rebuilds := range []int{1, 5} {
		besideWaits(t, rebuilds, func(t *testing.T, w *floorWaits) {
			servicetest.Pass(time.Minute)
			w.acknowledge(w.vouchers...)
			w.within(t, budget.Blink+5*time.Millisecond, w.vouchers...)
			check.Equal(t, "questions for all vouchers", w.asked("Waiting"), 0)
		})
	}
}

// What all vouchers share is asked for once, for all that wait, and a busy sale beside them makes them none the later.
func TestManyRebuildsWaitForWhatAllShare(t *testing.T) {
	t.Parallel()
	besideWaits(t, 1000, func(t *testing.T, w *floorWaits) {
		w.acknowledge(w.vouchers...)
		servicetest.Pass(10 * time.Second)
		before := w.asked("BacklogOf", "Waiting")
		servicetest.Pass(30 * time.Second)
		if each := (w.asked("BacklogOf", "Waiting") - before) / 30; each > 150 {
			t.Errorf("%d questions a second", each)
		}
		w.within(t, 0)
		w.publish(model.AnyVoucher) // behind the barrier
		w.acknowledge(model.AnyVoucher)
		w.within(t, 2*budget.Glance+10*time.Millisecond, w.vouchers...)
	}, model.AnyVoucher)
}

// A message that came later keeps the voucher named, and is not waited for; neither is the
// question for all vouchers, when that alone fails.
func TestARebuildAmongManyAsksInItsTurn(t *testing.T) {
	t.Parallel()
	besideWaits(t, 100, func(t *testing.T, w *floorWaits) {
		w.publish("v7")
		servicetest.Pass(5 * time.Second)
		w.acknowledge("v7")
		w.within(t, 100*floorShare+2*budget.Blink, "v7")
		w.with(func() { w.away = errors.New("away") })
		servicetest.Pass(5 * time.Second)
		w.acknowledge("v8")
		w.within(t, 100*floorShare+2*budget.Blink, "v7", "v8")
		w.acknowledge(slices.DeleteFunc(slices.Clone(w.vouchers), func(id string) bool { return id == "v7" || id == "v8" })...)
	})
}

// Looks that fail for some seconds end no wait: a rebuild would begin anew behind a later message.
func TestAFailedLookIsNotTheEndOfAWait(t *testing.T) {
	t.Parallel()
	for _, rebuilds := range []int{1, 100} {
		besideWaits(t, rebuilds, func(t *testing.T, w *floorWaits) {
			servicetest.Pass(time.Second)
			w.with(func() { w.lost = errors.New("no responders") })
			servicetest.Pass(budget.Answer - time.Second)
			w.acknowledge(w.vouchers...)
			w.within(t, 0)
			w.with(func() { w.lost = nil })
			w.within(t, 100*floorShare+2*budget.Blink, w.vouchers...)
		})
	}
}

// unansweredReading is a queue that names no vouchers until the question is given up.
type unansweredReading struct{ *floorQueue }

func (unansweredReading) Waiting(ctx context.Context) (map[string]int64, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A rebuild that is given up while it reads says nothing of the queue: the next look goes on.
func TestAWaitThatIsGivenUpIsNoTroubleOfTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := unansweredReading{&floorQueue{messages: map[string][]uint64{}, calls: map[string]int{}}}
		q.publish("v1")
		watch := New(q, time.Minute, telemetry.NewAdmission(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
		waiting, giveUp := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { check.Is(t, "the wait", watch.Await(waiting, "v1", q.last), context.Canceled) })
		servicetest.Pass(budget.Blink / 2)
		giveUp()
		wait.Wait()
		watch.Empty("v1", time.Hour) // somebody wants to know
		check.Must(t, watch.look(t.Context()))
	})
}
