package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/testserver"
	"seckill/model"
	"seckill/service/servicetest"
)

func TestPlaceAnswersWithTheCommittedOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		order, err := s.Place(t.Context(), "alice", "v1")
		if err != nil || order.UserID != "alice" || order.VoucherID != "v1" {
			t.Fatalf("%+v, %v", order, err)
		}
		if voucher, ok := model.VoucherOf(order.ID); !ok || voucher != "v1" {
			t.Errorf("the id %q does not tell the voucher", order.ID)
		}
		if s.keys.Holds("alice") {
			t.Error("the user's lock was not given back")
		}
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newShop(t)
				tt.prepare(s)
				_, err := s.Place(t.Context(), "alice", tt.voucher)
				if model.CodeOf(err) != tt.want {
					t.Errorf("%v, want %s", err, tt.want)
				}
				if n := s.desk.calls.Load(); n != tt.commits {
					t.Errorf("%d transactions, want %d", n, tt.commits)
				}
				if s.keys.Holds("alice") {
					t.Error("the user's lock was not given back")
				}
			})
		})
	}
}

// What could not be decided in time is 503, and the lock is kept until it is
// decided: only then may the same user try again.
func TestUnknownOutcomeKeepsTheLockUntilItIsDecided(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.desk.took = 5500 * time.Millisecond
		began := time.Now()
		_, err := s.Place(t.Context(), "alice", "v1")
		if model.CodeOf(err) != model.CodeUnavailable || !errors.Is(err, model.ErrUnknownOutcome) {
			t.Fatalf("%v, want UNAVAILABLE for an unknown outcome", err)
		}
		if took := time.Since(began); took > time.Second+5*time.Second {
			t.Errorf("answered after %v, the longest answer is the wait of 1 s and 5 s", took)
		}
		if !s.keys.Holds("alice") {
			t.Error("the lock was given back though the order is not decided")
		}
		<-time.After(time.Second)
		if s.keys.Holds("alice") || s.desk.orders.Load() != 1 {
			t.Errorf("afterwards: held %v, %d orders; want the lock back and the order made", s.keys.Holds("alice"), s.desk.orders.Load())
		}
		if n := servicetest.Counted(t, s.metrics, "seckill_orders_unknown_total"); n != 1 {
			t.Errorf("%v unknown orders counted, want 1", n)
		}
	})
}

func TestClientThatHangsUpLeavesNoHalfOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.desk.took = time.Second
		ctx, hangUp := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer hangUp()
		if _, err := s.Place(ctx, "alice", "v1"); model.CodeOf(err) != model.CodeUnavailable {
			t.Errorf("%v, want UNAVAILABLE", err)
		}
		if !s.keys.Holds("alice") {
			t.Error("the lock was given back in the middle of the order")
		}
		<-time.After(2 * time.Second)
		if s.keys.Holds("alice") || s.desk.orders.Load() != 1 {
			t.Errorf("afterwards: held %v, %d orders", s.keys.Holds("alice"), s.desk.orders.Load())
		}
	})
}

// A store that never answers must not let requests pile up: each is answered
// in time, and the goroutines behind them end with the transaction's limit.
func TestStoreThatHangsIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.desk.took = time.Hour
		var crowd sync.WaitGroup
		for i := range 1000 {
			crowd.Go(func() {
				began := time.Now()
				if _, err := s.Place(t.Context(), fmt.Sprint("user", i), "v1"); model.CodeOf(err) != model.CodeUnavailable {
					t.Errorf("%v, want UNAVAILABLE", err)
				}
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("answered after %v", took)
				}
			})
		}
		crowd.Wait()
		began := time.Now()
		s.Close(context.Background())
		if took := time.Since(began); took > commitTimeout {
			t.Errorf("closing took %v", took)
		}
		if taken, released := s.keys.Taken.Load(), s.keys.Released.Load(); taken > maxCommitting || released != taken {
			t.Errorf("%d locks were taken and %d given back, want %d at the most", taken, released, maxCommitting)
		}
	})
}

func TestConcurrentOrdersShareTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.desk.took = 10 * time.Millisecond
		s.table.Change(func(v *model.Voucher) { v.Stock, v.Remaining = 400, 400 })
		var crowd sync.WaitGroup
		var yes, no atomic.Int64
		for i := range 1000 {
			crowd.Go(func() {
				switch _, err := s.Place(t.Context(), fmt.Sprint("user", i), "v1"); {
				case err == nil:
					yes.Add(1)
				case model.CodeOf(err) == model.CodeSoldOut:
					no.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		crowd.Wait()
		if yes.Load() != 400 || no.Load() != 600 {
			t.Errorf("%d sold and %d refused, want 400 and 600", yes.Load(), no.Load())
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
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.desk.took = 10 * time.Millisecond
		var crowd sync.WaitGroup
		for i := range 5000 {
			crowd.Go(func() { _, _ = s.Place(t.Context(), fmt.Sprint("user", i), "v1") })
		}
		crowd.Wait()
		if n := s.desk.orders.Load(); n != 10 {
			t.Errorf("%d sold, want 10", n)
		}
		if n := s.keys.Taken.Load(); n > 3*maxCommitting {
			t.Errorf("%d of 5000 took a lock for 10 units", n)
		}
	})
}

// A user who keeps himself waiting does not keep others waiting.
func TestWaitingForOnesOwnLockHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.keys.Busy = "lock:order:alice"
		var crowd sync.WaitGroup
		for range 2 * maxCommitting {
			crowd.Go(func() {
				if _, err := s.Place(t.Context(), "alice", "v1"); model.CodeOf(err) != model.CodeLockBusy {
					t.Errorf("%v, want LOCK_BUSY", err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		testserver.Must(t, testserver.ErrorOf(s.Place(t.Context(), "bob", "v1")))
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("bob waited %v behind alice", took)
		}
		crowd.Wait()
	})
}
