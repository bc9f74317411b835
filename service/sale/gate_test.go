package sale

import (
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/service/servicetest"
)

// Who got his lock and then finds the gate full until his time is over gives the lock back: he may come again at once.
func TestAFullGateKeepsNoLock(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.keys.Busy = "lock:order:alice"
		time.AfterFunc(500*time.Millisecond, func() {
			for range maxCommittingOne { // others come in while alice waits for her lock
				check.Must(t, check.ErrorOf(s.gate.enter(t.Context(), "v1")))
			}
			s.keys.With(func(l *servicetest.Locks) { l.Busy = "" })
		})
		_ = s.unavailable(t, "alice")
		check.Equal(t, "the lock is held", s.keys.Holds("alice"), false)
		check.Equal(t, "locks taken", s.keys.Taken.Load(), 1)
		for range maxCommittingOne {
			s.gate.leave("v1")
		}
		check.Must(t, check.ErrorOf(s.Place(t.Context(), "alice", "v1")))
		check.Equal(t, "places that are taken", len(s.gate.places), 0)
	})
}
