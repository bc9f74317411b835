package service

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// Where the hot copy looks at the locks itself, one is taken only when somebody
// else holds it.
func TestForeignLockIsWaitedForAndGivenBackBeforeThePublish(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.hot.With(func() { s.hot.Locked["alice"] = true })
		s.keys.Took = 300 * time.Millisecond // until the other one gives it back
		time.AfterFunc(s.keys.Took, func() { s.hot.With(func() { s.hot.Locked["alice"] = false }) })
		s.line.during = func() {
			synctest.Wait() // a publish may begin before the lock is given back, and does not wait for that
			if s.keys.Holds("alice") {
				t.Error("the lock was held over the publish")
			}
		}
		s.hot.Answer = func(a model.ReserveRequest) *model.ReserveResult {
			if a.Locked != s.keys.Holds("alice") {
				t.Errorf("asked with locked = %v", a.Locked)
			}
			return nil
		}
		began := time.Now()
		s.buys(t, "alice")
		if took := time.Since(began); took > 310*time.Millisecond {
			t.Errorf("proceeded after %v, the lock was free after 300 ms", took)
		}
		if taken, released := s.keys.Taken.Load(), s.keys.Released.Load(); taken != 1 || released != 1 {
			t.Errorf("%d locks taken, %d given back", taken, released)
		}
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
			s := newHotShop(t, func(o *OrderDeps, _ *AsyncDeps) { o.LockWait = tt.wait })
			s.hot.Locked["alice"] = true
			s.keys.Busy = "lock:order:alice"
			began := time.Now()
			refusal := s.refused(t, "alice", model.CodeLockBusy)
			if took := time.Since(began); took < tt.wait || took > tt.wait+50*time.Millisecond {
				t.Errorf("answered after %v, the wait is %v", took, tt.wait)
			}
			if refusal.RetryAfter <= 0 {
				t.Error("LOCK_BUSY without Retry-After")
			}
			check.Equal(t, "tries to take the lock", s.keys.Tried.Load(), tt.tries)
			if len(s.sale.Now().Marks) != 0 || len(s.line.users()) != 0 {
				t.Errorf("changed: marks %v, queued %v", s.sale.Now().Marks, s.line.users())
			}
		})
	}
}

// What came to an end while the lock was waited for is told, and the lock given back.
func TestSaleThatEndsDuringTheWaitForTheLock(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.hot.Locked["alice"] = true
		s.keys.Took = 950 * time.Millisecond
		time.AfterFunc(100*time.Millisecond, func() {
			s.hot.With(func() { s.sale.Voucher.State = model.VoucherPaused })
			s.cache.Drop("v1")
		})
		s.refused(t, "alice", model.CodePaused)
		if s.keys.Holds("alice") || s.hot.Calls("Reserve") != 1 {
			t.Errorf("lock held %v, %d calls", s.keys.Holds("alice"), s.hot.Calls("Reserve"))
		}
	})
}

// Locks that live elsewhere are really taken, around the reservation only.
func TestLocksOfOtherStoresAreTakenAroundTheReservation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newHotShop(t, func(_ *OrderDeps, a *AsyncDeps) { a.ScriptLocks = false })
		s.hot.Answer = func(a model.ReserveRequest) *model.ReserveResult {
			if !a.Locked || !s.keys.Holds(a.UserID) {
				t.Errorf("reserved without the lock: %+v", a)
			}
			return nil
		}
		s.line.during = func() {
			synctest.Wait() // a publish may begin before the lock is given back, and does not wait for that
			if s.keys.Holds("alice") {
				t.Error("the lock was held over the publish")
			}
		}
		s.buys(t, "alice")
		if taken, released := s.keys.Taken.Load(), s.keys.Released.Load(); taken != 1 || released != 1 {
			t.Errorf("%d locks taken, %d given back", taken, released)
		}
		s.keys.Busy = "lock:order:bob"
		s.refused(t, "bob", model.CodeLockBusy)
		check.Equal(t, "what was reserved without the lock", s.sale.Now().Marks["bob"], "")
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
				s := newHotShop(t, func(_ *OrderDeps, a *AsyncDeps) { a.ScriptLocks = script })
				s.hot.Locked["alice"] = true
				prepare(s)
				s.refused(t, "alice", model.CodeUnavailable)
				if s.sale.Now().Marks["alice"] != "" || s.keys.Holds("alice") {
					t.Errorf("marks %v, lock held %v", s.sale.Now().Marks, s.keys.Holds("alice"))
				}
			})
		}
	}
}

// Who is answered before it is decided keeps his lock until it is.
func TestLockIsHeldUntilTheReservationIsDecided(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newHotShop(t, func(o *OrderDeps, a *AsyncDeps) { a.ScriptLocks = false })
		s.hot.Takes["Reserve"] = time.Second
		if err := s.hangsUp(t, "alice", 100*time.Millisecond); !errors.Is(err, model.ErrUnknownOutcome) {
			t.Errorf("%v, want an unknown outcome", err)
		}
		if !s.keys.Holds("alice") {
			t.Error("the lock was given back in the middle of the reservation")
		}
		servicetest.Pass(2 * time.Second)
		if s.keys.Holds("alice") || !slices.Equal(s.line.users(), []string{"alice"}) {
			t.Errorf("afterwards: lock held %v, queued %v", s.keys.Holds("alice"), s.line.users())
		}
	})
}

func TestWaitingForOnesOwnLockHoldsNobodyUpInTheGate(t *testing.T) {
	t.Parallel()
	for _, script := range []bool{true, false} {
		servicetest.Bubble(t, fmt.Sprint("script locks ", script), func(t *testing.T) {
			s := newHotShop(t, func(_ *OrderDeps, a *AsyncDeps) { a.ScriptLocks = script })
			s.hot.Locked["alice"] = true
			s.keys.Busy = "lock:order:alice"
			var crowd sync.WaitGroup
			for range 2 * maxAdmitted {
				crowd.Go(func() { s.refused(t, "alice", model.CodeLockBusy) })
			}
			servicetest.Pass(100 * time.Millisecond)
			began := time.Now()
			s.buys(t, "bob")
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("bob waited %v behind alice", took)
			}
			crowd.Wait()
			check.Equal(t, "orders that never left the gate", len(s.gate.places), 0)
		})
	}
}
