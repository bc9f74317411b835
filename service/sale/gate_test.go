package sale

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// A request whose time ends at a full gate gives the user's lock back: the user may try again at once.
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

// Above capacity the excess is refused at once, the rest waits briefly, and no place stays empty.
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
		check.That(t, longest < 500*time.Millisecond && longestRefusal == 0,
			"who was served waited %v, who was refused %v", longest, longestRefusal)

		asks(100, serves)
		check.That(t, served == 100 && longest == 0, "afterwards: %d served, the longest wait %v", served, longest)
	})
}

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
			s.queues(age)
			before := s.hot.Calls("reserve")
			check.Equal(t, age.String(), s.refused(t, "bob", model.CodeUnavailable).RetryAfter, wait)
			check.Equal(t, "calls for a unit", s.hot.Calls("reserve"), before)
		}
		s.queues(30 * time.Second)
		s.buys(t, "bob")
	})
}

// A full backlog hides no known answer. Only a live order is one: the mark of a closed one may still be there.
func TestOldBacklogHidesNoOtherAnswer(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		order := s.buys(t, "alice")
		s.persist(t, "bob")
		closed := s.persist(t, "carol")
		closed.Status = model.OrderCanceled
		s.rows.put(closed)
		s.queues(time.Hour)
		refused := s.refused(t, "alice", model.CodeAlreadyOrdered)
		check.That(t, refused.OrderID == order.ID && refused.OrderStatus == model.OrderProcessing, "%+v", refused)
		check.Equal(t, "bob's order", s.refused(t, "bob", model.CodeAlreadyOrdered).OrderStatus, model.OrderUnpaid)
		s.refused(t, "carol", model.CodeUnavailable)
		s.refused(t, "dave", model.CodeUnavailable)
		s.sale.Set("end_us", time.Now().UnixMicro())
		servicetest.Pass(900 * time.Millisecond)
		s.refused(t, "dave", model.CodeEnded)
	})
}

func TestOldBacklogAsksTheHotCopyForManyAtOnce(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.buys(t, "alice")
		s.queues(time.Hour)
		check.Volley(300, func(i int) { s.refused(t, fmt.Sprint("user", i), model.CodeUnavailable) })
		calls := s.hot.Calls("find")
		check.That(t, calls > 0 && calls <= 20, "%d calls for 300 requests", calls)
	})
}

func TestWaitEndsWithTheCommitAndPollsNothing(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]model.CopyState{"open": model.CopyOpen, "closed": model.CopyClosed} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			placed := s.buys(t, "alice")
			row := s.sale.Pending()[placed.ID].Order
			row.Status = model.OrderUnpaid
			time.AfterFunc(350*time.Millisecond, func() { s.sale.Set("state", state) })
			time.AfterFunc(700*time.Millisecond, func() {
				s.rows.put(row) // an open copy goes on to name the order
				s.hot.Tell("other.v1", placed.ID)
			})
			began := time.Now()
			s.shows(t, "alice", placed.ID, 10*time.Second, model.OrderUnpaid)
			servicetest.Took(t, "woken by the commit after 700 ms", began, 0, 710*time.Millisecond)
			check.Equal(t, "queries for the row", s.rows.queries.Load(), 1)
			w := s.seller.waiters
			check.That(t, w.count+len(w.byOrder)+len(w.byUser) == 0, "what is left: %+v", w)
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
			time.AfterFunc(5500*time.Millisecond, func() { s.settle(placed.ID) })
			began := time.Now()
			check.Volley(together, func(int) {
				s.shows(t, "alice", placed.ID, 20*time.Second, model.OrderUnpaid)
				servicetest.Took(t, "found", began, 0, 6100*time.Millisecond)
			})
			check.Equal(t, "queries of the database", s.rows.queries.Load(), 1)
			n := s.hot.Calls("find") - before
			check.That(t, n <= int64(7+together), "asked %d times in 6 s, by %d requests", n, together)
		})
	}
}

func TestSubscriptionThatWasMadeAnewWakesEverybody(t *testing.T) {
	t.Parallel()
	const resubscribing = 50 * time.Millisecond // the pause of hotcopy before it is made anew
	inHotShop(t, func(t *testing.T, s hotShop) {
		placed := s.buys(t, "alice")
		time.AfterFunc(100*time.Millisecond, func() {
			s.settle(placed.ID)
			s.hot.Disconnect()
		})
		began := time.Now()
		s.shows(t, "alice", placed.ID, 20*time.Second, model.OrderUnpaid)
		servicetest.Took(t, "woken", began, 0, 110*time.Millisecond+resubscribing)
	})
}

func TestWaitEndsWithWhatIsKnown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		asked   time.Duration
		prepare func(s hotShop, orderID string) // half a second after the order
		after   time.Duration
		want    model.OrderStatus // empty: it is processing
	}{
		"at its end":             {asked: 2500 * time.Millisecond, after: 2500 * time.Millisecond},
		"at the cap":             {asked: time.Hour, after: budget.Settled},
		"when the server drains": {time.Minute, func(s hotShop, _ string) { s.StartDraining() }, budget.Brief, ""},
		"though everything is away": {3 * time.Second, func(s hotShop, _ string) {
			s.hot.With(func() { s.hot.Down = errors.New("connection refused") })
			s.rows.fail(model.Unavailable("gone", nil))
		}, 3 * time.Second, ""},
		"with a look at the database": {5 * time.Second, func(s hotShop, orderID string) { // and the message was lost
			s.settle(orderID)
			s.sale.Set("state", model.CopyClosed)
		}, 5 * time.Second, model.OrderUnpaid},
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			placed := s.buys(t, "alice")
			if tt.prepare != nil {
				time.AfterFunc(500*time.Millisecond, func() { tt.prepare(s, placed.ID) })
			}
			began := time.Now()
			s.shows(t, "alice", placed.ID, tt.asked, cmp.Or(tt.want, model.OrderProcessing))
			servicetest.Took(t, "answered", began, tt.after, tt.after+10*time.Millisecond)
		})
	}
}

func TestManyWhoAreWokenShareTheirQueries(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.sale.Set("stock", 1000)
		var crowd sync.WaitGroup
		for i := range 1000 {
			user := fmt.Sprint("user", i)
			placed := s.buys(t, user)
			crowd.Go(func() { s.shows(t, user, placed.ID, 30*time.Second, model.OrderUnpaid) })
		}
		synctest.Wait()
		before := s.rows.queries.Load()
		ids := slices.Collect(maps.Keys(s.sale.Pending()))
		for _, id := range ids {
			s.settle(id)
		}
		s.hot.Tell(ids...)
		crowd.Wait()
		n := s.rows.queries.Load() - before
		check.That(t, n <= 20, "%d queries for 1000 who were woken", n)
	})
}

// A user has a few waits, an instance has a bound, and neither keeps what has ended.
func TestTooManyWaits(t *testing.T) {
	t.Parallel()
	w := newWaiters(telemetry.NewAdmission(prometheus.NewRegistry()))
	var all []func()
	wait := func(user string, want model.Code) {
		t.Helper()
		_, leave, err := w.join(user, user+".v1")
		servicetest.Hears(t, user, err, want)
		if err == nil {
			all = append(all, leave)
		}
	}
	for n := range maxWaits {
		wait(fmt.Sprint("user", n/maxUserWaits), "")
	}
	wait("user1", model.CodeRateLimited)
	wait("late", model.CodeRateLimited) // the instance has no more room
	all[0]()
	wait("user1", model.CodeRateLimited)
	wait("late", "")
	for _, leave := range all[1:] {
		leave()
	}
	check.That(t, w.count+len(w.byOrder)+len(w.byUser) == 0, "what is left: %+v", w)
}

func TestLooksAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiters(telemetry.NewAdmission(prometheus.NewRegistry()))
		const orders = 3 * maxLooks
		for n := range orders {
			check.Must(t, errorOf3(w.join(fmt.Sprint(n), fmt.Sprint(n))))
		}
		seen := map[string]int{}
		for range 2 * orders / maxLooks {
			servicetest.Pass(budget.Look)
			looks := w.next()
			check.Equal(t, "looks in a round", len(looks), maxLooks)
			for _, id := range looks {
				seen[id]++
			}
		}
		check.Equal(t, "orders that were looked at", len(seen), orders)
		for id, times := range seen {
			check.Equal(t, "looks at order "+id+" in as many rounds as are for two", times, 2)
		}
	})
}

func errorOf3[A, B any](_ A, _ B, err error) error { return err }
