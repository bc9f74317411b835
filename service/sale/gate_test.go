package sale

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/lane"
	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// A request that has the user's lock and finds the gate full until its time is over gives the lock back: the user may
// try again at once.
func TestAFullGateKeepsNoLock(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.keys.Busy = "lock:order:alice"
		time.AfterFunc(500*time.Millisecond, func() {
			for range maxCommittingOne { // others enter while alice's request waits for its lock
				check.Must(t, check.ErrorOf(s.gate.enter(t.Context(), "v1")))
			}
			s.keys.With(func(l *servicetest.Locks) { l.Busy = "" })
		})
		_ = s.unavailable(t, "alice")
		check.Equal(t, "the lock is held", s.keys.Holds("alice"), false)
		check.Equal(t, "locks taken", s.keys.Taken.Load(), 1)
		for range maxCommittingOne {
			s.gate.leave("v1")
		}
		check.Must(t, check.ErrorOf(s.Place(t.Context(), "alice", "v1")))
		check.Equal(t, "places that are taken", len(s.gate.places.taken), 0)
	})
}

// Whoever owns the lock gives it back once; who has handed it over gives nothing back, and never had one lost.
func TestTheOwnerOfALockAloneReleasesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := servicetest.NewLocks()
		first := &hold{locks: locks, metrics: telemetry.New(prometheus.NewRegistry()), log: slog.New(slog.DiscardHandler), userID: "alice"}
		first.release(t.Context())
		check.Equal(t, "given back before it was taken", locks.Released.Load(), 0)
		locks.Lost = true
		check.Must(t, first.take(t.Context(), 0))
		check.That(t, first.taken() && first.lost() != nil, "taken %v, lost %v", first.taken(), first.lost())
		second := first.handOver()
		first.release(t.Context())
		check.That(t, !first.taken() && first.lost() == nil && second.taken() && locks.Holds("alice"), "after the handover: %+v, %+v", first, second)
		second.release(t.Context())
		second.release(t.Context())
		check.Equal(t, "given back in the end", locks.Released.Load(), 1)
	})
}

// A burst is served. When one and a half times as much is asked as can be served, what is too much is refused at once,
// what is served does not wait long, and no place is left empty. When less is asked, all are served again.
func TestALastingOverloadIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const serves = 10 * time.Millisecond // with one place
		g := newGate(8, 1)
		var mu sync.Mutex
		var served, refused int
		var longest, longestRefusal time.Duration
		var requests sync.WaitGroup
		ask := func() {
			requests.Go(func() {
				began := time.Now()
				_, err := g.enter(t.Context(), "hot")
				took := time.Since(began)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					check.Equal(t, "the refusal", model.CodeOf(lane.Undone("", err)), model.CodeUnavailable)
					refused++
					longestRefusal = max(longestRefusal, took)
					return
				}
				served++
				longest = max(longest, took)
				time.AfterFunc(serves, func() { g.leave("hot") })
			})
		}
		asks := func(count int, every time.Duration) {
			served, refused, longest = 0, 0, 0
			for range count {
				ask()
				servicetest.Pass(every)
			}
			requests.Wait()
			servicetest.Pass(serves)
		}
		asks(200, 0)
		check.That(t, served == 200 && refused == 0, "a burst: %d served, %d refused", served, refused)

		const asked = 1500 // in 10 s, in which 1000 can be served
		asks(asked, 2*serves/3)
		check.That(t, served >= 1000 && served+refused == asked, "an overload: %d served, %d refused", served, refused)
		check.That(t, longest < 500*time.Millisecond && longestRefusal == 0, "who was served waited %v, who was refused %v", longest, longestRefusal)

		asks(100, serves)
		check.That(t, served == 100 && longest == 0, "afterwards: %d served, the longest wait %v", served, longest)
	})
}

// backlogEvery is between two looks of the watch at the queue.
const backlogEvery = 250 * time.Millisecond

func TestOldBacklogPromisesNothing(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.buys(t, "alice")
		for age, wait := range map[time.Duration]time.Duration{
			30*time.Second + time.Millisecond: time.Second, // 30 s is the limit
			35 * time.Second:                  5 * time.Second,
			time.Hour:                         30 * time.Second,
		} {
			s.line.with(func() { s.line.backlog = model.Backlog{Age: age, Messages: 7} })
			servicetest.Pass(backlogEvery + time.Millisecond)
			before := s.hot.Calls("Reserve")
			check.Equal(t, fmt.Sprint("when to come again to a backlog that is old ", age), s.refused(t, "bob", model.CodeUnavailable).RetryAfter, wait)
			check.Equal(t, "calls for a unit", s.hot.Calls("Reserve"), before)
		}
		s.line.with(func() { s.line.backlog.Age = 30 * time.Second })
		servicetest.Pass(backlogEvery + time.Millisecond)
		s.buys(t, "bob")
	})
}

// What is known without the queue is told whatever its state is.
func TestOldBacklogHidesNoOtherAnswer(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		order := s.buys(t, "alice")
		s.line.with(func() { s.line.backlog.Age = time.Hour })
		servicetest.Pass(backlogEvery + time.Millisecond)
		refused := s.refused(t, "alice", model.CodeAlreadyOrdered)
		check.That(t, refused.OrderID == order.ID && refused.OrderStatus == model.OrderProcessing, "%+v, want %s", refused, order.ID)
		s.refused(t, "bob", model.CodeUnavailable)
		s.sale.Set("end_us", time.Now().UnixMicro())
		servicetest.Pass(900 * time.Millisecond)
		s.refused(t, "bob", model.CodeEnded)
	})
}

func TestQueueThatIsAwayPromisesNothingAfterAFewSeconds(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		servicetest.Pass(time.Minute)
		s.line.with(func() { s.line.away = errors.New("no responders") })
		servicetest.Pass(3*time.Second - 2*backlogEvery)
		s.buys(t, "alice") // a leader is elected, a server restarts
		servicetest.Pass(3 * backlogEvery)
		before := s.hot.Calls("Reserve")
		s.refused(t, "bob", model.CodeUnavailable)
		check.Equal(t, "calls for a unit", s.hot.Calls("Reserve"), before)
		s.line.with(func() { s.line.away = nil })
		servicetest.Pass(backlogEvery + time.Millisecond)
		s.buys(t, "bob")
	})
}

// The oldest message is of another voucher: this one sells on, and refuses for its own messages only.
func TestOldBacklogOfAnotherVoucherRefusesNothing(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.line.with(func() {
			s.line.backlog = model.Backlog{Age: time.Hour, Messages: 7}
			s.line.own = map[string]model.Backlog{"v0": {Age: time.Hour, Messages: 5}, "v1": {Age: time.Second, Messages: 2}}
		})
		servicetest.Pass(backlogEvery + time.Millisecond)
		for i := range 8 {
			s.buys(t, fmt.Sprint("user", i))
			servicetest.Pass(time.Second / 2)
		}
		s.line.with(func() { s.line.own["v1"] = model.Backlog{Age: 40 * time.Second, Messages: 2} })
		servicetest.Pass(15 * time.Second) // it was known that none of its messages could be half as old as it may be
		check.Equal(t, "when to come again", s.refused(t, "bob", model.CodeUnavailable).RetryAfter, 10*time.Second)
		s.line.with(func() { s.line.own["v1"] = model.Backlog{} })
		servicetest.Pass(backlogEvery + time.Millisecond)
		s.buys(t, "bob")
	})
}

// While everybody is refused, those who ask share the calls to the hot copy.
func TestOldBacklogAsksTheHotCopyForManyAtOnce(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.buys(t, "alice")
		s.line.with(func() { s.line.backlog.Age = time.Hour })
		servicetest.Pass(2*backlogEvery + time.Millisecond)
		var asking sync.WaitGroup
		for i := range 300 {
			asking.Go(func() { s.refused(t, fmt.Sprint("user", i), model.CodeUnavailable) })
		}
		asking.Wait()
		s.refused(t, "alice", model.CodeAlreadyOrdered)
		if calls := s.hot.Calls("OrdersOf"); calls == 0 || calls > 20 {
			t.Errorf("%d calls for 301 requests", calls)
		}
	})
}
