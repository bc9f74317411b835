// Package backlog watches the queue of accepted orders. A sale asks the one Watch of a process before it promises an
// order (Refusal, Empty), and a rebuild waits for it (Await).
package backlog

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// unknownAfter is how long the queue may be silent before orders are refused: an election, or a restart.
	unknownAfter = 3 * budget.Look
	// readShare limits readings of waiting vouchers to a tenth of the time (10,000 take 10 ms), within unknownAfter.
	readShare = 10
	// maxAsked, and budget.Brief, bound the questions about single vouchers in one look: each takes 1 to 2 ms.
	maxAsked = 200
	// floorShare is the average pause between questions of all waiting rebuilds: a lost Redis causes a thousand.
	floorShare = budget.Blink / 10
)

// Queue is what a look asks of the order queue.
type Queue interface {
	Backlog(ctx context.Context) (model.Backlog, error)
	// Waiting counts the messages of every voucher at once; model.AnyVoucher's are those that all share.
	Waiting(ctx context.Context) (map[string]int64, error)
	// BacklogOf is Backlog of one voucher's possible messages; the last sequence is all's. AnyVoucher: the shared.
	BacklogOf(ctx context.Context, voucherID string) (model.Backlog, error)
}

// Watch knows how long orders wait in the queue, so that none is promised that could not be made soon. While the oldest
// message is young enough, nothing else matters. Otherwise each voucher is judged by the oldest message that all share
// and by its own oldest, so that one sale stops no other:
//
//   - One reading names all vouchers that have messages of their own.
//   - A voucher's messages are younger than the last reading that did not name it. When that is long ago, the voucher's
//     oldest message is asked for, and the answer counts until that message would be too old.
//   - A voucher of unknown age may go on until its turn to be asked, unless the queue does not tell ages at all.
//
// While the queue does not tell its backlog, orders are refused before they are reserved: each would take a unit for a
// user who gets no answer, and the reconciler would publish all of them again at once.
type Watch struct {
	queue   Queue
	maxAge  time.Duration
	latest  atomic.Pointer[seen] // of the whole queue
	trouble telemetry.Trouble
	metrics *telemetry.Admission
	log     *slog.Logger

	mu      sync.RWMutex
	read    time.Time         // before the queue named those that wait; zero: it has not yet
	done    time.Time         // everything shared from before it was consumed before that
	waiting map[string]*waits // those it named
	took    time.Duration     // by the last reading; 0: it failed
	silent  time.Time         // since when the queue tells no voucher's age; zero: it does

	floors atomic.Int32              // how many wait for the consumer
	blind  telemetry.Trouble         // theirs
	asked  atomic.Pointer[time.Time] // when somebody last wanted to know of a voucher's messages
}

type waits struct {
	young  time.Time     // none of its messages is older than that; zero: they may be of any age
	age    time.Duration // of its oldest message, as of told
	told   time.Time     // zero: not yet
	tried  time.Time     // when the queue was asked last, with an answer or without
	wanted atomic.Bool   // a request was judged since then
}

type seen struct {
	model.Backlog

	at    time.Time // before the queue was asked
	asked bool      // it was
}

// New makes a watch; Run keeps it up to date. MaxAge of its oldest message refuses a voucher's further orders.
func New(queue Queue, maxAge time.Duration, metrics *telemetry.Admission, log *slog.Logger) *Watch {
	w := &Watch{queue: queue, maxAge: maxAge, metrics: metrics, log: log}
	// This instance's start has just reached the queue, and nobody has counted what is in it.
	w.latest.Store(&seen{Backlog: model.Backlog{Messages: 1}, at: time.Now()})
	return w
}

// Run looks at the queue until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	_ = poll.Until(ctx, budget.Glance, func() (done bool, _ error) {
		if err := w.look(ctx); ctx.Err() == nil {
			w.trouble.Note(ctx, w.log, err, "the queue does not tell its backlog; before long orders are refused",
				"the queue tells its backlog again")
		}
		return false, nil
	})
}

// look asks for the oldest message of all, and for single vouchers once that is half as old as it may be.
func (w *Watch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Look)
	defer cancel()
	asked := time.Now()
	backlog, err := w.queue.Backlog(ctx)
	aging := backlog.Age > w.maxAge/2
	if err == nil && aging {
		err = w.readWaiting(ctx)
	}
	if err != nil {
		w.metrics.Known.Set(0)
		return err
	}
	w.metrics.Backlog(backlog.Age, backlog.Messages)
	w.latest.Store(&seen{backlog, asked, true})
	if aging {
		return w.askInTurn(ctx)
	}
	if last := w.asked.Load(); last != nil && time.Since(*last) < budget.Answer {
		return w.readWaiting(ctx)
	}
	return nil
}

// readWaiting learns which vouchers have messages; new ones have only younger messages. One goroutine calls it.
func (w *Watch) readWaiting(ctx context.Context) error {
	asked := time.Now()
	if asked.Sub(w.read) < min(readShare*w.took, budget.Look) {
		return nil
	}
	done := w.sharedDone()
	named, err := w.queue.Waiting(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.took = 0; err != nil {
		return err
	}
	w.took = time.Since(asked)
	waiting := make(map[string]*waits, len(named))
	for id := range named {
		if waiting[id] = w.waiting[id]; waiting[id] == nil {
			waiting[id] = &waits{young: w.read}
		}
	}
	w.waiting, w.read, w.done = waiting, asked, done
	return nil
}

// sharedDone is the time before which all shared messages are consumed, as the oldest of all, or of these, tells.
func (w *Watch) sharedDone() time.Time {
	var done time.Time
	if all := w.latest.Load(); all.asked {
		done = all.at.Add(-all.Age) // of no message it is 0
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	if shared := w.waiting[model.AnyVoucher]; shared != nil && shared.young.After(done) {
		done = shared.young
	}
	return done
}

// askInTurn asks for the oldest messages of due vouchers within the look's share of time. Silence holds up none.
func (w *Watch) askInTurn(ctx context.Context) error {
	began, told := time.Now(), 0
	var failed error
	due := w.due()
	for _, id := range due {
		if ctx.Err() != nil || time.Since(began) > budget.Brief {
			break
		}
		asked := time.Now()
		own, err := w.queue.BacklogOf(ctx, id)
		failed = cmp.Or(failed, err)
		if err == nil {
			told++
		}
		w.note(id, asked, own, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case told > 0 || len(due) == 0:
		w.silent = time.Time{}
	case w.silent.IsZero():
		w.silent = began
	}
	return failed
}

// note remembers what the queue told of a voucher, unless that has no messages any more.
func (w *Watch) note(id string, asked time.Time, own model.Backlog, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.waiting[id]
	if v == nil {
		return
	}
	v.tried = asked
	v.wanted.Store(false)
	if err == nil {
		v.age, v.told, v.young = own.Age, asked, asked.Add(-own.Age)
	}
}

// due lists the vouchers with messages that may be half too old: requested ones first, then those asked longest ago.
func (w *Watch) due() []string {
	type candidate struct {
		id     string
		wanted bool
		tried  time.Time
	}
	var due []candidate
	w.mu.RLock()
	defer w.mu.RUnlock()
	for id, v := range w.waiting {
		if time.Since(v.young) > w.maxAge/2 {
			due = append(due, candidate{id, v.wanted.Load(), v.tried})
		}
	}
	slices.SortFunc(due, func(a, b candidate) int {
		if a.wanted != b.wanted {
			return map[bool]int{true: -1, false: 1}[a.wanted]
		}
		return a.tried.Compare(b.tried)
	})
	ids := make([]string, min(len(due), maxAsked))
	for i := range ids {
		ids[i] = due[i].id
	}
	return ids
}

// judge tells how much too old a voucher's oldest message is. Untold: it may be, and the queue does not tell its age.
func (w *Watch) judge(voucherID string) (late time.Duration, untold bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, id := range []string{voucherID, model.AnyVoucher} {
		v := w.waiting[id]
		if v == nil {
			continue
		}
		v.wanted.Store(true)
		// What was said counts until those who heard it have come again.
		if v.age > w.maxAge && time.Since(v.told) < budget.Settled {
			late = max(late, v.age-w.maxAge)
		}
		untold = untold || time.Since(v.young) > w.maxAge
	}
	return late, untold && !w.silent.IsZero() && time.Since(w.silent) > unknownAfter
}

// Refusal says why no order of a voucher may be promised now; nil while it may be.
func (w *Watch) Refusal(voucherID string) error {
	all := w.latest.Load()
	var late time.Duration
	untold := time.Since(all.at) > unknownAfter
	if all.Age > w.maxAge {
		var own bool
		late, own = w.judge(voucherID)
		untold = untold || own
	}
	switch {
	case late > 0:
		w.metrics.Refused.Inc()
		refused := model.Unavailable("Too many orders are waiting to be made.", nil)
		refused.RetryAfter = min(max(late, time.Second), budget.Settled)
		return refused
	case untold:
		w.metrics.Refused.Inc()
		return model.Unavailable("The queue of orders cannot be reached.", nil)
	default:
		return nil
	}
}

// Younger reports whether no message is known to be as old as that. A late or failed look lets them age.
func (w *Watch) Younger(age time.Duration) bool {
	seen := w.latest.Load()
	return seen.asked && seen.Age+time.Since(seen.at) < age
}

// Empty reports whether a voucher is known to have no message that old: its sale has been over for so long.
func (w *Watch) Empty(voucherID string, age time.Duration) bool {
	if seen := w.latest.Load(); seen.Messages == 0 {
		return time.Since(seen.at) < unknownAfter
	}
	now := time.Now()
	w.asked.Store(&now)
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.waiting[voucherID] == nil && now.Sub(w.read) < unknownAfter && now.Sub(w.done) < age
}

// Await waits until a voucher's messages up to a sequence are acknowledged. It fails with ctx, or after failed looks.
func (w *Watch) Await(ctx context.Context, voucherID string, sequence uint64) error {
	w.floors.Add(1)
	defer w.floors.Add(-1)
	seen := time.Now() // when the queue last answered
	for {
		asked := time.Now()
		backlog, failed := w.queue.BacklogOf(ctx, voucherID)
		if failed == nil {
			seen = asked
			if backlog.LastSequence < sequence {
				return fmt.Errorf("the queue ends at %d and had %d: it is another one", backlog.LastSequence, sequence)
			}
			if backlog.AckFloor >= sequence { // and those before it are acknowledged too
				return nil
			}
		}
		if failed != nil && time.Since(seen) > budget.Answer {
			return fmt.Errorf("wait for the queue, which does not tell how far it has come: %w", failed)
		}
		if ctx.Err() == nil {
			w.blind.Note(ctx, w.log, failed, "rebuilds cannot see how far the queue has come, and wait",
				"rebuilds see again how far the queue has come", slog.String("voucher_id", voucherID))
			poll.Pause(ctx, max(budget.Blink, time.Duration(w.floors.Load())*floorShare))
		}
		switch {
		case ctx.Err() == nil:
		case failed != nil:
			return fmt.Errorf("wait for the queue: %w; the last look at it failed: %w", context.Cause(ctx), failed)
		default:
			return fmt.Errorf("wait for the queue: %w", context.Cause(ctx))
		}
	}
}
