package sale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/budget"
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
			before := s.hot.Calls("reserve")
			check.Equal(t, fmt.Sprint("when to come again to a backlog that is old ", age), s.refused(t, "bob", model.CodeUnavailable).RetryAfter, wait)
			check.Equal(t, "calls for a unit", s.hot.Calls("reserve"), before)
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
		if calls := s.hot.Calls("find"); calls == 0 || calls > 20 {
			t.Errorf("%d calls for 301 requests", calls)
		}
	})
}

// Who waits is woken by the commit, and costs the database one query then.
func TestWaitEndsWithTheCommitAndPollsNothing(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]model.CopyState{"open": model.CopyOpen, "closed": model.CopyClosed} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			placed := s.buys(t, "alice")
			r := s.sale.Pending()[placed.ID]
			time.AfterFunc(350*time.Millisecond, func() { s.sale.Set("state", state) })
			time.AfterFunc(700*time.Millisecond, func() {
				row := r.Order
				row.Status = model.OrderUnpaid
				s.rows.put(row) // an open copy goes on to name the order
				s.hot.Tell("other.v1", placed.ID)
			})
			began := time.Now()
			s.shows(t, "alice", placed.ID, 10*time.Second, model.OrderUnpaid)
			servicetest.InTime(t, "woken by the commit after 700 ms", began, 710*time.Millisecond)
			check.Equal(t, "queries for the row", s.rows.queries.Load(), 1)
			check.That(t, s.seller.waiters.count == 0 && len(s.seller.waiters.byOrder) == 0, "%d are waiting still", s.seller.waiters.count)
		})
	}
}

// Messages may be lost: then the hot copy is looked at every second.
func TestWaitWithoutMessages(t *testing.T) {
	t.Parallel()
	for name, together := range map[string]int{"one": 1, "as many as a user may have": maxUserWaits} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			placed := s.buys(t, "alice")
			before := s.hot.Calls("find")
			time.AfterFunc(5500*time.Millisecond, func() { s.persist(s.sale.Pending()[placed.ID]) })
			began := time.Now()
			var waiting sync.WaitGroup
			for range together {
				waiting.Go(func() {
					s.shows(t, "alice", placed.ID, 20*time.Second, model.OrderUnpaid)
					servicetest.InTime(t, "found", began, 6100*time.Millisecond)
				})
			}
			waiting.Wait()
			check.Equal(t, "queries of the database", s.rows.queries.Load(), 1)
			if n := s.hot.Calls("find") - before; n > int64(8+together) {
				t.Errorf("the hot copy was asked %d times in 6 s, want once a second and once by each request", n)
			}
		})
	}
}

func TestSubscriptionThatWasMadeAnewWakesEverybody(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		placed := s.buys(t, "alice")
		time.AfterFunc(100*time.Millisecond, func() {
			s.persist(s.sale.Pending()[placed.ID])
			s.hot.Disconnect()
		})
		began := time.Now()
		s.shows(t, "alice", placed.ID, 20*time.Second, model.OrderUnpaid)
		servicetest.InTime(t, "woken", began, 110*time.Millisecond+resubscribing)
	})
}

// resubscribing is the pause of hotcopy before a subscription that broke is made anew.
const resubscribing = 50 * time.Millisecond

func TestWaitEndsWithWhatIsKnown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		asked   time.Duration
		prepare func(s hotShop)
		after   time.Duration
	}{
		"at its end": {2500 * time.Millisecond, func(hotShop) {}, 2500 * time.Millisecond},
		"at the cap": {time.Hour, func(hotShop) {}, budget.Settled},
		"when the server drains": {time.Minute, func(s hotShop) {
			time.AfterFunc(1500*time.Millisecond, s.StartDraining)
		}, 1500 * time.Millisecond},
		"though everything is away": {3 * time.Second, func(s hotShop) {
			time.AfterFunc(500*time.Millisecond, func() {
				s.hot.With(func() { s.hot.Down = errors.New("connection refused") })
				s.rows.fail(model.Unavailable("gone", nil))
			})
		}, 3 * time.Second},
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			placed := s.buys(t, "alice")
			tt.prepare(s)
			began := time.Now()
			s.shows(t, "alice", placed.ID, tt.asked, model.OrderProcessing)
			servicetest.Took(t, "answered", began, tt.after, tt.after+10*time.Millisecond)
		})
	}
}

// Settled while the copy was closed, and the message lost: the wait's end tells.
func TestWaitsEndLooksAtTheDatabase(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		placed := s.buys(t, "alice")
		time.AfterFunc(500*time.Millisecond, func() {
			s.persist(s.sale.Pending()[placed.ID])
			s.sale.Set("state", model.CopyClosed)
		})
		s.shows(t, "alice", placed.ID, 5*time.Second, model.OrderUnpaid)
		check.Equal(t, "queries of the database", s.rows.queries.Load(), 1)
	})
}

// Thousands who wait for a batch share their queries.
func TestManyWhoAreWokenShareTheirQueries(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.sale.Set("stock", 1000)
		var crowd sync.WaitGroup
		var ids []string
		for i := range 1000 {
			user := fmt.Sprint("user", i)
			placed := s.buys(t, user)
			ids = append(ids, placed.ID)
			crowd.Go(func() { s.shows(t, user, placed.ID, 30*time.Second, model.OrderUnpaid) })
		}
		synctest.Wait()
		for _, reserved := range s.sale.Pending() {
			s.persist(reserved)
		}
		before := s.rows.queries.Load()
		s.hot.Tell(ids...)
		crowd.Wait()
		if n := s.rows.queries.Load() - before; n > 20 {
			t.Errorf("%d queries for 1000 who were woken", n)
		}
	})
}

// A user has a few waits, an instance has a bound, and neither keeps what has ended.
func TestTooManyWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newHotShop(t, nil)
		s.seller.waiters.limit = maxUserWaits + 1
		placed, other, third := s.buys(t, "alice"), s.buys(t, "bob"), s.buys(t, "carol")
		hangUp, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		wait := func(user, orderID string) {
			waiting.Go(func() {
				if order, err := s.Get(hangUp, user, orderID, 20*time.Second); err != nil || order.Status != model.OrderProcessing {
					t.Errorf("%+v, %v", order, err)
				}
			})
			time.Sleep(100 * time.Millisecond) // of the bubble: its own look is over, and it waits
		}
		refused := func(user, orderID string) {
			_, err := s.Get(t.Context(), user, orderID, 20*time.Second)
			if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeRateLimited || e.RetryAfter <= 0 {
				t.Errorf("%s: %v, want RATE_LIMITED", user, err)
			}
		}
		for range maxUserWaits {
			wait("alice", placed.ID)
		}
		refused("alice", placed.ID)
		wait("bob", other.ID)
		refused("carol", third.ID)                               // the instance has no more room
		s.shows(t, "alice", placed.ID, 0, model.OrderProcessing) // without waiting
		cancel()
		waiting.Wait()
		if w := s.seller.waiters; w.count != 0 || len(w.byOrder) != 0 || len(w.byUser) != 0 {
			t.Errorf("%d waits are left, %d orders, %d users", w.count, len(w.byOrder), len(w.byUser))
		}
		servicetest.Hears(t, "another's order", check.ErrorOf(s.Get(t.Context(), "mallory", placed.ID, 20*time.Second)), model.CodeNotFound)
	})
}

// Who joins a wait must not see another's order either, though it need not be looked at.
func TestWaitForAnothersOrder(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		placed := s.buys(t, "alice")
		var waiting sync.WaitGroup
		waiting.Go(func() { s.shows(t, "alice", placed.ID, 5*time.Second, model.OrderProcessing) })
		synctest.Wait()
		began := time.Now()
		servicetest.Hears(t, "another's order", check.ErrorOf(s.Get(t.Context(), "mallory", placed.ID, 5*time.Second)), model.CodeNotFound)
		servicetest.InTime(t, "the refusal", began, 100*time.Millisecond)
		waiting.Wait()
	})
}

// A round of looks is bounded, and comes to every order in turn.
func TestLooksAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters(newHotShop(t, nil).seller.async.Admission)
		const orders = 3 * maxLooks
		for n := range orders {
			_, leave, err := w.join(fmt.Sprint(n), fmt.Sprint(n))
			check.Must(t, err)
			defer leave()
		}
		seen := map[string]int{}
		for range 2 * orders / maxLooks {
			looks := w.next()
			check.That(t, len(looks) <= maxLooks, "%d looks in a round", len(looks))
			for _, id := range looks {
				seen[id]++
			}
			servicetest.Pass(budget.Look)
		}
		for id, times := range seen {
			if times != 2 {
				t.Fatalf("order %s was looked at %d times in as many rounds as are for two", id, times)
			}
		}
		check.Equal(t, "orders that were looked at", len(seen), orders)
	})
}
