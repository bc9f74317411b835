package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/lock"
	"seckill/lock/driver"
)

// TestQuorumFaults: one of three instances may fail in any way and a majority
// still locks; with two gone it says so in time and leaves nothing behind. All
// needs every one.
func TestQuorumFaults(t *testing.T) {
	t.Parallel()
	refused := func(context.Context) error { return errors.New("connection refused") }
	for what, answer := range map[string]func(context.Context) error{"killed": refused, "stopped": silent, "emptied": nil} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var cuts []*cut
				var stores []*fake
				for range 3 {
					c := newCut()
					c.says = answer
					cuts, stores = append(cuts, c), append(stores, c.fake)
				}
				one, two := partsOf(t, stores), partsOf(t, stores)
				held := mustLock(t, t.Context(), lock.Majority(one...))
				synctest.Wait() // the third part joins
				if answer == nil {
					cuts[0].empty()
				} else {
					cuts[0].gone.Store(true)
				}
				check.Is(t, "a second holder", check.ErrorOf(lock.Majority(two...).TryLock(t.Context())), lock.ErrHeld)
				time.Sleep(time.Minute)
				check.Is(t, "the lease", context.Cause(held.Context()), nil)
				if err := held.Unlock(); errors.Is(err, lock.ErrLost) || answer == nil && err != nil {
					t.Errorf("unlock: %v", err)
				}
				_ = mustLock(t, t.Context(), lock.Majority(two...)).Unlock()
				noOrphans(t, stores[1:])
				if answer != nil {
					ctx, cancel := context.WithTimeout(t.Context(), term)
					defer cancel()
					if _, err := lock.All(one...).TryLock(ctx); err == nil || errors.Is(err, lock.ErrHeld) {
						t.Errorf("all, one %s: %v", what, err)
					}
					cuts[1].gone.Store(true)
					start := time.Now()
					if _, err := lock.Majority(one...).Lock(ctx, lock.Wait(term)); err == nil || errors.Is(err, lock.ErrTimeout) {
						t.Errorf("majority, two %s: %v", what, err)
					}
					if took := time.Since(start); took > term {
						t.Errorf("the error came after %s", took)
					}
					noOrphans(t, stores[2:])
				}
				for _, c := range cuts {
					c.gone.Store(false)
				}
				mustUnlock(t, mustLock(t, t.Context(), lock.All(two...)))
				noOrphans(t, stores)
			})
		})
	}
}

// TestQuorumSlow: a majority does not wait for the one instance that is slow, and all do.
func TestQuorumSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stores, parts := instances(t, 3)
		stores[1].answers = term
		start := time.Now()
		held := mustLock(t, t.Context(), lock.Majority(parts...))
		check.Equal(t, "a majority had it after", time.Since(start), 0)
		mustUnlock(t, held)
		time.Sleep(3 * term) // what it was asked for comes late, and goes
		noOrphans(t, stores)
		start = time.Now()
		mustUnlock(t, mustLock(t, t.Context(), lock.All(parts...)))
		check.Equal(t, "all had it, were fenced and given back after", time.Since(start), 3*term)
	})
}

// ValidUntil of a majority counts the parts that are still held: not one that was lost after
// it had been extended further than the others. Guard: cause in bundle.validUntil.
func TestQuorumValidUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stores, parts := instances(t, 3)
		stores[2].renew = func(context.Context, []driver.Request) []error { return []error{lock.ErrUnknown} }
		held := mustLock(t, t.Context(), lock.Majority(parts...), lock.LeaseTime(term))
		synctest.Wait()                                      // the third part joins
		check.Must(t, held.Extend(t.Context(), time.Minute)) // two of three
		check.Equal(t, "one is taken away", check.Value(stores[0].ForceRelease(t.Context(), "k"))(t), true)
		check.Is(t, "extended", held.Extend(t.Context(), time.Second), lock.ErrLost) // one of them is found gone
		until := held.ValidUntil()
		<-held.Context().Done()
		if left := time.Until(until); left > 0 {
			t.Errorf("it ended %s before", left)
		}
		_ = held.Unlock()
	})
}

// An owner loses a fenced lock of several parts to another one, and takes it again before
// it unlocks what it lost: its token is greater than the other's. Guard: forget in
// bundle.ended.
func TestQuorumTokenGrowsAfterALoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		one, two := store.locks(t), store.locks(t)
		mine, other := lock.All(one.Mutex("a"), one.Mutex("b")), lock.All(two.Mutex("a"), two.Mutex("b"))
		owner := mustLock(t, t.Context(), one.Mutex("owner")).Context()
		lost := mustLock(t, owner, mine)
		for _, name := range []string{"a", "b"} {
			check.Equal(t, "forced", check.Value(one.ForceUnlock(owner, name))(t), true)
		}
		between := mustLock(t, t.Context(), other)
		<-lost.Context().Done() // its renewal finds a part gone
		synctest.Wait()         // and the other one, at the same instant
		mustUnlock(t, between)
		again := mustLock(t, owner, mine)
		if again.Token() <= between.Token() {
			t.Errorf("token %d after %d, and %d before", again.Token(), between.Token(), lost.Token())
		}
		check.Is(t, "the unlock of what was lost", lost.Unlock(), lock.ErrLost)
		check.Equal(t, "the token re-entered", mustLock(t, again.Context(), mine).Token(), again.Token())
	})
}

// What is written back to a part that was behind the others counts for the next holder, who may share no other part.
// Guard: raise in bundle.fence; r.Token in the stores.
func TestQuorumTokenOfOtherParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stores, parts := instances(t, 3)
		for range 5 { // the tokens of the third are ahead
			mustUnlock(t, mustLock(t, t.Context(), stores[2].others(t).Mutex("k")))
		}
		first := mustLock(t, t.Context(), lock.Majority(parts[1:]...))
		mustUnlock(t, first)
		second := mustLock(t, t.Context(), lock.Majority(parts[:2]...))
		if second.Token() <= first.Token() {
			t.Errorf("token %d after %d", second.Token(), first.Token())
		}
		mustUnlock(t, second)
	})
}
