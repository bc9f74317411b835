package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

type calendar struct {
	mu       sync.Mutex
	unpaid   map[string]model.OverdueOrder
	paying   map[string]bool
	expired  map[string]time.Time
	batches  int
	returned map[string]int
	took     time.Duration   // of one transaction
	stuck    map[string]bool // vouchers whose transactions fail, after stuckFor
	asked    int
	answers  time.Duration // after which the provider answers
	locks    *servicetest.Locks
	provider func(orderID string) error
	counts   error         // of the waitlists
	lapses   atomic.Int64  // looks for codes whose time has ended
	ahead    time.Duration // the database's clock
	log      check.Log
}

const stuckFor = 4 * time.Second

const testWindow = 15 * time.Minute

func (l *calendar) with(work func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	work()
}

func (l *calendar) Clock(context.Context) (now time.Time, err error) {
	l.with(func() { now = time.Now().Add(l.ahead) })
	return now, nil
}

func newCalendar() *calendar {
	return &calendar{
		unpaid: map[string]model.OverdueOrder{}, paying: map[string]bool{}, expired: map[string]time.Time{},
		returned: map[string]int{}, stuck: map[string]bool{}, took: time.Millisecond,
		locks: servicetest.NewLocks(),
	}
}

func (l *calendar) add(voucherID string, orders int, after time.Duration) {
	for i := range orders {
		id := fmt.Sprintf("%06d.%s", i, voucherID)
		l.unpaid[id] = model.OverdueOrder{ID: id, VoucherID: voucherID, ExpiresAt: time.Now().Add(after)}
	}
}

func (l *calendar) Lapse(context.Context) error { l.lapses.Add(1); return nil }

func (l *calendar) Waitlists(context.Context) (waiting, held int64, err error) { return 3, 2, l.counts }

func (l *calendar) Overdue(
	_ context.Context, paying bool, last model.OverdueOrder, limit int,
) ([]model.OverdueOrder, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due []model.OverdueOrder
	for _, order := range l.unpaid {
		order.Overdue, order.Window = time.Since(order.ExpiresAt)+l.ahead, testWindow
		behind := order.ExpiresAt.After(last.ExpiresAt) || order.ExpiresAt.Equal(last.ExpiresAt) && order.ID > last.ID
		if order.Overdue >= 0 && behind && l.paying[order.ID] == paying {
			due = append(due, order)
		}
	}
	slices.SortFunc(due, func(a, b model.OverdueOrder) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID))
	})
	return due[:min(limit, len(due))], nil
}

func (l *calendar) Expire(ctx context.Context, ids []string) ([]model.Order, error) {
	voucherID, _ := model.VoucherOf(ids[0])
	var stuck bool
	if l.with(func() { stuck = l.stuck[voucherID] }); stuck {
		servicetest.Pass(stuckFor)
		return nil, errors.New("the voucher's row is locked")
	}
	servicetest.Pass(l.took)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches++
	var expired []model.Order
	for _, id := range ids {
		if order, ok := l.unpaid[id]; ok {
			delete(l.unpaid, id)
			l.expired[id] = time.Now()
			expired = append(expired, model.Order{ID: id, VoucherID: order.VoucherID})
		}
	}
	return expired, ctx.Err()
}

func (l *calendar) Started(_ context.Context, orderIDs []string) ([]model.Payment, error) {
	payments := make([]model.Payment, len(orderIDs))
	for i, id := range orderIDs {
		payments[i] = model.Payment{ID: "p" + id, OrderID: id}
	}
	return payments, nil
}

func (l *calendar) Ask(ctx context.Context, payment model.Payment) error {
	l.with(func() { l.asked++ })
	if poll.Pause(ctx, l.answers); ctx.Err() != nil {
		return ctx.Err()
	}
	return l.provider(payment.OrderID)
}

type seen struct {
	expired        map[string]time.Time
	returned       map[string]int
	batches, asked int
}

func (l *calendar) look() (now seen) {
	synctest.Wait()
	l.with(func() { now = seen{maps.Clone(l.expired), maps.Clone(l.returned), l.batches, l.asked} })
	return now
}

func expiring(t *testing.T, test func(t *testing.T, l *calendar, run func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newCalendar()
		e := &Expiry{
			Store: l, Provider: l, Metrics: telemetry.NewExpiry(prometheus.NewRegistry()), Log: l.log.Logger(),
			Announce: func(_ context.Context, voucherID string) error {
				l.with(func() { l.returned[voucherID]++ })
				return nil
			},
		}
		by := electing(l.locks)
		by.Log = e.Log
		e.Clocks = &Clocks{
			Database: l.Clock, Redis: l.Clock, Metrics: telemetry.NewClocks(prometheus.NewRegistry()),
			Log: l.log.Logger(),
		}
		check.Running(t, e.Clocks.Run)
		test(t, l, func() { check.Running(t, func(ctx context.Context) { e.Run(ctx, by) }) })
	})
}

func TestExpiredWithinASecond(t *testing.T) {
	t.Parallel()
	expiring(t, func(t *testing.T, l *calendar, run func()) {
		l.add("v1", 3, 5*time.Second)
		l.add("v2", 2*expiryBatch+1, 5*time.Second)
		l.add("v3", 1, time.Hour)
		due := time.Now().Add(5 * time.Second)
		run()
		servicetest.Pass(4900 * time.Millisecond)
		check.Equal(t, "expired before their time", len(l.look().expired), 0)
		servicetest.Pass(1100 * time.Millisecond)
		for id, at := range l.look().expired {
			check.That(t, !at.Before(due) && !at.After(due.Add(time.Second)), "order %s was due %s and expired %s", id,
				due, at)
		}
		check.Equal(t, "expired", len(l.look().expired), 3+2*expiryBatch+1)
		check.Equal(t, "transactions", l.look().batches, 1+3)
		told := l.look().returned
		check.That(t, told["v1"] > 0 && told["v2"] > 0 && told["v3"] == 0, "told of %v", told)
	})
}

func TestTheLogNamesTheLookThatFails(t *testing.T) {
	t.Parallel()
	expiring(t, func(t *testing.T, l *calendar, run func()) {
		l.counts = errors.New("the database is away")
		run()
		servicetest.Pass(time.Minute)
		l.look()
		check.Equal(t, "a failure of the waitlists is logged",
			l.log.Has("the waitlists could not be counted", "the database is away"), true)
		check.Equal(t, "looks for codes whose time has ended", l.lapses.Load(), int64(2))
		check.Equal(t, "a failure of expiry is logged", l.log.Has("orders could not be expired"), false)
	})
}

// Expiry rests to leave the machine to a sale, except where orders would expire too late.
func TestExpiryRestsWhileItHasTime(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		orders      int
		took        time.Duration
		least, most time.Duration // from the first order to the last one
	}{
		"time enough": {4 * expiryBatch, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond},
		"late":        {40 * expiryBatch, 300 * time.Millisecond, budget.Answer, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expiring(t, func(t *testing.T, l *calendar, run func()) {
				l.took = tt.took
				l.add("v1", tt.orders, time.Second)
				due := time.Now().Add(time.Second)
				run()
				servicetest.Pass(time.Minute)
				expired := l.look().expired
				check.Equal(t, "expired", len(expired), tt.orders)
				times := slices.SortedFunc(maps.Values(expired), time.Time.Compare)
				first, last := times[0], times[len(times)-1]
				check.That(t, last.Sub(first) >= tt.least && last.Sub(due) <= tt.most+time.Second,
					"the first one expired after %s, the last one after %s", first.Sub(due), last.Sub(due))
			})
		})
	}
}

// A voucher whose row is locked holds up no other one, not even when its orders fill the first pages.
func TestAVoucherInTroubleHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	expiring(t, func(t *testing.T, l *calendar, run func()) {
		l.stuck["v0"] = true
		l.add("v0", 3*expiryPage, time.Second)
		l.add("v1", 10, 2*time.Second)
		due := time.Now().Add(2 * time.Second)
		run()
		servicetest.Pass(stuckFor + 3*time.Second)
		check.Equal(t, "expired", len(l.look().expired), 10)
		for id, at := range l.look().expired {
			check.That(t, !at.After(due.Add(stuckFor)), "order %s waited %s", id, at.Sub(due))
		}
		l.with(func() { delete(l.stuck, "v0") })
		servicetest.Pass(20 * time.Second)
		check.Equal(t, "expired in the end", len(l.look().expired), 10+3*expiryPage)
	})
}

func TestTheProviderIsAskedFirst(t *testing.T) {
	t.Parallel()
	expiring(t, func(t *testing.T, l *calendar, run func()) {
		l.add("v1", 4, time.Second)
		paid, open, unknown := "000001.v1", "000002.v1", "000003.v1"
		l.paying = map[string]bool{paid: true, open: true, unknown: true}
		l.provider = func(orderID string) error {
			switch orderID {
			case paid:
				l.with(func() { delete(l.unpaid, orderID) })
			case unknown:
				return errors.New("no answer")
			}
			return nil
		}
		began := time.Now()
		run()
		servicetest.Pass(3 * time.Second)
		now := l.look()
		check.That(t, len(now.expired) == 2 && !now.expired[open].IsZero() && !now.expired["000000.v1"].IsZero() &&
			now.asked >= 3, "%+v", now)
		servicetest.Pass(2 * budget.Survey)
		waited := l.look().expired[unknown].Sub(began)
		check.That(t, waited >= budget.Survey && waited <= budget.Survey+10*time.Second,
			"an order whose payment nobody knows expired after %s", waited)
		check.That(t, l.look().expired[paid].IsZero(), "a paid order expired")
	})
}

// A slow or hanging provider holds back no more than one look's orders: its answers, or a long wait, end them.
func TestASlowProviderHoldsNoOrderForEver(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"slow": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expiring(t, func(t *testing.T, l *calendar, run func()) {
				const orders = expiryPage + 1
				l.add("v1", orders, 0)
				for id := range l.unpaid {
					l.paying[id] = true
				}
				l.answers = 200 * time.Millisecond
				l.provider = func(string) error { return nil }
				if hangs {
					l.answers = 3 * time.Second
					l.provider = func(string) error { return context.DeadlineExceeded }
				}
				run()
				servicetest.Pass(budget.Survey - time.Second)
				early := len(l.look().expired)
				check.That(t, (early > 0) != hangs, "%d orders expired within %s", early, budget.Survey)
				servicetest.Pass(budget.Settled)
				check.Equal(t, "expired in the end", len(l.look().expired), orders)
			})
		})
	}
}

// An election only saves work: orders expire without one. An instance that knows another as elected stays away.
func TestExpiryWhileNobodyCanBeElected(t *testing.T) {
	t.Parallel()
	expiring(t, func(t *testing.T, l *calendar, run func()) {
		l.locks.Err = errors.New("no Redis")
		l.add("v1", 3, 0)
		l.add("v2", 3, time.Minute)
		run()
		servicetest.Pass(5 * time.Second)
		check.Equal(t, "expired at first", len(l.look().expired), 3)
		servicetest.Pass(time.Minute)
		check.Equal(t, "expired a minute later", len(l.look().expired), 6)
		l.with(func() { l.add("v3", 3, 2*budget.Settled) })
		l.locks.With(func(k *servicetest.Locks) { k.Err, k.Busy = nil, "seckill:expiry:test" })
		servicetest.Pass(3 * budget.Settled)
		check.Equal(t, "expired by one that is not elected", len(l.look().expired), 6)
	})
}

// The database's clock leaps ahead by more than a payment window: whether it comes back or stays, each order has its
// window. Guards: robbed, and saw's leapt.
func TestALeapOfTheDatabasesClockExpiresNoOrder(t *testing.T) {
	t.Parallel()
	const leap = time.Hour
	set := func(l *calendar, ahead time.Duration) { l.with(func() { l.ahead = ahead }) }
	expiring(t, func(t *testing.T, l *calendar, run func()) {
		l.add("v1", 3, testWindow)
		l.add("paid for", 1, testWindow)
		l.paying["000000.paid for"], l.provider = true, func(string) error { return nil }
		run()
		servicetest.Pass(time.Minute)
		set(l, leap)
		servicetest.Pass(3 * time.Second)
		set(l, 0)
		check.Equal(t, "expired by three seconds of a wrong clock", len(l.look().expired), 0)
		servicetest.Pass(13 * time.Minute)
		check.Equal(t, "expired too early", len(l.look().expired), 0)
		servicetest.Pass(time.Minute)
		check.Equal(t, "expired in time", len(l.look().expired), 4)
	})
	expiring(t, func(t *testing.T, l *calendar, run func()) {
		l.add("v1", 3, testWindow)
		run()
		servicetest.Pass(time.Minute)
		set(l, leap)
		servicetest.Pass(testWindow - time.Minute)
		check.Equal(t, "expired before it had its time", len(l.look().expired), 0)
		servicetest.Pass(2 * time.Minute)
		check.Equal(t, "expired by a clock that stays ahead", len(l.look().expired), 3)
	})
}
