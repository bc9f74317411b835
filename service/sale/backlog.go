package sale

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// backlogEvery is between two looks at the queue. Orders are refused by so much
	// later than the age exceeds its limit.
	backlogEvery = 250 * time.Millisecond
	// backlogTimeout bounds one look.
	backlogTimeout = time.Second
	// backlogUnknownAfter is how long the queue may fail to tell its backlog before
	// orders are refused: time to elect a leader or to restart, in which clients
	// wait rather than come again.
	backlogUnknownAfter = 3 * time.Second
	// backlogReadShare and backlogReadMost keep the readings of which vouchers wait to a
	// tenth of the time: with 10,000 of them one takes 10 ms. They come often enough
	// all the same not to be older than backlogUnknownAfter.
	backlogReadShare = 10
	backlogReadMost  = time.Second
	// backlogAskedFor is how long after somebody asked whether a voucher has messages the
	// readings go on although no message is old.
	backlogAskedFor = 5 * time.Second
	// backlogTurn and backlogVouchers bound what one look asks of single vouchers, a
	// millisecond or two each: so that the look at all of them comes in time, and so that the
	// queue bears it.
	backlogTurn     = 500 * time.Millisecond
	backlogVouchers = 200
	// maxBacklogRetry bounds what clients are told to wait: a backlog of hours
	// may be gone in minutes.
	maxBacklogRetry = 30 * time.Second
)

// backlogWatch knows how long orders wait in the queue, so that no order is
// promised that could not be made soon. While the oldest message of all is young
// enough, nothing else matters. Otherwise each voucher is judged by its own oldest
// message, so that one sale's orders stop no other sale, however many sales there are:
//
//   - One reading names all vouchers that have messages. A voucher that it does not name
//     has no backlog.
//   - None of the messages of a voucher that is named is older than the reading before in
//     which it was not. It is asked for its oldest message only when that is long ago. What
//     it answers proves it to be well until the message would be too old, and refuses it
//     until the next answer.
//   - A voucher of which neither is known may go on. It is asked in its turn, which comes
//     soon, and until then the stream itself refuses what it has no room for. The age of
//     all messages would be another voucher's. It only refuses when the queue
//     names the vouchers and does not tell their ages, as a queue that cannot be asked.
//
// While the queue does not tell its backlog, orders are refused before they are
// reserved. If they were reserved no unit would be lost, because the reconciler
// publishes them again. But each of them would take a unit from a user who can be
// served later, its own user would wait as long as a publish may take, only to hear
// "unknown", and all of them would be published again in one storm.
type backlogWatch struct {
	queue   Queue
	maxAge  time.Duration
	latest  atomic.Pointer[backlogSeen] // of the whole queue
	trouble telemetry.Trouble
	metrics *telemetry.Admission
	log     *slog.Logger

	// The looks alone change these, one after the other; others read them.
	mu      sync.RWMutex
	read    time.Time // before the queue named those that wait; zero: it has not yet
	took    time.Duration
	waiting map[string]*voucherWaits // those it named
	silent  time.Time                // since when the queue tells no voucher's age; zero: it does

	asked atomic.Pointer[time.Time] // when somebody last wanted to know of a voucher's messages
}

// voucherWaits is what is known of a voucher that has messages.
type voucherWaits struct {
	young time.Time     // none of its messages is older than that; zero: they may be of any age
	age   time.Duration // of its oldest message, as of told
	told  time.Time     // zero: not yet
	tried time.Time     // when the queue was asked last, maybe in vain
	// wanted says that a request was judged since then.
	wanted atomic.Bool
}

// backlogSeen is one look at the queue.
type backlogSeen struct {
	model.Backlog

	at time.Time // before the queue was asked
}

func newBacklogWatch(
	queue Queue, maxAge time.Duration, metrics *telemetry.Admission, log *slog.Logger,
) *backlogWatch {
	w := &backlogWatch{queue: queue, maxAge: maxAge, metrics: metrics, log: log}
	// This instance's start has just reached the queue, and nobody has counted what is in it.
	w.latest.Store(&backlogSeen{model.Backlog{Messages: 1}, time.Now()})
	return w
}

// run looks at the queue until ctx ends.
func (w *backlogWatch) run(ctx context.Context) {
	_ = poll.Until(ctx, backlogEvery, func() (done bool, _ error) {
		if err := w.look(ctx); ctx.Err() == nil {
			w.trouble.Note(ctx, w.log, err, "the queue does not tell its backlog; before long orders are refused",
				"the queue tells its backlog again")
		}
		return false, nil
	})
}

// look asks for the oldest message of all, and for single vouchers only when that is half
// as old as it may be: those that are well are then known to be before it matters.
func (w *backlogWatch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, backlogTimeout)
	defer cancel()
	asked := time.Now()
	backlog, err := w.queue.Backlog(ctx)
	aging := backlog.Age > w.maxAge/2
	if err == nil && aging {
		err = w.readWaiting(ctx)
	}
	if err != nil {
		w.metrics.BacklogUnknown()
		return err
	}
	w.metrics.Backlog(backlog.Age, backlog.Messages)
	w.latest.Store(&backlogSeen{backlog, asked})
	if aging {
		return w.askInTurn(ctx)
	}
	if last := w.asked.Load(); last != nil && time.Since(*last) < backlogAskedFor {
		return w.readWaiting(ctx)
	}
	return nil
}

// readWaiting learns which vouchers have messages, and of those that had none at the
// last reading that all of theirs are younger than it.
func (w *backlogWatch) readWaiting(ctx context.Context) error {
	asked := time.Now()
	if asked.Sub(w.read) < min(backlogReadShare*w.took, backlogReadMost) {
		return nil
	}
	named, err := w.queue.Waiting(ctx)
	if err != nil {
		return err
	}
	waiting := make(map[string]*voucherWaits, len(named))
	for id := range named {
		if waiting[id] = w.waiting[id]; waiting[id] == nil {
			waiting[id] = &voucherWaits{young: w.read}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting, w.read, w.took = waiting, asked, time.Since(asked)
	return nil
}

// askInTurn asks for the oldest messages of the vouchers that are due, until the
// look's share of the time is over. One that is not answered holds up no other.
func (w *backlogWatch) askInTurn(ctx context.Context) error {
	began, told := time.Now(), 0
	var failed error
	due := w.due()
	for _, id := range due {
		if ctx.Err() != nil || time.Since(began) > backlogTurn {
			break
		}
		asked := time.Now()
		own, err := w.queue.BacklogOf(ctx, id)
		failed = cmp.Or(failed, err)
		w.mu.Lock()
		v := w.waiting[id]
		v.tried = asked
		v.wanted.Store(false)
		if err == nil {
			told++
			v.age, v.told, v.young = own.Age, asked, asked.Add(-own.Age)
		}
		w.mu.Unlock()
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

// due lists the vouchers whose oldest messages are to be asked for now: those that may
// have messages half as old as they may be. Those that requests want come first, and
// then those that were asked longest ago.
func (w *backlogWatch) due() []string {
	type candidate struct {
		id     string
		wanted bool
		tried  time.Time
	}
	var due []candidate
	for id, v := range w.waiting {
		if time.Since(v.young) > w.maxAge/2 {
			due = append(due, candidate{id, v.wanted.Load(), v.tried})
		}
	}
	slices.SortFunc(due, func(a, b candidate) int {
		switch {
		case a.wanted && !b.wanted:
			return -1
		case b.wanted && !a.wanted:
			return 1
		default:
			return a.tried.Compare(b.tried)
		}
	})
	ids := make([]string, min(len(due), backlogVouchers))
	for i := range ids {
		ids[i] = due[i].id
	}
	return ids
}

// judge tells by how much a voucher's oldest message is known to be too old. Untold says
// that it may be, and that the queue does not answer how old it is. Messages that may be
// of any voucher count as its own.
func (w *backlogWatch) judge(voucherID string) (late time.Duration, untold bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, id := range []string{voucherID, model.AnyVoucher} {
		v := w.waiting[id]
		if v == nil {
			continue
		}
		v.wanted.Store(true)
		// What was said counts until those who heard it have come again.
		if v.age > w.maxAge && time.Since(v.told) < maxBacklogRetry {
			late = max(late, v.age-w.maxAge)
		}
		untold = untold || time.Since(v.young) > w.maxAge
	}
	return late, untold && !w.silent.IsZero() && time.Since(w.silent) > backlogUnknownAfter
}

// refusal says why no order of a voucher may be promised now; nil while it may be.
func (w *backlogWatch) refusal(voucherID string) error {
	all := w.latest.Load()
	var late time.Duration
	untold := time.Since(all.at) > backlogUnknownAfter
	if all.Age > w.maxAge {
		var own bool
		late, own = w.judge(voucherID)
		untold = untold || own
	}
	switch {
	case late > 0:
		w.metrics.RefusedForBacklog()
		refused := model.Unavailable("Too many orders are waiting to be made.", nil)
		refused.RetryAfter = min(max(late, time.Second), maxBacklogRetry)
		return refused
	case untold:
		w.metrics.RefusedForBacklog()
		return model.Unavailable("The queue of orders cannot be reached.", nil)
	default:
		return nil
	}
}

// empty reports whether a voucher is known to have no message in the queue.
func (w *backlogWatch) empty(voucherID string) bool {
	if seen := w.latest.Load(); seen.Messages == 0 {
		return time.Since(seen.at) < backlogUnknownAfter
	}
	now := time.Now()
	w.asked.Store(&now)
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.waiting[voucherID] == nil && w.waiting[model.AnyVoucher] == nil && time.Since(w.read) < backlogUnknownAfter
}
