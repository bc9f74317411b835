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

// manySales has many busy vouchers, v0 and so on, with a message that is always 10 ms old. Each question takes 1 ms.
type manySales struct {
	busy int

	mu     sync.Mutex
	behind map[string]time.Time // since when the oldest message waits
	untold map[string]error     // vouchers whose oldest message is not told
	away   error                // of every question
	calls  map[string]int
}

func (q *manySales) with(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
}

func (q *manySales) ask(ctx context.Context, name string) (unlock func(), err error) {
	select {
	case <-time.After(time.Millisecond):
	case <-ctx.Done():
	}
	q.mu.Lock()
	q.calls[name]++
	return q.mu.Unlock, cmp.Or(ctx.Err(), q.away)
}

func (q *manySales) Backlog(ctx context.Context) (model.Backlog, error) {
	unlock, err := q.ask(ctx, "Backlog")
	defer unlock()
	b := model.Backlog{Age: 10 * time.Millisecond, Messages: int64(q.busy + len(q.behind))}
	for _, since := range q.behind {
		b.Age = max(b.Age, time.Since(since))
	}
	return b, err
}

func (q *manySales) Waiting(ctx context.Context) (map[string]int64, error) {
	unlock, err := q.ask(ctx, "Waiting")
	defer unlock()
	named := map[string]int64{}
	for i := range q.busy {
		named[fmt.Sprint("v", i)] = 1
	}
	for id := range q.behind {
		named[id] = 1
	}
	return named, err
}

func (q *manySales) BacklogOf(ctx context.Context, id string) (model.Backlog, error) {
	unlock, err := q.ask(ctx, "BacklogOf")
	defer unlock()
	if err == nil {
		err = q.untold[id]
	}
	if since, ok := q.behind[id]; ok {
		return model.Backlog{Age: time.Since(since), Messages: 1}, err
	}
	return model.Backlog{Age: 10 * time.Millisecond, Messages: 1}, err
}

// The voucher "bad" is behind by so much.
func besideManySales(
	t *testing.T, name string, busy int, bad time.Duration, test func(*testing.T, *Watch, *manySales),
) {
	t.Helper()
	servicetest.Bubble(t, name, func(t *testing.T) {
		q := &manySales{
			busy: busy, behind: map[string]time.Time{"bad": time.Now().Add(-bad)},
			untold: map[string]error{}, calls: map[string]int{},
		}
		w := New(q, 30*time.Second, telemetry.NewAdmission(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		defer running.Wait()
		defer cancel()
		test(t, w, q)
	})
}

func (w *Watch) goOn(vouchers int) (n int) {
	for i := range vouchers {
		if w.Refusal(fmt.Sprint("v", i)) == nil {
			n++
		}
	}
	return n
}

// The others sell on, also those that are asked for the first time.
func TestABacklogIsOfItsVoucherHoweverManyThereAre(t *testing.T) {
	t.Parallel()
	for _, vouchers := range []int{1, 100, 1000} {
		besideManySales(t, fmt.Sprint(vouchers), vouchers, 29*time.Second, func(t *testing.T, w *Watch, q *manySales) {
			// It is first asked for its oldest message when that is still young enough.
			turn := 1 + vouchers*int(budget.Glance/time.Millisecond)/maxAsked/1000
			for second := range 60 {
				check.Equal(t, fmt.Sprintf("vouchers that sell on in second %d", second), w.goOn(vouchers), vouchers)
				check.Equal(t, "one without messages", w.Refusal("idle"), nil)
				if err := w.Refusal("bad"); second > 2*turn && model.CodeOf(err) != model.CodeUnavailable {
					t.Fatalf("in second %d the one that is behind: %v", second, err)
				}
				servicetest.Pass(time.Second)
			}
			synctest.Wait()
			all := q.calls["BacklogOf"]
			check.That(t, all <= 60*4*maxAsked, "%d questions for single vouchers in a minute", all)
		})
	}
}

// A queue that keeps back its backlog, or a process that did not look, may have older messages.
func TestMessagesAreYoungOnlyWhileTheyAreSeenToBe(t *testing.T) {
	t.Parallel()
	besideManySales(t, "one", 1, 0, func(t *testing.T, w *Watch, q *manySales) {
		check.Equal(t, "younger than a second, before the first look", w.Younger(time.Second), false)
		q.with(func() { clear(q.behind) })
		servicetest.Pass(time.Second)
		check.Equal(t, "younger than a second", w.Younger(time.Second), true)
		check.Equal(t, "younger than it is", w.Younger(10*time.Millisecond), false)
		q.with(func() { q.away = errors.New("away") })
		servicetest.Pass(500 * time.Millisecond)
		check.Equal(t, "younger than a second, unseen for half of it", w.Younger(time.Second), true)
		servicetest.Pass(time.Second)
		check.Equal(t, "younger than a second, unseen for longer", w.Younger(time.Second), false)
		q.with(func() { q.away, q.behind["bad"] = nil, time.Now() })
		servicetest.Pass(budget.Glance)
		check.Equal(t, "younger than a second, of one that was just published", w.Younger(time.Second), true)
		servicetest.Pass(time.Second)
		check.Equal(t, "younger than a second, of one that nobody takes", w.Younger(time.Second), false)
	})
}

// A voucher that is behind is refused soon after its first request, until it has caught up.
func TestAVoucherThatIsBehindIsFoundAmongMany(t *testing.T) {
	t.Parallel()
	besideManySales(t, "", 1000, time.Hour, func(t *testing.T, w *Watch, q *manySales) {
		servicetest.Pass(30 * time.Second)
		q.with(func() { q.behind["late"] = time.Now().Add(-45 * time.Second) })
		check.Equal(t, "of a voucher that nobody has asked for", w.Refusal("other"), nil)
		servicetest.Pass(20 * time.Second)
		err := w.Refusal("late")
		check.That(t, model.CodeOf(err) == model.CodeUnavailable, "it is behind, and hears %v", err)
		q.with(func() { q.behind["late"] = time.Now() })
		servicetest.Pass(2 * time.Second)
		check.Equal(t, "when it has caught up", w.Refusal("late"), nil)
	})
}

func TestAYoungBacklogAsksForNoVoucher(t *testing.T) {
	t.Parallel()
	besideManySales(t, "", 1000, 0, func(t *testing.T, w *Watch, q *manySales) {
		for range 14 {
			check.Equal(t, "vouchers that sell", w.goOn(1000), 1000)
			servicetest.Pass(time.Second)
		}
		synctest.Wait()
		check.That(t, q.calls["Backlog"] >= 50 && len(q.calls) <= 1, "%v", q.calls)
	})
}

// A queue that names vouchers without ages refuses those that have messages after a few seconds.
func TestAgesThatAreNotToldRefuseAfterAFewSeconds(t *testing.T) {
	t.Parallel()
	besideManySales(t, "", 0, time.Hour, func(t *testing.T, w *Watch, q *manySales) {
		q.with(func() { q.untold["bad"] = errors.New("permissions violation") })
		servicetest.Pass(unknownAfter - budget.Glance)
		check.Equal(t, "at first", w.Refusal("bad"), nil)
		servicetest.Pass(3 * budget.Glance)
		err := w.Refusal("bad")
		check.That(t, model.CodeOf(err) == model.CodeUnavailable, "its age is not told, and it hears %v", err)
		check.Equal(t, "of a voucher without messages", w.Refusal("idle"), nil)
	})
}

func TestAnAgeThatIsNotToldHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	besideManySales(t, "", 500, time.Hour, func(t *testing.T, w *Watch, q *manySales) {
		q.with(func() {
			q.behind["untold"] = time.Now().Add(-time.Hour)
			q.untold["untold"] = errors.New("no")
		})
		servicetest.Pass(10 * time.Second)
		check.Equal(t, "vouchers that sell on", w.goOn(500), 500)
		err := w.Refusal("bad")
		check.That(t, model.CodeOf(err) == model.CodeUnavailable, "the one that is behind hears %v", err)
	})
}

// A voucher without messages of its own is young when what all share is.
func TestAVoucherWithoutMessagesIsKnownAsSuch(t *testing.T) {
	t.Parallel()
	const age = 10 * time.Minute
	besideManySales(t, "", 300, 0, func(t *testing.T, w *Watch, q *manySales) {
		check.Equal(t, "before anybody has asked", w.Empty("idle", age), false)
		empty := func(when string, idle bool) {
			t.Helper()
			for range 3 {
				servicetest.Pass(2 * budget.Glance)
				w.Empty("idle", age) // so that it is looked after
			}
			check.Equal(t, "one without messages, "+when, w.Empty("idle", age), idle)
			check.Equal(t, "one with a message, "+when, w.Empty("v7", age), false)
		}
		empty("as all are young", true)
		q.with(func() { q.behind[model.AnyVoucher] = time.Now() })
		empty("beside a shared message", true)
		q.with(func() { q.behind["bad"] = time.Now().Add(-2 * age) })
		empty("beside an old one of another voucher", true)
		q.with(func() { q.behind[model.AnyVoucher] = time.Now().Add(-age - time.Minute) })
		servicetest.Pass(age)
		empty("beside a shared message that is older", false)
		q.with(func() { q.behind[model.AnyVoucher] = time.Now() })
		servicetest.Pass(time.Minute)
		empty("when that is done", true)
	})
}

// While the queue cannot be reached nothing is known to be empty, and orders are refused after a few seconds.
func TestAQueueThatIsAwayRefusesAfterAFewSeconds(t *testing.T) {
	t.Parallel()
	besideManySales(t, "", 1, 0, func(t *testing.T, w *Watch, q *manySales) {
		servicetest.Pass(time.Minute)
		q.with(func() { q.away = errors.New("no responders") })
		servicetest.Pass(unknownAfter - 2*budget.Glance)
		check.Equal(t, "at first", w.Refusal("idle"), nil)
		servicetest.Pass(3 * budget.Glance)
		check.That(t, model.CodeOf(w.Refusal("idle")) == model.CodeUnavailable && !w.Empty("idle", time.Hour), "%v",
			w.Refusal("idle"))
		q.with(func() { q.away = nil })
		servicetest.Pass(2 * budget.Glance)
		check.Equal(t, "when it is back", w.Refusal("idle"), nil)
	})
}

func TestMain(m *testing.M) { servicetest.Main(m) }

// Each question takes a millisecond.
type floorQueue struct {
	Queue // of which nothing else is asked

	mu        sync.Mutex
	messages  map[string][]uint64 // not acknowledged, of each voucher
	last      uint64
	lost      error // of every question
	questions int
}

func (q *floorQueue) with(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
}

func (q *floorQueue) asked() (n int) {
	q.with(func() { n = q.questions })
	return n
}

func (q *floorQueue) BacklogOf(_ context.Context, voucherID string) (model.Backlog, error) {
	servicetest.Pass(time.Millisecond)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.questions++
	b := model.Backlog{LastSequence: q.last, AckFloor: q.last}
	if shared := q.messages[model.AnyVoucher]; len(shared) > 0 {
		b.AckFloor, b.Messages = slices.Min(shared)-1, int64(len(shared))
	}
	if own := q.messages[voucherID]; len(own) > 0 {
		b.AckFloor, b.Messages = min(b.AckFloor, slices.Min(own)-1), int64(len(own))
	}
	return b, q.lost
}

func (q *floorQueue) publish(voucherID string) {
	q.with(func() {
		q.last++
		q.messages[voucherID] = append(q.messages[voucherID], q.last)
	})
}

func (q *floorQueue) acknowledge(voucherIDs ...string) {
	q.with(func() {
		for _, id := range voucherIDs {
			q.messages[id] = q.messages[id][1:]
		}
	})
}

type floorWaits struct {
	*floorQueue

	vouchers []string
	waits    sync.WaitGroup
	mu       sync.Mutex
	ended    map[string]time.Time
}

// Each rebuild waits for a message; no rebuild waits for the vouchers of also.
func besideWaits(t *testing.T, rebuilds int, test func(*testing.T, *floorWaits), also ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &floorWaits{floorQueue: &floorQueue{messages: map[string][]uint64{}}, ended: map[string]time.Time{}}
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
				err := watch.Await(t.Context(), id, barrier)
				check.That(t, err == nil, "%s: %v", id, err)
				w.mu.Lock()
				defer w.mu.Unlock()
				w.ended[id] = time.Now()
			})
		}
		test(t, w)
		w.waits.Wait()
	})
}

func (w *floorWaits) within(t *testing.T, limit time.Duration, vouchers ...string) {
	t.Helper()
	servicetest.Pass(limit)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range vouchers {
		check.Need(t, !w.ended[id].IsZero(), "%s waits still", id)
	}
	check.Equal(t, "waits that have ended", len(w.ended), len(vouchers))
}

// Together a thousand rebuilds ask some hundred times a second. Each ends in its turn, waits beside a few as briefly as
// alone, and ignores later messages.
func TestRebuildsWaitInTurns(t *testing.T) {
	t.Parallel()
	for _, rebuilds := range []int{1, 5, 1000} {
		besideWaits(t, rebuilds, func(t *testing.T, w *floorWaits) {
			servicetest.Pass(10 * time.Second)
			before := w.asked()
			servicetest.Pass(30 * time.Second)
			each := (w.asked() - before) / 30
			check.That(t, each <= min(210, 20*rebuilds), "%d questions a second", each)
			w.publish("v0")
			w.acknowledge("v0")
			turn := max(budget.Blink, time.Duration(rebuilds)*floorShare) + 10*time.Millisecond
			w.within(t, turn, "v0")
			w.acknowledge(w.vouchers[1:]...)
			w.within(t, turn, w.vouchers...)
		})
	}
	besideWaits(t, 100, func(t *testing.T, w *floorWaits) {
		w.acknowledge(w.vouchers...)
		w.within(t, time.Minute)
		w.publish(model.AnyVoucher) // behind the barrier
		w.acknowledge(model.AnyVoucher)
		w.within(t, time.Second, w.vouchers...)
	}, model.AnyVoucher)
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
