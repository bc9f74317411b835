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

func TestPlaceAnswersWithTheQueuedOrder(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		order := s.buys(t, "alice")
		if voucher, ok := model.VoucherOf(order.ID); !ok || voucher != "v1" || order.UserID != "alice" ||
			order.CreatedAt.IsZero() || order.Currency != "CNY" {
			t.Errorf("%+v", order)
		}
		check.That(t, slices.Equal(s.line.users(), []string{"alice"}) && s.line.queued[0].Epoch == 1, "queued %+v",
			s.line.queued)
		check.Equal(t, "locks taken, though the hot copy looks at them", s.keys.Taken.Load(), 0)
		check.Equal(t, "queries of the database", s.rows.queries.Load(), 0)
	})
}

// The order is not promised and its unit not given back: the next call finds the order.
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
		"the epoch is told late": func(s hotShop) { s.hot.Takes["confirm"] = time.Hour },
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			prepare(s)
			check.Is(t, "not known to be queued", s.unavailable(t, "alice"), model.ErrUnknownOutcome)
			if s.hot.Calls("release") != 0 || s.sale.Marks()["alice"] == "" ||
				s.sale.Pending()[s.sale.Marks()["alice"]].UserID != "alice" {
				t.Errorf("the reservation was touched: marks %v, pending %v, %d releases", s.sale.Marks(),
					s.sale.Pending(), s.hot.Calls("release"))
			}
			check.Equal(t, "unknown orders counted", servicetest.Counted(t, s.metrics, "seckill_orders_unknown_total"),
				1)
			s.hot.With(func() { s.sale.Set("state", model.CopyOpen); s.hot.Down = nil })
			servicetest.Pass(time.Second)
			again := s.refused(t, "alice", model.CodeAlreadyOrdered)
			check.That(t, again.OrderID == s.sale.Marks()["alice"] && again.OrderStatus == model.OrderProcessing,
				"asked again: %+v", again)
		})
	}
}

// When one node of a Cluster is silent its order is in doubt: only its buyer gets that answer, and nothing is undone.
func TestHotCopiesThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err     error // to alice
		took    time.Duration
		unknown bool
	}{
		"unknown":          {err: model.Unavailable("no reply", model.ErrUnknownOutcome), unknown: true},
		"refused by Redis": {err: model.Unavailable("OOM", nil)},
		"too slow":         {took: time.Hour, unknown: true},
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			if tt.err != nil {
				s.hot.Answer = func(a model.ReserveRequest) *model.ReserveResult {
					if a.UserID == "alice" {
						return &model.ReserveResult{Err: tt.err}
					}
					return nil
				}
			}
			s.hot.Takes["reserve"] = max(tt.took, servicetest.QueryTime)
			err := s.unavailable(t, "alice")
			check.That(t, errors.Is(err, model.ErrUnknownOutcome) == tt.unknown, "%v, unknown: %v", err, tt.unknown)
			check.Equal(t, "messages and releases", s.line.published.Load()+s.hot.Calls("release"), 0)
			unknown := servicetest.Counted(t, s.metrics, "seckill_orders_unknown_total") == 1
			check.Equal(t, "counted as unknown", unknown, tt.unknown)
			if tt.took == 0 {
				s.buys(t, "bob")
			}
		})
	}
}

func TestClientThatHangsUpHasHisReservationPublished(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(s hotShop){
		"while it is reserved":  func(s hotShop) { s.hot.Takes["reserve"] = 500 * time.Millisecond },
		"while it is published": func(s hotShop) { s.line.took = 500 * time.Millisecond },
		"while others are published": func(s hotShop) {
			s.line.took = 100 * time.Millisecond
			for i := range groupWriters { // bob stands behind them
				go func() {
					_, _ = s.seller.publishes.Do(context.Background(),
						model.Reservation{Order: model.Order{ID: fmt.Sprint(i)}})
				}()
				synctest.Wait()
			}
		},
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			prepare(s)
			s.hangsUp(t, "bob", 50*time.Millisecond)
			servicetest.Pass(2 * time.Second)
			check.That(t, slices.Contains(s.line.users(), "bob"), "queued of %v, want bob's", s.line.users())
		})
	}
}

func TestCloseSeesReservationsThrough(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.hot.Takes["reserve"], s.line.took = time.Second, time.Second
		s.hangsUp(t, "alice", 100*time.Millisecond)
		s.Close(t.Context())
		check.That(t, slices.Equal(s.line.users(), []string{"alice"}), "queued of %v", s.line.users())
		s.refused(t, "bob", model.CodeUnavailable)
	})
}

func TestConcurrentOrdersShareCallsAndMessages(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.sale.Set("stock", 3000)
		s.line.took = 5 * time.Millisecond
		s.hot.Takes["reserve"], s.hot.Takes["confirm"] = s.line.took, s.line.took
		sold, soldOut := s.rush(t, 5000)
		queued := len(s.line.users())
		check.Equal(t, "sold, refused and queued", [3]int64{sold, soldOut, int64(queued)}, [3]int64{3000, 2000, 3000})
		r, p, c := s.hot.Calls("reserve"), s.line.published.Load(), s.hot.Calls("confirm")
		check.That(t, r <= 200 && p <= 200 && c-p <= 1, // one for the list of buyers
			"%d calls, %d messages, %d looks at the epoch", r, p, c)
	})
}

func TestServersThatHangAreBounded(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(s hotShop){
		"the hot copies": func(s hotShop) { s.hot.Takes["reserve"] = time.Hour },
		"the queue":      func(s hotShop) { s.line.took = time.Hour },
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			s.sale.Set("stock", 5000)
			prepare(s)
			check.Volley(5000, func(i int) { _ = s.unavailable(t, fmt.Sprint("user", i)) })
			n := len(s.sale.Marks())
			check.That(t, n <= 2*maxAdmitted, "%d units were taken by people who cannot be served", n)
			began := time.Now()
			s.Close(servicetest.Lasting(t, time.Second))
			servicetest.Took(t, "closing", began, 0, budget.Work)
		})
	}
}

func TestNothingIsSoldInAnotherMode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var switching error = model.Unavailable("the mode is being switched", nil)
		s := newHotShop(t, func(o *Deps, _ *AsyncDeps) { o.Selling = func() error { return switching } })
		s.refused(t, "alice", model.CodeUnavailable)
		check.Equal(t, "calls for a unit", s.hot.Calls("reserve"), 0)
		switching = nil
		s.buys(t, "alice")
	})
}

func epochs(
	of func(ctx context.Context) (int64, error),
) func(context.Context, []string) (map[string]int64, error) {
	return func(ctx context.Context, _ []string) (map[string]int64, error) {
		epoch, err := of(ctx)
		return map[string]int64{"v1": epoch, "v2": epoch}, err
	}
}

// Two instances that look at two Redis servers find each their own copy open.
func TestEpochOfTheDatabaseDecidesOverAnOpenCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newHotShop(t, func(_ *Deps, a *AsyncDeps) {
			a.Epochs = epochs(func(context.Context) (int64, error) { return 2, nil })
		})
		s.refused(t, "alice", model.CodeUnavailable)
		check.Equal(t, "reservations, which nobody undoes", len(s.sale.Pending()), 1)
	})
}

func TestOrdersAreConfirmedWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(context.Context) (int64, error){
		"it refuses": func(context.Context) (int64, error) { return 0, errors.New("away") },
		"it hangs":   func(ctx context.Context) (int64, error) { <-ctx.Done(); return 0, ctx.Err() },
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			asked, back := 0, false
			s := newHotShop(t, func(_ *Deps, a *AsyncDeps) {
				a.Epochs = epochs(func(ctx context.Context) (int64, error) {
					asked++
					if back {
						return 2, nil
					}
					return away(ctx)
				})
			})
			began := time.Now()
			s.buys(t, "alice")
			servicetest.Took(t, "the order", began, 0, budget.Glance+100*time.Millisecond)
			s.buys(t, "bob")
			check.Equal(t, "questions to the database", asked, 1)
			back = true
			servicetest.Pass(budget.Look)
			s.refused(t, "carol", model.CodeUnavailable)
		})
	}
}

// By the contract an answer takes the lock's wait and 5 s at most. The lock is free only at the last moment.
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
		"the look before the lock": func(s hotShop) { s.hot.Takes["read"] = ever },
		"the look at the backlog": func(s hotShop) {
			s.queues(ever)
			s.hot.Takes["find"] = ever
		},
		"the store of locks": func(s hotShop) { s.keys.Took = ever },
		"the reservation":    func(s hotShop) { s.hot.Takes["reserve"] = ever },
		"the publish":        func(s hotShop) { s.line.took = ever },
		"the confirmation":   func(s hotShop) { s.hot.Takes["confirm"] = ever },
	} {
		for _, script := range []bool{true, false} {
			servicetest.Bubble(t, "async, "+name+map[bool]string{true: ", locks of the script"}[script],
				func(t *testing.T) {
					s := newHotShop(t, func(o *Deps, a *AsyncDeps) { o.LockWait, a.ScriptLocks = wait, script })
					s.hot.Lock("alice")
					busy(s.keys)
					hang(s)
					_ = s.unavailable(t, "alice")
				})
		}
	}
}

func TestASilentServerHoldsUpNoReadingOfOthers(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		other := s.sale.Voucher()
		other.ID = "v2"
		s.hot.Add(other)
		s.hot.With(func() {
			s.hot.Nodes = map[string]string{"v1": "silent", "v3": "silent", "v2": "well"}
			s.hot.Silent = map[string]bool{"v1": true, "v3": true}
		})
		var waiting sync.WaitGroup
		for _, id := range []string{"v1", "v3"} { // as many as readings are under way at once
			waiting.Go(func() { _, _ = s.Place(t.Context(), "alice", id) })
			synctest.Wait()
		}
		began := time.Now()
		_, err := s.Place(t.Context(), "alice", "v2")
		check.Must(t, err)
		check.That(t, time.Since(began) < 100*time.Millisecond, "answered after %v", time.Since(began))
		waiting.Wait()
	})
}

// Not even when it was sold out a moment ago.
func TestClosedCopyIsNeverSoldOut(t *testing.T) {
	t.Parallel()
	for name, hide := range map[string]func(s hotShop){
		"closed":     func(s hotShop) { s.sale.Set("state", model.CopyClosed) },
		"rebuilding": func(s hotShop) { s.sale.Set("state", model.CopyRebuilding) },
	} {
		for _, known := range []bool{true, false} {
			inHotShops(t, fmt.Sprint(name, ", known ", known), func(t *testing.T, s hotShop) {
				s.table.Change(func(v *model.Voucher) { v.Remaining = 0 })
				if known {
					s.sale.Set("stock", 0)
					s.refused(t, "alice", model.CodeSoldOut)
				} else {
					s.buys(t, "bob")
				}
				s.hot.With(func() { hide(s) })
				if known {
					servicetest.Pass(900 * time.Millisecond) // what was seen open is told for less than a second
				}
				for range 3 {
					check.Equal(t, "when to come again", s.refused(t, "alice", model.CodeUnavailable).RetryAfter,
						time.Second)
				}
				check.That(t, s.doctor.requests.Load() >= 3, "a rebuild was asked for %d times",
					s.doctor.requests.Load())
				n := s.hot.Calls("reserve")
				check.That(t, n <= 2, "the closed copy was asked %d times: it must be known from memory", n)
				s.sale.Set("state", model.CopyOpen)
				s.sale.Set("stock", 5)
				servicetest.Pass(900 * time.Millisecond)
				s.buys(t, "alice")
			})
		}
	}
}

// The database gives the window and the state of the sale where need be. A missing row is only away.
func TestClosedCopyOfASaleThatIsNotOn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(v *model.Voucher)
		want   model.Code
		known  model.Code // when the sale was on before, if that makes a difference
	}{
		"ended":    {func(v *model.Voucher) { v.EndAt = time.Now().Add(-time.Minute) }, model.CodeEnded, ""},
		"paused":   {func(v *model.Voucher) { v.State = model.VoucherPaused }, model.CodePaused, ""},
		"upcoming": {func(v *model.Voucher) { v.BeginAt = time.Now().Add(time.Minute) }, model.CodeNotStarted, ""},
		"draft":    {func(v *model.Voucher) { v.State = model.VoucherDraft }, model.CodeNotFound, ""},
		"nowhere":  {func(v *model.Voucher) { v.ID = "another" }, model.CodeNotFound, model.CodeUnavailable},
	} {
		for _, gone := range []error{nil, errors.New("connection refused")} {
			for _, known := range []bool{true, false} {
				inHotShops(t, fmt.Sprint(name, ", Redis says ", gone, ", was open ", known),
					func(t *testing.T, s hotShop) {
						want := tt.want
						if known && gone == nil { // the hot copy itself says that it is closed
							s.buys(t, "bob")
							want = cmp.Or(tt.known, want)
						}
						s.table.Change(tt.change)
						s.hot.With(func() { s.sale.Set("state", model.CopyClosed); s.hot.Down = gone })
						s.refused(t, "alice", want)
					})
			}
		}
	}
}

func TestOpenCopyGoesOnWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.table.With(func(db *servicetest.Table) { db.Err = model.Unavailable("gone", nil) })
		s.rows.fail(model.Unavailable("gone", nil))
		for i := range 10 {
			s.buys(t, fmt.Sprint("user", i))
			servicetest.Pass(time.Second)
		}
		s.refused(t, "late", model.CodeSoldOut)
		order, err := s.Get(t.Context(), "user1", s.sale.Marks()["user1"], 0)
		check.That(t, err == nil && order.Status == model.OrderProcessing, "%+v, %v", order, err)
		check.That(t, s.table.Queries.Load() == 0 && s.rows.queries.Load() == 0,
			"the database was asked %d and %d times", s.table.Queries.Load(), s.rows.queries.Load())
		s.sale.Set("state", model.CopyClosed)
		servicetest.Pass(time.Second)
		s.refused(t, "late", model.CodeUnavailable)
	})
}

// One reading that fails does no harm: the copy that is held is good for its time.
func TestHotCopiesThatCannotBeReadForAMoment(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		_ = s.buys(t, "alice")
		s.hot.With(func() { s.hot.Down = errors.New("connection reset") })
		servicetest.Pass(300*time.Millisecond + time.Millisecond)
		if err := s.cache.Refusal(t.Context(), "zoe", "v1"); err != nil { // the refresh finds nothing new
			t.Errorf("%v", err)
		}
		servicetest.Pass(100 * time.Millisecond)
		s.hot.With(func() { s.hot.Down = nil })
		s.buys(t, "bob")
		check.Equal(t, "rebuilds asked for of a copy that is only not reached", s.doctor.requests.Load(), 0)
	})
}

// The reading of the buyers counts only if nothing changed during it.
func TestSoldOutHotCopyIsToldFromMemoryButNotToBuyers(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		for i := range 10 {
			s.buys(t, fmt.Sprint("winner", i))
		}
		s.refused(t, "loser", model.CodeSoldOut)
		servicetest.Pass(10 * time.Millisecond)
		before := s.hot.Calls("reserve")
		for i := range 10 {
			refusal := s.refused(t, fmt.Sprint("winner", i), model.CodeAlreadyOrdered)
			check.Equal(t, "the order of the winner", refusal.OrderID, s.sale.Marks()[fmt.Sprint("winner", i)])
			s.refused(t, fmt.Sprint("loser", i), model.CodeSoldOut)
		}
		check.Equal(t, "calls for 10 winners and 10 losers", s.hot.Calls("reserve")-before, 10)
	})
}

func TestBuyersThatWereReadAcrossAChangeAreNotUsed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s hotShop){
		"another buyer": func(s hotShop) { s.sale.Drop("buyers", "alice"); s.sale.Mark("bob", "b.v1"); s.sale.Touch() },
		"rebuilt":       func(s hotShop) { s.sale.Rebuild() },
		"closed":        func(s hotShop) { s.sale.Set("state", model.CopyClosed) },
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			s.sale.Mark("alice", "a.v1")
			s.sale.Set("stock", 1)
			s.hot.Yields = 20 * time.Millisecond
			time.AfterFunc(10*time.Millisecond, func() { s.hot.With(func() { change(s) }) })
			// With a filter of the buyers the answer would be that nothing is left.
			err := s.cache.Refusal(t.Context(), "bob", "v1")
			check.That(t, err == nil, "bob was told %v from memory", err)
		})
	}
}
