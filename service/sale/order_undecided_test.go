package sale

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/service/servicetest"
)

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
	})
	servicetest.Bubble(t, "async", func(t *testing.T) {
		s := newHotShop(t, func(_ *Deps, a *AsyncDeps) { a.ScriptLocks = false })
		s.hot.Takes["Reserve"] = decided
		_ = s.hangsUp(t, "alice", decided/10)
		untilDecided(t, s.keys, decided)
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
