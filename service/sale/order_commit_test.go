package sale

import (
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

// TestGateHasRoomForOtherVouchers: one voucher takes its part, in which first come is first
// served, and nothing is kept of those that nobody asks for.
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
			check.That(t, (err == nil) == want && waited != want, "%s: waited %v for %v, %v", voucherID, waited, time.Since(began), err)
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

// undecided is a store whose first transaction loses its COMMIT's answer, and whose next one waits for the row that the
// lost one holds, until its time is over.
type undecided struct {
	OrderStore

	calls int
}

func (u *undecided) CreateOrders(ctx context.Context, _ []model.Order) ([]model.Outcome, error) {
	if u.calls++; u.calls > 1 {
		return []model.Outcome{{Err: &model.Error{Code: model.CodeEnded}}}, nil
	}
	<-ctx.Done()
	return nil, model.Unavailable("unknown", fmt.Errorf("%w; last tried: %w", model.ErrUnknownOutcome, &model.HeldError{VoucherID: "v1", Cause: errors.New("1205")}))
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
			check.Equal(t, "its voucher is isolated", s.seller.(*syncSeller).commits.Isolated("v1"), tt.want)
		})
	}
}

// TestUnknownOutcomeIsNotUntried: an order that may have been committed is not asked for anew, which the sale's end
// would answer.
func TestUnknownOutcomeIsNotUntried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &undecided{}
		s := newSyncSeller(Deps{Store: store, Metrics: telemetry.New(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithTimeout(t.Context(), 2*commitTimeout)
		defer cancel()
		if _, err := s.sell(ctx, &hold{userID: "alice"}, "v1"); !errors.Is(err, model.ErrUnknownOutcome) || store.calls != 1 {
			t.Errorf("%v, %d transactions", err, store.calls)
		}
		s.close(context.Background())
	})
}

// One order of a call may be in doubt where the others are not, as when one node of a Cluster does not answer. Its
// buyer hears that it is not known yet, and nothing is undone.
func TestOneReservationInDoubt(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.hot.Answer = func(a model.ReserveRequest) *model.ReserveResult {
			if a.UserID == "alice" {
				return &model.ReserveResult{Err: fmt.Errorf("reserve: %w", model.ErrUnknownOutcome)}
			}
			return nil
		}
		check.Is(t, "alice", s.unavailable(t, "alice"), model.ErrUnknownOutcome)
		check.Equal(t, "unknown orders counted", servicetest.Counted(t, s.metrics, "seckill_orders_unknown_total"), 1)
		check.Equal(t, "releases", s.hot.Calls("release"), 0)
		s.buys(t, "bob")
	})
}

// While new orders are refused for the backlog, only a live order is an answer: the mark of a closed one may still be
// there, and its buyer comes again like everybody else.
func TestAClosedOrderIsNoAnswerDuringABacklog(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		for user, status := range map[string]model.OrderStatus{"alice": model.OrderCanceled, "bob": model.OrderUnpaid} {
			placed := s.buys(t, user)
			row := s.persist(s.sale.Pending()[placed.ID])
			row.Status = status
			s.rows.put(row)
		}
		s.line.with(func() { s.line.backlog.Age = time.Hour })
		<-time.After(backlogEvery + time.Millisecond)
		synctest.Wait()
		s.refused(t, "alice", model.CodeUnavailable)
		check.Equal(t, "where bob's order stands", s.refused(t, "bob", model.CodeAlreadyOrdered).OrderStatus, model.OrderUnpaid)
	})
}

// The client is gone, its order is not decided, and nothing is left to do: the user's lock is still held, because
// otherwise the same user could buy elsewhere.
func TestTheLockIsHeldWhileAnOrderIsUndecided(t *testing.T) {
	t.Parallel()
	const decided = time.Second
	servicetest.Bubble(t, "sync", func(t *testing.T) {
		s := newShop(t)
		s.desk.took = decided
		_ = s.hangsUp(t, "alice", decided/10)
		untilDecided(t, s.keys, decided)
		check.Equal(t, "orders made", s.desk.orders.Load(), 1)
	})
	servicetest.Bubble(t, "async", func(t *testing.T) {
		s := newHotShop(t, func(_ *Deps, a *AsyncDeps) { a.ScriptLocks = false })
		s.hot.Takes["reserve"] = decided
		check.Is(t, "not decided", s.hangsUp(t, "alice", decided/10), model.ErrUnknownOutcome)
		untilDecided(t, s.keys, decided)
		check.That(t, slices.Equal(s.line.users(), []string{"alice"}), "queued %v", s.line.users())
	})
}

func untilDecided(t *testing.T, locks *servicetest.Locks, decided time.Duration) {
	t.Helper()
	synctest.Wait()
	check.Equal(t, "the lock is held while the order is undecided", locks.Holds("alice"), true)
	<-time.After(decided)
	synctest.Wait()
	check.Equal(t, "the lock is held afterwards", locks.Holds("alice"), false)
	check.Equal(t, "how often it was given back", locks.Released.Load(), 1)
}

// Whom a seller turns away that takes no more orders may try elsewhere at once.
func TestAnOrderThatNobodyTakesKeepsNoLock(t *testing.T) {
	t.Parallel()
	servicetest.Bubble(t, "sync", func(t *testing.T) {
		s := newShop(t)
		s.Close(context.Background())
		_ = s.unavailable(t, "alice")
		givenBack(t, s.keys)
	})
	servicetest.Bubble(t, "async", func(t *testing.T) {
		s := newHotShop(t, func(_ *Deps, a *AsyncDeps) { a.ScriptLocks = false })
		s.seller.reserves.Close(context.Background())
		_ = s.unavailable(t, "alice")
		givenBack(t, s.keys)
	})
}

func givenBack(t *testing.T, locks *servicetest.Locks) {
	t.Helper()
	check.Equal(t, "the lock is held", locks.Holds("alice"), false)
	check.Equal(t, "locks taken", locks.Taken.Load(), 1)
	check.Equal(t, "locks given back", locks.Released.Load(), 1)
}

// lockIsFree checks during a publish that the lock of alice is not held any more.
func (s hotShop) lockIsFree(t *testing.T) func() {
	return func() {
		synctest.Wait() // a publish may begin before the lock is given back, and does not wait for that
		check.Equal(t, "the lock is held over the publish", s.keys.Holds("alice"), false)
	}
}

// tookLocks checks how many locks were taken and given back.
func (s hotShop) tookLocks(t *testing.T, want int64) {
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
		servicetest.InTime(t, "sold, with a lock that was free after 300 ms", began, 310*time.Millisecond)
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
			check.That(t, len(s.sale.Marks()) == 0 && len(s.line.users()) == 0, "changed: marks %v, queued %v", s.sale.Marks(), s.line.users())
		})
	}
}

// What came to an end while the lock was waited for is told, and the lock given back.
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
		check.That(t, !s.keys.Holds("alice") && s.hot.Calls("reserve") == 1, "lock held %v, %d calls", s.keys.Holds("alice"), s.hot.Calls("reserve"))
	})
}

// Locks that live elsewhere are really taken, around the reservation only.
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
				check.That(t, s.sale.Marks()["alice"] == "" && !s.keys.Holds("alice"), "marks %v, lock held %v", s.sale.Marks(), s.keys.Holds("alice"))
			})
		}
	}
}

func TestPlaceAnswersWithTheCommittedOrder(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		order, err := s.Place(t.Context(), "alice", "v1")
		if err != nil || order.UserID != "alice" || order.VoucherID != "v1" {
			t.Fatalf("%+v, %v", order, err)
		}
		if voucher, ok := model.VoucherOf(order.ID); !ok || voucher != "v1" {
			t.Errorf("the id %q does not tell the voucher", order.ID)
		}
		check.Equal(t, "the user's lock is held", s.keys.Holds("alice"), false)
	})
}

func TestPlaceRefusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prepare func(shop)
		voucher string
		want    model.Code
		commits int64 // how many transactions there may be
	}{
		"an id that cannot exist":  {func(shop) {}, "no/voucher", model.CodeNotFound, 0},
		"no such voucher":          {func(shop) {}, "v2", model.CodeNotFound, 0},
		"lock busy":                {func(s shop) { s.keys.Err = fmt.Errorf("%w: for 1 s", model.ErrLockBusy) }, "v1", model.CodeLockBusy, 0},
		"lock store gone":          {func(s shop) { s.keys.Err = errors.New("connection refused") }, "v1", model.CodeUnavailable, 0},
		"lock lost before the use": {func(s shop) { s.keys.Lost = true }, "v1", model.CodeUnavailable, 0},
		"database gone":            {func(s shop) { s.desk.err = model.Unavailable("gone", nil) }, "v1", model.CodeUnavailable, 1},
		"a bug":                    {func(s shop) { s.desk.err = errors.New("no such column") }, "v1", model.CodeInternal, 1},
		"sold out": {func(s shop) {
			s.table.Change(func(v *model.Voucher) { v.Remaining = 0 })
		}, "v1", model.CodeSoldOut, 0},
		"paused while it waited for the lock": {func(s shop) {
			s.keys.Took = 2 * time.Second
			time.AfterFunc(time.Second, func() {
				s.table.Change(func(v *model.Voucher) { v.State = model.VoucherPaused })
			})
		}, "v1", model.CodePaused, 0},
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			s := newShop(t)
			tt.prepare(s)
			servicetest.WantCode(t, check.ErrorOf(s.Place(t.Context(), "alice", tt.voucher)), tt.want)
			check.Equal(t, "transactions", s.desk.calls.Load(), tt.commits)
			check.Equal(t, "the user's lock is held", s.keys.Holds("alice"), false)
		})
	}
}

// What could not be decided in time is 503, and the lock is kept until it is
// decided: only then may the same user try again.
func TestUnknownOutcomeKeepsTheLockUntilItIsDecided(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.desk.took = 5500 * time.Millisecond
		check.Is(t, "not decided", s.unavailable(t, "alice"), model.ErrUnknownOutcome)
		check.Equal(t, "the lock is held while the order is not decided", s.keys.Holds("alice"), true)
		servicetest.Pass(time.Second)
		if s.keys.Holds("alice") || s.desk.orders.Load() != 1 {
			t.Errorf("afterwards: held %v, %d orders; want the lock back and the order made", s.keys.Holds("alice"), s.desk.orders.Load())
		}
		check.Equal(t, "unknown orders counted", servicetest.Counted(t, s.metrics, "seckill_orders_unknown_total"), 1)
	})
}

// A store that never answers must not let requests pile up: each is answered
// in time, and the goroutines behind them end with the transaction's limit.
func TestStoreThatHangsIsBounded(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.desk.took = time.Hour
		var crowd sync.WaitGroup
		for i := range 1000 {
			crowd.Go(func() { _ = s.unavailable(t, fmt.Sprint("user", i)) })
		}
		crowd.Wait()
		began := time.Now()
		s.Close(context.Background())
		servicetest.InTime(t, "closing", began, commitTimeout)
		if taken, released := s.keys.Taken.Load(), s.keys.Released.Load(); taken > maxCommittingOne || released != taken {
			t.Errorf("%d locks were taken and %d given back, want %d at the most", taken, released, maxCommittingOne)
		}
	})
}

func TestConcurrentOrdersShareTransactions(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.desk.took = 10 * time.Millisecond
		s.table.Change(func(v *model.Voucher) { v.Stock, v.Remaining = 400, 400 })
		if sold, soldOut := s.rush(t, 1000); sold != 400 || soldOut != 600 {
			t.Errorf("%d sold and %d refused, want 400 and 600", sold, soldOut)
		}
		if n := s.desk.calls.Load(); n > 100 {
			t.Errorf("%d transactions for 1000 concurrent orders", n)
		}
	})
}

// In a rush everybody passes the first look at the copy. Those who wait at the
// gate are told from memory once the first ones have taken it all.
func TestRushBehindTheGateIsToldFromMemory(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.desk.took = 10 * time.Millisecond
		s.rush(t, 5000)
		check.Equal(t, "orders sold", s.desk.orders.Load(), 10)
		if n := s.keys.Taken.Load(); n > 3*maxCommittingOne {
			t.Errorf("%d of 5000 took a lock for 10 units", n)
		}
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
		servicetest.InTime(t, "bob, behind alice", began, 100*time.Millisecond)
		crowd.Wait()
		check.Equal(t, "orders that never left the gate", len(s.gate.places.taken), 0)
	}
	servicetest.Bubble(t, "sync", func(t *testing.T) { s := newShop(t); holds(t, s.Orders, s.keys) })
	for _, script := range []bool{true, false} {
		servicetest.Bubble(t, fmt.Sprint("async, script locks ", script), func(t *testing.T) {
			s := newHotShop(t, func(_ *Deps, a *AsyncDeps) { a.ScriptLocks = script })
			s.hot.Lock("alice")
			holds(t, s.Orders, s.keys)
		})
	}
}
