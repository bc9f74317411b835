package sale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// One voucher takes its part, first come first served, and no state stays for vouchers that nobody asks for.
func TestGateHasRoomForOtherVouchers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(4, 2)
		enter := func(voucherID string, want bool) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			waited, err := g.enter(ctx, voucherID)
			check.That(t, (err == nil) == want && waited != want, "%s: waited %v for %v, %v", voucherID, waited,
				time.Since(began), err)
		}
		for _, id := range []string{"a", "a", "b"} {
			enter(id, true)
		}
		enter("a", false)
		enter("c", true)
		enter("b", false) // all are taken
		g.leave("a")
		enter("b", true)
		enter("b", false)
		for _, id := range []string{"a", "b", "b", "c"} {
			g.leave(id)
		}
		check.Equal(t, "vouchers remembered", len(g.vouchers)+len(g.places.taken), 0)
	})
}

// A voucher whose row is locked, or waited for, shares no more transactions: package lane holds what that means.
func TestVoucherInTroubleIsIsolated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		waited time.Duration
		err    error
		want   bool
	}{
		"locked": {
			err:  model.Unavailable("busy", &model.HeldError{VoucherID: "v1", Cause: errors.New("1205")}),
			want: true,
		},
		"slow": {waited: 2 * budget.Glance, want: true},
		"well": {waited: budget.Glance},
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			s := newShop(t)
			s.desk.err, s.desk.waited = tt.err, tt.waited
			_, err := s.Place(t.Context(), "alice", "v1")
			check.Equal(t, "the order is made", err == nil, tt.err == nil)
			synctest.Wait() // the lane notes it behind the answer
			check.Equal(t, "its voucher is isolated", s.seller.(*syncSeller).commits.Isolated("v1"), tt.want)
		})
	}
}

// A transaction has one order of a user at most, under the user's lock, which is free once the buyer has the answer.
func TestOrdersOfATransactionHaveTheirLocks(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.desk.took = 20 * time.Millisecond
		s.table.Change(func(v *model.Voucher) { v.Stock, v.Remaining = 100, 100 })
		s.keys.Busy = "lock:order:bob"
		s.desk.during = func(orders []model.Order) {
			users := map[string]bool{}
			for _, order := range orders {
				check.That(t, s.keys.Holds(order.UserID) && !users[order.UserID], "%s buys without a lock, or twice of %d",
					order.UserID, len(orders))
				users[order.UserID] = true
			}
		}
		check.Volley(10, func(i int) {
			user := []string{"alice", "bob", "carol", "dave", "alice", "alice", "bob", "erin", "frank", "alice"}[i]
			if user == "bob" {
				s.refused(t, user, model.CodeLockBusy)
				return
			}
			check.Must(t, check.ErrorOf(s.Place(t.Context(), user, "v1")))
			check.That(t, user == "alice" || !s.keys.Holds(user), "%s's lock is held behind the answer", user)
		})
		check.Equal(t, "orders made", s.desk.orders.Load(), 8)
		s.tookLocks(t, 8)
	})
}

// A lock that is lost while its order waits for a transaction is noticed before that begins.
func TestALockThatIsLostInTheQueueSellsNothing(t *testing.T) {
	t.Parallel()
	servicetest.Bubble(t, "sync", func(t *testing.T) {
		s := newShop(t, singly)
		s.desk.took = time.Second
		s.keys.Lost, s.keys.Lasts = true, 800*time.Millisecond
		first := make(chan error, 1)
		go func() { first <- check.ErrorOf(s.Place(t.Context(), "alice", "v1")) }()
		servicetest.Pass(100 * time.Millisecond)
		_ = s.unavailable(t, "bob")
		check.Must(t, <-first)
		check.Equal(t, "orders made", s.desk.orders.Load(), 1)
	})
}

// Without a client an undecided order still keeps the user's lock, or the same user could buy elsewhere.
func TestUnknownOutcomeKeepsTheLockUntilItIsDecided(t *testing.T) {
	t.Parallel()
	keeps := func(t *testing.T, s shop, unknown float64) {
		t.Helper()
		synctest.Wait()
		check.Equal(t, "the lock is held while the order is undecided", s.keys.Holds("alice"), true)
		servicetest.Pass(time.Second)
		synctest.Wait()
		check.Equal(t, "the lock is held afterwards", s.keys.Holds("alice"), false)
		check.Equal(t, "how often it was given back", s.keys.Released.Load(), 1)
		check.Equal(t, "unknown orders counted", servicetest.Counted(t, s.metrics, "seckill_orders_unknown_total"), unknown)
	}
	for how, change := range map[string]func(*Deps){"together": func(*Deps) {}, "singly": singly} {
		servicetest.Bubble(t, "sync, locked "+how+", the client is gone", func(t *testing.T) {
			s := newShop(t, change)
			s.desk.took = time.Second
			s.hangsUp(t, "alice", 100*time.Millisecond)
			keeps(t, s, 0)
			check.Equal(t, "orders made", s.desk.orders.Load(), 1)
		})
		servicetest.Bubble(t, "sync, locked "+how+", its time is over", func(t *testing.T) {
			s := newShop(t, change)
			s.desk.took = 5500 * time.Millisecond
			check.Is(t, "the answer", s.unavailable(t, "alice"), model.ErrUnknownOutcome)
			keeps(t, s, 1)
			check.Equal(t, "orders made", s.desk.orders.Load(), 1)
		})
	}
	servicetest.Bubble(t, "async, the client is gone", func(t *testing.T) {
		s := newHotShop(t, func(_ *Deps, a *AsyncDeps) { a.ScriptLocks = false })
		s.hot.Takes["reserve"] = time.Second
		s.hangsUp(t, "alice", 100*time.Millisecond)
		keeps(t, s.shop, 0)
		check.That(t, slices.Equal(s.line.users(), []string{"alice"}), "queued %v", s.line.users())
	})
}

// Whom a seller turns away that takes no more orders may try elsewhere at once.
func TestAnOrderThatNobodyTakesKeepsNoLock(t *testing.T) {
	t.Parallel()
	turnsAway := func(t *testing.T, s shop, shut func(context.Context)) {
		t.Helper()
		shut(context.Background())
		_ = s.unavailable(t, "alice")
		s.tookLocks(t, 1)
	}
	servicetest.Bubble(t, "sync", func(t *testing.T) { s := newShop(t, singly); turnsAway(t, s, s.Close) })
	servicetest.Bubble(t, "async", func(t *testing.T) {
		s := newHotShop(t, func(_ *Deps, a *AsyncDeps) { a.ScriptLocks = false })
		turnsAway(t, s.shop, s.seller.reserves.Close)
	})
}

func (s hotShop) lockIsFree(t *testing.T) func() {
	return func() {
		synctest.Wait() // a publish may begin before the lock is given back, and does not wait for that
		check.Equal(t, "the lock is held over the publish", s.keys.Holds("alice"), false)
	}
}

func (s shop) tookLocks(t *testing.T, want int64) {
	t.Helper()
	check.Equal(t, "locks taken", s.keys.Taken.Load(), want)
	check.Equal(t, "locks given back", s.keys.Released.Load(), want)
}

// Where the hot copy looks at the locks itself, one is taken only when somebody else holds it.
func TestForeignLockIsWaitedForAndGivenBackBeforeThePublish(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.hot.Lock("alice")
		s.keys.Took = 300 * time.Millisecond // until the other one gives it back
		time.AfterFunc(s.keys.Took, func() { s.hot.Unlock("alice") })
		s.line.during = s.lockIsFree(t)
		s.hot.Answer = func(a model.ReserveRequest) *model.ReserveResult {
			check.Equal(t, "asked with the lock", a.Locked, s.keys.Holds("alice"))
			return nil
		}
		began := time.Now()
		s.buys(t, "alice")
		servicetest.Took(t, "sold, with a lock that was free after 300 ms", began, 0, 310*time.Millisecond)
		s.tookLocks(t, 1)
	})
}

func TestForeignLockThatIsKeptIsBusyAndChangesNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		wait  time.Duration
		tries int64 // to take the lock
	}{
		"waits": {time.Second, 1},
		"looks": {0, 0}, // the look of the hot copy was the one try
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			s := newHotShop(t, func(o *Deps, _ *AsyncDeps) { o.LockWait = tt.wait })
			s.hot.Lock("alice")
			s.keys.Busy = "lock:order:alice"
			began := time.Now()
			refusal := s.refused(t, "alice", model.CodeLockBusy)
			servicetest.Took(t, "answered", began, tt.wait, tt.wait+50*time.Millisecond)
			check.Equal(t, "there is a Retry-After", refusal.RetryAfter > 0, true)
			check.Equal(t, "tries to take the lock", s.keys.Tried.Load(), tt.tries)
			check.That(t, len(s.sale.Marks()) == 0 && len(s.line.users()) == 0, "changed: marks %v, queued %v",
				s.sale.Marks(), s.line.users())
		})
	}
}

func TestSaleThatEndsDuringTheWaitForTheLock(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.hot.Lock("alice")
		s.keys.Took = 950 * time.Millisecond
		time.AfterFunc(100*time.Millisecond, func() {
			s.sale.Set("vstate", model.VoucherPaused)
			s.cache.Drop("v1")
		})
		s.refused(t, "alice", model.CodePaused)
		check.That(t, !s.keys.Holds("alice") && s.hot.Calls("reserve") == 1, "lock held %v, %d calls",
			s.keys.Holds("alice"), s.hot.Calls("reserve"))
	})
}

func TestLocksOfOtherStoresAreTakenAroundTheReservation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newHotShop(t, func(_ *Deps, a *AsyncDeps) { a.ScriptLocks = false })
		s.hot.Answer = func(a model.ReserveRequest) *model.ReserveResult {
			check.That(t, a.Locked && s.keys.Holds(a.UserID), "reserved without the lock: %+v", a)
			return nil
		}
		s.line.during = s.lockIsFree(t)
		s.buys(t, "alice")
		s.tookLocks(t, 1)
		s.keys.Busy = "lock:order:bob"
		s.refused(t, "bob", model.CodeLockBusy)
		check.Equal(t, "what was reserved without the lock", s.sale.Marks()["bob"], "")
	})
}

func TestLocksThatCannotBeHad(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(s hotShop){
		"the store is gone": func(s hotShop) { s.keys.Err = errors.New("connection refused") },
		"lost at once":      func(s hotShop) { s.keys.Lost = true },
	} {
		for _, script := range []bool{true, false} {
			servicetest.Bubble(t, fmt.Sprint(name, ", script locks ", script), func(t *testing.T) {
				s := newHotShop(t, func(_ *Deps, a *AsyncDeps) { a.ScriptLocks = script })
				s.hot.Lock("alice")
				prepare(s)
				s.refused(t, "alice", model.CodeUnavailable)
				check.That(t, s.sale.Marks()["alice"] == "" && !s.keys.Holds("alice"), "marks %v, lock held %v",
					s.sale.Marks(), s.keys.Holds("alice"))
			})
		}
	}
}

func TestPlaceAnswersWithTheCommittedOrder(t *testing.T) {
	t.Parallel()
	away := errors.New("connection refused")
	for name, tt := range map[string]struct {
		prepare func(shop)
		voucher string     // empty: that on sale
		want    model.Code // empty: the order
		commits int64      // how many transactions there are
	}{
		"nothing in the way": {commits: 1},
		"an impossible id":   {voucher: "no/voucher", want: model.CodeNotFound},
		"no such voucher":    {voucher: "v2", want: model.CodeNotFound},
		"lock busy":          {func(s shop) { s.keys.Err = model.ErrLockBusy }, "", model.CodeLockBusy, 0},
		"lock store gone":    {func(s shop) { s.keys.Err = away }, "", model.CodeUnavailable, 0},
		"lock lost":          {func(s shop) { s.keys.Lost = true }, "", model.CodeUnavailable, 0},
		"database gone":      {func(s shop) { s.desk.err = model.Unavailable("", nil) }, "", model.CodeUnavailable, 1},
		"a bug":              {func(s shop) { s.desk.err = away }, "", model.CodeInternal, 1},
		"sold out": {func(s shop) {
			s.table.Change(func(v *model.Voucher) { v.Remaining = 0 })
		}, "", model.CodeSoldOut, 0},
		"paused while it waited for the lock": {func(s shop) {
			s.keys.Took = 2 * time.Second
			time.AfterFunc(time.Second, func() {
				s.table.Change(func(v *model.Voucher) { v.State = model.VoucherPaused })
			})
		}, "", model.CodePaused, 1}, // the transaction reads the voucher itself
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			s := newShop(t)
			if tt.prepare != nil {
				tt.prepare(s)
			}
			order, err := s.Place(t.Context(), "alice", cmp.Or(tt.voucher, "v1"))
			servicetest.Hears(t, "alice", err, tt.want)
			voucher, _ := model.VoucherOf(order.ID)
			check.That(t, err != nil || voucher == "v1" && order.VoucherID == "v1" && order.UserID == "alice",
				"%+v", order)
			check.Equal(t, "transactions", s.desk.calls.Load(), tt.commits)
			check.Equal(t, "the user's lock is held", s.keys.Holds("alice"), false)
		})
	}
}

// Each request is answered in time, and the goroutines behind it end with the transaction's limit.
func TestStoreThatHangsIsBounded(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.desk.took = time.Hour
		check.Volley(1000, func(i int) { _ = s.unavailable(t, fmt.Sprint("user", i)) })
		began := time.Now()
		s.Close(context.Background())
		servicetest.Took(t, "closing", began, 0, commitTimeout)
		taken := s.keys.Taken.Load()
		check.That(t, taken <= maxCommittingOne, "%d locks were taken, want %d at the most", taken, maxCommittingOne)
		s.tookLocks(t, taken)
	})
}

func TestConcurrentOrdersShareTransactions(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.desk.took = 10 * time.Millisecond
		s.table.Change(func(v *model.Voucher) { v.Stock, v.Remaining = 400, 400 })
		sold, soldOut := s.rush(t, 1000)
		check.That(t, sold == 400 && soldOut == 600, "%d sold and %d refused, want 400 and 600", sold, soldOut)
		n := s.desk.calls.Load()
		check.That(t, n <= 100, "%d transactions for 1000 concurrent orders", n)
	})
}

// In a rush everybody passes the first look; those at the gate get an answer from memory once all is sold.
func TestRushBehindTheGateIsToldFromMemory(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.desk.took = 10 * time.Millisecond
		s.rush(t, 5000)
		check.Equal(t, "orders sold", s.desk.orders.Load(), 10)
		n := s.keys.Taken.Load()
		check.That(t, n <= 3*maxCommittingOne, "%d of 5000 took a lock for 10 units", n)
	})
}

// A user whose requests wait for each other makes no other user wait, and takes no place in the gate.
func TestWaitingForOnesOwnLockHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	holds := func(t *testing.T, s *Orders, keys *servicetest.Locks) {
		t.Helper()
		keys.Busy = "lock:order:alice"
		var crowd sync.WaitGroup
		for range 2 * maxCommitting {
			crowd.Go(func() { s.refused(t, "alice", model.CodeLockBusy) })
		}
		servicetest.Pass(100 * time.Millisecond)
		began := time.Now()
		check.Must(t, check.ErrorOf(s.Place(t.Context(), "bob", "v1")))
		servicetest.Took(t, "bob, behind alice", began, 0, 100*time.Millisecond)
		crowd.Wait()
		check.Equal(t, "orders that never left the gate", len(s.gate.places.taken), 0)
	}
	servicetest.Bubble(t, "sync", func(t *testing.T) { s := newShop(t); holds(t, s.Orders, s.keys) })
	servicetest.Bubble(t, "sync, singly", func(t *testing.T) { s := newShop(t, singly); holds(t, s.Orders, s.keys) })
	for _, script := range []bool{true, false} {
		servicetest.Bubble(t, fmt.Sprint("async, script locks ", script), func(t *testing.T) {
			s := newHotShop(t, func(_ *Deps, a *AsyncDeps) { a.ScriptLocks = script })
			s.hot.Lock("alice")
			holds(t, s.Orders, s.keys)
		})
	}
}

// What an order allocates when requests come at once. In async four fifths are those of the hot copies of the tests.
func TestAnOrderAllocatesLittle(t *testing.T) { //nolint:paralleltest // it counts the allocations of the process
	const together = 100
	for name, most := range map[string]float64{"sync": 22, "async": 115} {
		synctest.Test(t, func(t *testing.T) {
			s := newShop(t)
			if name == "async" {
				hot := newHotShop(t, func(*Deps, *AsyncDeps) {})
				hot.sale.Set("stock", 10*together)
				s = hot.shop
			}
			s.table.Change(func(v *model.Voucher) { v.Stock, v.Remaining = 10*together, 10*together })
			n := 0
			got := testing.AllocsPerRun(5, func() {
				n++
				check.Volley(together, func(i int) { check.Must(t, check.ErrorOf(s.Place(t.Context(), fmt.Sprint(n, ".", i), "v1"))) })
			}) / together
			check.That(t, got <= most, "%s: %.1f allocations an order, %.0f are the most", name, got, most)
		})
	}
}
