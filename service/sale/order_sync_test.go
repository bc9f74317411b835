package sale

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

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

func TestClientThatHangsUpLeavesNoHalfOrder(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.desk.took = time.Second
		_ = s.hangsUp(t, "alice", 100*time.Millisecond)
		check.Equal(t, "the lock is held in the middle of the order", s.keys.Holds("alice"), true)
		servicetest.Pass(2 * time.Second)
		check.That(t, !s.keys.Holds("alice") && s.desk.orders.Load() == 1, "afterwards: held %v, %d orders", s.keys.Holds("alice"), s.desk.orders.Load())
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

// A user whose requests wait for each other makes no other user wait.
func TestWaitingForOnesOwnLockHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.keys.Busy = "lock:order:alice"
		var crowd sync.WaitGroup
		for range 2 * maxCommitting {
			crowd.Go(func() { s.refused(t, "alice", model.CodeLockBusy) })
		}
		synctest.Wait()
		began := time.Now()
		check.Must(t, check.ErrorOf(s.Place(t.Context(), "bob", "v1")))
		servicetest.InTime(t, "bob, behind alice", began, 100*time.Millisecond)
		crowd.Wait()
	})
}
