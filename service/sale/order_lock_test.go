package sale

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
		check.That(t, !s.keys.Holds("alice") && s.hot.Calls("Reserve") == 1, "lock held %v, %d calls", s.keys.Holds("alice"), s.hot.Calls("Reserve"))
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

// A request that is answered before its order is decided keeps the user's lock until it is.
func TestLockIsHeldUntilTheReservationIsDecided(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newHotShop(t, func(o *Deps, a *AsyncDeps) { a.ScriptLocks = false })
		s.hot.Takes["Reserve"] = time.Second
		if err := s.hangsUp(t, "alice", 100*time.Millisecond); !errors.Is(err, model.ErrUnknownOutcome) {
			t.Errorf("%v, want an unknown outcome", err)
		}
		check.Equal(t, "the lock is held in the middle of the reservation", s.keys.Holds("alice"), true)
		servicetest.Pass(2 * time.Second)
		check.That(t, !s.keys.Holds("alice") && slices.Equal(s.line.users(), []string{"alice"}), "afterwards: lock held %v, queued %v", s.keys.Holds("alice"), s.line.users())
	})
}

func TestWaitingForOnesOwnLockHoldsNobodyUpInTheGate(t *testing.T) {
	t.Parallel()
	for _, script := range []bool{true, false} {
		servicetest.Bubble(t, fmt.Sprint("script locks ", script), func(t *testing.T) {
			s := newHotShop(t, func(_ *Deps, a *AsyncDeps) { a.ScriptLocks = script })
			s.hot.Lock("alice")
			s.keys.Busy = "lock:order:alice"
			var crowd sync.WaitGroup
			for range 2 * maxAdmitted {
				crowd.Go(func() { s.refused(t, "alice", model.CodeLockBusy) })
			}
			servicetest.Pass(100 * time.Millisecond)
			began := time.Now()
			s.buys(t, "bob")
			servicetest.InTime(t, "bob, behind alice", began, 100*time.Millisecond)
			crowd.Wait()
			check.Equal(t, "orders that never left the gate", len(s.gate.places.taken), 0)
		})
	}
}
