package sale

import (
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
	"seckill/repository/hotcopy/hotcopytest"
	"seckill/service/servicetest"
)

func TestPlaceAnswersWithTheQueuedOrder(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		order := s.buys(t, "alice")
		if voucher, ok := model.VoucherOf(order.ID); !ok || voucher != "v1" || order.UserID != "alice" || order.CreatedAt.IsZero() || order.Currency != "CNY" {
			t.Errorf("%+v", order)
		}
		check.That(t, slices.Equal(s.line.users(), []string{"alice"}) && s.line.queued[0].Epoch == 1, "queued %+v", s.line.queued)
		check.Equal(t, "locks taken, though the hot copy looks at them", s.keys.Taken.Load(), 0)
		check.Equal(t, "queries of the database", s.rows.queries.Load(), 0)
	})
}

// Whatever goes wrong behind the reservation, the order is not promised and the
// unit not given back: the next call finds the order.
func TestWhatIsNotKnownToBeQueuedIsNeitherPromisedNorUndone(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(s hotShop){
		"the publish fails":   func(s hotShop) { s.line.err = errors.New("no ack") },
		"the publish is late": func(s hotShop) { s.line.took = time.Hour },
		"the copy is rebuilt during the publish": func(s hotShop) {
			s.line.during = func() { s.sale.Rebuild() }
		},
		"the copy is closed during the publish": func(s hotShop) {
			s.line.during = func() { s.sale.Set("state", model.CopyClosed) }
		},
		"the copy is lost during the publish": func(s hotShop) {
			s.line.during = func() { s.hot.With(func() { s.hot.Down = errors.New("connection refused") }) }
		},
		"the epoch is told late": func(s hotShop) { s.hot.Takes["Confirm"] = time.Hour },
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			prepare(s)
			check.Is(t, "not known to be queued", s.unavailable(t, "alice"), model.ErrUnknownOutcome)
			if s.hot.Calls("Release") != 0 || s.sale.Marks()["alice"] == "" || s.sale.Pending()[s.sale.Marks()["alice"]].UserID != "alice" {
				t.Errorf("the reservation was touched: marks %v, pending %v, %d releases", s.sale.Marks(), s.sale.Pending(), s.hot.Calls("Release"))
			}
			check.Equal(t, "unknown orders counted", servicetest.Counted(t, s.metrics, "seckill_orders_unknown_total"), 1)
			s.hot.With(func() { s.sale.Set("state", model.CopyOpen); s.hot.Down = nil })
			servicetest.Pass(time.Second)
			again := s.refused(t, "alice", model.CodeAlreadyOrdered)
			check.That(t, again.OrderID == s.sale.Marks()["alice"] && again.OrderStatus == model.OrderProcessing, "asked again: %+v", again)
		})
	}
}

func TestHotCopiesThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer  func(a model.ReserveRequest) *model.ReserveResult
		took    time.Duration
		unknown bool
	}{
		"unknown": {answer: func(model.ReserveRequest) *model.ReserveResult {
			return &model.ReserveResult{Err: model.Unavailable("no reply", model.ErrUnknownOutcome)}
		}, unknown: true},
		"refused by Redis": {answer: func(model.ReserveRequest) *model.ReserveResult {
			return &model.ReserveResult{Err: model.Unavailable("OOM", nil)}
		}},
		"too slow": {took: time.Hour},
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			s.hot.Answer = tt.answer
			s.hot.Takes["Reserve"] = max(tt.took, servicetest.QueryTime)
			if err := s.unavailable(t, "alice"); errors.Is(err, model.ErrUnknownOutcome) != tt.unknown {
				t.Errorf("%v, want an unknown outcome: %v", err, tt.unknown)
			}
			check.Equal(t, "messages published", s.line.published.Load(), 0)
		})
	}
}

// A client that hangs up changes nothing once the hot copy is asked.
func TestClientThatHangsUpHasHisReservationPublished(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(s hotShop){
		"while it is reserved":  func(s hotShop) { s.hot.Takes["Reserve"] = 500 * time.Millisecond },
		"while it is published": func(s hotShop) { s.line.took = 500 * time.Millisecond },
		"while others are published": func(s hotShop) {
			s.line.took = 100 * time.Millisecond
			for i := range groupWriters { // bob stands behind them
				go func() {
					_, _ = s.seller.publishes.Do(context.Background(), model.Reservation{Order: model.Order{ID: fmt.Sprint(i)}})
				}()
				synctest.Wait()
			}
		},
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			prepare(s)
			_ = s.hangsUp(t, "bob", 50*time.Millisecond)
			servicetest.Pass(2 * time.Second)
			if users := s.line.users(); !slices.Contains(users, "bob") {
				t.Errorf("queued of %v, want bob's", users)
			}
		})
	}
}

// Closing sees the reservations through that nobody waits for any more.
func TestCloseSeesReservationsThrough(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.hot.Takes["Reserve"], s.line.took = time.Second, time.Second
		_ = s.hangsUp(t, "alice", 100*time.Millisecond)
		s.Close(t.Context())
		check.That(t, slices.Equal(s.line.users(), []string{"alice"}), "queued of %v", s.line.users())
		s.refused(t, "bob", model.CodeUnavailable)
	})
}

func TestConcurrentOrdersShareCallsAndMessages(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.sale.Set("stock", 3000)
		s.hot.Takes["Reserve"], s.line.took, s.hot.Takes["Confirm"] = 5*time.Millisecond, 5*time.Millisecond, 5*time.Millisecond
		if sold, soldOut := s.rush(t, 5000); sold != 3000 || soldOut != 2000 || len(s.line.users()) != 3000 {
			t.Errorf("%d promised, %d refused, %d queued; want 3000, 2000, 3000", sold, soldOut, len(s.line.users()))
		}
		if r, p, c := s.hot.Calls("Reserve"), s.line.published.Load(), s.hot.Calls("Confirm"); r > 200 || p > 200 || c != p {
			t.Errorf("%d calls, %d messages and %d looks at the epoch for 5000 orders", r, p, c)
		}
	})
}

// Servers that never answer do not let requests pile up.
func TestServersThatHangAreBounded(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(s hotShop){
		"the hot copies": func(s hotShop) { s.hot.Takes["Reserve"] = time.Hour },
		"the queue":      func(s hotShop) { s.line.took = time.Hour },
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			s.sale.Set("stock", 5000)
			prepare(s)
			var crowd sync.WaitGroup
			for i := range 5000 {
				crowd.Go(func() { _ = s.unavailable(t, fmt.Sprint("user", i)) })
			}
			crowd.Wait()
			if n := len(s.sale.Marks()); n > 2*maxAdmitted {
				t.Errorf("%d units were taken by people who cannot be served, want %d at the most", n, 2*maxAdmitted)
			}
			began := time.Now()
			s.Close(servicetest.Lasting(t, time.Second))
			servicetest.InTime(t, "closing", began, budget.Work)
		})
	}
}

func TestNothingIsSoldInAnotherMode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mode := &watchedMode{}
		s := newHotShop(t, func(o *Deps, _ *AsyncDeps) { o.Selling = mode.Selling })
		mode.err = model.Unavailable("the mode is being switched", nil)
		s.refused(t, "alice", model.CodeUnavailable)
		check.Equal(t, "calls for a unit", s.hot.Calls("Reserve"), 0)
		mode.err = nil
		s.buys(t, "alice")
	})
}

type watchedMode struct{ err error }

func (m *watchedMode) Selling() error { return m.err }

// recordsOf is the database's side of hot copies.
type recordsOf func(ctx context.Context) (epoch int64, err error)

func (r recordsOf) Latest(ctx context.Context, ids []string) (map[string]int64, error) {
	epoch, err := r(ctx)
	latest := map[string]int64{}
	for _, id := range ids {
		latest[id] = epoch
	}
	return latest, err
}

// sameEpoch is a database that agrees with the hot copy.
func sameEpoch(hot *hotcopytest.Copies) recordsOf {
	return func(context.Context) (int64, error) { return hot.Sale("v1").Epoch(), nil }
}

// Two instances that look at two Redis servers find each their own copy open.
func TestEpochOfTheDatabaseDecidesOverAnOpenCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newHotShop(t, func(_ *Deps, a *AsyncDeps) {
			a.Epochs = recordsOf(func(context.Context) (int64, error) { return 2, nil }).Latest
		})
		s.refused(t, "alice", model.CodeUnavailable)
		check.Equal(t, "reservations, which nobody undoes", len(s.sale.Pending()), 1)
	})
}

func TestOrdersAreConfirmedWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]recordsOf{
		"it refuses": func(context.Context) (int64, error) { return 0, errors.New("away") },
		"it hangs":   func(ctx context.Context) (int64, error) { <-ctx.Done(); return 0, ctx.Err() },
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			asked, back := 0, false
			s := newHotShop(t, func(_ *Deps, a *AsyncDeps) {
				a.Epochs = recordsOf(func(ctx context.Context) (int64, error) {
					asked++
					if back {
						return 2, nil
					}
					return away(ctx)
				}).Latest
			})
			began := time.Now()
			s.buys(t, "alice")
			servicetest.InTime(t, "the order", began, budget.Glance+100*time.Millisecond)
			s.buys(t, "bob")
			check.Equal(t, "questions to the database", asked, 1)
			back = true
			servicetest.Pass(budget.Look)
			s.refused(t, "carol", model.CodeUnavailable)
		})
	}
}

// By the contract the longest answer takes the lock's wait budget and 5 s. The lock is free at the last moment, and
// whatever comes then, or before, stands still.
func TestTheLongestAnswer(t *testing.T) {
	t.Parallel()
	const wait, ever = 3 * time.Second, time.Hour
	busy := func(keys *servicetest.Locks) {
		keys.Busy = "lock:order:alice"
		time.AfterFunc(wait-time.Millisecond, func() { keys.With(func(l *servicetest.Locks) { l.Busy = "" }) })
	}
	for name, hang := range map[string]func(s shop){
		"the look before the lock": func(s shop) { s.table.ReadTook = ever },
		"the store of locks":       func(s shop) { s.keys.Took = ever },
		"the look behind the lock": func(s shop) {
			time.AfterFunc(wait/2, func() { s.table.With(func(db *servicetest.Table) { db.ReadTook = ever }) })
		},
		"the transaction": func(s shop) { s.desk.took = ever },
	} {
		servicetest.Bubble(t, "sync, "+name, func(t *testing.T) {
			s := newShop(t)
			s.deps.LockWait = wait
			busy(s.keys)
			hang(s)
			_ = s.unavailable(t, "alice")
		})
	}
	for name, hang := range map[string]func(s hotShop){
		"the look before the lock": func(s hotShop) { s.hot.Takes["Read"] = ever },
		"the look at the backlog": func(s hotShop) {
			s.line.with(func() { s.line.backlog.Age = ever })
			servicetest.Pass(2 * backlogEvery)
			s.hot.Takes["OrdersOf"] = ever
		},
		"the store of locks": func(s hotShop) { s.keys.Took = ever },
		"the reservation":    func(s hotShop) { s.hot.Takes["Reserve"] = ever },
		"the publish":        func(s hotShop) { s.line.took = ever },
		"the confirmation":   func(s hotShop) { s.hot.Takes["Confirm"] = ever },
	} {
		for _, script := range []bool{true, false} {
			servicetest.Bubble(t, "async, "+name+map[bool]string{true: ", locks of the script"}[script], func(t *testing.T) {
				s := newHotShop(t, func(o *Deps, a *AsyncDeps) { o.LockWait, a.ScriptLocks = wait, script })
				s.hot.Lock("alice")
				busy(s.keys)
				hang(s)
				_ = s.unavailable(t, "alice")
			})
		}
	}
}
