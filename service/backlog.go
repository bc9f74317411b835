package service

import (
	"context"
	"log/slog"
	"maps"
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
	// backlogAskedFor is how long a voucher is looked at after the latest request
	// for it.
	backlogAskedFor = 5 * time.Second
	// backlogVouchers bounds the vouchers of one look, which take a millisecond each.
	// Those whose backlog is known for the longest time come first.
	backlogVouchers = 200
	// maxBacklogVouchers bounds the vouchers that are remembered at all.
	maxBacklogVouchers = 10_000
	// maxBacklogRetry bounds what clients are told to wait: a backlog of hours
	// may be gone in minutes.
	maxBacklogRetry = 30 * time.Second
)

// backlogWatch knows how long orders wait in the queue, so that no order is
// promised that could not be made soon. While the oldest message of all is young
// enough, nothing else matters. Otherwise each voucher that is asked for is judged
// by its own oldest message, so that one sale's orders stop no other sale.
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

	mu       sync.Mutex
	vouchers map[string]*backlogOfVoucher // those that are asked for
}

type backlogOfVoucher struct {
	asked time.Time    // by the latest request
	seen  *backlogSeen // nil until the first look
}

// backlogSeen is one look at the queue.
type backlogSeen struct {
	model.Backlog

	at time.Time // before the queue was asked
}

func newBacklogWatch(
	queue Queue, maxAge time.Duration, metrics *telemetry.Admission, log *slog.Logger,
) *backlogWatch {
	w := &backlogWatch{queue: queue, maxAge: maxAge, metrics: metrics, log: log, vouchers: map[string]*backlogOfVoucher{}}
	w.latest.Store(&backlogSeen{at: time.Now()}) // this instance's start has just reached the queue
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
	w.latest.Store(&backlogSeen{backlog, asked})
	for _, id := range w.wanted() {
		asked := time.Now()
		own, err := w.queue.BacklogOf(ctx, id)
		if err != nil {
			return err
		}
		w.mu.Lock()
		if v := w.vouchers[id]; v != nil {
			v.seen = &backlogSeen{own, asked}
		}
		w.mu.Unlock()
	}
	return nil
}

// wanted lists the vouchers whose backlog is to be looked at now.
func (w *backlogWatch) wanted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.vouchers, func(_ string, v *backlogOfVoucher) bool { return time.Since(v.asked) > backlogAskedFor })
	lastSeen := func(id string) time.Time {
		if seen := w.vouchers[id].seen; seen != nil {
			return seen.at
		}
		return time.Time{}
	}
	ids := slices.SortedFunc(maps.Keys(w.vouchers), func(a, b string) int { return lastSeen(a).Compare(lastSeen(b)) })
	return ids[:min(len(ids), backlogVouchers)]
}

// of is what the latest look saw of one voucher's messages; nil before the first
// look. It asks for further looks.
func (w *backlogWatch) of(voucherID string) *backlogSeen {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.vouchers[voucherID]
	if v == nil {
		if len(w.vouchers) >= maxBacklogVouchers {
			return nil
		}
		v = &backlogOfVoucher{}
		w.vouchers[voucherID] = v
	}
	v.asked = time.Now()
	return v.seen
}

// refusal says why no order of a voucher may be promised now; nil while it may be.
func (w *backlogWatch) refusal(voucherID string) error {
	all := w.latest.Load()
	seen := all
	if all.Age > w.maxAge {
		seen = w.of(voucherID)
	}
	if seen == nil { // until the first look, the oldest message may be this voucher's
		seen = all
	}
	switch late := seen.Age - w.maxAge; {
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

// empty reports whether a voucher is known to have no message in the queue.
func (w *backlogWatch) empty(voucherID string) bool {
	seen := w.latest.Load()
	if seen.Messages > 0 {
		seen = w.of(voucherID)
	}
	return seen != nil && seen.Messages == 0 && time.Since(seen.at) < backlogUnknownAfter
}
